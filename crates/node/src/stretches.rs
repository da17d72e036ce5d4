//! Facts of a backlog, read ahead from the segment index: what a `Deliver` brings along when a path lags further than
//! the state remembers.

use mortarmq_delivery::Fact;
use mortarmq_shard::Stretch;
use mortarmq_shard::command::STEPS_MAX;
use mortarmq_types::{ClusterTime, Mutant, Partition, PathId, Seq};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Entries read at once.
pub(crate) const READ_ENTRIES: u32 = 4096;
/// Below that many entries the next ones are read.
const REFILL_BELOW: usize = 2048;

/// One path in one partition.
pub(crate) type Place = (PathId, Partition);

/// Read-ahead of all lagging paths.
#[derive(Debug, Default)]
pub(crate) struct Stretches {
    places: BTreeMap<Place, Ahead>,
    reads: BTreeMap<u64, UnderWay>,
    /// Those of them that read records, because the index is damaged.
    of_records: BTreeSet<u64>,
}

/// A read that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    place: Place,
    from: Seq,
}

/// What a failed read means for its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedRead {
    /// The path needs what was read: the records are read in place of the index.
    OfIndex(Place),
    /// The path needs what was read from there on, and neither index nor record says it.
    OfRecords(Place, Seq),
    /// The path has moved meanwhile, and needs another read.
    Moved(PathId),
}

#[derive(Debug, Default)]
struct Ahead {
    first: Seq,
    facts: VecDeque<Fact>,
    reading: bool,
}

impl Stretches {
    /// The facts from `position` on, as [`useful`] takes them; `None` if none are there yet.
    pub(crate) fn stretch(&mut self, place: Place, position: Seq, most: usize, now: ClusterTime) -> Option<Stretch> {
        let ahead = self.places.get_mut(&place)?;
        ahead.drop_below(position);
        if ahead.facts.is_empty() || ahead.first != position {
            return None;
        }
        let facts = useful(ahead.facts.iter().copied(), most, now);
        Some(Stretch { partition: place.1, first: position, facts })
    }

    /// Where to read on for a path at `position` whose facts are remembered from `base` on; `None` if enough is there.
    pub(crate) fn wants(&mut self, place: Place, position: Seq, base: Seq) -> Option<Seq> {
        let ahead = self.places.entry(place).or_default();
        ahead.drop_below(position);
        if ahead.facts.is_empty() || ahead.first != position {
            ahead.facts.clear();
            ahead.first = position;
        }
        let next = ahead.first.plus(ahead.facts.len() as u64);
        (!ahead.reading && ahead.facts.len() < REFILL_BELOW && next < base).then_some(next)
    }

    /// Notes that the place is read from there on.
    pub(crate) fn reading(&mut self, ticket: u64, place: Place, from: Seq) {
        self.places.entry(place).or_default().reading = true;
        self.reads.insert(ticket, UnderWay { place, from });
    }

    /// Notes that the records are read in place of the index.
    pub(crate) fn reading_records(&mut self, ticket: u64, place: Place, from: Seq) {
        self.reading(ticket, place, from);
        self.of_records.insert(ticket);
    }

    /// A read failed. Says what follows, if it was one of these. If it was one of records, there is no other way, and it is
    /// tried again when the path is looked at next.
    pub(crate) fn read_failed(&mut self, ticket: u64) -> Option<FailedRead> {
        let read = self.reads.remove(&ticket)?;
        let of_records = self.of_records.remove(&ticket);
        if let Some(ahead) = self.places.get_mut(&read.place) {
            ahead.reading = false;
        }
        Some(match of_records {
            _ if self.has_moved(read) => FailedRead::Moved(read.place.0),
            true => FailedRead::OfRecords(read.place, read.from),
            false => FailedRead::OfIndex(read.place),
        })
    }

    /// Whether a read is one of records in place of the index.
    pub(crate) fn is_of_records(&self, ticket: u64) -> bool {
        self.of_records.contains(&ticket)
    }

    /// The message of which nothing is known yet.
    pub(crate) fn next_unread(&self, place: Place) -> Option<Seq> {
        let ahead = self.places.get(&place)?;
        Some(ahead.first.plus(ahead.facts.len() as u64))
    }

    /// Whether the path needs something else next than what was read. It was looked at while the read was under way, and
    /// began no other: somebody has to look at it again. One that stays where it is would only find the same again.
    fn has_moved(&self, read: UnderWay) -> bool {
        self.next_unread(read.place).is_some_and(|next| next != read.from)
    }

    /// Takes in what was read; says whose it is if there is reason to look at it. What does not follow on is dropped and read
    /// again.
    pub(crate) fn read_done(&mut self, ticket: u64, entries: &[mortarmq_storage::IndexEntry]) -> Option<Place> {
        let read = self.reads.remove(&ticket)?;
        self.of_records.remove(&ticket);
        let (place, has_moved) = (read.place, self.has_moved(read));
        let ahead = self.places.get_mut(&place)?;
        ahead.reading = false;
        for entry in entries {
            let next = ahead.first.plus(ahead.facts.len() as u64);
            if entry.seq == next {
                let expires_at_ms = entry.expires_at_ms;
                ahead.facts.push_back(Fact {
                    key_hash: entry.key_hash,
                    size_bytes: entry.payload_bytes,
                    expires_at_ms,
                });
            }
        }
        (has_moved || !entries.is_empty()).then_some(place)
    }

