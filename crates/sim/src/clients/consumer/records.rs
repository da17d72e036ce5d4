//! What a consumer writes down.

use std::borrow::Cow;

use mortarmq_history::{Cause, Deliver, Extend, Nack, NackTo, Operate, OperateKind, Outcome, Record, Settle};
use mortarmq_node::Delivery;
use mortarmq_types::{DeliveryId, TopicIncarnation};

use super::{Said, What};
use crate::clients::value;
use crate::history::path_name;
use crate::world::World;

impl World {
    pub(super) fn path_of(&self, number: usize, topic: TopicIncarnation) -> (TopicIncarnation, String) {
        let incarnation = self.letters.get(&topic).copied().unwrap_or(topic);
        let name = path_name(&self.topics, incarnation, self.consumers[number].group).unwrap_or_default();
        (incarnation, name)
    }

    /// A delivery, and what is known of its message.
    pub(super) fn record_deliver(&mut self, number: usize, delivery: &Delivery, known: value::Held, lease_ms: u64) {
        let (call, ret) = ((self.samples.before(delivery.position.commit_index) + 1) * 1000, self.now_ns());
        let (incarnation, path) = self.path_of(number, delivery.topic);
        let client = self.consumers[number].name();
        let record = Record::Deliver(Deliver {
            client: Some(Cow::Owned(client)),
            path: Cow::Owned(path),
            msg: Cow::Owned(known.message),
            key: known.key.map(Cow::Owned),
            call: call.min(ret),
            ret: Some(ret),
            partition: Some(u32::from(delivery.partition.get())),
            seq: Some(delivery.seq.get()),
            delivery_id: Some(delivery.delivery_id.get()),
            attempt: Some(delivery.attempt.get()),
            cause: Some(cause(delivery.cause)),
            prev: (delivery.previous != DeliveryId::ZERO).then(|| delivery.previous.get()),
            // The node's clock counts milliseconds.
            lease_ms: Some(lease_ms.saturating_sub(1)),
            hash: Some(Cow::Owned(known.hash)),
            commit: Some(delivery.position.commit_index.get()),
            epoch: Some(delivery.position.epoch.get()),
            origin: known.origin.filter(|_| self.consumers[number].group.is_none()).map(|origin| {
                // Histories call an incarnation by its own name.
                let group = origin.rsplit_once('/').map_or("", |(_, group)| group);
                let name = self.topics.incarnation(incarnation).map_or("", |known| known.name.as_str());
                Cow::Owned(format!("{name}/{group}"))
            }),
            txn: None,
        });
        self.histories.record(incarnation, &record);
    }

    pub(super) fn record_settle(
        &mut self,
        number: usize,
        said: &Said,
        position: Option<mortarmq_types::Position>,
        outcome: Outcome,
        ret: Option<u64>,
    ) {
        let (incarnation, path) = self.path_of(number, said.held.topic);
        let settle = Settle {
            client: Some(Cow::Owned(self.consumers[number].name())),
            path: Cow::Owned(path),
            msg: Cow::Owned(said.held.message.clone()),
            delivery_id: Some(said.delivery_id),
            call: said.call,
            ret,
            outcome,
            commit: position.map(|position| position.commit_index.get()),
            epoch: position.map(|position| position.epoch.get()),
            txn: None,
        };
        let record = match said.what {
            What::Ack | What::AckLate | What::AckTwice => Record::Ack(settle),
            What::Nack { .. } => Record::Nack(Nack { settle, to: NackTo::Retry }),
            What::Dead => Record::Nack(Nack { settle, to: NackTo::Dead }),
            What::Release => Record::Nack(Nack { settle, to: NackTo::Release }),
            What::Extend => Record::Extend(Extend { settle, lease_ms: None }),
        };
        self.histories.record(incarnation, &record);
    }

    /// A member leaves, dies, or is heard of no more: then its session may have been over before, once it had lasted its time.
    pub(super) fn record_left(&mut self, number: usize, call: u64, position: Option<mortarmq_types::Position>) {
        let Some(member) = self.consumers[number].member else { return };
        let call = if position.is_none() { call.min(self.session_end_ns(number)) } else { call };
        self.record_left_of(number, member.topic, call, position);
    }

    pub(super) fn record_left_of(
        &mut self,
        number: usize,
        topic: TopicIncarnation,
        call: u64,
        position: Option<mortarmq_types::Position>,
    ) {
        let (incarnation, path) = self.path_of(number, topic);
        let record = Record::Operate(Operate {
            client: Some(Cow::Owned(self.consumers[number].name())),
            kind: OperateKind::Leave,
            path: Cow::Owned(path),
            msg: None,
            call,
            ret: position.is_some().then(|| self.now_ns()),
            outcome: if position.is_some() { Outcome::Ok } else { Outcome::Unknown },
            commit: position.map(|position| position.commit_index.get()),
            epoch: position.map(|position| position.epoch.get()),
        });
        self.histories.record(incarnation, &record);
    }
}

pub(super) fn cause(cause: mortarmq_types::Cause) -> Cause {
    match cause {
        mortarmq_types::Cause::First => Cause::First,
        mortarmq_types::Cause::LeaseExpired => Cause::LeaseExpired,
        mortarmq_types::Cause::Nacked => Cause::Nacked,
        mortarmq_types::Cause::Released => Cause::Released,
        mortarmq_types::Cause::ConsumerLost => Cause::ConsumerLost,
        mortarmq_types::Cause::Redriven => Cause::Redriven,
        mortarmq_types::Cause::Replayed => Cause::Replayed,
    }
}
