//! An operator's acts on a path: it is purged, or its position moves.
//!
//! What was never offered is dropped, or owed once more, by arithmetic: the position moves and the counters follow. Every
//! unsettled message that was offered is a step, and a call takes only so many. What is left goes on with
//! [`PathPartition::go_on`], at the next stamps, and until then the path leases nothing: it is not yet where it is to be.
//!
//! - **Purge**: all that is unsettled up to the end is dropped. A live delivery of it ends, and a settle that comes later
//!   changes nothing: the operator wants the path empty, and says so once.
//! - **Seek forwards**: what lies below the target and is not leased is dropped. What is leased goes on as usual: it may
//!   be acked, and comes again if it is not. Only what fails before the move came by is dropped with the rest.
//! - **Seek backwards**: from the target up to what was ever offered, everything that is settled is owed once more, at
//!   attempt 1; so is what gets settled before the move is done. What is unsettled stays as it is, and a lease goes on. The
//!   position passes all of it again in the order of the sequences, and a message joins its key's queue when the position
//!   comes to it: it waits for what is leased of its key, and what waits behind it waits for it (P8).
//!
//! A delayed message that is not due for the path is unsettled like any other, and each that stands in the partition's
//! schedule among what the position has passed is a step too. What is dropped of them stays in the schedule, for other
//! paths and for a seek back: the due start says that it is nothing to this path. A seek backwards over it owes it once
//! more, when it is due: nothing comes before its time.
//!
//! Several of them in a row are right by construction: each speaks of what the path owes when it comes.

use std::ops::Range;

use mortarmq_types::{Cause, DropReason, Mutant, Seq};

use crate::{
    books::end_of,
    ending::{End, Ended},
    entry::{Entry, State},
    lease::{DuePosition, Facts},
    path_partition::PathPartition,
};

/// What a move did to messages in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The first of them.
    pub first: Seq,
    /// How many.
    pub count: u64,
    /// What became of them.
    pub fate: Fate,
}

/// What becomes of a message by a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is settled, by this rule.
    Dropped(DropReason),
    /// It is owed once more.
    Replayed,
}

/// What a move amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveCount {
    /// Messages that are owed once more.
    pub replayed: u64,
    /// Messages that are dropped.
    pub dropped: u64,
    /// Whether the move goes on and these are only the messages of its first steps: how many there are in all was not known
    /// without a look at each.
    pub is_partial: bool,
}

/// A move is not done yet; a seek has to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a purge or seek of this path is not done yet")]
pub struct MoveUnderWay;

/// A move that is not done yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) kind: MoveKind,
    /// The first message that it does not concern, or backwards the first that it does.
    pub(crate) to: Seq,
    /// What lies below was looked at; for moves forwards.
    pub(crate) from: Seq,
}

/// Which way a path moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveKind {
    Purge,
    Forwards,
    Backwards,
}

/// What one call of a move may cost, and what it reports.
pub(crate) struct Steps<'a> {
    pub(crate) facts: &'a dyn Facts,
    pub(crate) left: &'a mut u32,
    pub(crate) moved: &'a mut Vec<Moved>,
    pub(crate) ended: &'a mut Vec<Ended>,
}

impl PathPartition {
    /// Drops all that is unsettled up to the partition's last sequence, and says how much that is. A move that goes on ends
    /// where it has come to: what it would still have dropped or owed is dropped too, or not owed.
    ///
    /// # Source
    /// P4, P9; DESIGN section 2, "No command costs more than 1,024 steps".
    pub fn purge(
        &mut self,
        last_seq: Seq,
        facts: &dyn Facts,
        budget: &mut u32,
        moved: &mut Vec<Moved>,
        ended: &mut Vec<Ended>,
    ) -> u64 {
        let dropped = self.books(last_seq).depth;
        self.begin(self.over_all(last_seq), &mut Steps { facts, left: budget, moved, ended });
        dropped
    }

