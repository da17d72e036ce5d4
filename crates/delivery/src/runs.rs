//! Which settles were answered lately, so that one repeated is answered the same way.
//!
//! Deliveries that were leased together have consecutive sequences and numbers, and are mostly settled alike. They are
//! kept as runs: one entry for any number of them.
//!
//! # Invariants
//! 1. No delivery is in two runs.
//! 2. Every run is in the age index exactly once, by its time of opening.

use std::collections::BTreeSet;

use imbl::OrdMap;
use mortarmq_types::{ClusterTime, DeliveryId, Seq};

/// How a consumer ended a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ack,
    Nack,
    Release,
    DeadLetter,
}

/// The remembered settles of one path in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// By the number of the run's first delivery.
    runs: OrdMap<DeliveryId, Run>,
    /// The same runs, oldest first.
    ages: BTreeSet<(ClusterTime, DeliveryId)>,
}

/// Settles of one kind, of deliveries whose sequences and numbers both rise by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first_seq: Seq,
    pub(crate) count: u64,
    pub(crate) kind: Kind,
    /// When its oldest settle was applied. The run takes in others for [`OPEN_MS`] and is kept for [`KEEP_MS`] more.
    pub(crate) opened: ClusterTime,
}

impl Runs {
    /// Remembers a settle for at least [`KEEP_MS`].
    pub(crate) fn remember(&mut self, seq: Seq, delivery_id: DeliveryId, kind: Kind, at: ClusterTime) {
        let before = self.run_ending_at(seq, delivery_id, kind, at);
        let after = self.run_starting_after(seq, delivery_id, kind);
        match (before, after) {
            (Some((first, run)), Some((next, following))) => {
                // All of `following` was settled by now, and `run` is kept long enough for a settle of now.
                self.remove(next, following);
                self.runs.insert(first, Run { count: run.count + 1 + following.count, ..run });
            }
            (Some((first, run)), None) => {
                self.runs.insert(first, Run { count: run.count + 1, ..run });
            }
            (None, Some((next, following))) if following.is_open(at) => {
                self.remove(next, following);
                self.add(delivery_id, Run { first_seq: seq, count: following.count + 1, ..following });
            }
            (None, Some(_) | None) => {
                self.forget(at, FORGET_PER_RUN);
                self.add(delivery_id, Run { first_seq: seq, count: 1, kind, opened: at });
            }
        }
    }

    /// How this delivery of this message was settled, if that is remembered.
    pub(crate) fn kind_of(&self, seq: Seq, delivery_id: DeliveryId, now: ClusterTime) -> Option<Kind> {
        let (first, run) = self.runs.range(..=delivery_id).next_back()?;
        let offset = delivery_id.above(*first);
        let same = offset < run.count && seq.get().checked_sub(offset) == Some(run.first_seq.get());
        (same && !run.is_over(now)).then_some(run.kind)
    }

    /// Forgets at most `at_most` runs whose time is over.
    pub(crate) fn forget(&mut self, now: ClusterTime, at_most: usize) {
        for _ in 0..at_most {
            let Some((_, first)) = self.ages.first().copied() else { return };
            match self.runs.get(&first).copied() {
                Some(run) if run.is_over(now) => self.remove(first, run),
                Some(_) => return,
                None => panic!("run {first} is in the age index only"),
            }
        }
    }

