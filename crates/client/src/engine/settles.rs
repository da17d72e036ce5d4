//! Settles on their way: gathered into SETTLE frames, one in flight at a time, repeated until each is answered.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use mortarmq_types::{DeliveryId, Partition, Seq};
use mortarmq_wire::frame::MAX_BATCH_ITEMS;
use mortarmq_wire::ops::{Settle, SettleItem, SettleKind};
use mortarmq_wire::{EncodeError, List, Outcome};
use tokio::sync::oneshot;

use super::effects::{Effects, SettleResult};
use crate::delivery::Delivery;
use crate::recording::Scribe;

/// What is to become of one delivery.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) kind: SettleKind,
    pub(crate) message: MessageId,
    pub(crate) delivery_id: DeliveryId,
    pub(crate) ownership_epoch: u64,
    pub(crate) delay_ms: u32,
    pub(crate) error_text: Bytes,
    /// The lease that it renews.
    pub(crate) lease_ms: u32,
    /// The message's own id in a history, and when this was asked for; none where none is written.
    pub(crate) msg: Option<Arc<str>>,
    pub(crate) call_ns: u64,
    /// Whether an attempt was answered "not now", or not at all.
    pub(crate) is_repeat: bool,
    /// Who waits for the answer; nobody for what the client does by itself.
    pub(crate) reply: Option<oneshot::Sender<SettleResult>>,
}

/// A message of the subscription's topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MessageId {
    pub(crate) partition: Partition,
    pub(crate) seq: Seq,
}

impl Item {
    pub(crate) fn of(delivery: &Delivery, kind: SettleKind) -> Self {
        Self {
            kind,
            message: MessageId { partition: delivery.partition, seq: delivery.seq },
            delivery_id: delivery.delivery_id,
            ownership_epoch: delivery.ownership_epoch,
            delay_ms: 0,
            error_text: Bytes::new(),
            lease_ms: delivery.lease_ms,
            msg: delivery.msg.clone(),
            call_ns: 0,
            is_repeat: false,
            reply: None,
        }
    }
}

/// # Invariants
/// 1. An item is in the queue or in flight until it is answered for good; it is never dropped and never in both.
#[derive(Debug, Default)]
pub(crate) struct Settles {
    queue: VecDeque<Item>,
    in_flight: Vec<Item>,
    scribe: Option<Scribe>,
}

impl Settles {
    pub(crate) fn new(scribe: Option<Scribe>) -> Self {
        Self { scribe, ..Self::default() }
    }

    pub(crate) fn push(&mut self, item: Item) {
        let call_ns = self.scribe.as_ref().map_or(0, Scribe::now_ns);
        self.queue.push_back(Item { call_ns, ..item });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    /// The deliveries that are to be settled.
    pub(crate) fn delivery_ids(&self) -> impl Iterator<Item = DeliveryId> {
        self.in_flight.iter().chain(&self.queue).map(|item| item.delivery_id)
    }

    /// Whether a frame should go out now.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.in_flight.is_empty() && !self.queue.is_empty()
    }

    /// Appends a frame of what has gathered.
    ///
    /// # Errors
    /// A frame that does not fit; error texts are cut short before they get here, so that cannot happen.
    pub(crate) fn send(&mut self, subscription_id: u16, out: &mut BytesMut) -> Result<(), EncodeError> {
        let count = self.queue.len().min(MAX_BATCH_ITEMS);
        self.in_flight.extend(self.queue.drain(..count));
        let items: Vec<SettleItem<'_>> = self.in_flight.iter().map(as_wire).collect();
        Settle { subscription_id, items: List::from(&items[..]) }.encode(out)
    }

    /// Hands out what was in flight, to be answered one by one.
    pub(crate) fn take_in_flight(&mut self) -> Vec<Item> {
        std::mem::take(&mut self.in_flight)
    }

    /// Puts back what was not answered for good, in front and in its order.
    pub(crate) fn put_back(&mut self, items: impl DoubleEndedIterator<Item = Item>) {
        for item in items.rev() {
            self.queue.push_front(Item { is_repeat: true, ..item });
        }
    }

    /// Puts back attempts that may have taken effect. A history has each as a call of its own: the index that the next one's answer
    /// rests on says nothing of when this one took effect.
    pub(crate) fn put_back_open(&mut self, mut items: Vec<Item>, effects: &mut Effects) {
        if let Some(scribe) = &self.scribe {
            let now_ns = scribe.now_ns();
            for item in &mut items {
                effects.tell(scribe.settled(item, None, Err(Outcome::Unknown)));
                item.call_ns = now_ns;
            }
        }
        self.put_back(items.into_iter());
    }

    /// No answer will come on this connection any more: all of it is sent again on the next.
    pub(crate) fn disconnected(&mut self, effects: &mut Effects) {
        let items = self.take_in_flight();
        self.put_back_open(items, effects);
    }

    /// Everything, for an end without answers.
    pub(crate) fn take_all(&mut self) -> Vec<Item> {
        let mut items = self.take_in_flight();
        items.extend(self.queue.drain(..));
        items
    }
}

fn as_wire(item: &Item) -> SettleItem<'_> {
    SettleItem {
        kind: item.kind,
        partition: item.message.partition,
        seq: item.message.seq,
        delivery_id: item.delivery_id,
        ownership_epoch: item.ownership_epoch,
        delay_ms: item.delay_ms,
        error_text: &item.error_text,
    }
}