    /// Moves the position to this message, to the next that is to come if that is earlier, or to the first that retention
    /// keeps if that is later.
    ///
    /// # Errors
    /// While another move goes on.
    /// # Source
    /// P4, P8, P9; DESIGN section 2, "Dead letters, fan-out, delay".
    pub fn seek(
        &mut self,
        to: Seq,
        last_seq: Seq,
        facts: &dyn Facts,
        budget: &mut u32,
        moved: &mut Vec<Moved>,
        ended: &mut Vec<Ended>,
    ) -> Result<MoveCount, MoveUnderWay> {
        if self.moving.is_some() {
            return Err(MoveUnderWay);
        }
        let to = to.min(end_of(last_seq)).max(self.kept_from);
        let told = moved.len();
        let (kind, known) = if to < self.position {
            (MoveKind::Backwards, self.settled_from(to).map(|replayed| MoveCount { replayed, ..MoveCount::default() }))
        } else {
            (MoveKind::Forwards, self.free_below(to).map(|dropped| MoveCount { dropped, ..MoveCount::default() }))
        };
        self.begin(Moving { kind, to, from: Seq::FIRST }, &mut Steps { facts, left: budget, moved, ended });
        if let Some(count) = known {
            return Ok(count);
        }
        let mut count = MoveCount { is_partial: self.moving.is_some(), ..MoveCount::default() };
        for range in &moved[told..] {
            match range.fate {
                Fate::Dropped(_) => count.dropped += range.count,
                Fate::Replayed => count.replayed += range.count,
            }
        }
        Ok(count)
    }

    /// Drops all that is unsettled because the group is deleted: as a purge, but what is beyond the budget is not told, for
    /// the path is gone with this call. Says how much was dropped in all.
    pub fn delete(
        mut self,
        last_seq: Seq,
        facts: &dyn Facts,
        budget: &mut u32,
        moved: &mut Vec<Moved>,
        ended: &mut Vec<Ended>,
    ) -> u64 {
        let dropped = self.books(last_seq).depth;
        let moving = self.over_all(last_seq);
        self.go_forwards(moving, DropReason::GroupDeleted, &mut Steps { facts, left: budget, moved, ended });
        dropped
    }

    /// The move that drops everything there is. A path that starts at the next message to come lies above all that.
    fn over_all(&self, last_seq: Seq) -> Moving {
        Moving { kind: MoveKind::Purge, to: end_of(last_seq).max(self.start), from: Seq::FIRST }
    }

    /// Whether a move or a change of order is not done yet: until then nothing is leased.
    #[must_use]
    pub const fn is_moving(&self) -> bool {
        self.moving.is_some() || self.reordering.is_some()
    }

    /// The lowest sequence that neither the position nor a move nor the settling of single messages has come to.
    #[must_use]
    pub fn reached(&self) -> Seq {
        let behind_marks = self.settled_ahead.get_max().map_or(Seq::ZERO, |mark| mark.next());
        let moving_to = self.moving.map_or(Seq::ZERO, |moving| moving.to);
        self.replay_end.max(moving_to).max(behind_marks)
    }

    /// Goes on with a change of order, and then with a move, if there are such. Each message that was offered, and each of the
    /// schedule that was passed, takes one step of the budget.
    pub fn go_on(&mut self, facts: &dyn Facts, budget: &mut u32, moved: &mut Vec<Moved>, ended: &mut Vec<Ended>) {
        self.take_order_steps(budget);
        self.take_steps(&mut Steps { facts, left: budget, moved, ended });
    }

    fn take_steps(&mut self, steps: &mut Steps<'_>) {
        let Some(moving) = self.moving else { return };
        let is_done = match moving.kind {
            MoveKind::Purge => self.go_forwards(moving, DropReason::Purge, steps),
            MoveKind::Forwards => self.go_forwards(moving, DropReason::Seek, steps),
            MoveKind::Backwards => self.go_backwards(moving.to, steps),
        };
        if is_done {
            self.moving = None;
        }
    }

    /// Whether a purge that is not done takes this message away.
    pub(crate) fn is_purged(&self, seq: Seq) -> bool {
        self.moving.is_some_and(|moving| moving.kind == MoveKind::Purge && seq < moving.to)
    }

    /// Moves the position on; it never leaves what was ever offered behind.
    pub(crate) fn advance_to(&mut self, position: Seq) {
        assert!(position >= self.position, "P10: position {} goes back to {position}", self.position);
        self.position = position;
        self.replay_end = self.replay_end.max(position);
    }