    /// Forgets a path that has caught up, or is gone.
    pub(crate) fn forget(&mut self, place: Place) {
        self.places.remove(&place);
    }

    pub(crate) fn forget_path(&mut self, path: PathId) {
        self.places.extract_if((path, Partition::ZERO)..=(path, Partition::MAX), |_, _| true).for_each(drop);
    }
}

/// As many facts as hold `most` messages that can be leased, and no more than one command can look at: those that have
/// expired are only dropped on the way.
pub(crate) fn useful(facts: impl Iterator<Item = Fact>, most: usize, now: ClusterTime) -> Vec<Fact> {
    let mut left = most;
    let is_wanted = |fact: &Fact| {
        let is_wanted = left > 0;
        left = left.saturating_sub(usize::from(!fact.has_expired(now)));
        is_wanted
    };
    facts.take(STEPS_MAX as usize).take_while(is_wanted).collect()
}

impl Ahead {
    /// Forgets what the path has passed. One that an operator moved back stands before what was read: nothing of that is what
    /// comes next.
    fn drop_below(&mut self, position: Seq) {
        let gone = usize::try_from(position.above(self.first)).unwrap_or(usize::MAX);
        if gone >= self.facts.len() || (position < self.first && !Mutant::ReadAheadKept.is_on()) {
            self.facts.clear();
            self.first = position;
        } else {
            self.facts.drain(..gone);
            self.first = position;
        }
    }
}

#[cfg(test)]
mod tests {
    use mortarmq_storage::IndexEntry;
    use mortarmq_types::{ClusterTime, KeyHash, Partition, PathId, Seq};

    use super::{FailedRead, Stretches};

    /// Messages of a key each, named by their sequence.
    fn entries(seqs: std::ops::Range<u64>) -> Vec<IndexEntry> {
        let entry =
            |seq| IndexEntry { seq: Seq::new(seq), key_hash: KeyHash::new(seq), payload_bytes: 1, expires_at_ms: 0 };
        seqs.map(entry).collect()
    }

    fn keys(stretches: &mut Stretches, position: u64) -> Option<(u64, Vec<u64>)> {
        let place = (PathId::new(1), Partition::ZERO);
        let stretch = stretches.stretch(place, Seq::new(position), 10, ClusterTime::ZERO)?;
        Some((stretch.first.get(), stretch.facts.iter().map(|fact| fact.key_hash.get()).collect()))
    }

    #[test]
    fn p8_what_was_read_ahead_is_told_of_no_other_message_when_the_path_moves() {
        let (mut stretches, place) = (Stretches::default(), (PathId::new(1), Partition::ZERO));
        let base = Seq::new(1000);
        assert_eq!(stretches.wants(place, Seq::new(100), base), Some(Seq::new(100)));
        stretches.reading(7, place, Seq::new(100));
        assert_eq!(stretches.read_done(7, &entries(100..103)), Some(place));
        assert_eq!(keys(&mut stretches, 100), Some((100, vec![100, 101, 102])));
        assert_eq!(keys(&mut stretches, 101), Some((101, vec![101, 102])));
        // Back by a seek: nothing that is known is what comes next.
        assert_eq!(keys(&mut stretches, 50), None);
        assert_eq!(stretches.wants(place, Seq::new(50), base), Some(Seq::new(50)));
        stretches.reading(8, place, Seq::new(50));
        // And on by another one, while that is read.
        assert_eq!(keys(&mut stretches, 60), None);
        assert_eq!(stretches.read_done(8, &entries(50..53)), Some(place));
        assert_eq!(keys(&mut stretches, 60), None);
        assert_eq!(stretches.wants(place, Seq::new(60), base), Some(Seq::new(60)));
    }

    #[test]
    fn p4_a_path_that_moved_while_a_read_brought_nothing_is_looked_at_again_and_no_other() {
        let (place, base) = ((PathId::new(1), Partition::ZERO), Seq::new(1000));
        // Where it stays, the same read would find the same again.
        for (moves_to, has_moved) in [(50, false), (60, true), (40, true)] {
            let reading = || {
                let mut stretches = Stretches::default();
                assert_eq!(stretches.wants(place, Seq::new(50), base), Some(Seq::new(50)));
                stretches.reading(7, place, Seq::new(50));
                assert_eq!(stretches.wants(place, Seq::new(moves_to), base), None, "one read at a time");
                stretches
            };
            let mut stretches = reading();
            assert_eq!(stretches.read_done(7, &[]), has_moved.then_some(place), "to {moves_to}");
            assert_eq!(stretches.wants(place, Seq::new(moves_to), base), Some(Seq::new(moves_to)));
            let failed = if has_moved { FailedRead::Moved(place.0) } else { FailedRead::OfIndex(place) };
            assert_eq!(reading().read_failed(7), Some(failed), "to {moves_to}");
            let mut stretches = reading();
            stretches.reading_records(7, place, Seq::new(50));
            let failed =
                if has_moved { FailedRead::Moved(place.0) } else { FailedRead::OfRecords(place, Seq::new(50)) };
            assert_eq!(stretches.read_failed(7), Some(failed), "to {moves_to}");
        }
    }
}
