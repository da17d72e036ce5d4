//! What of a partition falls due later: the messages that were published with a delay.
//!
//! # Invariants
//! 1. Both maps hold the same messages, each once, and no message beyond the partition's last.
//! 2. A message stays until it has fallen due for every path of the topic; without paths, until it is due. Who reads it
//!    skips what stands here and is still ahead of him, whatever the order in which he reads the rest.
//!
//! A message of which every path has been told is one like any other: who comes later reads it in the order of sequences.
//! There are at most `max_delayed_per_partition` of them (failure rule 9). Both maps are persistent: an image shares them.

use imbl::OrdMap;
use mortarmq_delivery::{Delayed, DuePosition, Fact};
use mortarmq_types::{ClusterTime, Seq};
use std::ops::{Bound, Range};

/// The delayed messages of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// In the order in which they fall due.
    order: OrdMap<DuePosition, Fact>,
    /// When each falls due.
    dues: OrdMap<Seq, ClusterTime>,
    /// That messages are due was told up to this time: paths look for themselves after that.
    told: ClusterTime,
}

impl Schedule {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// When a message falls due, if it stands here.
    #[must_use]
    pub fn due_of(&self, seq: Seq) -> Option<ClusterTime> {
        self.dues.get(&seq).copied()
    }

    /// The first message behind a place.
    #[must_use]
    pub fn next_after(&self, after: DuePosition) -> Option<Delayed> {
        let next = self.order.range((Bound::Excluded(after), Bound::Unbounded)).next();
        next.map(|(at, fact)| Delayed { at: *at, fact: *fact })
    }

    /// The places behind one, the first to fall due first.
    pub fn places_after(&self, after: DuePosition) -> impl Iterator<Item = DuePosition> {
        self.order.range((Bound::Excluded(after), Bound::Unbounded)).map(|(at, _)| *at)
    }

    /// All places, the first to fall due first.
    pub fn places(&self) -> impl Iterator<Item = DuePosition> {
        self.order.keys().copied()
    }

    /// All messages by rising sequence, from one on, each with when it falls due.
    pub fn from_seq(&self, first: Seq) -> impl Iterator<Item = DuePosition> {
        self.dues.range(first..).map(|(seq, due)| DuePosition { due: *due, seq: *seq })
    }

    /// The message with the lowest sequence among these.
    #[must_use]
    pub fn first_among(&self, among: Range<Seq>) -> Option<DuePosition> {
        self.dues.range(among).next().map(|(seq, due)| DuePosition { due: *due, seq: *seq })
    }

    /// The message with the highest sequence among these.
    #[must_use]
    pub fn last_among(&self, among: Range<Seq>) -> Option<DuePosition> {
        self.dues.range(among).next_back().map(|(seq, due)| DuePosition { due: *due, seq: *seq })
    }

    /// When messages next fall due of which nobody was told.
    #[must_use]
    pub fn next_due(&self) -> Option<ClusterTime> {
        self.next_after(all_until(self.told)).map(|delayed| delayed.at.due)
    }

    /// Whether anything is due at this time.
    #[must_use]
    pub fn has_due(&self, now: ClusterTime) -> bool {
        self.order.get_min().is_some_and(|(at, _)| at.due <= now)
    }

    /// Up to when it was told that messages are due.
    #[must_use]
    pub fn told(&self) -> ClusterTime {
        self.told
    }

    /// Adds a message.
    pub(crate) fn add(&mut self, at: DuePosition, fact: Fact) {
        let was_ordered = self.order.insert(at, fact).is_some();
        let was_due = self.dues.insert(at.seq, at.due).is_some();
        assert!(!was_ordered && !was_due, "invariant 1: message {} is delayed twice", at.seq);
    }

    /// Notes that it is told up to now.
    pub(crate) fn tell(&mut self, now: ClusterTime) {
        self.told = self.told.max(now);
    }

    /// Takes back that it was told: what is due is told again.
    pub(crate) fn tell_again(&mut self) {
        self.told = ClusterTime::ZERO;
    }

    /// Forgets what has fallen due up to a place, at most so many messages. Says how many it forgot.
    pub(crate) fn forget_to(&mut self, last: DuePosition, most: u32) -> u32 {
        let mut forgotten = 0;
        while forgotten < most
            && let Some((at, _)) = self.order.get_min().filter(|(at, _)| *at <= last)
        {
            let at = *at;
            self.order.remove(&at);
            self.dues.remove(&at.seq);
            forgotten += 1;
        }
        forgotten
    }

