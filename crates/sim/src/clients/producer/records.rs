//! What a producer writes down.

use std::borrow::Cow;

use mortarmq_history::{Outcome, Publish, Record};
use mortarmq_shard::{Published, Times};
use mortarmq_types::Position;

use super::{Confirmed, Identity, Sent, key_bytes};
use crate::clients::value::{hash_of, value_of};
use crate::world::World;

impl World {
    pub(super) fn record_publish(
        &mut self,
        number: usize,
        sent: &Sent,
        stored: Option<(Published, Position)>,
        outcome: Outcome,
    ) {
        let Some(call) = sent.call else { return };
        // An answer that leaves it open is none.
        let ret = (outcome != Outcome::Unknown).then(|| self.now_ns());
        self.write_publish(number, (sent.message, sent.seq, sent.key, sent.times), (call, ret), stored, outcome);
    }

    pub(super) fn record_repeated(
        &mut self,
        number: usize,
        message: u64,
        call: u64,
        stored: Option<(Published, Position)>,
    ) {
        let known = self.producers[number].confirmed.iter().find(|known| known.message == message).cloned();
        let Some(Confirmed { seq, key, times, .. }) = known else { return };
        let ret = stored.is_some().then(|| self.now_ns());
        let outcome = if stored.is_some() { Outcome::Ok } else { Outcome::Unknown };
        self.write_publish(number, (message, seq, key, times), (call, ret), stored, outcome);
    }

    pub(super) fn write_publish(
        &mut self,
        number: usize,
        (message, seq, key, times): (u64, u64, u64, Times),
        (call, ret): (u64, Option<u64>),
        stored: Option<(Published, Position)>,
        outcome: Outcome,
    ) {
        let producer = &self.producers[number];
        let Some(topic) = producer.confirmed_of else { return };
        let Some(known) = self.topics.incarnation(topic) else { return };
        let key_text = (key != 0).then(|| Cow::Owned(String::from_utf8_lossy(&key_bytes(key)).into_owned()));
        let is_numbered = producer.identity == Identity::Numbered;
        let record = Record::Publish(Publish {
            client: Some(Cow::Owned(format!("p{number}.{}", producer.generation))),
            topic: Cow::Owned(known.name.clone()),
            msg: Cow::Owned(message.to_string()),
            key: key_text,
            call,
            ret,
            outcome,
            partition: stored.map(|(published, _)| u32::from(published.partition.get())),
            seq: stored.map(|(published, _)| published.seq.get()),
            producer_id: is_numbered.then(|| producer.id()),
            producer_seq: is_numbered.then_some(seq),
            delay_ms: Some(times.delay_ms),
            dedup: stored.map(|(published, _)| published.deduplicated),
            hash: Some(Cow::Owned(hash_of(&value_of(message)))),
            commit: stored.map(|(_, position)| position.commit_index.get()),
            epoch: stored.map(|(_, position)| position.epoch.get()),
            txn: None,
        });
        self.histories.record(topic, &record);
    }
}
