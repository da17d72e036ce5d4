//! The sections of a topic: itself, its partitions, its producers. Its groups follow from the paths, and so do the dead letters
//! that are pinned: they are the sources of what the paths redrive.
//!
//! A topic:
//!
//! | field | bytes | meaning, unit | guards against |
//! |---|---|---|---|
//! | name | 2 + n | UTF-8 behind its length, as written when it was made | two topics under one name |
//! | settings | 1 + n × 9 | count, then number and value of each, rising; one that is not listed has its default | values out of range |
//! | created_epoch | 8 | the leader's term when it was made | |
//! | created_at | 8 | wall clock when it was made, ms since 1970, for display | |
//! | round_robin | 8 | the partition that took the last keyless message | replicas that place differently |
//!
//! A partition (their number is the setting `partitions`):
//!
//! | field | bytes | meaning, unit | guards against |
//! |---|---|---|---|
//! | last_seq | 8 | the last sequence given | a sequence given again (P10) |
//! | bytes | 8 | bytes of all records; of a dead letter, those of its payload and of an empty record | |
//! | fact limit | 8 | facts kept at most, at least 1 | memory without bound (failure rule 9) |
//! | fact count | 8 | facts of the newest messages, up to `last_seq` | |
//! | facts | n × 20 | key hash (8), size in bytes (4), expiry in ms (8), oldest first | order by key and windows that differ (P8) |
//! | told | 8 | delayed messages that fell due were told up to here, cluster time, ms | a message that falls due and nobody looks (P4) |
//! | delayed count | 8 | delayed messages | |
//! | delayed | n × 36 | due (8, cluster time, ms), sequence (8), then as a fact; by rising due and sequence | a message delivered early, or forgotten (P4) |
//! | first_seq | 8 | the first message that is kept; at most `last_seq` + 1 | what retention dropped owed again (P10) |
//! | gone_bytes | 8 | bytes of the records before the last mark up to there | |
//! | stored_at | 8 | when the last message was stored, cluster time, ms | messages dropped before their time (P4) |
//! | mark count | 8 | marks of messages that are kept | |
//! | marks | n × 24 | sequence (8), when the message before it was stored (8, cluster time, ms), bytes of all records before it (8); rising | the same |
//!
//! The producers of a topic:
//!
//! | field | bytes | meaning, unit | guards against |
//! |---|---|---|---|
//! | line count | 8 | lines that follow, by rising partition and producer | |
//! | partition | 2 | as it stands in the requests; 65535 if the broker chose | a number taken for another line's (P3) |
//! | producer | 8 | who sends, not 0 | the same |
//! | last | 8 | the newest number | a retry stored again (P3) |
//! | filed | 8 | when it was last used, cluster time, ms | a window that is too short (P3) |
//! | window count | 8 | publishes remembered, 1 to `last` | the same |
//! | window | n × 18 | partition (2), sequence (8), content hash (8), oldest first | an answer that names another message (P3) |
//! | key count | 8 | idempotency keys that follow | |
//! | keys | n × 44 | hash (16), partition (2), sequence (8), commit index (8), place among those of the command (2), first used (8, cluster time, ms); oldest first | a repeat that is stored again, or answered with another message (P3) |

use super::ImageError;
use super::head::Head;
use super::section::{Body, NUMBER_MAX, put_settings, put_text};
use crate::facts::FactWindow;
use crate::idempotency::{FirstUse, IdempotencyKey, Keys};
use crate::marks::{Mark, Marks};
use crate::names::{check_name, source_name};
use crate::producer::{Line, LineKey, Producers, Remembered};
use crate::retention::Kept;
use crate::schedule::Schedule;
use crate::settings::{Setting, TopicSettings};
use crate::state::{PartitionState, Topic};
use bytes::{BufMut, BytesMut};
use imbl::OrdMap;
use mortarmq_delivery::{Delayed, DuePosition, Fact};
use mortarmq_types::{
    ClusterTime, CommitIndex, Epoch, KeyHash, Mutant, Partition, ProducerId, ProducerSeq, Seq, WallTime,
};
use std::collections::{BTreeMap, VecDeque};

pub(super) fn put(out: &mut BytesMut, topic: &Topic) {
    put_text(out, &topic.name);
    put_settings(out, |setting| topic.settings.get(setting));
    out.put_u64(topic.created_epoch.get());
    out.put_u64(topic.created_at.get());
    out.put_u64(topic.round_robin);
}

/// The topic without partitions and producers, which have sections of their own.
pub(super) fn take(body: &mut Body, head: &Head) -> Result<Topic, ImageError> {
    let name = body.text("name")?;
    if check_name(source_name(&name).unwrap_or(&name)).is_err() {
        return Err(body.wrong("name", name.len() as u64));
    }
    let settings = TopicSettings::new(&TopicSettings::BUILD, &body.settings()?);
    let partitions = partitions_of(&settings);
    Ok(Topic {
        name,
        settings,
        created_epoch: Epoch::new(body.u64_in("created_epoch", 0, head.epoch.get())?),
        created_at: WallTime::new(body.u64()?),
        partitions: Vec::with_capacity(usize::from(partitions)),
        paths: BTreeMap::new(),
        producers: Producers::default(),
        keys: Keys::default(),
        round_robin: body.u64_in("round_robin", 0, u64::from(partitions) - 1)?,
        facts: 0,
        delayed: 0,
    })
}