    /// Skips the message at the position if it is not to be offered there: it is unsettled and was before the position
    /// moved back, or is settled.
    pub(crate) fn skip_at_position(&mut self) -> bool {
        let seq = self.position;
        if self.ahead == 0 {
            return false;
        }
        if !self.is_passed(seq) && self.settled_ahead.remove(&seq).is_none() {
            return false;
        }
        self.ahead -= 1;
        self.advance_to(seq.next());
        true
    }

    fn begin(&mut self, moving: Moving, steps: &mut Steps<'_>) {
        self.moving = Some(moving);
        self.take_steps(steps);
    }

    /// How many messages below the target are neither settled nor leased, if that is known without a look at each.
    fn free_below(&self, to: Seq) -> Option<u64> {
        let unsettled = || to.above(self.position) - self.ahead + self.all_passed() + self.delayed;
        let is_above_marks = self.settled_ahead.get_max().is_none_or(|mark| *mark < to);
        (to >= self.replay_end && is_above_marks).then(|| unsettled() - self.in_flight())
    }

    /// How many messages from the target up to what was ever offered are not owed, if that is known without a look at
    /// each.
    fn settled_from(&self, to: Seq) -> Option<u64> {
        let marks = self.settled_ahead.len() as u64;
        let below_position = || self.all_passed() - (self.ahead - marks);
        let is_below_all = self.first_passed(Seq::ZERO..Seq::MAX).is_none_or(|seq| to <= seq);
        let is_below_delayed = self.delayed == 0 || to <= self.due_start;
        (is_below_all && is_below_delayed).then(|| self.position.above(to) - below_position() - self.delayed + marks)
    }

    /// Drops what lies below the target: first what is delayed and what was not offered, then what was.
    fn go_forwards(&mut self, mut moving: Moving, reason: DropReason, steps: &mut Steps<'_>) -> bool {
        if !self.drop_delayed(self.position, reason, steps) || !self.drop_new(moving.to, reason, steps) {
            return false;
        }
        while let Some(seq) = self.first_passed(moving.from..moving.to) {
            if *steps.left == 0 {
                self.moving = Some(moving);
                return false;
            }
            *steps.left -= 1;
            moving.from = seq.next();
            let is_leased = self.entries.get(&seq).is_some_and(|entry| entry.lease().is_some());
            if self.packed.take(seq).is_some() {
                self.drop_run(seq, seq.next(), reason, steps);
            } else if moving.kind == MoveKind::Purge || !is_leased {
                self.drop_offered(seq, reason, steps);
            }
        }
        true
    }

    /// Owes once more what is settled between the target and what was ever offered.
    fn go_backwards(&mut self, to: Seq, steps: &mut Steps<'_>) -> bool {
        while let Some(seq) = self.settled_ahead.get_min().copied() {
            if *steps.left == 0 {
                return false;
            }
            *steps.left -= 1;
            self.settled_ahead.remove(&seq);
            self.ahead -= 1;
            self.again += 1;
            steps.tell(seq, seq.next(), Fate::Replayed);
        }
        while let Some(seq) = self.last_to_look_at(to..self.position, steps.facts) {
            if *steps.left == 0 {
                return false;
            }
            *steps.left -= 1;
            let due = steps.facts.due_of(seq);
            let first = if self.is_passed(seq) {
                self.ahead += 1;
                seq.next()
            } else if due.is_some_and(|due| self.is_delayed(due, seq)) {
                self.delayed -= 1;
                seq.next()
            } else {
                seq
            };
            self.again += self.position.above(first);
            steps.tell(first, self.position, Fate::Replayed);
            self.position = seq;
            self.due_start = self.due_start.min(seq);
        }
        // What lies below the start was never owed: it counts as produced from there, and not as owed again.
        let never_owed = self.start.above(to);
        self.again += self.position.above(to) - never_owed;
        steps.tell(to, self.position, Fate::Replayed);
        self.position = to;
        self.start = self.start.min(to);
        self.due_start = self.due_start.min(to);
        true
    }

