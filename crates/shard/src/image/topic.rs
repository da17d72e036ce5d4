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

use super::ImageError;
use super::head::Head;
use super::section::{Body, NUMBER_MAX, put_settings, put_text};
use crate::facts::FactWindow;
use crate::names::{check_name, source_name};
use crate::producer::{Line, LineKey, Producers, Remembered};
use crate::schedule::Schedule;
use crate::settings::{Setting, TopicSettings};
use crate::state::{PartitionState, Topic};
use bytes::{BufMut, BytesMut};
use imbl::OrdMap;
use mortarmq_delivery::{Delayed, DuePosition, Fact};
use mortarmq_types::{ClusterTime, Epoch, KeyHash, Partition, ProducerId, ProducerSeq, Seq, WallTime};
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
    let settings = TopicSettings::new(&body.settings()?);
    let partitions = partitions_of(&settings);
    Ok(Topic {
        name,
        settings,
        created_epoch: Epoch::new(body.u64_in("created_epoch", 0, head.epoch.get())?),
        created_at: WallTime::new(body.u64()?),
        partitions: Vec::with_capacity(usize::from(partitions)),
        paths: BTreeMap::new(),
        producers: Producers::default(),
        round_robin: body.u64_in("round_robin", 0, u64::from(partitions) - 1)?,
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
    Ok(PartitionState { last_seq, bytes, facts, schedule, pins: OrdMap::new() })
}

pub(super) fn put_producers(out: &mut BytesMut, producers: &Producers) {
    let lines = producers.lines();
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
        lines.push((key, take_line(body, partition, topic, head)?));
    }
    Ok(Producers::restore(lines))
}

fn take_line(body: &mut Body, requested: Partition, topic: &Topic, head: &Head) -> Result<Line, ImageError> {
    let last = ProducerSeq::new(body.u64_in("last", 1, NUMBER_MAX)?);
    let filed = ClusterTime::new(body.u64_in("filed", 0, head.time.get())?);
    let count = body.count("window", REMEMBERED_BYTES)?;
    if count == 0 || count as u64 > last.get() {
        return Err(body.wrong("window", count as u64));
    }
    let mut window = VecDeque::with_capacity(count);
    for _ in 0..count {
        let partition = Partition::new(body.u16()?);
        let placed = topic.partitions.get(partition.index());
        let Some(placed) = placed.filter(|_| requested == Partition::ANY || requested == partition) else {
            return Err(body.wrong("window partition", u64::from(partition.get())));
        };
        let seq = Seq::new(body.u64_in("window seq", 1, placed.last_seq.get())?);
        window.push_back(Remembered { partition, seq, content_hash: body.u64()? });
    }
    Ok(Line { last, window, filed })
}

const DELAYED_BYTES: usize = 8 + 8 + 20;
const REMEMBERED_BYTES: usize = 2 + 8 + 8;
const LINE_LEAST_BYTES: usize = 2 + 8 + 8 + 8 + 8 + REMEMBERED_BYTES;
