//! What a command is seen to do beside its answer: what the ledger hears, and which dead letters are made.

use super::redrive::Origin;
use super::{Message, Messages, Model, Obligation, Pair, Path, Topic, Verdict, allowed};
use mortarmq_shard::ledger::LedgerKind;
use mortarmq_shard::record::RECORD_OVERHEAD_BYTES;
use mortarmq_shard::{CopyEffect, Effect, GroupSettings, Setting, SettingsPatch, TopicSettings};
use mortarmq_types::{DropReason, MemberId, Partition, PathId, TopicIncarnation};
use std::collections::BTreeMap;

/// One message in one event of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(super) path: PathId,
    pub(super) partition: usize,
    pub(super) kind: LedgerKind,
    pub(super) seq: u64,
    pub(super) delivery: u64,
    pub(super) attempt: u32,
    pub(super) member: MemberId,
    pub(super) previous: u64,
}

impl Told {
    pub(super) fn new(path: PathId, partition: usize, kind: LedgerKind, seq: u64, delivery: u64) -> Self {
        Self { path, partition, kind, seq, delivery, attempt: 0, member: MemberId::ZERO, previous: 0 }
    }

    fn order(&self) -> (PathId, usize, u64, u64, String) {
        (self.path, self.partition, self.seq, self.delivery, format!("{:?}", self.kind))
    }
}

/// The effects that one command had; those of a stamp name the command before it.
pub(super) fn of_command(effects: &[Effect], index: u64) -> Vec<&Effect> {
    let index_of = |effect: &Effect| match effect {
        Effect::Append(append) => Some(append.commit_index),
        Effect::Copy(copy) => Some(copy.commit_index),
        Effect::Deliver(deliver) => Some(deliver.commit_index),
        Effect::Ledger(ledger) => Some(ledger.event.commit_index),
        Effect::SegmentBytes(_)
        | Effect::Trim { .. }
        | Effect::GroupExpired { .. }
        | Effect::PathChanged(_)
        | Effect::TopicDeleted(_)
        | Effect::PathDeleted(_)
        | Effect::MemberEnded { .. }
        | Effect::PathMoved(_)
        | Effect::TopicMoved(_) => None,
    };
    effects.iter().filter(|effect| index_of(effect).is_some_and(|found| found.get() == index)).collect()
}

impl Model {
    /// Compares what the ledger heard and which dead letters were made with what had to be.
    pub(super) fn account(&mut self, effects: &[&Effect]) -> Verdict {
        let mut heard = Vec::new();
        for effect in effects {
            match effect {
                // What the ledger hears of a path that goes is bounded, and nothing rests on it.
                Effect::Ledger(ledger) if !self.paths.contains_key(&ledger.event.path) => {}
                Effect::Ledger(ledger) if ledger.event.kind == LedgerKind::Dropped(DropReason::GroupDeleted) => {}
                Effect::Ledger(ledger) => {
                    let event = &ledger.event;
                    heard.extend((0..u64::from(event.count)).map(|place| Told {
                        path: event.path,
                        partition: ledger.partition.index(),
                        kind: event.kind,
                        seq: event.first_seq.get() + place,
                        delivery: if event.first_delivery.get() == 0 { 0 } else { event.first_delivery.get() + place },
                        attempt: event.attempt.get(),
                        member: event.member,
                        previous: event.previous.get(),
                    }));
                }
                Effect::Copy(copy) => self.dead_letter(copy)?,
                _ => {}
            }
        }
        allowed!(self.deaths.is_empty(), "P4: died without a dead letter: {:?}", self.deaths);
        let mut told = std::mem::take(&mut self.told);
        told.sort_by_key(Told::order);
        heard.sort_by_key(Told::order);
        let difference = told.iter().zip(&heard).find(|(told, heard)| told != heard);
        allowed!(difference.is_none(), "P7: the ledger should hear and heard {difference:#?}");
        let (many, few) = if told.len() > heard.len() { (&told, &heard) } else { (&heard, &told) };
        allowed!(
            many.len() == few.len(),
            "P7: {} events heard, {} expected: {:?}",
            heard.len(),
            told.len(),
            many[few.len()]
        );
        Ok(())
    }

