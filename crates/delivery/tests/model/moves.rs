//! Purges and seeks of the naive model, message by message.

use mortarmq_delivery::{End, Ended, Fate};
use mortarmq_types::{Cause, DropReason};

use crate::naive::{Model, Moving, Status};

impl Model {
    /// Begins a purge, or a seek to a message; says how many are replayed and dropped in all. `None` for a seek while another
    /// move goes on.
    pub(crate) fn begin(&mut self, to: Option<u64>) -> Option<(u64, u64)> {
        if self.moving.is_some() && to.is_some() {
            return None;
        }
        let end = self.last_seq() + 1;
        let target = to.map_or(end, |to| to.clamp(1, end).max(self.kept_from));
        let reason = match to {
            None => Some(DropReason::Purge),
            Some(_) if target >= self.position => Some(DropReason::Seek),
            Some(_) => None,
        };
        self.moving = Some(Moving { to: target, from: 1, reason });
        let count = |range: std::ops::Range<u64>, test: &dyn Fn(u64, Status) -> bool| {
            range.filter(|seq| test(*seq, self.message(*seq).status)).count() as u64
        };
        let is_purge = reason == Some(DropReason::Purge);
        let is_dropped = |_: u64, status: Status| !status.is_settled() && (is_purge || status != Status::Leased);
        let is_replayed = |seq: u64, status: Status| seq < self.start || status.is_settled();
        Some(match reason {
            Some(_) => (0, count(self.start..target, &is_dropped)),
            None => (count(target..self.replay_end, &is_replayed), 0),
        })
    }

    /// Goes on with a move; says what became of which message, lowest first.
    pub(crate) fn go_on(&mut self, budget: &mut u32, ended: &mut Vec<Ended>) -> Vec<(u64, Fate)> {
        let mut moved = Vec::new();
        let is_done = match self.moving {
            None => false,
            Some(Moving { reason: Some(reason), .. }) => self.go_forwards(reason, budget, &mut moved, ended),
            Some(Moving { to, reason: None, .. }) => self.go_backwards(to, budget, &mut moved),
        };
        if is_done {
            self.moving = None;
        }
        moved.sort_unstable_by_key(|(seq, _)| *seq);
        moved
    }

    /// Retention passes what lies below a message, as far as the budget reaches; says what became of which message.
    pub(crate) fn trim(&mut self, below: u64, budget: &mut u32) -> Vec<(u64, Fate)> {
        let mut moved = Vec::new();
        let below = below.min(self.last_seq() + 1);
        if self.moving.is_some() || below <= self.kept_from {
            return moved;
        }
        let position = self.position;
        while self.kept_from < below {
            let seq = self.kept_from;
            let is_skipped = (self.due_start..position).contains(&seq) && self.stands(seq);
            let status = self.message(seq).status;
            let is_above = (position..self.replay_end).contains(&seq);
            let is_mark = is_above && status.is_settled();
            let is_offered = seq >= self.start && self.is_offered(seq);
            let cost = u32::from(is_skipped) + u32::from(is_mark) + u32::from(is_offered) * (1 + u32::from(is_above));
            *budget = match budget.checked_sub(cost) {
                Some(left) => left,
                None => break,
            };
            if seq >= self.start && !status.is_settled() && status != Status::Leased {
                self.drop_message(seq, DropReason::Retention, &mut moved);
            }
            self.kept_from += 1;
            self.position = self.position.max(self.kept_from);
            self.replay_end = self.replay_end.max(self.position);
            self.due_start = self.due_start.max(self.kept_from);
        }
        moved
    }

    fn is_offered(&self, seq: u64) -> bool {
        self.passed().contains(&seq)
    }

    fn go_forwards(
        &mut self,
        reason: DropReason,
        budget: &mut u32,
        moved: &mut Vec<(u64, Fate)>,
        ended: &mut Vec<Ended>,
    ) -> bool {
        let mut moving = self.moving.unwrap();
        for seq in self.due_start..self.position {
            if self.stands(seq) {
                *budget = match budget.checked_sub(1) {
                    Some(left) => left,
                    None => return false,
                };
                if self.message(seq).status == Status::Delayed {
                    self.drop_message(seq, reason, moved);
                }
                self.due_start = seq + 1;
            }
        }
        self.due_start = self.position;
        while self.position < moving.to {
            let seq = self.position;
            self.due_start = seq;
            if self.is_offered(seq) || self.message(seq).status.is_settled() {
                if *budget == 0 {
                    return false;
                }
                *budget -= 1;
            } else {
                self.drop_message(seq, reason, moved);
            }
            self.position += 1;
            self.replay_end = self.replay_end.max(self.position);
            self.due_start = self.position;
        }
        for seq in moving.from..moving.to {
            if !self.is_offered(seq) {
                continue;
            }
            if *budget == 0 {
                self.moving = Some(moving);
                return false;
            }
            *budget -= 1;
            moving.from = seq + 1;
            let is_leased = self.message(seq).status == Status::Leased;
            if is_leased && reason == DropReason::Seek {
                continue;
            }
            if is_leased {
                ended.push(self.ended(seq, End::Ended(Cause::Released)));
            }
            self.drop_message(seq, reason, moved);
        }
        true
    }

    fn go_backwards(&mut self, to: u64, budget: &mut u32, moved: &mut Vec<(u64, Fate)>) -> bool {
        for seq in self.position..self.replay_end {
            if self.message(seq).status.is_settled() {
                if *budget == 0 {
                    return false;
                }
                *budget -= 1;
                self.replay(seq, moved);
            }
        }
        loop {
            let stands = |seq: u64| seq >= self.due_start && self.stands(seq);
            let before = (to..self.position).rev().find(|seq| self.is_offered(*seq) || stands(*seq));
            if before.is_some() && *budget == 0 {
                return false;
            }
            for seq in before.unwrap_or(to)..self.position {
                // What is unsettled below the start was never owed.
                let status = self.message(seq).status;
                if seq < self.start || status.is_settled() {
                    self.replay(seq, moved);
                }
            }
            self.position = before.unwrap_or(to);
            self.due_start = self.due_start.min(self.position);
            if before.is_none() {
                self.start = self.start.min(to);
                return true;
            }
            *budget -= 1;
        }
    }

    fn drop_message(&mut self, seq: u64, reason: DropReason, moved: &mut Vec<(u64, Fate)>) {
        self.message_mut(seq).status = Status::Dropped;
        self.dropped.push(reason);
        moved.push((seq, Fate::Dropped(reason)));
    }

    fn replay(&mut self, seq: u64, moved: &mut Vec<(u64, Fate)>) {
        let is_due = self.message(seq).due.is_none_or(|due| (due, seq) <= self.fallen);
        // Nothing comes before its time, and what was not due has no deliveries.
        self.message_mut(seq).status = if is_due { Status::ToReplay } else { Status::Delayed };
        self.replayed += 1;
        moved.push((seq, Fate::Replayed));
    }
}