/// How many partitions the topic has: at least one.
pub(super) fn partitions_of(settings: &TopicSettings) -> u16 {
    u16::try_from(settings.get(Setting::Partitions)).expect("the setting's range ends at 1024")
}

pub(super) fn put_partition(out: &mut BytesMut, partition: &PartitionState) {
    out.put_u64(partition.last_seq.get());
    out.put_u64(partition.bytes);
    out.put_u64(partition.facts.limit() as u64);
    out.put_u64(partition.facts.len() as u64);
    for fact in partition.facts.iter() {
        put_fact(out, fact);
    }
    out.put_u64(partition.schedule.told().get());
    out.put_u64(partition.schedule.len() as u64);
    for Delayed { at, fact } in partition.schedule.iter() {
        out.put_u64(at.due.get());
        out.put_u64(at.seq.get());
        put_fact(out, &fact);
    }
    put_kept(out, &partition.kept);
}

fn put_kept(out: &mut BytesMut, kept: &Kept) {
    out.put_u64(kept.first_seq.get());
    out.put_u64(kept.gone_bytes);
    out.put_u64(kept.stored_at.get());
    let marks = kept.marks.iter();
    out.put_u64(marks.len() as u64);
    for mark in marks {
        out.put_u64(mark.seq.get());
        out.put_u64(mark.before.get());
        out.put_u64(mark.bytes_before);
    }
}

fn take_kept(body: &mut Body, last_seq: Seq, bytes: u64, head: &Head) -> Result<Kept, ImageError> {
    let first_seq = Seq::new(body.u64_in("first_seq", 1, last_seq.next().get())?);
    let gone_bytes = body.u64_in("gone_bytes", 0, bytes)?;
    let stored_at = ClusterTime::new(body.u64_in("stored_at", 0, head.time.get())?);
    let count = body.count("marks", MARK_BYTES)?;
    let mut marks = Vec::with_capacity(count);
    for _ in 0..count {
        let seq = Seq::new(body.u64_in("mark", first_seq.get(), last_seq.get())?);
        let before = ClusterTime::new(body.u64_in("mark time", 0, stored_at.get())?);
        marks.push(Mark { seq, before, bytes_before: body.u64_in("mark bytes", gone_bytes, bytes)? });
    }
    let marks = Marks::restore(marks, last_seq).ok_or_else(|| body.wrong("marks", count as u64))?;
    Ok(Kept { first_seq, gone_bytes, stored_at, marks })
}

fn put_fact(out: &mut BytesMut, fact: &Fact) {
    out.put_u64(fact.key_hash.get());
    out.put_u32(fact.size_bytes);
    out.put_u64(fact.expires_at_ms);
}

fn take_fact(body: &mut Body) -> Result<Fact, ImageError> {
    Ok(Fact { key_hash: KeyHash::new(body.u64()?), size_bytes: body.u32()?, expires_at_ms: body.u64()? })
}

fn take_schedule(body: &mut Body, last_seq: Seq, head: &Head) -> Result<Schedule, ImageError> {
    let told = ClusterTime::new(body.u64_in("told", 0, head.time.get())?);
    let count = body.count("delayed", DELAYED_BYTES)?;
    let mut messages: Vec<Delayed> = Vec::with_capacity(count);
    for _ in 0..count {
        let due = ClusterTime::new(body.u64_in("due", 1, u64::MAX)?);
        let at = DuePosition { due, seq: Seq::new(body.u64_in("delayed seq", 1, last_seq.get())?) };
        if messages.last().is_some_and(|before| before.at >= at) {
            return Err(body.wrong("due", due.get()));
        }
        messages.push(Delayed { at, fact: take_fact(body)? });
    }
    Schedule::restore(told, messages).ok_or_else(|| body.wrong("delayed", count as u64))
}

pub(super) fn take_partition(body: &mut Body, head: &Head) -> Result<PartitionState, ImageError> {
    let last_seq = Seq::new(body.u64_in("last_seq", 0, NUMBER_MAX)?);
    let bytes = body.u64_in("bytes", 0, NUMBER_MAX)?;
    let limit = body.u64_in("fact limit", 1, u64::from(u32::MAX))?;
    let count = body.count("facts", 20)?;
    let mut facts = Vec::with_capacity(count);
    for _ in 0..count {
        facts.push(take_fact(body)?);
    }
    let limit = usize::try_from(limit).map_err(|_| body.wrong("fact limit", limit))?;
    let facts = FactWindow::restore(last_seq, limit, facts).ok_or_else(|| body.wrong("facts", count as u64))?;
    let schedule = take_schedule(body, last_seq, head)?;
    let kept = take_kept(body, last_seq, bytes, head)?;
    if let Some(gone) = schedule.first_among(Seq::ZERO..kept.first_seq) {
        return Err(body.wrong("first_seq", gone.seq.get()));
    }
    Ok(PartitionState { last_seq, bytes, facts, schedule, pins: OrdMap::new(), kept })
}

