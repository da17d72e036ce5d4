//! How old and how large the beginning of a partition is, as far as retention must know it.
//!
//! A partition marks a message now and then: its sequence, when the message before it was stored (cluster time), and the
//! bytes of all records before it. What lies before a mark is at least as old as that, so retention trims at marks: a message
//! goes up to one step later than it could, never earlier. The end of the partition is as good as a mark, and is known
//! beside them.
//!
//! # Invariants
//! 1. Sequences, times and bytes of the marks rise.
//! 2. There are at most [`MARKS_MAX`] of them: when there would be more, the one that matters least goes.

use imbl::Vector;
use mortarmq_types::{ClusterTime, Seq};

/// The marks of one partition, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    marks: Vector<Mark>,
}

/// One marked message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The message.
    pub seq: Seq,
    /// When the message before it was stored; 0 for the first.
    pub before: ClusterTime,
    /// Bytes of all records before it, trimmed ones included.
    pub bytes_before: u64,
}

/// How far apart marks are at least; a step of 0 marks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkSteps {
    /// Cluster time, in milliseconds; 0 = never by time.
    pub ms: u64,
    /// Bytes of records; 0 = never by bytes.
    pub bytes: u64,
}

/// Most marks of a partition: 6 KiB.
pub const MARKS_MAX: usize = 256;

impl Marks {
    /// Notes that a message is stored now; marks it if it is far enough from what lies before the last mark.
    pub fn note(&mut self, mark: Mark, now: ClusterTime, steps: MarkSteps) {
        let is_due = self.marks.last().is_none_or(|last| {
            (steps.ms > 0 && now.since_ms(last.before) >= steps.ms)
                || (steps.bytes > 0 && mark.bytes_before - last.bytes_before >= steps.bytes)
        });
        if !is_due || (steps.ms == 0 && steps.bytes == 0) {
            return;
        }
        if self.marks.len() >= MARKS_MAX {
            self.thin();
        }
        self.marks.push_back(mark);
    }

    /// Forgets the mark whose neighbours are nearest to each other, but neither the first nor the last.
    fn thin(&mut self) {
        let before_and_behind = self.marks.iter().zip(self.marks.iter().skip(2)).enumerate();
        let nearest = before_and_behind.min_by_key(|(_, (before, behind))| behind.seq.above(before.seq));
        if let Some((place, _)) = nearest {
            self.marks.remove(place + 1);
        }
    }

    /// The sequence before which everything was stored at this time or earlier; none if that is not known of anything.
    #[must_use]
    pub fn stored_by(&self, time: ClusterTime) -> Option<Seq> {
        let older = self.marks.iter().take_while(|mark| mark.before <= time);
        older.last().map(|mark| mark.seq)
    }

    /// The sequence before which everything may go so that at least `keep_bytes` of `total_bytes` stay.
    #[must_use]
    pub fn beyond_bytes(&self, total_bytes: u64, keep_bytes: u64) -> Option<Seq> {
        let beyond = self.marks.iter().take_while(|mark| total_bytes.saturating_sub(mark.bytes_before) >= keep_bytes);
        beyond.last().map(|mark| mark.seq)
    }

    /// The last mark at or below a sequence: everything before it lies before that sequence too.
    #[must_use]
    pub fn at_or_below(&self, seq: Seq) -> Option<Mark> {
        self.marks.iter().take_while(|mark| mark.seq <= seq).last().copied()
    }

    /// When a message was stored at the latest; none if no mark lies above it.
    #[must_use]
    pub fn stored_before(&self, seq: Seq) -> Option<ClusterTime> {
        self.marks.iter().find(|mark| mark.seq > seq).map(|mark| mark.before)
    }

    /// The last mark.
    #[must_use]
    pub fn last(&self) -> Option<Mark> {
        self.marks.last().copied()
    }

    /// Whether no mark lies below one message or above another.
    #[must_use]
    pub fn is_between(&self, first_seq: Seq, last_seq: Seq) -> bool {
        self.marks.front().is_none_or(|mark| mark.seq >= first_seq)
            && self.marks.last().is_none_or(|mark| mark.seq <= last_seq)
    }

    /// Forgets the marks up to a sequence below which nothing is kept any more.
    pub fn trim(&mut self, first_seq: Seq) {
        while self.marks.front().is_some_and(|mark| mark.seq <= first_seq) {
            self.marks.pop_front();
        }
    }