    /// Forgets a message that nobody waits for any more.
    pub(crate) fn forget(&mut self, at: DuePosition) {
        let was_ordered = self.order.remove(&at).is_some();
        let was_due = self.dues.remove(&at.seq).is_some();
        assert!(was_ordered && was_due, "invariant 1: message {} is not delayed", at.seq);
    }

    /// The messages with what is known of them, the first to fall due first.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&DuePosition, &Fact)> {
        self.order.iter()
    }

    /// Takes messages back that [`Self::iter`] gave; none if one of them is there twice.
    pub(crate) fn restore(told: ClusterTime, messages: Vec<(DuePosition, Fact)>) -> Option<Self> {
        let count = messages.len();
        let dues: OrdMap<Seq, ClusterTime> = messages.iter().map(|(at, _)| (at.seq, at.due)).collect();
        let order: OrdMap<DuePosition, Fact> = messages.into_iter().collect();
        (dues.len() == count && order.len() == count).then_some(Self { order, dues, told })
    }

    /// Asserts invariant 1.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check(&self, last_seq: Seq) {
        assert_eq!(self.order.len(), self.dues.len(), "invariant 1: delayed messages by due time and by sequence");
        assert!(self.order.keys().all(|at| self.dues.get(&at.seq) == Some(&at.due)), "invariant 1: due times differ");
        let highest = self.dues.get_max().map(|(seq, _)| *seq);
        assert!(highest <= Some(last_seq), "invariant 1: {highest:?} is delayed, the last message is {last_seq}");
    }
}

/// The place behind everything that is due at a time.
pub(crate) const fn all_until(time: ClusterTime) -> DuePosition {
    DuePosition { due: time, seq: Seq::MAX }
}

#[cfg(test)]
mod tests {
    use super::{Schedule, all_until};
    use mortarmq_delivery::{DuePosition, Fact};
    use mortarmq_types::{ClusterTime, KeyHash, Seq};

    fn at(due: u64, seq: u64) -> DuePosition {
        DuePosition { due: ClusterTime::new(due), seq: Seq::new(seq) }
    }

    fn schedule() -> Schedule {
        let mut schedule = Schedule::default();
        for (due, seq) in [(30, 1), (10, 3), (10, 2), (40, 4)] {
            let fact =
                Fact { key_hash: KeyHash::NONE, size_bytes: u32::try_from(seq).expect("small"), expires_at_ms: 0 };
            schedule.add(at(due, seq), fact);
            schedule.check(Seq::new(4));
        }
        schedule
    }

    #[test]
    fn p4_messages_stand_in_the_order_of_due_time_and_sequence_until_all_have_passed_them() {
        let mut schedule = schedule();
        let order: Vec<u64> = schedule.places().map(|at| at.seq.get()).collect();
        assert_eq!(order, [2, 3, 1, 4]);
        assert_eq!(schedule.next_after(at(10, 2)).map(|next| (next.at, next.fact.size_bytes)), Some((at(10, 3), 3)));
        assert_eq!(schedule.due_of(Seq::new(1)), Some(ClusterTime::new(30)));
        assert_eq!(schedule.forget_to(at(10, 2), 9), 1);
        assert_eq!(schedule.forget_to(all_until(ClusterTime::new(30)), 1), 1, "as many as are asked for");
        assert_eq!((schedule.len(), schedule.due_of(Seq::new(3))), (2, None));
        schedule.check(Seq::new(4));
    }

    #[test]
    fn what_is_due_is_told_once() {
        let mut schedule = schedule();
        assert_eq!(schedule.next_due(), Some(ClusterTime::new(10)));
        schedule.tell(ClusterTime::new(10));
        assert_eq!(schedule.next_due(), Some(ClusterTime::new(30)), "also while they stay for a path that lags");
        schedule.tell(ClusterTime::new(35));
        assert_eq!(schedule.next_due(), Some(ClusterTime::new(40)));
        assert!(schedule.has_due(ClusterTime::new(10)) && !schedule.has_due(ClusterTime::new(9)));
    }

    #[test]
    fn p11_a_message_that_is_there_twice_is_not_taken_back() {
        let messages: Vec<_> = schedule().iter().map(|(at, fact)| (*at, *fact)).collect();
        assert_eq!(Schedule::restore(ClusterTime::ZERO, messages.clone()), Some(schedule()));
        let twice = [messages.clone(), vec![(at(50, 1), messages[0].1)]].concat();
        assert_eq!(Schedule::restore(ClusterTime::ZERO, twice), None);
    }
}