    /// Drops what was not offered below a target, by arithmetic: the position moves there. What it skips is a step each.
    pub(crate) fn drop_new(&mut self, to: Seq, reason: DropReason, steps: &mut Steps<'_>) -> bool {
        while self.position < to {
            let skipped = self.first_ahead().filter(|seq| *seq < to);
            let end = skipped.unwrap_or(to);
            self.drop_run(self.position, end, reason, steps);
            self.advance_to(end);
            self.due_start = self.position;
            if skipped.is_some() {
                if *steps.left == 0 {
                    return false;
                }
                *steps.left -= 1;
                let has_skipped = self.skip_at_position();
                assert!(has_skipped, "invariant 11: there is nothing to skip at {end}");
                self.due_start = self.position;
            }
        }
        true
    }

    /// Drops the delayed messages that were skipped below a sequence, which is not above the position.
    pub(crate) fn drop_delayed(&mut self, below: Seq, reason: DropReason, steps: &mut Steps<'_>) -> bool {
        while self.due_start < below
            && let Some(DuePosition { due, seq }) = steps.facts.first_delayed(self.due_start..below)
        {
            if *steps.left == 0 {
                return false;
            }
            *steps.left -= 1;
            if self.is_delayed(due, seq) {
                self.delayed -= u64::from(!Mutant::DepthKeptOnDrop.is_on());
                self.drop_run(seq, seq.next(), reason, steps);
            }
            self.due_start = seq.next();
        }
        self.due_start = self.due_start.max(below);
        true
    }

    /// The highest message that may be unsettled: one that was offered, or stands in the schedule.
    fn last_to_look_at(&self, among: Range<Seq>, facts: &dyn Facts) -> Option<Seq> {
        let passed = self.last_passed(among.clone());
        let first = among.start.max(self.due_start);
        let delayed = if first < among.end { facts.last_delayed(first..among.end) } else { None };
        passed.max(delayed.map(|at| at.seq))
    }

    /// The lowest message above the position that it will skip.
    fn first_ahead(&self) -> Option<Seq> {
        if self.ahead == 0 {
            return None;
        }
        let passed = self.first_passed(self.position..Seq::MAX);
        let mark = self.settled_ahead.get_min().copied();
        passed.into_iter().chain(mark).min()
    }

    pub(crate) fn drop_run(&mut self, first: Seq, end: Seq, reason: DropReason, steps: &mut Steps<'_>) {
        self.dropped_by[usize::from(reason.number())] += end.above(first);
        steps.tell(first, end, Fate::Dropped(reason));
    }

    pub(crate) fn drop_offered(&mut self, seq: Seq, reason: DropReason, steps: &mut Steps<'_>) {
        match self.entry(seq).state.clone() {
            State::Waiting { .. } => self.make_unready(seq),
            State::Scheduled { due } => _ = self.schedule.remove(&(due, seq)),
            State::Held => _ = self.held.remove(&seq),
            State::Leased(lease) => {
                steps.ended.push(self.ended_by(seq, &lease, End::Ended(Cause::Released)));
                self.forget_lease(seq, &lease);
            }
        }
        let Entry { key_hash, .. } = self.remove(seq);
        self.leave_key(key_hash, seq);
        self.drop_run(seq, seq.next(), reason, steps);
    }
}

impl Moving {
    /// Asserts that the move can go on.
    pub(crate) fn check(&self, position: Seq, end: Seq) {
        let is_possible = match self.kind {
            MoveKind::Purge | MoveKind::Forwards => self.from <= self.to && self.to <= end,
            MoveKind::Backwards => self.to < position,
        };
        assert!(is_possible, "a move of a path at {position} cannot be {self:?}");
    }
}

impl Steps<'_> {
    /// Reports what became of the messages `first..end`; those that follow one another are told together.
    pub(crate) fn tell(&mut self, first: Seq, end: Seq, fate: Fate) {
        let count = end.above(first);
        match self.moved.last_mut() {
            _ if count == 0 => {}
            Some(last) if last.fate == fate && last.first.plus(last.count) == first => last.count += count,
            Some(_) | None => self.moved.push(Moved { first, count, fate }),
        }
    }
}
