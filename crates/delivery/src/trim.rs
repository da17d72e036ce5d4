//! Retention passes a path: what it owes below a sequence is dropped, but for what is under a lease, or redriven.
//!
//! A lease goes on: it may be acked, and extended. When it ends in another way, its message is dropped then, as it would have
//! been before, unless that was its last attempt or its consumer says that no attempt will do: then it is dead, as ever.
//!
//! A redriven message stays too, and comes again: its bytes are those of its dead letter, which is pinned until it is settled.
//!
//! A call drops from the lowest sequence on, as far as its steps reach, and the bound is where it has come to. So there is
//! nothing between two calls that is not done: whatever happens there, the path owes what lies from its bound on, and what
//! it has out below. What was never offered goes by arithmetic; an unsettled message that was offered, a mark of a replay,
//! and a delayed message that was skipped are a step each.

use mortarmq_types::{DropReason, Mutant, Seq};

use crate::{
    books::end_of,
    lease::Facts,
    moves::{Moved, Steps},
    path_partition::PathPartition,
};

impl PathPartition {
    /// Retention has dropped what was unsettled below, but for what is leased.
    #[must_use]
    pub const fn kept_from(&self) -> Seq {
        self.kept_from
    }

    /// The lowest message that was offered and is not settled, whose record is still needed: a redriven one has its bytes in
    /// its dead letter. Behind very many of these it may be too low.
    #[must_use]
    pub fn lowest_offered(&self) -> Option<Seq> {
        let mut offered = self.entries.keys().copied();
        let lowest = offered.by_ref().take(LOOKS_MAX).find(|seq| self.source_of(*seq).is_none());
        let entry = lowest.or_else(|| offered.next());
        // What is packed behind a redriven message may lie below all others.
        entry.into_iter().chain(self.packed.first(Seq::ZERO..Seq::MAX)).min()
    }

    /// Whether a message stays although retention passes it: it is leased, or its bytes lie in a dead letter that is pinned.
    pub(crate) fn outlasts_retention(&self, seq: Seq) -> bool {
        self.entry(seq).lease().is_some() || self.source_of(seq).is_some()
    }

    /// Drops what is unsettled and not leased below a sequence, or below an earlier one as far as the budget reaches. A path
    /// that an operator moves is left as it is: that goes first.
    ///
    /// # Source
    /// P4, P9, P10; DESIGN section 2, "Retention" and "No command costs more than 1,024 steps".
    pub fn trim(&mut self, below: Seq, last_seq: Seq, facts: &dyn Facts, budget: &mut u32, moved: &mut Vec<Moved>) {
        let below = below.min(end_of(last_seq));
        if self.moving.is_some() || below <= self.kept_from {
            return;
        }
        let below = self.affordable(below, facts, *budget);
        let reason = DropReason::Retention;
        let mut ended = Vec::new();
        let mut steps = Steps { facts, left: budget, moved, ended: &mut ended };
        let is_done =
            self.drop_delayed(below.min(self.position), reason, &mut steps) && self.drop_new(below, reason, &mut steps);
        assert!(is_done, "the steps to {below} were counted before");
        let mut from = self.kept_from;
        while let Some(seq) = self.first_passed(from..below) {
            *steps.left -= 1;
            from = seq.next();
            if self.packed.take(seq).is_some() {
                self.drop_run(seq, from, reason, &mut steps);
            } else if !self.outlasts_retention(seq) {
                self.drop_offered(seq, reason, &mut steps);
            } else if Mutant::RetentionTakesLeased.is_on()
                && let Some(lease) = self.entry(seq).lease().copied()
            {
                self.forget_lease(seq, &lease);
                let entry = self.remove(seq);
                self.leave_key(entry.key_hash, seq);
            }
        }
        assert!(below >= self.kept_from, "P10: retention's bound {} goes back to {below}", self.kept_from);
        self.kept_from = below;
    }

    /// Asserts invariant 15.
    pub(crate) fn check_kept(&self) {
        let (kept_from, due_start) = (self.kept_from, self.due_start);
        assert!(kept_from <= due_start, "invariant 15: {kept_from} is kept, and what is due below {due_start} is not");
        let owed = self.owed_below(kept_from);
        assert!(owed.is_none(), "invariant 15, P6: {owed:?} is owed, and retention has dropped it");
    }

    /// The first message below a bound of retention that it would have dropped.
    pub(crate) fn owed_below(&self, kept_from: Seq) -> Option<Seq> {
        let mut entries = self.entries.range(Seq::ZERO..kept_from).map(|(seq, _)| *seq);
        let entry = entries.find(|seq| !self.outlasts_retention(*seq));
        entry.into_iter().chain(self.packed.first(Seq::ZERO..kept_from)).min()
    }

    /// The highest sequence, not above `below`, up to which so many steps reach.
    fn affordable(&self, below: Seq, facts: &dyn Facts, steps: u32) -> Seq {
        // One more than can be afforded is where to stop.
        let most = steps as usize + 1;
        // What was offered above the position is skipped there, and dropped then.
        let cost = |seq: Seq| if seq < self.position { 1 } else { 2 };
        let mut from = self.kept_from;
        let passed = std::iter::from_fn(|| {
            let seq = self.first_passed(from..below)?;
            from = seq.next();
            Some((seq, cost(seq)))
        });
        let marks = self.settled_ahead.iter().take_while(|seq| **seq < below).map(|seq| (*seq, 1));
        let end = below.min(self.position);
        let mut next = self.due_start;
        let delayed = std::iter::from_fn(|| {
            let at = if next < end { facts.first_delayed(next..end)? } else { return None };
            next = at.seq.next();
            Some((at.seq, 1))
        });
        let mut places: Vec<(Seq, u32)> = passed.take(most).chain(marks.take(most)).chain(delayed.take(most)).collect();
        places.sort_unstable();
        let mut spent = 0;
        let too_far = places.into_iter().find(|(_, cost)| {
            spent += cost;
            spent > steps
        });
        too_far.map_or(below, |(seq, _)| seq)
    }
}

/// Redriven messages that are looked at in search of another one.
const LOOKS_MAX: usize = 1024;
