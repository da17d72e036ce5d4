//! The books of a path in a partition, which add up at every moment (P9).

use mortarmq_types::{Cause, DropReason, Seq};

use crate::path_partition::PathPartition;

/// What a path owed and what became of it: `produced = delivered + dropped + dlq + depth` (P9).
///
/// # Units
/// Messages. All but `depth` only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Messages that the path is or was obliged to deliver, counted from its start; one that it was obliged to deliver again
    /// counts again.
    pub produced: u64,
    /// Messages that were acked.
    pub delivered: u64,
    /// Messages that left by a stated rule, neither acked nor dead.
    pub dropped: u64,
    /// Messages stored in the dead-letter topic.
    pub dlq: u64,
    /// Messages that are not settled.
    pub depth: u64,
}

impl Books {
    /// What is missing on the right side: 0 unless the broker is wrong.
    #[must_use]
    pub const fn difference(&self) -> i128 {
        let right = self.delivered as i128 + self.dropped as i128 + self.dlq as i128 + self.depth as i128;
        self.produced as i128 - right
    }
}

impl PathPartition {
    /// The books, given the partition's last sequence.
    ///
    /// `produced` follows from where the path started; `depth` is counted apart from it, as what was not offered yet, plus
    /// the unsettled that were offered, plus what the position has skipped because it is delayed. So the two sides meet only
    /// if nothing was lost or counted twice. A delayed message that the position has not reached is part of what follows it,
    /// whether it has fallen due or not.
    ///
    /// # Source
    /// P9; DESIGN section 1, "Depth".
    #[must_use]
    pub fn books(&self, last_seq: Seq) -> Books {
        let end = end_of(last_seq);
        Books {
            produced: end.above(self.start) + self.again,
            delivered: self.delivered,
            dropped: self.dropped_by.iter().sum(),
            dlq: self.dlq,
            depth: end.above(self.position) - self.ahead + self.all_passed() + self.delayed,
        }
    }

    /// Messages that left by a stated rule, neither acked nor dead, by the rule.
    #[must_use]
    pub const fn dropped_by(&self, reason: DropReason) -> u64 {
        self.dropped_by[reason.number() as usize]
    }

    /// Deliveries after a message's first, by what ended the one before.
    #[must_use]
    pub const fn retries_by(&self, cause: Cause) -> u64 {
        self.retries_by[cause.number() as usize]
    }

    /// The lowest sequence that is not settled; `last_seq` + 1 if all are. `delayed` is the lowest one that the path has
    /// skipped because it stands in the partition's schedule.
    #[must_use]
    pub fn floor(&self, last_seq: Seq, delayed: Option<Seq>) -> Seq {
        let lowest = self.first_passed(Seq::ZERO..Seq::MAX);
        if let Some(seq) = lowest.filter(|seq| *seq < self.position) {
            return delayed.map_or(seq, |delayed| delayed.min(seq));
        }
        let mut next = self.position;
        for mark in self.settled_ahead.iter() {
            if *mark != next {
                break;
            }
            next = next.next();
        }
        lowest.into_iter().chain(delayed).fold(next, Seq::min).min(end_of(last_seq))
    }

    /// Delayed messages that the path has skipped, and waits for.
    #[must_use]
    pub const fn delayed(&self) -> u64 {
        self.delayed
    }
}

/// The sequence after the last one.
pub(crate) const fn end_of(last_seq: Seq) -> Seq {
    Seq::new(last_seq.get().saturating_add(1))
}
