//! The invariants of a path in a partition, asserted.

use std::collections::{BTreeMap, BTreeSet};

use mortarmq_types::{Attempt, Cause, ClusterTime, DeliveryId, KeyHash, Seq};

use super::PathPartition;
use crate::{books::end_of, entry::State, key_order::Ahead, lease::DuePosition, pair_set::PairSet};

impl PathPartition {
    /// Checks every numbered invariant. Costs far more than any other call: for tests and the simulator.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self, last_seq: Seq) {
        self.entries.check();
        self.check_indexes();
        self.check_key_order();
        self.check_alone();
        self.check_packed();
        self.check_bounds(last_seq);
        let books = self.books(last_seq);
        assert_eq!(books.difference(), 0, "invariant 7, P9: {books:?}");
        self.check_deliveries();
    }

    /// Checks invariant 13 against the partition's schedule.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check_delayed(&self, schedule: impl Iterator<Item = DuePosition>) {
        match self.skipped(schedule) {
            Ok(count) => {
                assert_eq!(self.delayed, count, "invariant 13, P4: delayed messages that the path has skipped")
            }
            Err(seq) => panic!("invariant 13, P4: message {seq} is delayed and was offered"),
        }
    }

    fn check_bounds(&self, last_seq: Seq) {
        let end = end_of(last_seq).max(self.start);
        let (position, replay_end) = (self.position, self.replay_end);
        assert!(replay_end <= end, "invariant 1, P10: position {replay_end} passed {last_seq}");
        assert!(
            position <= replay_end,
            "invariant 1, P10: position {position} passed {replay_end}, where it never was"
        );
        let lowest = self.first_passed(Seq::ZERO..Seq::MAX).unwrap_or(position).min(position);
        let highest = self.last_passed(Seq::ZERO..Seq::MAX);
        assert!(self.start <= lowest, "invariant 1: message {lowest} lies below the start {}", self.start);
        assert!(highest < Some(replay_end), "invariant 1: {highest:?} lies above what was offered, {replay_end}");
        let due_start = self.due_start;
        let is_in_place = self.start <= due_start && due_start <= position;
        assert!(is_in_place, "invariant 13: the due start {due_start} lies outside of {}..={position}", self.start);
        self.check_kept();
        let marks = self.settled_ahead.len();
        let in_place = self.settled_ahead.range(position..end).count();
        assert_eq!(in_place, marks, "invariant 11: a mark lies outside of {position}..{end}");
        let is_owed = self.settled_ahead.iter().find(|seq| self.entries.contains_key(seq));
        assert_eq!(is_owed, None, "invariant 11, P6: a message is both settled and owed");
        let skipped = marks as u64 + self.count_passed(position..Seq::MAX);
        assert_eq!(self.ahead, skipped, "invariant 11: messages that the position will skip");
        let sourceless = self.sources.keys().find(|seq| !self.entries.contains_key(seq));
        assert_eq!(sourceless, None, "invariant 14: a dead letter is kept for a message that is settled");
        if let Some(moving) = &self.moving {
            moving.check(position, end);
        }
    }

    fn check_indexes(&self) {
        [&self.keyed, &self.leased_keys].into_iter().for_each(PairSet::check);
        [&self.ready, &self.schedule].into_iter().for_each(PairSet::check);
        self.deadlines.check();
        self.holders.check();
        let (mut leased, mut scheduled, mut held) = (0, 0, 0);
        for (seq, entry) in self.entries.iter() {
            match &entry.state {
                State::Waiting { .. } => {}
                State::Held => {
                    held += 1;
                    let was_delivered = entry.previous != DeliveryId::ZERO;
                    assert!(self.held.contains(seq) && was_delivered, "invariant 10: {seq} would be held for ever");
                }
                State::Scheduled { due } => {
                    scheduled += 1;
                    assert!(self.schedule.contains(&(*due, *seq)), "invariant 3: {seq} is scheduled without a time");
                }
                State::Leased(lease) => {
                    leased += 1;
                    let has_deadline = self.deadlines.contains(&(lease.deadline, *seq));
                    let has_holder = self.holders.contains(&(self.granted(lease).member, *seq));
                    assert!(has_deadline && has_holder, "invariant 2, P5: the lease of {seq} would never end");
                }
            }
        }
        assert_eq!(self.deadlines.len(), leased, "invariant 2, P5: deadlines without a lease");
        assert_eq!(self.holders.len(), leased, "invariant 2, P5: holders without a lease");
        assert_eq!(self.schedule.len(), scheduled, "invariant 3: due times without a scheduled message");
        assert_eq!(self.held.len(), held, "invariant 10: messages among the held that are not");
    }

    fn check_key_order(&self) {
        let mut ahead: BTreeMap<KeyHash, Ahead<'_>> = BTreeMap::new();
        let (mut queued, mut ready, mut leased) = (0, 0, 0);
        for (seq, entry) in self.entries.iter() {
            let has_queue = self.stands_in_queue(entry.key_hash, *seq);
            queued += usize::from(has_queue);
            let ordered = entry.lease().filter(|lease| lease.ordered);
            let is_leased = self.leased_keys.contains(&(entry.key_hash, *seq));
            assert_eq!(is_leased, has_queue && ordered.is_some(), "invariant 12: message {seq} among the leased keys");
            leased += usize::from(is_leased);
            let is_queued = self.keyed.contains(&(entry.key_hash, *seq));
            assert_eq!(is_queued, has_queue && !is_leased, "invariant 4: message {seq} in the queue of its key");
            let before = has_queue.then(|| ahead.entry(entry.key_hash).or_default());
            let is_first = before.as_ref().is_none_or(|before| before.is_empty());
            let is_busy = has_queue && self.leased_of_key(entry.key_hash).is_some();
            let is_free = entry.is_waiting() && is_first && !is_busy;
            ready += usize::from(is_free);
            assert_eq!(
                self.ready.contains(&(entry.fell_due(), *seq)),
                is_free && !entry.alone,
                "invariant 5, P8: message {seq} among the ready"
            );
            assert_eq!(
                self.lone.contains(seq),
                is_free && entry.alone,
                "invariant 5, P8: message {seq} among the ready"
            );
            let was_delivered = entry.previous != DeliveryId::ZERO;
            let is_late = entry.fell_due() != ClusterTime::ZERO;
            assert!(!is_late || !was_delivered, "invariant 8: {seq} was delivered, and is only due");
            if let Some(before) = before {
                assert!(
                    before.leads(entry, self.entries.tenures()),
                    "invariant 6, P8: message {seq} overtook {before:?}"
                );
                before.push(entry);
            }
        }
        assert_eq!(self.leased_keys.len(), leased, "invariant 12: leased keys that are not there");
        assert_eq!(
            self.keyed.len() + self.leased_keys.len(),
            queued,
            "invariant 4: queues hold messages that are not there"
        );
        assert_eq!(self.ready.len() + self.lone.len(), ready, "invariant 5: ready messages that are not there");
    }

    fn check_deliveries(&self) {
        let mut live: BTreeSet<DeliveryId> = BTreeSet::new();
        for (seq, entry) in self.entries.iter() {
            let is_first = matches!(entry.cause, Cause::First | Cause::Replayed);
            assert_eq!(is_first, entry.previous == DeliveryId::ZERO, "invariant 8, P7: {seq} has a cause and no past");
            assert!(entry.attempt >= Attempt::FIRST, "invariant 8, P7: {seq} has attempt 0");
            if let Some(lease) = entry.lease() {
                let is_younger = entry.previous < lease.delivery_id;
                assert!(is_younger, "invariant 8, P7: delivery {} of {seq} follows itself", lease.delivery_id);
                assert!(live.insert(lease.delivery_id), "invariant 8, P5: two leases are number {}", lease.delivery_id);
                let settled = self.runs.kind_of(*seq, lease.delivery_id, ClusterTime::ZERO);
                assert_eq!(settled, None, "invariant 9, P6: the live delivery {} was settled", lease.delivery_id);
            }
        }
        self.runs.check();
    }
}
