//! What of a partition falls due later: the messages that were published with a delay.
//!
//! # Invariants
//! 1. Both maps hold the same messages, each once, and no message beyond the partition's last.
//! 2. A message stays until it has fallen due for every path of the topic; without paths, until it is due. Who reads it
//!    skips what stands here and is still ahead of him, whatever the order in which he reads the rest.
//!
//! A message of which every path has been told is one like any other: who comes later reads it in the order of sequences.
//! There are at most `max_delayed_per_partition` of them (failure rule 9). Both maps lie in chunks: full ones, as a million of these
//! must not cost much more than what is known of them, and an image shares them.

use mortarmq_delivery::{ChunkedMap, Delayed, DuePosition, Fact};
use mortarmq_types::{ClusterTime, Seq};
use std::ops::{Bound, Range, RangeBounds};

/// The delayed messages of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// In the order in which they fall due.
    order: ChunkedMap<DuePosition, ()>,
    /// When each falls due, and what is known of it.
    messages: ChunkedMap<Seq, (ClusterTime, Fact)>,
    /// That messages are due was told up to this time: paths look for themselves after that.
    told: ClusterTime,
}

impl Schedule {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// When a message falls due, if it stands here.
    #[must_use]
    pub fn due_of(&self, seq: Seq) -> Option<ClusterTime> {
        self.messages.get(&seq).map(|(due, _)| *due)
    }

    /// The first message behind a place.
    #[must_use]
    pub fn next_after(&self, after: DuePosition) -> Option<Delayed> {
        self.places_after(after).next().map(|at| self.delayed(at))
    }

    /// The places behind one, the first to fall due first.
    pub fn places_after(&self, after: DuePosition) -> impl Iterator<Item = DuePosition> {
        self.order.range((Bound::Excluded(after), Bound::Unbounded)).map(|(at, ())| *at)
    }

    /// How many messages stand behind a place.
    #[must_use]
    pub fn count_after(&self, after: DuePosition) -> usize {
        self.order.count_above(after)
    }

    /// All places, the first to fall due first.
    pub fn places(&self) -> impl Iterator<Item = DuePosition> {
        self.order.iter().map(|(at, ())| *at)
    }

    /// All messages by rising sequence, from one on, each with when it falls due.
    pub fn from_seq(&self, first: Seq) -> impl Iterator<Item = DuePosition> {
        self.among((Bound::Included(first), Bound::Unbounded))
    }

    /// The message with the lowest sequence.
    #[must_use]
    pub fn lowest(&self) -> Option<Seq> {
        self.messages.first().map(|(seq, _)| *seq)
    }

    /// The message with the lowest sequence among these.
    #[must_use]
    pub fn first_among(&self, among: Range<Seq>) -> Option<DuePosition> {
        self.among(among).next()
    }

    /// The message with the highest sequence among these.
    #[must_use]
    pub fn last_among(&self, among: Range<Seq>) -> Option<DuePosition> {
        self.among(among).next_back()
    }

    fn among(&self, among: impl RangeBounds<Seq>) -> impl DoubleEndedIterator<Item = DuePosition> {
        self.messages.range(among).map(|(seq, (due, _))| DuePosition { due: *due, seq: *seq })
    }

    /// A place that stands here, with what is known of its message.
    fn delayed(&self, at: DuePosition) -> Delayed {
        let (_, fact) = self.messages.get(&at.seq).expect("invariant 1: both maps hold the same messages");
        Delayed { at, fact: *fact }
    }

    /// When messages next fall due of which nobody was told.
    #[must_use]
    pub fn next_due(&self) -> Option<ClusterTime> {
        self.next_after(all_until(self.told)).map(|delayed| delayed.at.due)
    }

    /// Whether anything is due at this time.
    #[must_use]
    pub fn has_due(&self, now: ClusterTime) -> bool {
        self.order.first().is_some_and(|(at, ())| at.due <= now)
    }

    /// Up to when it was told that messages are due.
    #[must_use]
    pub fn told(&self) -> ClusterTime {
        self.told
    }

    /// Adds a message.
    pub(crate) fn add(&mut self, at: DuePosition, fact: Fact) {
        let was_ordered = self.order.insert(at, ()).is_some();
        let was_known = self.messages.insert(at.seq, (at.due, fact)).is_some();
        assert!(!was_ordered && !was_known, "invariant 1: message {} is delayed twice", at.seq);
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
            && let Some(at) = self.order.first().map(|(at, ())| *at)
            && at <= last
        {
            self.order.remove(&at);
            self.messages.remove(&at.seq);
            forgotten += 1;
        }
        forgotten
    }

    /// Forgets a message that nobody waits for any more.
    pub(crate) fn forget(&mut self, at: DuePosition) {
        let was_ordered = self.order.remove(&at).is_some();
        let was_known = self.messages.remove(&at.seq).is_some();
        assert!(was_ordered && was_known, "invariant 1: message {} is not delayed", at.seq);
    }

    /// The messages with what is known of them, the first to fall due first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Delayed> {
        self.places().map(|at| self.delayed(at))
    }

    /// Takes messages back that [`Self::iter`] gave; none if one of them is there twice.
    pub(crate) fn restore(told: ClusterTime, delayed: Vec<Delayed>) -> Option<Self> {
        let count = delayed.len();
        let order: ChunkedMap<_, _> = delayed.iter().map(|one| (one.at, ())).collect();
        // Added by rising sequence they lie in full chunks.
        let mut messages = delayed;
        messages.sort_unstable_by_key(|one| one.at.seq);
        let messages: ChunkedMap<_, _> = messages.into_iter().map(|one| (one.at.seq, (one.at.due, one.fact))).collect();
        (messages.len() == count && order.len() == count).then_some(Self { order, messages, told })
    }

    /// Asserts invariant 1.
    ///
    /// # Panics
    /// When it does not hold.
    pub fn check(&self, last_seq: Seq) {
        self.order.check();
        self.messages.check();
        assert_eq!(self.order.len(), self.messages.len(), "invariant 1: delayed messages by due time and by sequence");
        assert!(self.places().all(|at| self.due_of(at.seq) == Some(at.due)), "invariant 1: due times differ");
        let highest = self.messages.last().map(|(seq, _)| *seq);
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
    use mortarmq_delivery::{Delayed, DuePosition, Fact};
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
        let messages: Vec<_> = schedule().iter().collect();
        assert_eq!(Schedule::restore(ClusterTime::ZERO, messages.clone()), Some(schedule()));
        let twice = [messages.clone(), vec![Delayed { at: at(50, 1), ..messages[0] }]].concat();
        assert_eq!(Schedule::restore(ClusterTime::ZERO, twice), None);
    }
}