pub(super) fn put_producers(out: &mut BytesMut, producers: &Producers) {
    let lines = if Mutant::DedupNotInImage.is_on() { Vec::new() } else { producers.lines() };
    out.put_u64(lines.len() as u64);
    for ((partition, producer), line) in lines {
        out.put_u16(partition.get());
        out.put_u64(producer.get());
        out.put_u64(line.last.get());
        out.put_u64(line.filed.get());
        out.put_u64(line.window.len() as u64);
        for remembered in &line.window {
            out.put_u16(remembered.partition.get());
            out.put_u64(remembered.seq.get());
            out.put_u64(remembered.content_hash);
        }
    }
}

pub(super) fn put_keys(out: &mut BytesMut, keys: &Keys) {
    let all = keys.iter();
    out.put_u64(all.len() as u64);
    for (key, first) in all {
        out.put_u128(key.get());
        out.put_u16(first.partition.get());
        out.put_u64(first.seq.get());
        out.put_u64(first.commit_index.get());
        out.put_u16(first.place);
        out.put_u64(first.at.get());
    }
}

/// The idempotency keys of a topic whose partitions are there.
pub(super) fn take_keys(body: &mut Body, topic: &Topic, head: &Head) -> Result<Keys, ImageError> {
    let count = body.count("keys", KEY_BYTES)?;
    let mut keys = Keys::default();
    let (mut before, mut earliest) = (None, 0);
    for _ in 0..count {
        let key = IdempotencyKey::new(u128::from(body.u64()?) << 64 | u128::from(body.u64()?));
        let partition = Partition::new(body.u16()?);
        let Some(placed) = topic.partitions.get(partition.index()) else {
            return Err(body.wrong("key partition", u64::from(partition.get())));
        };
        let seq = Seq::new(body.u64_in("key seq", 1, placed.last_seq.get())?);
        let commit_index = CommitIndex::new(body.u64_in("key commit_index", 1, head.commit_index.get())?);
        let place = body.u16()?;
        let at = ClusterTime::new(body.u64_in("key at", earliest, head.time.get())?);
        let is_known = keys.find(key, at, u64::MAX).is_some();
        if is_known || before.replace((commit_index, place)).is_some_and(|before| before >= (commit_index, place)) {
            return Err(body.wrong("key place", u64::from(place)));
        }
        earliest = at.get();
        keys.remember(key, FirstUse { partition, seq, commit_index, at, place });
    }
    Ok(keys)
}

/// The producers of a topic whose partitions are there.
pub(super) fn take_producers(body: &mut Body, topic: &Topic, head: &Head) -> Result<Producers, ImageError> {
    let count = body.count("lines", LINE_LEAST_BYTES)?;
    let mut lines: Vec<(LineKey, Line)> = Vec::with_capacity(count);
    for _ in 0..count {
        let partition = Partition::new(body.u16()?);
        if partition != Partition::ANY && partition.index() >= topic.partitions.len() {
            return Err(body.wrong("partition", u64::from(partition.get())));
        }
        let key = (partition, ProducerId::new(body.u64_in("producer", 1, u64::MAX)?));
        if lines.last().is_some_and(|(before, _)| *before >= key) {
            return Err(body.wrong("producer", key.1.get()));
        }
        lines.push((key, take_line(body, topic, head)?));
    }
    Ok(Producers::restore(lines))
}

fn take_line(body: &mut Body, topic: &Topic, head: &Head) -> Result<Line, ImageError> {
    let last = ProducerSeq::new(body.u64_in("last", 1, NUMBER_MAX)?);
    let filed = ClusterTime::new(body.u64_in("filed", 0, head.time.get())?);
    let count = body.count("window", REMEMBERED_BYTES)?;
    if count == 0 || count as u64 > last.get() {
        return Err(body.wrong("window", count as u64));
    }
    let mut window = VecDeque::with_capacity(count);
    for _ in 0..count {
        let partition = Partition::new(body.u16()?);
        // A publish that an idempotency key answered may have gone elsewhere than its number asks.
        let Some(placed) = topic.partitions.get(partition.index()) else {
            return Err(body.wrong("window partition", u64::from(partition.get())));
        };
        let seq = Seq::new(body.u64_in("window seq", 1, placed.last_seq.get())?);
        window.push_back(Remembered { partition, seq, content_hash: body.u64()? });
    }
    Ok(Line { last, window, filed })
}

const KEY_BYTES: usize = 16 + 2 + 8 + 8 + 2 + 8;
const MARK_BYTES: usize = 8 + 8 + 8;
const DELAYED_BYTES: usize = 8 + 8 + 20;
const REMEMBERED_BYTES: usize = 2 + 8 + 8;
const LINE_LEAST_BYTES: usize = 2 + 8 + 8 + 8 + 8 + REMEMBERED_BYTES;
