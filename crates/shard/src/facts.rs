//! What a partition remembers of its newest messages, so that a path can place and order them without reading a disk.

use crate::command::Stretch;
use crate::schedule::Schedule;
use imbl::Vector;
use mortarmq_delivery::{Delayed, DuePosition, Fact, Facts};
use mortarmq_types::{ClusterTime, Seq};
use std::ops::Range;

/// Facts of the newest messages of a partition, consecutive up to its last sequence.
///
/// # Invariants
/// 1. The facts are those of `base..=last_seq`, without a hole.
/// 2. There are at most `limit` of them (failure rule 9): a path that lags further brings its facts along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactWindow {
    base: Seq,
    facts: Vector<Fact>,
    limit: usize,
}

impl FactWindow {
    /// An empty window of a partition without messages.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { base: Seq::FIRST, facts: Vector::new(), limit }
    }

    /// Remembers the next message. `wanted` is false when no path could ask for it.
    pub fn push(&mut self, seq: Seq, fact: Fact, wanted: bool) {
        if !wanted {
            self.facts.clear();
            self.base = seq.next();
            return;
        }
        assert_eq!(self.base.plus(self.facts.len() as u64), seq, "facts follow the sequences without a hole");
        if self.facts.len() == self.limit {
            self.facts.pop_front();
            self.base = self.base.next();
        }
        self.facts.push_back(fact);
    }

    /// Forgets all of them: they can be read again from the index.
    pub(crate) fn clear(&mut self, last_seq: Seq) {
        self.facts.clear();
        self.base = last_seq.next();
    }

    /// Forgets what lies below the position of every path.
    pub fn forget_below(&mut self, lowest: Seq) {
        let gone = usize::try_from(lowest.above(self.base)).unwrap_or(usize::MAX).min(self.facts.len());
        if gone > 0 {
            self.facts = self.facts.split_off(gone);
        }
        self.base = self.base.plus(gone as u64);
    }

    /// The sequence of the oldest fact; the next message's if there are none.
    #[must_use]
    pub fn base(&self) -> Seq {
        self.base
    }

    /// How many facts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.facts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
    }

    /// How many facts are kept at most.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The facts, oldest first.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Fact> {
        self.facts.iter()
    }

    /// Takes facts back that [`Self::iter`] gave; none if they are more than the limit or than there were messages.
    pub(crate) fn restore(last_seq: Seq, limit: usize, facts: Vec<Fact>) -> Option<Self> {
        let below = last_seq.get().checked_sub(facts.len() as u64)?;
        let fits = limit > 0 && facts.len() <= limit;
        fits.then(|| Self { base: Seq::new(below).next(), facts: facts.into(), limit })
    }

    fn get(&self, seq: Seq) -> Option<Fact> {
        let place = seq.get().checked_sub(self.base.get())?;
        self.facts.get(usize::try_from(place).ok()?).copied()
    }

    /// Asserts every numbered invariant.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self, last_seq: Seq) {
        assert_eq!(
            self.base.plus(self.facts.len() as u64),
            last_seq.next(),
            "invariant 1: facts end at the last message"
        );
        assert!(self.facts.len() <= self.limit, "invariant 2: {} facts, limit {}", self.facts.len(), self.limit);
    }
}

/// What one `Deliver` can use: the facts that came with it and those the partition remembers, and what is delayed.
#[derive(Clone, Copy, Debug)]
pub struct FactView<'a> {
    /// What came with the command, if it speaks of this partition.
    pub stretch: Option<&'a Stretch>,
    /// What the partition remembers.
    pub window: &'a FactWindow,
    /// What of the partition is delayed.
    pub schedule: &'a Schedule,
}

impl Facts for FactView<'_> {
    fn fact(&self, seq: Seq) -> Option<Fact> {
        self.window.get(seq).or_else(|| {
            let stretch = self.stretch?;
            let place = seq.get().checked_sub(stretch.first.get())?;
            stretch.facts.get(usize::try_from(place).ok()?).copied()
        })
    }

    fn due_of(&self, seq: Seq) -> Option<ClusterTime> {
        self.schedule.due_of(seq)
    }

    fn next_delayed(&self, after: DuePosition) -> Option<Delayed> {
        self.schedule.next_after(after)
    }

    fn first_delayed(&self, among: Range<Seq>) -> Option<DuePosition> {
        self.schedule.first_among(among)
    }

    fn last_delayed(&self, among: Range<Seq>) -> Option<DuePosition> {
        self.schedule.last_among(among)
    }
}

#[cfg(test)]
mod tests {
    use super::{FactView, FactWindow};
    use crate::command::Stretch;
    use crate::schedule::Schedule;
    use mortarmq_delivery::{Fact, Facts as _};
    use mortarmq_types::{KeyHash, Partition, Seq};

    fn fact(size_bytes: u32) -> Fact {
        Fact { key_hash: KeyHash::NONE, size_bytes, expires_at_ms: 0 }
    }

    #[test]
    fn facts_are_bounded_and_a_stretch_fills_in_below_them() {
        let mut window = FactWindow::new(3);
        for number in 1..=5 {
            window.push(Seq::new(number), fact(u32::try_from(number).expect("small")), true);
            window.check(Seq::new(number));
        }
        assert_eq!(window.base(), Seq::new(3));
        let stretch = Stretch { partition: Partition::ZERO, first: Seq::new(1), facts: vec![fact(1), fact(2)] };
        let view = FactView { stretch: Some(&stretch), window: &window, schedule: &Schedule::default() };
        let sizes: Vec<Option<u32>> =
            (0..=6).map(|number| view.fact(Seq::new(number)).map(|fact| fact.size_bytes)).collect();
        assert_eq!(sizes, [None, Some(1), Some(2), Some(3), Some(4), Some(5), None]);
        window.forget_below(Seq::new(5));
        assert_eq!((window.base(), window.len()), (Seq::new(5), 1));
        window.push(Seq::new(6), fact(6), false);
        window.check(Seq::new(6));
        assert!(window.is_empty());
    }
}
