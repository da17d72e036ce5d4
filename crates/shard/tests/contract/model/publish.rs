//! Publishes: windows of producer numbers (P3), places, delays and lives.

use super::{FirstUse, Line, Message, Model, Seen, Stored, Topic, Verdict, allowed, due_after};
use mortarmq_shard::command::{Publish, PublishBatch, PublishRecord};
use mortarmq_shard::{AppendEffect, Effect, IdempotencyKey, Outcome, Published, Refusal, Setting};
use mortarmq_types::{Partition, ProducerId, TopicIncarnation};
use std::collections::BTreeSet;

/// A producer is remembered at least that long after its last publish.
const IDLE_LEAST_MS: u64 = 600_000;

/// A key is remembered at least that long.
const KEY_LEAST_MS: u64 = 60_000;

/// What is known of an idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Its window is open: a repeat is answered as the first was.
    Yes,
    /// It may be forgotten: either answer is right.
    Perhaps,
    No,
}

/// One request, single or batch.
struct Request<'a> {
    topic: TopicIncarnation,
    to: Partition,
    producer: ProducerId,
    records: &'a [PublishRecord],
}

/// What of a request takes room: new keys and delayed messages at most, whether any certainly is new, and a new line of numbers.
#[derive(Clone, Copy, Debug, Default)]
struct New {
    keys: u64,
    delayed: u64,
    certain: bool,
    is_line: bool,
}

/// A record may need room for its number, its key and its delay.
const ENTRIES_PER_RECORD: u64 = 3;

/// Why a publish may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    Topic,
    DeadLetters,
    Partition,
    TooLarge,
    Invalid,
    Gap,
    Reused,
    Expired,
    DelayedFull,
    /// The shard keeps as much as it may.
    Room,
    Other,
}

impl Model {
    pub(super) fn publish(&mut self, publish: &Publish, seen: &Seen<'_>) -> Verdict {
        let records = std::slice::from_ref(&publish.record);
        let (topic, to, producer) = (publish.topic, publish.requested, publish.producer_id);
        let answers = match seen.outcome {
            Outcome::Published(published) => Ok(std::slice::from_ref(published)),
            Outcome::Refused(refusal) => Err(refusal),
            _ => return Err("expected an answer to a publish".to_owned()),
        };
        self.answer(&Request { topic, to, producer, records }, answers, seen)
    }

    pub(super) fn publish_batch(&mut self, batch: &PublishBatch, seen: &Seen<'_>) -> Verdict {
        let (topic, to, producer) = (batch.topic, batch.requested, batch.producer_id);
        let answers = match seen.outcome {
            Outcome::PublishedBatch(published) => Ok(&published[..]),
            Outcome::Refused(refusal) => Err(refusal),
            _ => return Err("expected an answer to a batch publish".to_owned()),
        };
        self.answer(&Request { topic, to, producer, records: &batch.records }, answers, seen)
    }

    /// A producer that was idle long enough may be forgotten: then either answer is right.
    fn answer(&mut self, request: &Request<'_>, answers: Result<&[Published], &Refusal>, seen: &Seen<'_>) -> Verdict {
        self.make_room(ENTRIES_PER_RECORD * request.records.len() as u64);
        let key = (request.to, request.producer);
        let idle_ms = self.idle_least_ms.unwrap_or(self.defaults().producer_idle_ms).max(IDLE_LEAST_MS);
        let line = self.topics.get(&request.topic).and_then(|topic| topic.lines.get(&key));
        let may_be_gone = line.is_some_and(|line| line.may_be_gone || self.time - line.used >= idle_ms);
        if !may_be_gone {
            return self.answer_known(request, answers, seen);
        }
        let mut without = self.clone();
        without.topics.get_mut(&request.topic).expect("it has the line").lines.remove(&key);
        let known = self.answer_known(request, answers, seen);
        if known.is_ok() {
            return known;
        }
        without.answer_known(request, answers, seen)?;
        *self = without;
        Ok(())
    }

