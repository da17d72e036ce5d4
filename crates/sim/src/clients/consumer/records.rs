//! What a consumer writes down.

use std::borrow::Cow;

use mortarmq_history::{Extend, Nack, NackTo, Operate, OperateKind, Outcome, Record, Settle};
use mortarmq_types::TopicIncarnation;

use super::{Said, What};
use crate::history::path_name;
use crate::world::World;

impl World {
    pub(super) fn path_of(&self, number: usize, topic: TopicIncarnation) -> (TopicIncarnation, String) {
        let incarnation = self.letters.get(&topic).copied().unwrap_or(topic);
        let name = path_name(&self.topics, incarnation, self.consumers[number].group).unwrap_or_default();
        (incarnation, name)
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

    pub(super) fn record_left(&mut self, number: usize, call: u64, position: Option<mortarmq_types::Position>) {
        let Some(member) = self.consumers[number].member else { return };
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
