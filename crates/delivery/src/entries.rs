//! The entries of a path in a partition, by sequence.
//!
//! They stand in sorted chunks, as vectors that are full when messages came in order: a persistent map with the entries
//! in its nodes would take twice the room, since its nodes are half empty then. Sharing all of them is one pointer; what
//! changes later is copied chunk by chunk.
//!
//! # Invariants
//! 1. Chunks follow one another: each holds, by rising sequence, what lies from its base to below the next one's.
//! 2. No chunk is empty or larger than [`CHUNK`]; of two neighbours one at least has a quarter of that, or both together
//!    have more than half.
//! 3. `len` is the number of entries.

use std::{fmt, ops::Range, sync::Arc};

use imbl::OrdMap;
use mortarmq_types::Seq;

use crate::entry::Entry;

/// Entries by sequence.
#[derive(Clone, Default)]
pub(crate) struct Entries {
    /// By base.
    chunks: OrdMap<Seq, Arc<Chunk>>,
    len: usize,
}

type Chunk = Vec<(Seq, Entry)>;

/// Entries of one chunk: a copy of it is what the first change after a checkpoint costs.
const CHUNK: usize = 64;

impl Entries {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, seq: &Seq) -> Option<&Entry> {
        let (_, chunk) = self.chunks.range(..=*seq).next_back()?;
        let place = place(chunk, *seq).ok()?;
        Some(&chunk[place].1)
    }

    pub(crate) fn contains_key(&self, seq: &Seq) -> bool {
        self.get(seq).is_some()
    }

    /// An entry, to change it. Its chunk is copied if an image shares it.
    pub(crate) fn get_mut(&mut self, seq: &Seq) -> Option<&mut Entry> {
        let base = self.base_of(*seq)?;
        let chunk = self.chunks.get_mut(&base)?;
        let place = place(chunk, *seq).ok()?;
        Some(&mut Arc::make_mut(chunk)[place].1)
    }

    /// Adds an entry, or replaces the one of this sequence.
    pub(crate) fn insert(&mut self, seq: Seq, entry: Entry) {
        let base = self.chunk_for(seq);
        let chunk = Arc::make_mut(self.chunks.get_mut(&base).expect("it was found or made"));
        match place(chunk, seq) {
            Ok(place) => chunk[place].1 = entry,
            Err(place) => {
                chunk.insert(place, (seq, entry));
                self.len += 1;
            }
        }
    }

    pub(crate) fn remove(&mut self, seq: &Seq) -> Option<Entry> {
        let base = self.base_of(*seq)?;
        let chunk = self.chunks.get_mut(&base)?;
        let place = place(chunk, *seq).ok()?;
        let chunk = Arc::make_mut(chunk);
        let (_, entry) = chunk.remove(place);
        self.len -= 1;
        if chunk.len() < CHUNK / 4 {
            self.merge(base);
        }
        Some(entry)
    }

    /// All entries, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Seq, &Entry)> {
        self.chunks.values().flat_map(|chunk| chunk.iter().map(|(seq, entry)| (seq, entry)))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Seq> {
        self.iter().map(|(seq, _)| seq)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Entry> {
        self.iter().map(|(_, entry)| entry)
    }

    /// The entries among these, lowest first.
    pub(crate) fn range(&self, among: Range<Seq>) -> impl Iterator<Item = (&Seq, &Entry)> {
        let first = self.base_of(among.start).unwrap_or(among.start);
        let chunks = self.chunks.range(first.min(among.end)..among.end);
        let start = among.start;
        let inside = chunks.flat_map(move |(_, chunk)| &chunk[place(chunk, start).unwrap_or_else(|place| place)..]);
        inside.take_while(move |(seq, _)| *seq < among.end).map(|(seq, entry)| (seq, entry))
    }

    /// The highest sequence among these.
    pub(crate) fn last(&self, among: Range<Seq>) -> Option<Seq> {
        // A base can lie below its first entry, so the highest may stand one chunk earlier.
        let mut chunks = self.chunks.range(..among.end).rev().map(|(_, chunk)| chunk);
        let last = chunks.find_map(|chunk| {
            let end = place(chunk, among.end).unwrap_or_else(|place| place);
            chunk[..end].last().map(|(seq, _)| *seq)
        });
        last.filter(|seq| among.contains(seq))
    }

    /// The base of the chunk in which an entry of this sequence would be.
    fn base_of(&self, seq: Seq) -> Option<Seq> {
        self.chunks.range(..=seq).next_back().map(|(base, _)| *base)
    }

    /// The base of a chunk that has room for this sequence. It is made if there is none.
    fn chunk_for(&mut self, seq: Seq) -> Seq {
        let Some(base) = self.base_of(seq) else {
            // Below all chunks: the first one begins here, so that entries that come downwards fill it too.
            let first = self.chunks.get_min().map(|(base, _)| *base);
            let chunk = first.and_then(|base| self.chunks.remove(&base)).unwrap_or_default();
            self.chunks.insert(seq, chunk);
            return self.chunk_for(seq);
        };
        let is_last = self.chunks.get_max().is_some_and(|(last, _)| *last == base);
        let chunk = self.chunks.get_mut(&base).expect("it was found");
        if chunk.len() < CHUNK {
            return base;
        }
        let is_behind = chunk.last().is_some_and(|(last, _)| *last < seq);
        // Whatever is appended in order fills its chunks.
        let upper = if is_last && is_behind { Vec::new() } else { Arc::make_mut(chunk).split_off(CHUNK / 2) };
        let upper_base = upper.first().map_or(seq, |(seq, _)| *seq);
        self.chunks.insert(upper_base, Arc::new(upper));
        if seq < upper_base { base } else { upper_base }
    }

    /// Joins a chunk that has few entries left with a neighbour, or takes it out if it has none.
    fn merge(&mut self, base: Seq) {
        let size = |found: Option<(&Seq, &Arc<Chunk>)>| found.map(|(base, chunk)| (*base, chunk.len()));
        let Some((_, len)) = size(self.chunks.get_key_value(&base)) else { return };
        if len == 0 {
            self.chunks.remove(&base);
            return;
        }
        let next = size(self.chunks.range(base.next()..).next());
        let before = size(self.chunks.range(..base).next_back());
        let is_small = |(_, other): &(Seq, usize)| other + len <= CHUNK / 2;
        let (lower, upper) = match (next.filter(is_small), before.filter(is_small)) {
            (Some((next, _)), _) => (base, next),
            (None, Some((before, _))) => (before, base),
            (None, None) => return,
        };
        let upper = self.chunks.remove(&upper).expect("it was found");
        let lower = self.chunks.get_mut(&lower).expect("it was found");
        let mut both = Chunk::with_capacity(CHUNK / 2);
        both.extend(lower.iter().chain(upper.iter()).cloned());
        *lower = Arc::new(both);
    }

    /// Asserts every numbered invariant.
    pub(crate) fn check(&self) {
        let (mut before, mut count, mut neighbour) = (None, 0, CHUNK);
        for (base, chunk) in &self.chunks {
            let len = chunk.len();
            let is_filled = len.max(neighbour) >= CHUNK / 4 || len + neighbour > CHUNK / 2;
            assert!((1..=CHUNK).contains(&len) && is_filled, "invariant 2 of entries: {len} in a chunk");
            assert!(*base <= chunk[0].0, "invariant 1 of entries: message {} lies below its base", chunk[0].0);
            for (seq, _) in chunk.iter() {
                assert!(before < Some(*seq), "invariant 1 of entries: {before:?} before {seq}");
                before = Some(*seq);
                count += 1;
            }
            neighbour = len;
        }
        assert_eq!(self.len, count, "invariant 3 of entries");
    }
}

