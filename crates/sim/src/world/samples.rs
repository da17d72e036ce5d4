//! When each command was applied, as closely as the world knows: a record's `call` is the last moment before it.

use std::collections::VecDeque;

use mortarmq_types::CommitIndex;

/// Moments at which the position was seen, each with one that differs from the one before.
#[derive(Default)]
pub(crate) struct Samples {
    seen: VecDeque<(u64, CommitIndex)>,
}

impl Samples {
    /// The position was seen, before the turn that begins now.
    pub(crate) fn note(&mut self, at_us: u64, commit: CommitIndex) {
        match self.seen.back_mut() {
            // The latest moment counts.
            Some((last_us, last)) if *last == commit => *last_us = at_us,
            Some((_, last)) if *last > commit => {}
            _ => self.seen.push_back((at_us, commit)),
        }
        if self.seen.len() > KEPT {
            self.seen.pop_front();
        }
    }

    /// The last moment at which a command was not applied yet.
    pub(crate) fn before(&self, commit: CommitIndex) -> u64 {
        let behind = self.seen.partition_point(|(_, seen)| *seen < commit);
        behind.checked_sub(1).map_or(0, |place| self.seen[place].0)
    }
}

/// Deliveries are seldom told later than this many turns after their command; then the call is early, and proves less.
const KEPT: usize = 1 << 16;
