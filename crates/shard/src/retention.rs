//! How long messages are kept, and which of them may go.
//!
//! A topic keeps each message for `retention_ms`, and of each partition the newest `retention_bytes`; what is older, or
//! beyond, goes with a `Trim`, whether it is settled or not. With `keep_settled: false` goes also what every path has settled.
//! A dead-letter topic keeps its messages as its source does.
//!
//! Apply looks at these rules itself, at the moment of the command: a `Trim` says only how far it is to go at most.
//!
//! # Invariants
//! 1. What a partition keeps begins not above the next message to come, and never goes back (P10).
//! 2. Nothing is delayed below it, and no path's bound lies below it.
//! 3. The marks lie not below it and not above the last message; their bytes, and those of what is gone, are some of the
//!    partition's.

use crate::marks::{Mark, MarkSteps, Marks};
use crate::names::source_name;
use crate::settings::{Defaults, Setting};
use crate::state::{PartitionState, State, Topic};
use mortarmq_types::{ClusterTime, Partition, Seq, TopicIncarnation};

/// What the settings of a topic say about how long its messages stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// So long at least, in milliseconds of cluster time; 0 = for ever.
    pub ms: u64,
    /// Of each partition so many bytes of records at least; 0 = no limit.
    pub bytes: u64,
    /// Whether what every path has settled stays as long as the rest.
    pub keep_settled: bool,
}

/// What is left of a partition's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The first message that is kept: what lies below is settled on every path, or under its last lease.
    pub first_seq: Seq,
    /// Bytes of the records of what is gone, as far as that is known: up to the last mark below.
    pub gone_bytes: u64,
    /// When the last message was stored; 0 before the first.
    pub stored_at: ClusterTime,
    /// How old and how large its beginning is.
    pub marks: Marks,
}

impl Default for Kept {
    fn default() -> Self {
        Self { first_seq: Seq::FIRST, gone_bytes: 0, stored_at: ClusterTime::ZERO, marks: Marks::default() }
    }
}

impl Kept {
    /// Notes that a message is stored now, behind so many bytes.
    pub(crate) fn note(&mut self, seq: Seq, bytes_before: u64, now: ClusterTime, steps: MarkSteps) {
        self.marks.note(Mark { seq, before: self.stored_at, bytes_before }, now, steps);
        self.stored_at = now;
    }

    /// Nothing below a sequence is kept any more, of a partition with so many messages and bytes.
    pub(crate) fn raise_to(&mut self, first_seq: Seq, last_seq: Seq, bytes: u64) {
        assert!(first_seq >= self.first_seq, "invariant 1, P10: {} is kept, and not {first_seq}", self.first_seq);
        self.first_seq = first_seq;
        let below = self.marks.at_or_below(first_seq).map(|mark| mark.bytes_before);
        let gone = if first_seq > last_seq { Some(bytes) } else { below };
        self.gone_bytes = self.gone_bytes.max(gone.unwrap_or(0));
        self.marks.trim(first_seq);
    }

    /// Asserts invariants 1 and 3.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self, last_seq: Seq, bytes: u64) {
        let first_seq = self.first_seq;
        let is_in_place = Seq::FIRST <= first_seq && first_seq <= last_seq.next();
        assert!(is_in_place, "invariant 1: {first_seq} is kept, the last message is {last_seq}");
        assert!(self.marks.is_between(first_seq, last_seq), "invariant 3: a mark outside of {first_seq}..={last_seq}");
        let marked = self.marks.last().map_or(self.gone_bytes, |mark| mark.bytes_before);
        assert!(self.gone_bytes <= marked && marked <= bytes, "invariant 3: {marked} bytes before the last mark");
    }
}

impl Retention {
    /// How far apart a partition marks its messages: fine enough that they go little later than they could, and segments
    /// with few marks.
    #[must_use]
    pub fn mark_steps(&self, segment_max_bytes: u64) -> MarkSteps {
        let of_segment = (segment_max_bytes / MARKS_PER_SEGMENT).max(MARK_LEAST_BYTES);
        let bytes = match self.bytes {
            0 => of_segment,
            bytes => (bytes / MARKS_PER_LIMIT).clamp(MARK_LEAST_BYTES, of_segment),
        };
        let ms = if self.ms == 0 { 0 } else { (self.ms / MARKS_PER_LIMIT).max(1) };
        MarkSteps { ms, bytes }
    }

    /// The sequence below which the messages of a partition are too old or too many now; none if nothing is.
    fn beyond_limits(&self, partition: &PartitionState, now: ClusterTime) -> Option<Seq> {
        let by_time = now.get().checked_sub(self.ms).filter(|_| self.ms > 0).and_then(|time| {
            let time = ClusterTime::new(time);
            let end = (partition.kept.stored_at <= time).then(|| partition.last_seq.next());
            end.or_else(|| partition.kept.marks.stored_by(time))
        });
        let is_limited = self.bytes > 0;
        let by_bytes = is_limited.then(|| partition.kept.marks.beyond_bytes(partition.bytes, self.bytes)).flatten();
        by_time.max(by_bytes)
    }
}

