//! `Publish` and `PublishBatch`: window, place, sequence. Publishing visits no path: what a path owes follows from the
//! partition's last sequence.

use super::room::{self, IDLE_LEAST_MS};
use crate::command::{Publish, PublishBatch, PublishRecord};
use crate::effect::{AppendEffect, Effect};
use crate::idempotency::{FirstUse, KEEP_LEAST_MS};
use crate::marks::MarkSteps;
use crate::outcome::{Outcome, Published, Refusal};
use crate::producer::{LineKey, Remembered, Standing};
use crate::settings::{Defaults, Setting};
use crate::state::entries::Entries;
use crate::state::timers::ByTopic;
use crate::state::{State, Topic, topic_of};
use mortarmq_delivery::{DuePosition, Fact};
use mortarmq_types::{ClusterTime, CommitIndex, Partition, ProducerId, ProducerSeq, Seq, TopicIncarnation};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn apply(state: &mut State, publish: Publish, effects: &mut Vec<Effect>) -> Outcome {
    room::make(state, ENTRIES_PER_RECORD);
    let mut admission = match Admission::open(state, publish.topic, publish.requested, publish.producer_id) {
        Ok(admission) => admission,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    match admission.look(&publish.record) {
        Err(refusal) => Outcome::Refused(refusal),
        Ok(Some(known)) => Outcome::Published(answer_again(known)),
        Ok(None) => match admission.check_room(std::slice::from_ref(&publish.record)) {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(()) => Outcome::Published(admission.store_once(publish.record, effects)),
        },
    }
}

/// All or nothing: every record is looked at before the first is stored. A batch may overlap the window: the part that
/// is known is answered from it.
pub(super) fn apply_batch(state: &mut State, batch: PublishBatch, effects: &mut Vec<Effect>) -> Outcome {
    room::make(state, ENTRIES_PER_RECORD * batch.records.len() as u64);
    let mut admission = match Admission::open(state, batch.topic, batch.requested, batch.producer_id) {
        Ok(admission) => admission,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    let known = match admission.look_at_all(&batch.records) {
        Ok(known) => known,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    // What is known by its number comes first, and all behind it is new.
    let new_from = known.iter().take_while(|known| known.is_some()).count();
    if let Err(refusal) = admission.check_room(&batch.records[new_from..]) {
        return Outcome::Refused(refusal);
    }
    let answer = |(record, known): (PublishRecord, Option<Remembered>)| match known {
        Some(known) => answer_again(known),
        None => admission.store_once(record, effects),
    };
    Outcome::PublishedBatch(batch.records.into_iter().zip(known).map(answer).collect())
}

fn answer_again(known: Remembered) -> Published {
    Published { partition: known.partition, seq: known.seq, deduplicated: true }
}

/// One request's view of its topic and its producer's line.
struct Admission<'a> {
    topic: &'a mut Topic,
    producer_entries: &'a mut u64,
    delayed: &'a mut u64,
    delays: &'a mut ByTopic<Partition>,
    entries: &'a mut Entries,
    incarnation: TopicIncarnation,
    requested: Partition,
    producer_id: ProducerId,
    limits: &'a Defaults,
    now: ClusterTime,
    commit_index: CommitIndex,
    /// How many this command has stored under idempotency keys.
    keyed: u16,
    mark_steps: MarkSteps,
}

impl<'a> Admission<'a> {
    fn open(
        state: &'a mut State,
        incarnation: TopicIncarnation,
        requested: Partition,
        producer_id: ProducerId,
    ) -> Result<Self, Refusal> {
        let found = state.topics.get(&incarnation).ok_or(Refusal::UnknownTopic)?;
        let mark_steps = state.mark_steps(found);
        let topic = topic_of(&mut state.topics, incarnation).expect("looked up above");
        if topic.holds_dead_letters() {
            return Err(Refusal::DeadLetterTopic);
        }
        Ok(Self {
            topic,
            producer_entries: &mut state.producer_entries,
            delayed: &mut state.delayed,
            delays: &mut state.delays,
            entries: &mut state.entries,
            incarnation,
            requested,
            producer_id,
            limits: state.defaults.as_ref().unwrap_or(&Defaults::BUILD),
            now: state.time,
            commit_index: state.commit_index,
            keyed: 0,
            mark_steps,
        })
    }

    /// What the shard keeps by now, of as much as it may.
    fn kept(&self) -> u64 {
        *self.producer_entries + *self.delayed + self.entries.keys + self.entries.facts + self.entries.paths
    }

    /// Whether one record can be stored (`None`), was stored before under its number, or is refused. Changes nothing.
    fn look(&mut self, record: &PublishRecord) -> Result<Option<Remembered>, Refusal> {
        self.check_target(record)?;
        let Some(key) = self.line(record.producer_seq)? else { return Ok(None) };
        let number = record.producer_seq;
        match self.topic.producers.standing(key, number, record.content_hash) {
            Standing::Next => self.check_producer(key).map(|()| None),
            standing => judge(standing, number),
        }
    }

    fn look_at_all(&mut self, records: &[PublishRecord]) -> Result<Vec<Option<Remembered>>, Refusal> {
        let mut answers = Vec::with_capacity(records.len());
        let mut first_new = None;
        for (place, record) in records.iter().enumerate() {
            if place > 0 {
                let before = records[place - 1].producer_seq;
                let follows = before.get().checked_add(1) == Some(record.producer_seq.get());
                if !(follows || before == ProducerSeq::ZERO && record.producer_seq == ProducerSeq::ZERO) {
                    return Err(Refusal::SeqInvalid);
                }
            }
            // Numbers follow one another, so once one is new and next, all behind it are new and next.
            let answer =
                if first_new.is_some() { self.check_target(record).map(|()| None)? } else { self.look(record)? };
            if answer.is_none() {
                first_new.get_or_insert(place);
            }
            answers.push(answer);
        }
        Ok(answers)
    }

    /// Where the first publish under a record's idempotency key went, inside the window.
    fn first_use(&self, record: &PublishRecord) -> Option<FirstUse> {
        self.topic.keys.find(record.idempotency_key?, self.now, self.limits.idempotency_window_ms)
    }

    fn check_target(&self, record: &PublishRecord) -> Result<(), Refusal> {
        let partitions = u16::try_from(self.topic.partitions.len()).expect("at most 1024 partitions");
        if self.requested != Partition::ANY && self.requested.get() >= partitions {
            return Err(Refusal::UnknownPartition { requested: self.requested, partitions });
        }
        let limit = self.topic.settings.get(Setting::MaxMessageBytes);
        if u64::from(record.value_bytes) > limit {
            return Err(Refusal::TooLarge { found: record.value_bytes, limit });
        }
        Ok(())
    }

    /// The line of a number; `None` for a publish that is not idempotent.
    fn line(&self, number: ProducerSeq) -> Result<Option<LineKey>, Refusal> {
        match (self.producer_id == ProducerId::ZERO, number == ProducerSeq::ZERO) {
            (true, true) => Ok(None),
            (false, false) => Ok(Some((self.requested, self.producer_id))),
            _ => Err(Refusal::SeqInvalid),
        }
    }

    /// A new producer needs room; what may go has gone by now.
    fn check_producer(&self, key: LineKey) -> Result<(), Refusal> {
        let limit = self.limits.state_entries_max;
        if self.topic.producers.knows(key) || self.kept() < limit {
            return Ok(());
        }
        Err(Refusal::ProducerQuota { limit })
    }

    /// Whether those of these records that will be stored, one after the other, find room for their idempotency keys, and the
    /// delayed ones in their partitions. All that are due have left by now or wait for a path.
    fn check_room(&self, records: &[PublishRecord]) -> Result<(), Refusal> {
        let is_plain = |record: &PublishRecord| record.times.delay_ms == 0 && record.idempotency_key.is_none();
        if records.iter().all(is_plain) {
            return Ok(());
        }
        let mut round_robin = self.topic.round_robin;
        let mut added: BTreeMap<Partition, u64> = BTreeMap::new();
        let (mut keys, mut delayed) = (BTreeSet::new(), 0);
        for record in records {
            let is_repeat = record.idempotency_key.is_some_and(|key| !keys.insert(key));
            if is_repeat || self.first_use(record).is_some() {
                continue;
            }
            let partition = self.place(record, &mut round_robin);
            if record.times.delay_ms == 0 {
                continue;
            }
            delayed += 1;
            let waiting =
                added.entry(partition).or_insert(self.topic.partitions[partition.index()].schedule.len() as u64);
            *waiting += 1;
            let limit = self.limits.max_delayed_per_partition;
            if *waiting > limit {
                return Err(Refusal::DelayedFull { partition, limit });
            }
        }
        keys.retain(|key| self.topic.keys.find(*key, self.now, self.limits.idempotency_window_ms).is_none());
        let limit = self.limits.state_entries_max;
        let kept = self.kept();
        if !keys.is_empty() && kept + keys.len() as u64 > limit {
            return Err(Refusal::KeyQuota { limit });
        }
        let is_full = delayed > 0 && kept + keys.len() as u64 + delayed > limit;
        if is_full { Err(Refusal::DelayQuota { limit }) } else { Ok(()) }
    }

    /// Stores a record, unless its idempotency key was used inside the window: then the first answer is given again. Either
    /// way its number is used up.
    fn store_once(&mut self, record: PublishRecord, effects: &mut Vec<Effect>) -> Published {
        if let Some(first) = self.first_use(&record) {
            self.remember(&record, first.partition, first.seq);
            return Published { partition: first.partition, seq: first.seq, deduplicated: true };
        }
        self.store(record, effects)
    }

    fn store(&mut self, record: PublishRecord, effects: &mut Vec<Effect>) -> Published {
        let mut round_robin = self.topic.round_robin;
        let partition = self.place(&record, &mut round_robin);
        self.topic.round_robin = round_robin;
        // At the shard's limit no fact is kept: they can be read again.
        let wanted = !self.topic.paths.is_empty() && self.kept() < self.limits.state_entries_max;
        let expires_at_ms = self.expiry(record.times.ttl_ms);
        let state = self.topic.partition_mut(partition.index()).expect("placed in one of its partitions");
        let seq = state.last_seq.next();
        state.last_seq = seq;
        state.kept.note(seq, state.bytes, self.now, self.mark_steps);
        state.bytes += record.record.len() as u64;
        let fact = Fact { key_hash: record.key_hash, size_bytes: record.payload_bytes, expires_at_ms };
        let facts_before = state.facts.len();
        state.facts.push(seq, fact, wanted);
        let facts = state.facts.len();
        self.entries.count_facts((self.incarnation, partition), facts_before, facts);
        if record.times.delay_ms != 0 {
            state.schedule.add(DuePosition { due: self.now.after_ms(record.times.delay_ms), seq }, fact);
            self.delays.set(self.incarnation, partition, state.schedule.next_due());
            *self.delayed += 1;
            self.topic.delayed += 1;
        }
        self.topic.facts = self.topic.facts - facts_before as u64 + facts as u64;
        self.remember(&record, partition, seq);
        self.remember_key(&record, partition, seq);
        effects.push(Effect::Append(AppendEffect {
            topic: self.incarnation,
            partition,
            seq,
            commit_index: self.commit_index,
            key_hash: record.key_hash,
            payload_bytes: record.payload_bytes,
            expires_at_ms,
            record: record.record,
        }));
        Published { partition, seq, deduplicated: false }
    }

    /// When a message that is stored now loses its worth; 0 is never, also beyond what the index can hold.
    fn expiry(&self, ttl_ms: u64) -> u64 {
        let ttl_ms = if ttl_ms == 0 { self.topic.settings.get(Setting::TtlMs) } else { ttl_ms };
        let expires_at_ms = self.now.after_ms(ttl_ms).get();
        if ttl_ms == 0 || expires_at_ms > EXPIRY_MAX_MS { 0 } else { expires_at_ms }
    }

    /// By key if there is one, else by idempotency key, else each partition in turn, unless the request names one.
    fn place(&self, record: &PublishRecord, round_robin: &mut u64) -> Partition {
        if self.requested != Partition::ANY {
            return self.requested;
        }
        let partitions = self.topic.partitions.len() as u64;
        let number = match record.idempotency_key {
            _ if record.key_hash.is_some() => (record.key_hash.get() & 0xFFFF_FFFF) % partitions,
            Some(key) => key.placing() % partitions,
            None => {
                *round_robin = (*round_robin + 1) % partitions;
                *round_robin
            }
        };
        Partition::new(u16::try_from(number).expect("less than 1024 partitions"))
    }

    fn remember(&mut self, record: &PublishRecord, partition: Partition, seq: Seq) {
        if self.producer_id == ProducerId::ZERO {
            return;
        }
        // At the shard's limit no line grows beyond a small window: what is remembered stays bounded (failure rule 9).
        let is_full = self.kept() >= self.limits.state_entries_max;
        let window = if is_full { WINDOW_AT_LIMIT } else { self.limits.producer_window as usize };
        let producers = &mut self.topic.producers;
        let before = producers.entries();
        let what = Remembered { partition, seq, content_hash: record.content_hash };
        producers.remember((self.requested, self.producer_id), record.producer_seq, what, window, self.now);
        // Only now: before, the line that is used may itself be the one that was idle longest.
        producers.forget_idle(self.now, self.limits.producer_idle_ms.max(IDLE_LEAST_MS), 1);
        *self.producer_entries = *self.producer_entries + producers.entries() - before;
        self.entries.producer_ages.set(self.incarnation, producers.oldest_filed());
    }

    fn remember_key(&mut self, record: &PublishRecord, partition: Partition, seq: Seq) {
        let Some(key) = record.idempotency_key else { return };
        let keys = &mut self.topic.keys;
        let before = keys.len();
        // Two for each that comes: what is over does not stay for long.
        keys.forget(self.now, self.limits.idempotency_window_ms.max(KEEP_LEAST_MS), 2);
        let (commit_index, at, place) = (self.commit_index, self.now, self.keyed);
        keys.remember(key, FirstUse { partition, seq, commit_index, at, place });
        self.keyed += 1;
        self.entries.keys = self.entries.keys + keys.len() - before;
        self.entries.key_ages.set(self.incarnation, keys.oldest());
    }
}

/// A record may need one for its number, one for its key and one for its delay.
const ENTRIES_PER_RECORD: u64 = 3;
/// The index keeps 48 bits of an expiry.
const EXPIRY_MAX_MS: u64 = (1 << 48) - 1;
/// Publishes remembered per line when the shard remembers as many as it may.
const WINDOW_AT_LIMIT: usize = 64;

fn judge(standing: Standing, found: ProducerSeq) -> Result<Option<Remembered>, Refusal> {
    match standing {
        Standing::Next => Ok(None),
        Standing::Known(known) => Ok(Some(known)),
        Standing::OtherContent => Err(Refusal::SeqReused { found }),
        Standing::Gap { expected } => Err(Refusal::SeqGap { expected, found }),
        Standing::Expired => Err(Refusal::SeqExpired { found }),
    }
}