    /// The runs by the number of their first delivery, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DeliveryId, &Run)> {
        self.runs.iter().map(|(first, run)| (*first, run))
    }

    /// The runs themselves, shared until they change.
    pub(crate) fn shared(&self) -> OrdMap<DeliveryId, Run> {
        self.runs.clone()
    }

    /// Takes runs back that [`Self::iter`] gave. The caller has checked that no two of them share a delivery.
    pub(crate) fn restore(runs: Vec<(DeliveryId, Run)>) -> Self {
        Self { ages: runs.iter().map(|(first, run)| (run.opened, *first)).collect(), runs: runs.into_iter().collect() }
    }

    /// Whether a run holds this delivery, of whatever message.
    pub(crate) fn holds(&self, delivery_id: DeliveryId) -> bool {
        self.runs.range(..=delivery_id).next_back().is_some_and(|(first, run)| delivery_id.above(*first) < run.count)
    }

    /// When the oldest of them began.
    pub(crate) fn oldest(&self) -> Option<ClusterTime> {
        self.ages.first().map(|(opened, _)| *opened)
    }

    /// How many runs are kept.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Checks every numbered invariant.
    pub(crate) fn check(&self) {
        let mut free_from = 0_u64;
        for (first, run) in &self.runs {
            assert!(run.count > 0 && first.get() >= free_from, "invariant 1: run {first} overlaps the one before");
            free_from = first.get().saturating_add(run.count);
            assert!(self.ages.contains(&(run.opened, *first)), "invariant 2: run {first} never grows old");
        }
        assert_eq!(self.ages.len(), self.runs.len(), "invariant 2: ages of runs that are gone");
    }

    /// The open run that this settle would be the next of.
    fn run_ending_at(
        &self,
        seq: Seq,
        delivery_id: DeliveryId,
        kind: Kind,
        at: ClusterTime,
    ) -> Option<(DeliveryId, Run)> {
        // Mostly it is the last one, which is found without an iterator: that allocates.
        let last = self.runs.get_max().filter(|(first, _)| *first < delivery_id);
        let (first, run) = match last {
            Some((first, run)) => (first, run),
            None => self.runs.range(..delivery_id).next_back()?,
        };
        let offset = delivery_id.above(*first);
        assert!(offset >= run.count, "P5: delivery {delivery_id} was settled twice");
        let next = offset == run.count && seq.get().checked_sub(offset) == Some(run.first_seq.get());
        (next && run.kind == kind && run.is_open(at)).then_some((*first, *run))
    }

    /// The run that this settle would be the first of.
    fn run_starting_after(&self, seq: Seq, delivery_id: DeliveryId, kind: Kind) -> Option<(DeliveryId, Run)> {
        let next = DeliveryId::new(delivery_id.get().checked_add(1)?);
        let run = self.runs.get(&next)?;
        (run.kind == kind && run.first_seq.get().checked_sub(1) == Some(seq.get())).then_some((next, *run))
    }

    fn add(&mut self, first: DeliveryId, run: Run) {
        let replaced = self.runs.insert(first, run);
        assert!(replaced.is_none(), "P5: delivery {first} was settled twice");
        self.ages.insert((run.opened, first));
    }

    fn remove(&mut self, first: DeliveryId, run: Run) {
        self.runs.remove(&first);
        self.ages.remove(&(run.opened, first));
    }
}

impl Run {
    const fn is_open(&self, at: ClusterTime) -> bool {
        at.since_ms(self.opened) <= OPEN_MS
    }

    const fn is_over(&self, now: ClusterTime) -> bool {
        now.since_ms(self.opened) > OPEN_MS + KEEP_MS
    }
}

/// How long a settle is remembered at least (wire rule 3).
pub(crate) const KEEP_MS: u64 = 60_000;

/// How long a run takes in further settles. It is remembered as long as its youngest, so this much longer than its oldest.
const OPEN_MS: u64 = 10_000;

/// Old runs that go when a new one is made: more than one, so that their number falls back after a peak.
const FORGET_PER_RUN: usize = 2;

#[cfg(test)]
mod tests {
    use super::{KEEP_MS, Kind, OPEN_MS, Runs};
    use mortarmq_types::{ClusterTime, DeliveryId, Seq};

    fn remember(runs: &mut Runs, seq: u64, id: u64, kind: Kind, at: u64) {
        runs.remember(Seq::new(seq), DeliveryId::new(id), kind, ClusterTime::new(at));
        runs.check();
    }

