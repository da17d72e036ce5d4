//! Records of a backlog that were read along with those that were asked for: what a path is leased next needs no read of its
//! own, and leaves with the commit.
//!
//! # Invariants
//! 1. At most [`PLACES_MAX`] places have records, each of at most one read: memory is bounded however many paths lag.
//! 2. The records of a place are in the order of their sequences.

use mortarmq_types::{MonotonicTime, PathId, Seq};
use std::collections::{BTreeMap, VecDeque};

use crate::recent::Stored;
use crate::stretches::Place;

/// A read brings at most so many records more than it was asked for.
pub(crate) const AHEAD_RECORDS: u64 = 1024;
/// With so many places they hold 16 MiB by default; a path that lags beside them reads what it needs.
const PLACES_MAX: usize = 64;
/// What nobody has asked for in between goes.
const SWEEP_MS: u64 = 1000;

/// The records that were read ahead.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    places: BTreeMap<Place, Ahead>,
    next_sweep: MonotonicTime,
}

/// Those of one path in one partition.
#[derive(Debug, Default)]
struct Ahead {
    records: VecDeque<Stored>,
    /// Whether it was asked for since the last sweep.
    is_used: bool,
}

impl ReadAhead {
    /// Whether there is room for what is read ahead for a place.
    pub(crate) fn has_room(&self, place: Place) -> bool {
        self.places.len() < PLACES_MAX || self.places.contains_key(&place)
    }

    /// Keeps what was read, in the order of the sequences, in place of what is there.
    pub(crate) fn keep(&mut self, place: Place, records: VecDeque<Stored>) {
        if records.is_empty() || !self.has_room(place) {
            self.places.remove(&place);
            return;
        }
        self.places.insert(place, Ahead { records, is_used: true });
    }

    /// Takes a record, if it is here. Those before it are forgotten: a path goes on from where it is. What is `shared` among members gets
    /// bytes of its own: one who reads slowly must not hold the whole read for each message that it does not take.
    pub(crate) fn take(&mut self, place: Place, seq: Seq, is_shared: bool) -> Option<Stored> {
        let ahead = self.places.get_mut(&place)?;
        ahead.is_used = true;
        while ahead.records.front().is_some_and(|record| record.seq < seq) {
            ahead.records.pop_front();
        }
        let found = ahead.records.pop_front_if(|record| record.seq == seq);
        if ahead.records.is_empty() {
            self.places.remove(&place);
        }
        found.map(|stored| if is_shared { stored.alone() } else { stored })
    }

    /// Forgets what nobody has asked for lately.
    pub(crate) fn sweep(&mut self, now: MonotonicTime) {
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now.after_ms(SWEEP_MS);
        self.places.retain(|_, ahead| std::mem::take(&mut ahead.is_used));
    }

    /// Forgets a path that has caught up in a partition.
    pub(crate) fn forget(&mut self, place: Place) {
        self.places.remove(&place);
    }

    /// Forgets a path that is gone.
    pub(crate) fn forget_path(&mut self, path: PathId) {
        self.places.retain(|place, _| place.0 != path);
    }
}

#[cfg(test)]
mod tests {
    use super::{PLACES_MAX, ReadAhead, SWEEP_MS};
    use crate::recent::Stored;
    use bytes::Bytes;
    use mortarmq_types::{MonotonicTime, Partition, PathId, Position, Seq, WallTime};
    use std::collections::VecDeque;

    fn records(seqs: std::ops::Range<u64>) -> VecDeque<Stored> {
        let stored = |seq| Stored {
            seq: Seq::new(seq),
            position: Position::default(),
            published_at: WallTime::ZERO,
            record: Bytes::new(),
        };
        seqs.map(stored).collect()
    }

    fn place(path: u64) -> (PathId, Partition) {
        (PathId::new(path), Partition::ZERO)
    }

    fn take(ahead: &mut ReadAhead, path: u64, seq: u64) -> Option<u64> {
        ahead.take(place(path), Seq::new(seq), path == 2).map(|stored| stored.seq.get())
    }

    #[test]
    fn a_record_is_given_once_and_none_in_place_of_another() {
        let mut ahead = ReadAhead::default();
        ahead.keep(place(1), records(10..20));
        assert_eq!(take(&mut ahead, 2, 10), None, "that is another path");
        assert_eq!(take(&mut ahead, 1, 9), None, "it was not read");
        assert_eq!((take(&mut ahead, 1, 10), take(&mut ahead, 1, 10)), (Some(10), None));
        assert_eq!((take(&mut ahead, 1, 15), take(&mut ahead, 1, 12)), (Some(15), None), "it went on");
        assert_eq!((take(&mut ahead, 1, 19), take(&mut ahead, 1, 20)), (Some(19), None));
        assert!(ahead.places.is_empty(), "what is used up takes no place");
    }

    #[test]
    fn rule_9_however_many_paths_lag_few_have_records_in_memory_and_none_that_nobody_asks_for() {
        let mut ahead = ReadAhead::default();
        for path in 0..200 {
            ahead.keep(place(path), records(1..9));
        }
        assert_eq!(ahead.places.len(), PLACES_MAX);
        assert!(ahead.has_room(place(0)) && !ahead.has_room(place(199)));
        let at = |sweeps: u64| MonotonicTime::ZERO.after_ms(sweeps * SWEEP_MS);
        ahead.sweep(at(1));
        assert_eq!(take(&mut ahead, 3, 1), Some(1));
        ahead.sweep(at(2));
        assert_eq!(ahead.places.len(), 1, "the others were not asked for");
        ahead.forget_path(PathId::new(3));
        assert!(ahead.has_room(place(199)));
    }
}