    fn answer_known(
        &mut self,
        request: &Request<'_>,
        answers: Result<&[Published], &Refusal>,
        seen: &Seen<'_>,
    ) -> Verdict {
        let (must, may) = self.reasons(request);
        let new = self.new_entries(request);
        match answers {
            Err(refusal) => {
                let why = why(refusal);
                if why == Why::Room {
                    return self.check_quota(refusal, new.keys, new.delayed, new.is_line);
                }
                allowed!(
                    must.contains(&why) || may.contains(&why),
                    "P2: refused, but the reasons are {must:?} {may:?}"
                );
                Ok(())
            }
            Ok(answers) => {
                allowed!(must.is_empty(), "stored, although {must:?}");
                let numbers = if request.producer == ProducerId::ZERO { 0 } else { request.records.len() as u64 };
                let is_new = new.certain || new.is_line;
                // The facts of what it stores may come on top, until room is next looked for.
                let facts = request.records.len() as u64;
                self.check_room_of_stored(numbers + facts, is_new)?;
                self.take_in(request, answers, seen)
            }
        }
    }

    /// Why the request has to be, and may be, refused.
    fn reasons(&mut self, request: &Request<'_>) -> (BTreeSet<Why>, BTreeSet<Why>) {
        let (mut must, mut may) = (BTreeSet::new(), BTreeSet::new());
        let Some(topic) = self.topics.get(&request.topic) else { return (BTreeSet::from([Why::Topic]), may) };
        if topic.holds_dead_letters() {
            must.insert(Why::DeadLetters);
        }
        if request.to != Partition::ANY && request.to.index() >= topic.partitions.len() {
            return (BTreeSet::from([Why::Partition, Why::DeadLetters]), may);
        }
        let window = u64::from(self.defaults().producer_window);
        let line = topic.lines.get(&(request.to, request.producer)).cloned().unwrap_or_default();
        let mut last = line.last();
        let mut edges = Vec::new();
        for (place, record) in request.records.iter().enumerate() {
            let number = record.producer_seq.get();
            if u64::from(record.value_bytes) > topic.settings.get(Setting::MaxMessageBytes) {
                must.insert(Why::TooLarge);
            }
            let before = place.checked_sub(1).map(|before| request.records[before].producer_seq.get());
            let follows = before.is_none_or(|before| number == before + 1 || (before == 0 && number == 0));
            if !follows || (number == 0) != (request.producer == ProducerId::ZERO) {
                must.insert(Why::Invalid);
            }
            if number == 0 || request.producer == ProducerId::ZERO {
                continue;
            }
            if number > last {
                if number == last + 1 {
                    last = number;
                } else {
                    must.insert(if last == 0 { Why::Expired } else { Why::Gap });
                }
            } else if number > line.last() {
                must.insert(Why::Invalid);
            } else if number <= line.forgotten {
                must.insert(Why::Expired);
                edges.push(line.last() - number == window);
            } else {
                edges.push(line.last() - number + 1 == window);
                if line.stored[&number].content != record.content_hash {
                    must.insert(Why::Reused);
                }
            }
        }
        if edges.contains(&true) {
            self.reach("duplicate at the window's edge");
        }
        self.delay_reasons(request, &mut must, &mut may);
        (must, may)
    }

    /// What of a request would take room of its own.
    fn new_entries(&self, request: &Request<'_>) -> New {
        let Some(topic) = self.topics.get(&request.topic) else { return New::default() };
        let is_line =
            request.producer != ProducerId::ZERO && !topic.lines.contains_key(&(request.to, request.producer));
        let stored = |record: &&PublishRecord| !topic.knows(request, record);
        let (mut keys, mut certain, mut delayed) = (BTreeSet::new(), false, 0);
        for record in request.records.iter().filter(stored) {
            if let Some(key) = record.idempotency_key {
                let known = self.known(request.topic, key);
                if known == Known::Yes || !keys.insert(key) {
                    continue;
                }
                certain |= known == Known::No;
            }
            delayed += u64::from(record.times.delay_ms != 0);
            certain |= record.times.delay_ms != 0 && record.idempotency_key.is_none();
        }
        New { keys: keys.len() as u64, delayed, is_line, certain }
    }

    /// At least what is not due counts; at most everything that was ever delayed.
    fn delay_reasons(&self, request: &Request<'_>, must: &mut BTreeSet<Why>, may: &mut BTreeSet<Why>) {
        let topic = &self.topics[&request.topic];
        let limit = self.defaults().max_delayed_per_partition;
        let is_new = |record: &&PublishRecord| record.times.delay_ms != 0 && !topic.knows(request, record);
        let more = request.records.iter().filter(is_new).count() as u64;
        // A repeat of a key is not stored, and takes no place.
        let mut keys = BTreeSet::new();
        let is_certain = |record: &&PublishRecord| {
            record.idempotency_key.is_none_or(|key| keys.insert(key) && self.known(request.topic, key) == Known::No)
        };
        let certain = request.records.iter().filter(is_new).filter(is_certain).count();
        let counts = topic.partitions.iter().map(|messages| {
            let kept = usize::try_from(messages.kept_from - 1).expect("small");
            let delayed = || messages.list.iter().skip(kept).filter(|message| message.due != 0);
            (delayed().filter(|message| message.due > self.time).count() as u64, delayed().count() as u64)
        });
        let (least, most) = counts.fold((u64::MAX, 0), |(least, most), (low, high)| (least.min(low), most.max(high)));
        if certain > 0 && least + 1 > limit {
            must.insert(Why::DelayedFull);
        }
        if more > 0 && most + more > limit {
            may.insert(Why::DelayedFull);
        }
    }