    fn kind_of(runs: &Runs, seq: u64, id: u64, at: u64) -> Option<Kind> {
        runs.kind_of(Seq::new(seq), DeliveryId::new(id), ClusterTime::new(at))
    }

    #[test]
    fn settles_of_a_block_become_one_run_in_whatever_order_they_come() {
        // Goal: memory follows blocks, not deliveries. Method: ten deliveries, every order of a stride.
        for stride in [1, 3, 7, 9] {
            let mut runs = Runs::default();
            for n in 0..10 {
                let place = n * stride % 10;
                remember(&mut runs, 100 + place, 50 + place, Kind::Ack, n);
            }
            assert_eq!(runs.len(), 1, "stride {stride}");
            for place in 0..10 {
                assert_eq!(kind_of(&runs, 100 + place, 50 + place, 20), Some(Kind::Ack));
            }
            assert_eq!(kind_of(&runs, 99, 49, 20), None);
            assert_eq!(kind_of(&runs, 110, 60, 20), None);
            assert_eq!(kind_of(&runs, 101, 50, 20), None, "another message's delivery");
            assert_eq!(kind_of(&runs, 0, 59, 20), None);
        }
    }

    #[test]
    fn kinds_and_gaps_are_kept_apart() {
        let mut runs = Runs::default();
        remember(&mut runs, 1, 1, Kind::Ack, 0);
        remember(&mut runs, 2, 2, Kind::Nack, 0);
        remember(&mut runs, 3, 3, Kind::Release, 0);
        remember(&mut runs, 5, 4, Kind::Release, 0);
        remember(&mut runs, 6, 6, Kind::Release, 0);
        assert_eq!(runs.len(), 5);
        assert_eq!(kind_of(&runs, 2, 2, 0), Some(Kind::Nack));
        assert_eq!(kind_of(&runs, 5, 4, 0), Some(Kind::Release));
    }

    #[test]
    fn every_settle_is_remembered_for_a_minute_and_hardly_longer() {
        // Goal: the promise of wire rule 3 also for the youngest of a run, and bounded memory. Method: one settle per
        // second for five minutes, all consecutive; each is asked for just inside and just outside its time.
        let mut runs = Runs::default();
        for second in 0..300 {
            let at = second * 1000;
            remember(&mut runs, second + 1, second + 1, Kind::Ack, at);
            for old in 0..=second {
                let age = at - old * 1000;
                let kept = kind_of(&runs, old + 1, old + 1, at).is_some();
                assert!(kept || age > KEEP_MS, "forgotten after {age} ms");
                assert!(!kept || age <= KEEP_MS + OPEN_MS, "still there after {age} ms");
            }
        }
        assert!(runs.len() <= 8, "{} runs", runs.len());
        runs.forget(ClusterTime::new(1_000_000), usize::MAX);
        assert_eq!(runs.len(), 0);
        runs.check();
    }

    #[test]
    fn a_run_that_swallows_a_younger_one_keeps_both_long_enough() {
        let mut runs = Runs::default();
        remember(&mut runs, 1, 1, Kind::Ack, 0);
        remember(&mut runs, 3, 3, Kind::Ack, 9_000);
        remember(&mut runs, 2, 2, Kind::Ack, 10_000);
        assert_eq!(runs.len(), 1);
        assert_eq!(kind_of(&runs, 3, 3, 70_000), Some(Kind::Ack));
        // A closed run takes in nothing more: its time would be over too soon.
        remember(&mut runs, 4, 4, Kind::Ack, 10_001);
        assert_eq!(runs.len(), 2);
        assert_eq!(kind_of(&runs, 4, 4, 70_001), Some(Kind::Ack));
        assert_eq!(kind_of(&runs, 3, 3, 70_001), None);
        // Nor in front of it.
        remember(&mut runs, 10, 10, Kind::Ack, 10_001);
        remember(&mut runs, 9, 9, Kind::Ack, 20_002);
        assert_eq!(kind_of(&runs, 9, 9, 80_002), Some(Kind::Ack));
    }
}