    /// The marks, oldest first.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Mark> {
        self.marks.iter()
    }

    /// Takes marks back that [`Self::iter`] gave; none if they do not rise, are too many, or name a message above
    /// `last_seq`.
    pub(crate) fn restore(marks: Vec<Mark>, last_seq: Seq) -> Option<Self> {
        let rises = marks.windows(2).all(|pair| {
            pair[0].seq < pair[1].seq
                && pair[0].before <= pair[1].before
                && pair[0].bytes_before <= pair[1].bytes_before
        });
        let fits = marks.len() <= MARKS_MAX && marks.last().is_none_or(|last| last.seq <= last_seq);
        (rises && fits).then(|| Self { marks: marks.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::{MARKS_MAX, Mark, MarkSteps, Marks};
    use mortarmq_types::{ClusterTime, Seq};

    /// The mark of a message of 100 bytes behind one that was stored at this time.
    fn mark(seq: u64, before_ms: u64) -> Mark {
        Mark { seq: Seq::new(seq), before: ClusterTime::new(before_ms), bytes_before: (seq - 1) * 100 }
    }

    const BY_TIME: MarkSteps = MarkSteps { ms: 1000, bytes: 0 };

    #[test]
    fn nothing_goes_before_its_time_and_little_stays_much_longer() {
        // Goal: retention by age errs on the side of keeping, and by one step only, also where nothing was stored for long.
        // Method: bursts with pauses of very different lengths, asked at every moment.
        let (mut marks, mut stored_at, mut now) = (Marks::default(), vec![0], 0);
        for seq in 1..=200 {
            now += match seq {
                90 => 7000,
                91 | 140 => 2500,
                _ => 100 * (seq % 3),
            };
            let before = *stored_at.last().expect("one per message");
            marks.note(mark(seq, before), ClusterTime::new(now), BY_TIME);
            stored_at.push(now);
        }
        for time in 0..now + 5000 {
            let below = marks.stored_by(ClusterTime::new(time)).map_or(1, Seq::get);
            assert!(stored_at[below as usize - 1] <= time, "{below} goes too early at {time}");
            let last = *stored_at.last().expect("200");
            let late = stored_at[below as usize] + BY_TIME.ms;
            assert!(time < late || last < late, "at {time}, {below} stays, which was stored {} ms before", time - late);
        }
    }

    #[test]
    fn by_bytes_at_least_what_is_to_be_kept_stays() {
        let mut marks = Marks::default();
        for seq in 1..=100 {
            marks.note(mark(seq, 0), ClusterTime::ZERO, MarkSteps { ms: 0, bytes: 500 });
        }
        for keep in [0, 1, 499, 500, 5000, 9_999, 10_000, 20_000] {
            let below = marks.beyond_bytes(10_000, keep).map_or(1, Seq::get);
            let kept = 10_000 - (below - 1) * 100;
            assert!(kept >= keep.min(10_000), "{kept} bytes stay of the {keep} that must");
            assert!(kept <= keep + 1000, "{kept} bytes stay where {keep} are enough");
        }
    }

    #[test]
    fn marks_are_bounded_and_thinned_evenly() {
        let mut marks = Marks::default();
        for seq in 1..=10_000 {
            marks.note(mark(seq, (seq - 1) * 1000), ClusterTime::new(seq * 1000), BY_TIME);
            assert!(marks.iter().len() <= MARKS_MAX);
        }
        let gaps: Vec<u64> =
            marks.iter().zip(marks.iter().skip(1)).map(|(left, right)| right.seq.get() - left.seq.get()).collect();
        assert!(gaps.iter().all(|gap| *gap <= 10_000 / (MARKS_MAX as u64 / 4)), "{gaps:?}");
        assert_eq!(marks.at_or_below(Seq::new(5)).map(|mark| mark.seq), Some(Seq::FIRST));
        marks.trim(Seq::new(5_000));
        assert!(marks.iter().all(|mark| mark.seq > Seq::new(5_000)));
        let taken: Vec<Mark> = marks.iter().copied().collect();
        assert_eq!(Marks::restore(taken.clone(), Seq::new(10_000)), Some(marks));
        assert_eq!(Marks::restore(taken.clone(), Seq::new(9_000)), None, "a mark above the last message");
        let mut falls = taken;
        falls.reverse();
        assert_eq!(Marks::restore(falls, Seq::new(10_000)), None);
    }

    #[test]
    fn without_steps_nothing_is_marked() {
        let mut marks = Marks::default();
        marks.note(mark(1, 0), ClusterTime::ZERO, MarkSteps { ms: 0, bytes: 0 });
        assert_eq!(marks.iter().len(), 0);
        assert_eq!((marks.stored_by(ClusterTime::MAX), marks.beyond_bytes(9, 0)), (None, None));
    }
}