impl FromIterator<(Seq, Entry)> for Entries {
    fn from_iter<T: IntoIterator<Item = (Seq, Entry)>>(entries: T) -> Self {
        let mut all = Self::default();
        entries.into_iter().for_each(|(seq, entry)| all.insert(seq, entry));
        all
    }
}

impl PartialEq for Entries {
    /// Equal are equal entries, in whatever chunks.
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Entries {}

impl fmt::Debug for Entries {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

fn place(chunk: &Chunk, seq: Seq) -> Result<usize, usize> {
    chunk.binary_search_by_key(&seq, |(seq, _)| *seq)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mortarmq_types::{ClusterTime, KeyHash, Seq};
    use proptest::prelude::*;

    use super::Entries;
    use crate::{entry::Entry, lease::Fact};

    fn entry(size_bytes: u32) -> Entry {
        Entry::new(Fact { key_hash: KeyHash::NONE, size_bytes, expires_at_ms: 0 }, ClusterTime::ZERO)
    }

    proptest! {
        #[test]
        fn it_does_what_a_map_does(
            steps in proptest::collection::vec((0_u8..8, 0_u64..700, any::<u32>()), 0..2500),
            adds in 2_u8..7,
            ends in (0_u64..720, 0_u64..720),
        ) {
            let (mut real, mut naive) = (Entries::default(), BTreeMap::new());
            let mut image = (real.clone(), naive.clone());
            for (what, number, size) in steps {
                let seq = Seq::new(number);
                if what < adds {
                    real.insert(seq, entry(size));
                    naive.insert(seq, entry(size));
                } else if what == 7 && size.is_multiple_of(8) {
                    prop_assert!(image.0.iter().eq(image.1.iter()), "an image stays what it was");
                    image = (real.clone(), naive.clone());
                } else {
                    prop_assert_eq!(real.remove(&seq), naive.remove(&seq));
                }
                prop_assert_eq!(real.get(&seq), naive.get(&seq));
                if let Some(found) = real.get_mut(&seq) {
                    found.size_bytes ^= 1;
                    naive.get_mut(&seq).unwrap().size_bytes ^= 1;
                }
            }
            real.check();
            prop_assert!(real.iter().eq(naive.iter()));
            prop_assert!(image.0.iter().eq(image.1.iter()));
            let among = Seq::new(ends.0.min(ends.1))..Seq::new(ends.0.max(ends.1));
            prop_assert!(real.range(among.clone()).eq(naive.range(among.clone())));
            prop_assert_eq!(real.last(among.clone()), naive.range(among).next_back().map(|(seq, _)| *seq));
            let again: Entries = naive.into_iter().collect();
            again.check();
            prop_assert_eq!(again, real);
        }
    }

    #[test]
    fn entries_that_come_up_or_down_fill_their_chunks_and_those_left_over_are_joined() {
        for downwards in [false, true] {
            let mut entries = Entries::default();
            for number in 0..6400 {
                entries.insert(Seq::new(if downwards { 6400 - number } else { number }), entry(1));
            }
            assert!(entries.chunks.len() <= 200, "{} chunks for 6400", entries.chunks.len());
            (0..6401).filter(|number| number % 64 != 5).for_each(|number| _ = entries.remove(&Seq::new(number)));
            entries.check();
            assert!((entries.len(), entries.chunks.len()) <= (100, 20), "{} chunks for 100", entries.chunks.len());
        }
    }
}
