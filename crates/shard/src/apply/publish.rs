//! `Publish` and `PublishBatch`: window, place, sequence. Publishing visits no path: what a path owes follows from the
//! partition's last sequence.

use crate::command::{Publish, PublishBatch, PublishRecord};
use crate::effect::{AppendEffect, Effect};
use crate::marks::MarkSteps;
use crate::outcome::{Outcome, Published, Refusal};
use crate::producer::{LineKey, Remembered, Standing};
use crate::settings::{Defaults, Setting};
use crate::state::timers::Timers;
use crate::state::{State, Topic, topic_of};
use mortarmq_delivery::{DuePosition, Fact};
use mortarmq_types::{ClusterTime, CommitIndex, KeyHash, Partition, ProducerId, ProducerSeq, TopicIncarnation};
use std::collections::BTreeMap;

pub(super) fn apply(state: &mut State, publish: Publish, effects: &mut Vec<Effect>) -> Outcome {
    let mut admission = match Admission::open(state, publish.topic, publish.requested, publish.producer_id) {
        Ok(admission) => admission,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    match admission.look(&publish.record) {
        Err(refusal) => Outcome::Refused(refusal),
        Ok(Some(known)) => Outcome::Published(answer_again(known)),
        Ok(None) => match admission.make_room_to_wait(std::slice::from_ref(&publish.record)) {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(()) => Outcome::Published(admission.store(publish.record, effects)),
        },
    }
}

/// All or nothing: every record is looked at before the first is stored. A batch may overlap the window: the part that
/// is known is answered from it.
pub(super) fn apply_batch(state: &mut State, batch: PublishBatch, effects: &mut Vec<Effect>) -> Outcome {
    let mut admission = match Admission::open(state, batch.topic, batch.requested, batch.producer_id) {
        Ok(admission) => admission,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    let known = match admission.look_at_all(&batch.records) {
        Ok(known) => known,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    // What is known comes first, and all behind it is new.
    let new_from = known.iter().take_while(|known| known.is_some()).count();
    if let Err(refusal) = admission.make_room_to_wait(&batch.records[new_from..]) {
        return Outcome::Refused(refusal);
    }
    let answer = |(record, known): (PublishRecord, Option<Remembered>)| match known {
        Some(known) => answer_again(known),
        None => admission.store(record, effects),
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
    delays: &'a mut Timers<(TopicIncarnation, Partition)>,
    incarnation: TopicIncarnation,
    requested: Partition,
    producer_id: ProducerId,
    limits: &'a Defaults,
    now: ClusterTime,
    commit_index: CommitIndex,
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
            incarnation,
            requested,
            producer_id,
            limits: state.defaults.as_ref().unwrap_or(&Defaults::BUILD),
            now: state.time,
            commit_index: state.commit_index,
            mark_steps,
        })
    }

    /// Whether one record can be stored (`None`), was stored before, or is refused. Changes nothing but forgets
    /// producers that were idle too long.
    fn look(&mut self, record: &PublishRecord) -> Result<Option<Remembered>, Refusal> {
        self.check_target(record)?;
        let Some(key) = self.line(record.producer_seq)? else { return Ok(None) };
        let number = record.producer_seq;
        match self.topic.producers.standing(key, number, record.content_hash) {
            Standing::Next => self.make_room(key).map(|()| None),
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

    /// A new producer needs room among those that are remembered; those idle for ten minutes give way.
    fn make_room(&mut self, key: LineKey) -> Result<(), Refusal> {
        if self.topic.producers.knows(key) || *self.producer_entries < self.limits.state_entries_max {
            return Ok(());
        }
        let before = self.topic.producers.entries();
        self.topic.producers.forget_idle(self.now, IDLE_LEAST_MS, FORGET_MAX);
        *self.producer_entries -= before - self.topic.producers.entries();
        if *self.producer_entries < self.limits.state_entries_max {
            return Ok(());
        }
        Err(Refusal::ProducerQuota { limit: self.limits.state_entries_max })
    }

    /// Whether the delayed ones of these records, which are stored one after the other, find room in their partitions.
    /// All that are due have left by now or wait for a path.
    fn make_room_to_wait(&self, records: &[PublishRecord]) -> Result<(), Refusal> {
        if records.iter().all(|record| record.times.delay_ms == 0) {
            return Ok(());
        }
        let mut round_robin = self.topic.round_robin;
        let mut added: BTreeMap<Partition, u64> = BTreeMap::new();
        for record in records {
            let partition = self.place(record.key_hash, &mut round_robin);
            if record.times.delay_ms == 0 {
                continue;
            }
            let waiting =
                added.entry(partition).or_insert(self.topic.partitions[partition.index()].schedule.len() as u64);
            *waiting += 1;
            let limit = self.limits.max_delayed_per_partition;
            if *waiting > limit {
                return Err(Refusal::DelayedFull { partition, limit });
            }
        }
        let limit = self.limits.state_entries_max;
        let delayed = records.iter().filter(|record| record.times.delay_ms != 0).count();
        let entries = *self.producer_entries + *self.delayed + delayed as u64;
        if entries > limit { Err(Refusal::DelayQuota { limit }) } else { Ok(()) }
    }

    fn store(&mut self, record: PublishRecord, effects: &mut Vec<Effect>) -> Published {
        let mut round_robin = self.topic.round_robin;
        let partition = self.place(record.key_hash, &mut round_robin);
        self.topic.round_robin = round_robin;
        let wanted = !self.topic.paths.is_empty();
        let expires_at_ms = self.expiry(record.times.ttl_ms);
        let state = self.topic.partition_mut(partition.index()).expect("placed in one of its partitions");
        let seq = state.last_seq.next();
        state.last_seq = seq;
        state.kept.note(seq, state.bytes, self.now, self.mark_steps);
        state.bytes += record.record.len() as u64;
        let fact = Fact { key_hash: record.key_hash, size_bytes: record.payload_bytes, expires_at_ms };
        state.facts.push(seq, fact, wanted);
        if record.times.delay_ms != 0 {
            state.schedule.add(DuePosition { due: self.now.after_ms(record.times.delay_ms), seq }, fact);
            self.delays.set((self.incarnation, partition), state.schedule.next_due());
            *self.delayed += 1;
        }
        self.remember(&record, partition, seq);
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

    /// By key if there is one, else each partition in turn, unless the request names one.
    fn place(&self, key_hash: KeyHash, round_robin: &mut u64) -> Partition {
        if self.requested != Partition::ANY {
            return self.requested;
        }
        let partitions = self.topic.partitions.len() as u64;
        let number = if key_hash.is_some() {
            (key_hash.get() & 0xFFFF_FFFF) % partitions
        } else {
            *round_robin = (*round_robin + 1) % partitions;
            *round_robin
        };
        Partition::new(u16::try_from(number).expect("less than 1024 partitions"))
    }

    fn remember(&mut self, record: &PublishRecord, partition: Partition, seq: mortarmq_types::Seq) {
        if self.producer_id == ProducerId::ZERO {
            return;
        }
        let producers = &mut self.topic.producers;
        let before = producers.entries();
        let what = Remembered { partition, seq, content_hash: record.content_hash };
        // At the shard's limit no line grows beyond a small window: what is remembered stays bounded (failure rule 9).
        let is_full = *self.producer_entries >= self.limits.state_entries_max;
        let window = if is_full { WINDOW_AT_LIMIT } else { self.limits.producer_window as usize };
        producers.remember((self.requested, self.producer_id), record.producer_seq, what, window, self.now);
        // Only now: before, the line that is used may itself be the one that was idle longest.
        producers.forget_idle(self.now, self.limits.producer_idle_ms.max(IDLE_LEAST_MS), 1);
        *self.producer_entries = *self.producer_entries + producers.entries() - before;
    }
}

/// The index keeps 48 bits of an expiry.
const EXPIRY_MAX_MS: u64 = (1 << 48) - 1;
/// A producer is remembered at least that long after its last publish (P3).
const IDLE_LEAST_MS: u64 = 600_000;
/// Publishes remembered per line when the shard remembers as many as it may.
const WINDOW_AT_LIMIT: usize = 64;
/// Producers forgotten by one publish at most.
const FORGET_MAX: usize = 64;

fn judge(standing: Standing, found: ProducerSeq) -> Result<Option<Remembered>, Refusal> {
    match standing {
        Standing::Next => Ok(None),
        Standing::Known(known) => Ok(Some(known)),
        Standing::OtherContent => Err(Refusal::SeqReused { found }),
        Standing::Gap { expected } => Err(Refusal::SeqGap { expected, found }),
        Standing::Expired => Err(Refusal::SeqExpired { found }),
    }
}
