//! ACK, NACK and SETTLE.

use bytes::BytesMut;
use mortarmq_types::{DeliveryId, Partition, Seq};
use mortarmq_wire::ErrorCode::{MalformedPayload, StaleOwner, UnknownDelivery, UnknownMember};
use mortarmq_wire::ops::{DeliveryRef, Nack, NackReason, Settle, SettleKind, SubscribeOk};
use mortarmq_wire::{List, Op};

use crate::support::{Client, Received, ack_frame, settle_item};
use crate::{Node, Row, closing, frame, raw, refused, with_byte};

pub(crate) const ROWS: &[Row] = &[
    refused("an ack without a subscription", UnknownMember, Op::Ack, &["subscription 6", "subscribe again"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, frame(|out| ack_frame(out, 6, topic, &made_up(), false)))
    }),
    refused("an ack of a delivery that never was", UnknownDelivery, Op::Ack, &["nothing to do"], |node| {
        let held = Held::new(node, "made-up");
        let ack = frame(|out| ack_frame(out, held.joined.subscription_id, held.topic, &made_up(), false));
        (held.client, ack)
    })
    .unknown(),
    refused("an ack that names another topic", UnknownDelivery, Op::Ack, &["topic_id", "MSG"], |node| {
        let mut held = Held::new(node, "two");
        let other = held.client.declare("other", "");
        let ack = frame(|out| ack_frame(out, held.joined.subscription_id, other, &held.message, false));
        (held.client, ack)
    })
    .unknown(),
    refused("an ack that names another sequence", UnknownDelivery, Op::Ack, &["nothing to do"], |node| {
        let held = Held::new(node, "sequence");
        let wrong = Received { seq: Seq::new(2), ..held.message.clone() };
        let ack = frame(|out| ack_frame(out, held.joined.subscription_id, held.topic, &wrong, false));
        (held.client, ack)
    })
    .unknown(),
    refused("an ack of a delivery that another followed", StaleOwner, Op::Ack, &["drop the work"], |node| {
        let mut held = Held::new(node, "stale");
        let codes = held.client.settle(held.joined.subscription_id, &[held.message.clone()], SettleKind::Nack);
        assert_eq!(codes, [0]);
        let second = held.client.message();
        assert!(second.delivery_id > held.message.delivery_id);
        let ack = frame(|out| ack_frame(out, held.joined.subscription_id, held.topic, &held.message, false));
        (held.client, ack)
    }),
    refused("an extension of a lease that is over", UnknownDelivery, Op::Ack, &["nothing to do"], |node| {
        let mut held = Held::new(node, "acked");
        assert_eq!(held.client.ack_all(held.joined.subscription_id, &[held.message.clone()]), [0]);
        let progress = frame(|out| ack_frame(out, held.joined.subscription_id, held.topic, &held.message, true));
        (held.client, progress)
    })
    .unknown(),
    refused("a nack of what was acked", UnknownDelivery, Op::Nack, &["nothing to do"], |node| {
        let mut held = Held::new(node, "acked-2");
        assert_eq!(held.client.ack_all(held.joined.subscription_id, &[held.message.clone()]), [0]);
        let nack = held.nack();
        (held.client, nack)
    })
    .unknown(),
    closing("an unknown flag of an ack", MalformedPayload, Op::Ack as u8, &["ACK flags"], |node| {
        let held = Held::new(node, "flags");
        let ack = frame(|out| ack_frame(out, held.joined.subscription_id, held.topic, &held.message, false));
        (held.client, with_byte(ack, 31, 2))
    }),
    closing("a nack for the reserved reason", MalformedPayload, Op::Nack as u8, &["reason", "3"], |node| {
        let held = Held::new(node, "reason");
        let nack = held.nack();
        (held.client, with_byte(nack, 30, 3))
    }),
    refused("a settle without a subscription", UnknownMember, Op::Settle, &["subscription 6"], |node| {
        let items = [settle_item(&made_up(), SettleKind::Ack)];
        let settle = Settle { subscription_id: 6, items: List::from(&items[..]) };
        (node.client(), frame(|out| settle.encode(out).expect("it fits")))
    }),
    closing("a settle of nothing", MalformedPayload, Op::Settle as u8, &["1..=1024"], |node| {
        (node.client(), raw(Op::Settle as u8, &[0, 1, 0, 0]))
    }),
    closing("an unknown kind of settle", MalformedPayload, Op::Settle as u8, &["kind", "5"], |node| {
        let items = [settle_item(&made_up(), SettleKind::Ack)];
        let settle = Settle { subscription_id: 1, items: List::from(&items[..]) };
        (node.client(), with_byte(frame(|out| settle.encode(out).expect("it fits")), 4, 5))
    }),
];

/// A connection that holds one message of a topic of its own.
struct Held {
    client: Client,
    topic: u16,
    joined: SubscribeOk,
    message: Received,
}

impl Held {
    fn new(node: &Node, name: &str) -> Self {
        let (mut client, topic) = node.with_topic(name);
        client.publish(topic, b"work");
        let joined = client.subscribe_with(topic, "g", "{\"retry_backoff_base_ms\":0}");
        let message = client.message();
        Self { client, topic, joined, message }
    }

    fn nack(&self) -> BytesMut {
        let delivery = DeliveryRef {
            subscription_id: self.joined.subscription_id,
            topic_id: self.topic,
            partition: self.message.partition,
            seq: self.message.seq,
            delivery_id: self.message.delivery_id,
            ownership_epoch: 0,
        };
        let nack = Nack { delivery, reason: NackReason::Retry, delay_ms: 0, error_text: b"" };
        frame(|out| nack.encode(out).expect("it fits"))
    }
}

/// A message that nobody was given.
fn made_up() -> Received {
    Received {
        partition: Partition::ZERO,
        seq: Seq::FIRST,
        delivery_id: DeliveryId::new(999_999),
        attempt: 1,
        cause: mortarmq_types::Cause::First,
        lease_ms: 0,
        value: Vec::new(),
    }
}
