//! SETTLE, ACK and NACK: one request of the node for all of them.

use mortarmq_node::{Failure, Request, Single, fold};
use mortarmq_shard::SettleKind;
use mortarmq_wire::ops::{Ack, DeliveryRef, Nack, NackReason, Settle, SettleItem, SettleKind as WireKind};
use mortarmq_wire::{ErrorCode, Op};

use crate::clock::NodeClock;
use crate::connection::session::Session;

/// SETTLE.
pub(crate) fn many(session: &mut Session, frame_bytes: usize, settle: &Settle<'_>) {
    let op = Op::Settle.number();
    let singles = settle.items.iter().map(|item| single(&item)).collect();
    ask(session, op, frame_bytes, settle.subscription_id, singles);
}

/// ACK, or PROGRESS.
pub(crate) fn ack(session: &mut Session, frame_bytes: usize, ack: &Ack) {
    let kind = if ack.is_progress { SettleKind::Extend } else { SettleKind::Ack };
    one(session, Op::Ack, frame_bytes, &ack.delivery, kind);
}

/// NACK.
pub(crate) fn nack(session: &mut Session, frame_bytes: usize, nack: &Nack<'_>) {
    let kind = match nack.reason {
        NackReason::Retry => SettleKind::Nack { delay_ms: nack.delay_ms, error: words(nack.error_text) },
        NackReason::Release => SettleKind::Release,
        NackReason::DeadLetter => SettleKind::DeadLetter { error: words(nack.error_text) },
    };
    one(session, Op::Nack, frame_bytes, &nack.delivery, kind);
}

fn one(session: &mut Session, op: Op, frame_bytes: usize, delivery: &DeliveryRef, kind: SettleKind) {
    // The node knows the subscription's topic; whether the client means the same one only its handle tells.
    let known = session.subscriptions.get(&delivery.subscription_id);
    if known.is_some_and(|known| session.handles.topic(delivery.topic_id) != Some(known.topic)) {
        let text = "the delivery is of another topic; name the topic_id that stood in MSG";
        return session.refuse(op.number(), frame_bytes, Failure::new(ErrorCode::UnknownDelivery, text));
    }
    let single = Single { partition: delivery.partition, seq: delivery.seq, delivery_id: delivery.delivery_id, kind };
    ask(session, op.number(), frame_bytes, delivery.subscription_id, vec![single]);
}

fn ask(session: &mut Session, op: u8, frame_bytes: usize, subscription: u16, singles: Vec<Single>) {
    if !session.ack_latency.is_empty() {
        let now = NodeClock.now().wall;
        for single in singles.iter().filter(|single| single.kind == SettleKind::Ack) {
            if let Some(took) = session.ack_latency.handle_acked(single.delivery_id, now) {
                session.metrics.count_ack(took);
            }
        }
    }
    session.ask(op, frame_bytes, Request::Settle { subscription, items: fold(singles) });
}

fn single(item: &SettleItem<'_>) -> Single {
    let kind = match item.kind {
        WireKind::Ack => SettleKind::Ack,
        WireKind::Nack => SettleKind::Nack { delay_ms: item.delay_ms, error: words(item.error_text) },
        WireKind::Progress => SettleKind::Extend,
        WireKind::Release => SettleKind::Release,
        WireKind::DeadLetter => SettleKind::DeadLetter { error: words(item.error_text) },
    };
    Single { partition: item.partition, seq: item.seq, delivery_id: item.delivery_id, kind }
}

/// A consumer's words are kept even if they are no text.
fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