    fn take_in(&mut self, request: &Request<'_>, answers: &[Published], seen: &Seen<'_>) -> Verdict {
        allowed!(answers.len() == request.records.len(), "{} answers", answers.len());
        let mut appends = seen.effects.iter().filter_map(|effect| match effect {
            Effect::Append(append) => Some(append),
            _ => None,
        });
        for (record, answer) in request.records.iter().zip(answers) {
            let (number, key) = (record.producer_seq.get(), (request.to, request.producer));
            let topic = self.topics.get_mut(&request.topic).expect("it had no reason to be refused");
            if let Some(stored) = topic.lines.get(&key).and_then(|line| line.stored.get(&number)) {
                let first = (stored.partition, stored.seq, true);
                let found = (answer.partition, answer.seq.get(), answer.deduplicated);
                allowed!(found == first, "P3: number {number} is {found:?}, at first {first:?}");
                continue;
            }
            if self.repeats_key(request, record, answer)? {
                self.remember(request, record, answer);
                continue;
            }
            let topic = self.topics.get_mut(&request.topic).expect("it had no reason to be refused");
            topic.check_place(request.to, record, answer.partition)?;
            let append = appends.next().ok_or("nothing is appended")?;
            self.check_append(request, record, answer, append)?;
            self.remember(request, record, answer);
            self.remember_key(request, record, answer);
        }
        allowed!(appends.next().is_none(), "P3: more was appended than is answered");
        Ok(())
    }

    /// Stores a message, which is appended as it was sent.
    fn check_append(
        &mut self,
        request: &Request<'_>,
        record: &PublishRecord,
        answer: &Published,
        append: &AppendEffect,
    ) -> Verdict {
        let topic = &self.topics[&request.topic];
        let default_ttl = topic.settings.get(Setting::TtlMs);
        let ttl = if record.times.ttl_ms == 0 { default_ttl } else { record.times.ttl_ms };
        let message = Message {
            key: record.key_hash,
            size: record.payload_bytes,
            due: due_after(self.time, record.times.delay_ms),
            expiry: due_after(self.time, ttl),
            stored_at: self.time,
            bytes: append.record.len() as u64,
        };
        let seq = self.store(request.topic, answer.partition, message);
        allowed!(answer.seq.get() == seq, "P10: sequence {}, expected {seq}", answer.seq);
        let found = (append.topic, append.partition, append.seq.get(), append.key_hash, append.payload_bytes);
        let expected = (request.topic, answer.partition, seq, message.key, message.size);
        allowed!(found == expected && append.expires_at_ms == message.expiry, "appended {append:?}");
        Ok(())
    }

    /// Whether a record was answered as the first publish under its idempotency key was; if so, that had to be or could be.
    fn repeats_key(&mut self, request: &Request<'_>, record: &PublishRecord, answer: &Published) -> Verdict<bool> {
        let Some(key) = record.idempotency_key else {
            allowed!(!answer.deduplicated, "P3: number {} was never stored", record.producer_seq);
            return Ok(false);
        };
        let known = self.known(request.topic, key);
        let first = self.topics[&request.topic].keys.get(&key).copied();
        let elsewhere = self.topics.iter().any(|(id, topic)| *id != request.topic && topic.keys.contains_key(&key));
        if let Some(first) = first {
            let (age, window) = (self.time - first.at, self.key_window());
            match age {
                _ if known == Known::Perhaps => {}
                _ if age + 1 == window || age == window => self.reach("key repeated at the edge of its window"),
                _ if age < window => self.reach("key repeated inside its window"),
                _ => self.reach("key repeated after its window"),
            }
        } else if elsewhere {
            self.reach("key that another topic knows");
        }
        match first.filter(|_| answer.deduplicated) {
            Some(first) => {
                let found = (answer.partition, answer.seq.get());
                allowed!(known != Known::No, "P3: the window of {key:?} is over, and it was answered as {found:?}");
                allowed!(found == (first.partition, first.seq), "P3: {key:?} is {found:?}, at first {first:?}");
                Ok(true)
            }
            None => {
                allowed!(!answer.deduplicated, "P3: {key:?} is new");
                allowed!(known != Known::Yes, "P3: {key:?} was stored twice, at first as {first:?}");
                Ok(false)
            }
        }
    }

