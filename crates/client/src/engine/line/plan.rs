//! Which numbers may be given anew, decided when nothing of a line is in flight.

use mortarmq_types::ProducerId;

use super::{Cursor, Effects, Entry, Gap, Line};
use crate::backoff::random_producer_id;
use crate::errors::ClientError;

impl Line {
    /// Goes back to the first unanswered entry, and settles what a given-up number means for those behind it.
    ///
    /// - Nothing was given up: the same numbers are sent again.
    /// - A number that certainly stored nothing, and everything behind it was certainly refused too: they move down.
    /// - Such a number, but an attempt behind it was never answered: moving that one down could store it twice, once
    ///   under each number. But a hole that is never filled keeps everything behind it out for ever, so all of them
    ///   move to a new identity.
    /// - A number that may be stored: those behind it that may be stored too keep their numbers, and the broker says
    ///   which of them it has. From the first one that is certainly not stored, everything moves to a new identity.
    pub(super) fn plan(&mut self, effects: &mut Effects) {
        assert!(self.in_flight == 0, "P3: {} publishes are in flight while numbers are planned", self.in_flight);
        self.is_draining = false;
        self.cursor = Cursor { index: self.first_index, offset: 0 };
        self.pop_done();
        if let Some(gap) = self.gap.take() {
            self.plan_behind(gap);
        }
        let Some(limit) = self.limit else { return };
        let before = (limit.saturating_sub(self.first_index) as usize).min(self.entries.len());
        if self.entries.range(..before).all(|entry| entry.reply.is_none()) {
            self.take_new_identity(effects);
        }
    }

    fn plan_behind(&mut self, gap: Gap) {
        let is_behind = |entry: &Entry| entry.reply.is_some() && entry.number > gap.number;
        let behind = self.entries.iter().position(is_behind).unwrap_or(self.entries.len());
        let is_sure = |line: &Self| line.entries.range(behind..).all(|entry| !entry.may_be_stored);
        if gap.is_certain && !self.is_abandoned && is_sure(self) {
            self.next_number = gap.number;
            self.number_from(behind);
            return;
        }
        let keep = if gap.is_certain {
            behind
        } else {
            let sure = self.entries.range(behind..).position(|entry| entry.reply.is_some() && !entry.may_be_stored);
            sure.map_or(self.entries.len(), |sure| behind + sure)
        };
        let limit = self.first_index + keep as u64;
        let limit = self.limit.map_or(limit, |earlier| earlier.min(limit));
        self.limit = Some(limit);
        for entry in self.entries.range_mut((limit - self.first_index) as usize..) {
            entry.may_be_stored = false;
        }
    }

    /// Gives the undone entries from `at` on the next numbers.
    fn number_from(&mut self, at: usize) {
        let mut next_number = self.next_number;
        for entry in self.entries.range_mut(at..).filter(|entry| entry.reply.is_some()) {
            entry.number = next_number;
            next_number += u64::from(entry.count);
        }
        self.next_number = next_number;
    }

    /// Starts over as another producer, with number 1.
    fn take_new_identity(&mut self, effects: &mut Effects) {
        self.limit = None;
        if self.is_identity_fixed {
            let producer_id = ProducerId::new(self.producer_id);
            self.end(&ClientError::IdentityEnded { producer_id }, effects);
            return;
        }
        self.producer_id = random_producer_id();
        self.is_known = false;
        self.is_abandoned = false;
        self.next_number = 1;
        self.number_from(0);
    }
}
