//! Retention: the leader looks at one partition after another, and proposes a `Trim` where messages may go.
//!
//! A look is cheap, and there are so many in a turn at most; a round over all partitions begins once in a while. A partition
//! that one command was not enough for is looked at again with the next batch, so the rest of the shard goes on between.
//! Where room is short, what is settled goes first, and at once (failure rule 8).
//!
//! The files that a trim frees go with the next checkpoint, so one is taken some time after.

use mortarmq_shard::command::Trim;
use mortarmq_shard::{Command, State};
use mortarmq_types::{MonotonicTime, Partition, TopicIncarnation};

use crate::config::Now;
use crate::node::Node;
use crate::open_batch::WaiterKind;

type Place = (TopicIncarnation, Partition);

/// Where the leader stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retaining {
    /// The partition that is looked at next; the first of all if there is none.
    next: Option<Place>,
    /// When it is.
    next_look: MonotonicTime,
    /// Partitions from which more is to go than the last command could take.
    unfinished: Vec<Place>,
    /// Whether this round looks only at topics that need not keep what is settled.
    is_hurried: bool,
    /// Whether files may have become free since a checkpoint was asked for.
    pub(crate) has_freed: bool,
}

impl Retaining {
    /// Room is short: begins a round at once, with what is settled.
    pub(crate) fn hurry(&mut self) {
        (self.next, self.next_look, self.is_hurried) = (None, MonotonicTime::ZERO, true);
    }

    /// The partitions of this turn, in order.
    fn look(&mut self, now: Now, state: &State) -> Vec<Place> {
        if now.monotonic < self.next_look {
            return Vec::new();
        }
        self.next_look = now.monotonic.after_ms(LOOK_EVERY_MS);
        let first = self.next.unwrap_or((TopicIncarnation::ZERO, Partition::ZERO));
        let topics = state.topics.range(first.0..).take(LOOKS_MAX);
        let is_looked_at = |topic| !self.is_hurried || !state.retention(topic).keep_settled;
        let mut places = topics.filter(|(_, topic)| is_looked_at(topic)).flat_map(|(id, topic)| {
            let from = if *id == first.0 { first.1.index() } else { 0 };
            (from..topic.partitions.len()).map(|number| (*id, Partition::from_index(number)))
        });
        let turn: Vec<Place> = places.by_ref().take(LOOKS_MAX).collect();
        self.next = places.next().or_else(|| {
            let last = state.topics.range(first.0..).nth(LOOKS_MAX);
            last.map(|(id, _)| (*id, Partition::ZERO))
        });
        if self.next.is_none() {
            // The round is over. What a hurried one left out has its turn at once.
            let pause_ms = if self.is_hurried { 0 } else { ROUND_PAUSE_MS };
            self.next_look = now.monotonic.after_ms(pause_ms);
            self.is_hurried = false;
        }
        turn
    }
}

impl Node {
    pub(super) fn add_trims(&mut self, now: Now) {
        if !self.is_ready() {
            return;
        }
        let mut places = std::mem::take(&mut self.retention.unfinished);
        if places.is_empty() {
            places = self.retention.look(now, self.shard.state());
        }
        // Not the time of the last command: nobody may have sent one for long.
        let time = self.clock.time(now.monotonic);
        let mut left = TRIMS_MAX;
        for (topic, partition) in places {
            let Some(below) = self.shard.state().trimmable(topic, partition, time) else { continue };
            if left > 0 && !self.open.is_full() {
                left -= 1;
                self.open.add(&Command::Trim(Trim { topic, partition, below }), WaiterKind::Nobody);
            }
            self.retention.unfinished.push((topic, partition));
        }
    }

    /// A checkpoint is to take away the files that trims have freed: at once where room is short, else once in a while.
    pub(super) fn want_trimmed_files_gone(&mut self, now: Now) {
        if std::mem::take(&mut self.retention.has_freed) {
            let wait_ms = if self.disk.is_low { 0 } else { FILES_STAY_MS };
            self.want_checkpoint(now.monotonic.after_ms(wait_ms));
        }
    }
}

/// Partitions, or topics without any to look at, of one turn.
const LOOKS_MAX: usize = 64;
/// How long until the next turn of a round.
const LOOK_EVERY_MS: u64 = 100;
/// How long between two rounds: nothing is so old that a second matters.
const ROUND_PAUSE_MS: u64 = 1000;
/// Trims of one batch: each takes up to a thousand steps.
const TRIMS_MAX: usize = 4;
/// Whole files go, so few trims free any; a checkpoint writes the whole state.
const FILES_STAY_MS: u64 = 60_000;