    fn known(&self, topic: TopicIncarnation, key: IdempotencyKey) -> Known {
        match self.topics[&topic].keys.get(&key) {
            Some(first) if self.time - first.at >= self.key_window() => Known::No,
            Some(first) if first.may_be_gone => Known::Perhaps,
            Some(_) => Known::Yes,
            None => Known::No,
        }
    }

    fn key_window(&self) -> u64 {
        self.defaults().idempotency_window_ms.max(KEY_LEAST_MS)
    }

    /// The number of a record is used up.
    fn remember(&mut self, request: &Request<'_>, record: &PublishRecord, answer: &Published) {
        let number = record.producer_seq.get();
        if number == 0 {
            return;
        }
        let window = u64::from(self.defaults().producer_window);
        let topic = self.topics.get_mut(&request.topic).expect("it had no reason to be refused");
        let line: &mut Line = topic.lines.entry((request.to, request.producer)).or_default();
        let (partition, seq) = (answer.partition, answer.seq.get());
        line.stored.insert(number, Stored { partition, seq, content: record.content_hash });
        line.forgotten = line.forgotten.max(number.saturating_sub(window));
        (line.used, line.may_be_gone) = (self.time, false);
    }

    /// The window of a key begins. Others, whose window is over, may be forgotten with it.
    fn remember_key(&mut self, request: &Request<'_>, record: &PublishRecord, answer: &Published) {
        let Some(key) = record.idempotency_key else { return };
        let (window, now) = (self.key_window(), self.time);
        let topic = self.topics.get_mut(&request.topic).expect("it had no reason to be refused");
        for first in topic.keys.values_mut() {
            first.may_be_gone |= now - first.at >= window;
        }
        let first = FirstUse { partition: answer.partition, seq: answer.seq.get(), at: now, may_be_gone: false };
        topic.keys.insert(key, first);
    }
}

impl Line {
    fn last(&self) -> u64 {
        self.stored.last_key_value().map_or(0, |(number, _)| *number)
    }
}

impl Topic {
    fn knows(&self, request: &Request<'_>, record: &PublishRecord) -> bool {
        let line = self.lines.get(&(request.to, request.producer));
        line.is_some_and(|line| line.stored.contains_key(&record.producer_seq.get()))
    }

    /// By request, by key, by idempotency key, or each partition in turn.
    fn check_place(&mut self, to: Partition, record: &PublishRecord, found: Partition) -> Verdict {
        let partitions = self.partitions.len() as u64;
        let expected = if to != Partition::ANY {
            Some(u64::from(to.get()))
        } else if record.key_hash.is_some() {
            Some((record.key_hash.get() & 0xFFFF_FFFF) % partitions)
        } else if let Some(key) = record.idempotency_key {
            // Its lowest 32 bits are what places a key.
            Some(u64::try_from(key.get() & 0xFFFF_FFFF).expect("32 bits") % partitions)
        } else {
            let turn = self.last_turn.map(|last| (last + 1) % partitions);
            self.last_turn = Some(u64::from(found.get()));
            turn
        };
        allowed!(
            expected.is_none_or(|place| place == u64::from(found.get())),
            "P8: placed in {found}, not {expected:?}"
        );
        Ok(())
    }
}

fn why(refusal: &Refusal) -> Why {
    match refusal {
        Refusal::UnknownTopic => Why::Topic,
        Refusal::DeadLetterTopic => Why::DeadLetters,
        Refusal::UnknownPartition { .. } => Why::Partition,
        Refusal::TooLarge { .. } => Why::TooLarge,
        Refusal::SeqInvalid => Why::Invalid,
        Refusal::SeqGap { .. } => Why::Gap,
        Refusal::SeqReused { .. } => Why::Reused,
        Refusal::SeqExpired { .. } => Why::Expired,
        Refusal::DelayedFull { .. } => Why::DelayedFull,
        Refusal::ProducerQuota { .. } | Refusal::KeyQuota { .. } | Refusal::DelayQuota { .. } => Why::Room,
        _ => Why::Other,
    }
}