impl PartitionState {
    /// Bytes of the records that are kept; of those before the next mark, all.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.bytes - self.kept.gone_bytes
    }
}

impl State {
    /// The value of a topic's setting. How long a dead-letter topic keeps its messages is its source's.
    #[must_use]
    pub fn topic_setting(&self, topic: &Topic, setting: Setting) -> u64 {
        let is_retention = matches!(setting, Setting::RetentionMs | Setting::RetentionBytes | Setting::KeepSettled);
        let source = source_name(&topic.name).filter(|_| is_retention);
        let source = source.and_then(|name| self.names.get(&name.to_ascii_lowercase()));
        source.map_or(topic, |source| &self.topics[source]).settings.get(setting)
    }

    /// How long a topic keeps its messages.
    #[must_use]
    pub fn retention(&self, topic: &Topic) -> Retention {
        Retention {
            ms: self.topic_setting(topic, Setting::RetentionMs),
            bytes: self.topic_setting(topic, Setting::RetentionBytes),
            keep_settled: self.topic_setting(topic, Setting::KeepSettled) != 0,
        }
    }

    /// How far apart the partitions of a topic mark their messages.
    pub(crate) fn mark_steps(&self, topic: &Topic) -> MarkSteps {
        let defaults = self.defaults.as_ref().unwrap_or(&Defaults::BUILD);
        self.retention(topic).mark_steps(defaults.segment_max_bytes)
    }

    /// The sequence below which the messages of a partition may go at this time; none if nothing may that has not gone.
    #[must_use]
    pub fn trim_target(&self, topic: TopicIncarnation, partition: Partition, now: ClusterTime) -> Option<Seq> {
        let found = self.topics.get(&topic)?;
        let (retention, number) = (self.retention(found), partition.index());
        let state = found.partitions.get(number)?;
        let beyond = retention.beyond_limits(state, now);
        let settled = (!retention.keep_settled).then(|| self.settled_target(found, number, now)).flatten();
        beyond.max(settled).filter(|below| *below > state.kept.first_seq)
    }

    /// Where a `Trim` of a partition would go at this time; none if it would change nothing. A path that an operator moves
    /// has to arrive first.
    #[must_use]
    pub fn trimmable(&self, topic: TopicIncarnation, partition: Partition, now: ClusterTime) -> Option<Seq> {
        let below = self.trim_target(topic, partition, now)?;
        let (found, number) = (&self.topics[&topic], partition.index());
        let mut lowest = below;
        for id in found.paths.values() {
            let path = &self.paths[id].partitions[number];
            if path.kept_from() < below && !path.is_moving() {
                return Some(below);
            }
            lowest = lowest.min(path.kept_from());
        }
        (lowest > found.partitions[number].kept.first_seq).then_some(below)
    }

    /// The lowest sequence of a partition whose record somebody may still need: what is kept, and below that what is under
    /// its last lease on some path, or pinned as the bytes of a redriven message.
    ///
    /// # Source
    /// DESIGN section 2, "Retention": a message under a live lease and a pinned dead letter stay, and go when that ends.
    #[must_use]
    pub fn needed_from(&self, topic: TopicIncarnation, partition: Partition) -> Option<Seq> {
        let found = self.topics.get(&topic)?;
        let state = found.partitions.get(partition.index())?;
        let kept = state.lowest_pin().into_iter().fold(state.kept.first_seq, Seq::min);
        let paths = found.paths.values().filter_map(|id| self.paths.get(id)?.partitions.get(partition.index()));
        Some(paths.filter_map(|path| path.lowest_offered()).fold(kept, Seq::min))
    }

    /// The mark below which every path has settled everything; the end of a partition that is idle. A topic without paths
    /// has settled nothing.
    fn settled_target(&self, topic: &Topic, number: usize, now: ClusterTime) -> Option<Seq> {
        let state = &topic.partitions[number];
        let paths = topic.paths.values().map(|id| &self.paths[id].partitions[number]);
        let settled = paths.map(|path| state.settled_below(path)).min()?;
        let is_idle = now.since_ms(state.kept.stored_at) >= IDLE_MS;
        if settled > state.last_seq && is_idle {
            return Some(settled);
        }
        state.kept.marks.at_or_below(settled).map(|mark| mark.seq)
    }
}

/// Marks in a segment, about.
const MARKS_PER_SEGMENT: u64 = 4;
/// Marks in what a limit keeps, about: so much of it, at most, stays longer than it must.
const MARKS_PER_LIMIT: u64 = 64;
/// A mark costs 24 bytes.
const MARK_LEAST_BYTES: u64 = 256;
/// Nothing was stored for so long: what comes next begins something new.
const IDLE_MS: u64 = 60_000;