    /// Stores a dead letter where it was put, if it is owed and that is its place.
    fn dead_letter(&mut self, copy: &CopyEffect) -> Verdict {
        let envelope = &copy.envelope;
        let (partition, seq) = (envelope.partition.index(), envelope.seq.get());
        let is_it = |dead: &super::ends::DeadMessage| {
            (dead.path, dead.partition, dead.seq) == (envelope.path_id, partition, seq)
        };
        let place = self.deaths.iter().position(is_it);
        let Some(place) = place else { return Err(format!("P4: a dead letter of what did not die: {copy:?}")) };
        let dead = self.deaths.remove(place);
        let path = &self.paths[&dead.path];
        let topic = path.topic;
        let name = format!("{}/{}", self.topics[&topic].name, path.group);
        let said = (&envelope.path, envelope.attempts.get(), envelope.reason, &envelope.error, envelope.delivery.get());
        let expected = (&name, dead.attempts, dead.reason, &dead.error, dead.delivery);
        allowed!(said == expected, "the dead letter of {dead:?} says {envelope:?}");
        let source = self.topics[&topic].partitions[dead.partition].get(dead.seq);
        let target = self.dead_letters_of(topic);
        let from = (copy.from.topic, copy.from.partition.index(), copy.from.seq.get(), copy.unwraps);
        let expected = match dead.source {
            Some(letter) => (target, dead.partition, letter, true),
            None => (topic, dead.partition, dead.seq, false),
        };
        allowed!(from == expected, "the dead letter of {dead:?} is copied from {from:?}, expected {expected:?}");
        let added: usize = header_lengths(&envelope.path, &dead);
        let size = source.size + u32::try_from(added).expect("small");
        let stored = &self.topics[&target].partitions[dead.partition];
        let seq = stored.last() + 1;
        let found = (copy.to.topic, copy.to.partition.index(), copy.to.seq.get(), copy.key_hash, copy.payload_bytes);
        let expected = (target, dead.partition, seq, source.key, size);
        allowed!(found == expected, "the dead letter of {dead:?} is {found:?}, expected {expected:?}");
        let bytes = u64::from(size) + RECORD_OVERHEAD_BYTES as u64;
        let message = Message { key: source.key, size, due: 0, expiry: 0, stored_at: self.time, bytes };
        self.store(target, Partition::from_index(dead.partition), message);
        let origin = Origin { path: dead.path, seq: dead.seq, delivery: dead.delivery, size: source.size };
        let stored = &mut self.topics.get_mut(&target).expect("found or made").partitions[dead.partition];
        stored.origins.insert(seq, origin);
        Ok(())
    }

    /// The dead-letter topic of a topic, made with the first dead letter, with the partitions of its source and group
    /// `default`.
    fn dead_letters_of(&mut self, source: TopicIncarnation) -> TopicIncarnation {
        let (name, partitions) = (format!("$dlq.{}", self.topics[&source].name), self.topics[&source].partitions.len());
        if let Some((id, _)) = self.topics.iter().find(|(_, topic)| topic.name == name) {
            return *id;
        }
        let values = vec![(Setting::Partitions, partitions as u64), (Setting::MaxAttempts, 0)];
        let settings = TopicSettings::new(&self.defaults().settings, &SettingsPatch { values });
        let of_group = GroupSettings::new(&settings, &SettingsPatch { values: vec![(Setting::ExpireIdleMs, 0)] });
        let id = self.add_topic(Topic::new(name, settings));
        self.add_path(id, "default".to_owned(), of_group, vec![Obligation::new(1, 0); partitions]);
        id
    }

    /// Gives a message the next sequence of a partition: every path of the topic owes it.
    pub(super) fn store(&mut self, topic: TopicIncarnation, partition: Partition, message: Message) -> u64 {
        let paths = self.paths.values_mut().filter(|path| path.topic == topic);
        let found = &mut self.topics.get_mut(&topic).expect("the caller knows it").partitions[partition.index()];
        found.list.push(message);
        let seq = found.last();
        let mut is_wanted = false;
        for path in paths {
            path.partitions[partition.index()].pairs.insert(seq, Pair::owed());
            is_wanted = true;
        }
        if !is_wanted {
            found.known_from = seq + 1;
        }
        seq
    }

    pub(super) fn add_topic(&mut self, topic: Topic) -> TopicIncarnation {
        self.last_topic = self.last_topic.next();
        self.topics.insert(self.last_topic, topic);
        self.last_topic
    }

    pub(super) fn add_path(
        &mut self,
        topic: TopicIncarnation,
        group: String,
        settings: GroupSettings,
        partitions: Vec<Obligation>,
    ) -> PathId {
        self.last_path = self.last_path.next();
        let idle_since = self.time;
        let path =
            Path { topic, group, settings, partitions, turn: 0, members: BTreeMap::new(), reserved: None, idle_since };
        self.paths.insert(self.last_path, path);
        self.last_path
    }
}

impl Messages {
    pub(super) fn new() -> Self {
        Self { known_from: 1, kept_from: 1, ..Self::default() }
    }
}

impl Topic {
    pub(super) fn new(name: String, settings: TopicSettings) -> Self {
        let partitions = usize::try_from(settings.get(Setting::Partitions)).expect("small");
        let (lines, keys) = (BTreeMap::new(), BTreeMap::new());
        let partitions = vec![Messages::new(); partitions];
        Self { name, settings, partitions, lines, keys, is_steady: true, last_turn: None }
    }
}

/// Bytes of the headers that a dead letter adds, as `docs/reference/wire.md` lists them.
fn header_lengths(path: &str, dead: &super::ends::DeadMessage) -> usize {
    let headers = [
        ("mortarmq-dlq-path", path.to_owned()),
        ("mortarmq-dlq-partition", dead.partition.to_string()),
        ("mortarmq-dlq-sequence", dead.seq.to_string()),
        ("mortarmq-dlq-attempts", dead.attempts.to_string()),
        ("mortarmq-dlq-reason", dead.reason.word().to_owned()),
        ("mortarmq-dlq-error", dead.error.clone()),
        ("mortarmq-dlq-delivery", dead.delivery.to_string()),
        ("mortarmq-dlq-path-id", dead.path.to_string()),
    ];
    headers.iter().map(|(name, value)| name.len() + value.len()).sum()
}
