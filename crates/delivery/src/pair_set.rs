//! An index: messages in the order of something else, such as a time, a key or a member.
//!
//! Pairs stand in sorted vectors, which are full when they came in order: a tree of pairs would be half empty then. A pair
//! takes no more room than its two numbers, 4 bytes where a chunk has one first number only, and up to four pairs take no
//! more than one, if they have the same first number and their sequences are neighbours: what was leased together mostly is. [`ChunkedMap`](crate::ChunkedMap) is much the same
//! and can be shared; but then even the smallest takes kilobytes, and a path has six indexes in each partition.
//!
//! # Invariants
//! 1. Chunks follow one another: each holds, rising, what lies from its base to below the next one's.
//! 2. No chunk is empty or larger than [`CHUNK`]; of two neighbours one at least has a quarter of that, or both together
//!    have more than half.
//! 3. `len` is the number of pairs.
//! 4. No cell is empty.

use std::{
    collections::BTreeMap,
    fmt,
    ops::{Bound, RangeBounds},
};

use mortarmq_types::Seq;

use crate::pair_chunk::{BITS, CHUNK, Cell, Chunk, upper};

/// Pairs of something and a message.
#[derive(Clone)]
pub(crate) struct PairSet<A> {
    /// By base, which is the place of a cell.
    chunks: BTreeMap<Cell<A>, Chunk<A>>,
    len: usize,
}

/// Sequences lie below this, so that four neighbours and their bits fit into 64 bits: no number that counts up by one ever
/// comes here.
const SEQ_END: u64 = 1 << 62;

impl<A: Copy + Ord> PairSet<A> {
    pub(crate) const fn new() -> Self {
        Self { chunks: BTreeMap::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The lowest pair.
    pub(crate) fn first(&self) -> Option<(A, Seq)> {
        let (_, chunk) = self.chunks.first_key_value()?;
        pairs_of(chunk.get(0)).next()
    }

    pub(crate) fn contains(&self, pair: &(A, Seq)) -> bool {
        let place = place_of(*pair);
        let chunk = self.chunks.range(..=place).next_back().map(|(_, chunk)| chunk);
        let cell = chunk.and_then(|chunk| Some(chunk.get(chunk.find(place).ok()?)));
        pair.1.get() < SEQ_END && cell.is_some_and(|cell| cell.1 & bit_of(pair.1) != 0)
    }

    /// Adds a pair; says whether it is new.
    pub(crate) fn insert(&mut self, pair: (A, Seq)) -> bool {
        assert!(pair.1.get() < SEQ_END, "sequence {} was never given", pair.1);
        let (place, bit) = (place_of(pair), bit_of(pair.1));
        let cell = (place.0, place.1 | bit);
        self.len += 1;
        let Some(base) = self.chunk_for(place) else {
            self.chunks.insert(place, Chunk::of(cell));
            return true;
        };
        let chunk = self.chunks.get_mut(&base).expect("it was found");
        match chunk.find(place) {
            Ok(found) if chunk.get(found).1 & bit != 0 => {
                self.len -= 1;
                return false;
            }
            Ok(found) => chunk.set(found, bit),
            Err(at) if chunk.len() < CHUNK => chunk.insert(at, cell),
            Err(at) => self.insert_into_full(base, at, cell),
        }
        true
    }

    /// Takes a pair out; says whether it was there.
    pub(crate) fn remove(&mut self, pair: &(A, Seq)) -> bool {
        let (place, bit) = (place_of(*pair), bit_of(pair.1));
        let Some((base, chunk)) = self.chunks.range_mut(..=place).next_back() else { return false };
        let Ok(at) = chunk.find(place) else { return false };
        if pair.1.get() >= SEQ_END || chunk.get(at).1 & bit == 0 {
            return false;
        }
        self.len -= 1;
        if chunk.clear(at, bit) {
            return true;
        }
        chunk.remove(at);
        let (base, left) = (*base, chunk.len());
        if left < CHUNK / 4 {
            self.merge(base, left);
        }
        true
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (A, Seq)> {
        self.chunks.values().flat_map(Chunk::iter).flat_map(pairs_of)
    }

    /// The pairs in a range, lowest first.
    pub(crate) fn range(&self, range: impl RangeBounds<(A, Seq)>) -> impl DoubleEndedIterator<Item = (A, Seq)> {
        let (start, end) =
            (range.start_bound().map(|pair| place_of(*pair)), range.end_bound().map(|pair| place_of(*pair)));
        // The first of them may stand in the chunk whose base lies below, and some of a cell at either end.
        let first = match start {
            Bound::Included(place) | Bound::Excluded(place) => {
                self.chunks.range(..=place).next_back().map_or(Bound::Unbounded, |(base, _)| Bound::Included(*base))
            }
            Bound::Unbounded => Bound::Unbounded,
        };
        let last = match end {
            Bound::Included(place) | Bound::Excluded(place) => Bound::Included(place),
            Bound::Unbounded => Bound::Unbounded,
        };
        let cells = self.chunks.range((first, last)).flat_map(move |(_, chunk)| {
            let from = match start {
                Bound::Included(place) | Bound::Excluded(place) => chunk.below(place),
                Bound::Unbounded => 0,
            };
            let to = match last {
                Bound::Included(place) | Bound::Excluded(place) => chunk.find(place).map_or_else(|at| at, |at| at + 1),
                Bound::Unbounded => chunk.len(),
            };
            (from..to).map(|at| chunk.get(at))
        });
        cells.flat_map(pairs_of).filter(move |pair| range.contains(pair))
    }

    /// The base of the chunk in which a cell is or belongs; none if there are no chunks.
    fn chunk_for(&mut self, place: Cell<A>) -> Option<Cell<A>> {
        if let Some((base, _)) = self.chunks.range(..=place).next_back() {
            return Some(*base);
        }
        // Below all chunks: the first one begins here.
        let (_, chunk) = self.chunks.pop_first()?;
        self.chunks.insert(place, chunk);
        Some(place)
    }

    fn insert_into_full(&mut self, base: Cell<A>, at: usize, cell: Cell<A>) {
        let is_last = self.chunks.last_key_value().is_some_and(|(last, _)| *last == base);
        let chunk = self.chunks.get_mut(&base).expect("found by the caller");
        let is_end_of_run = at == CHUNK || chunk.get(at).0 != cell.0;
        let goes_on = at > 0 && chunk.get(at - 1).0 == cell.0;
        // What is appended in order fills its chunks, and so does what is appended to a run of the same first number, as
        // leases are to what their member holds.
        let split = if at == CHUNK && is_last || goes_on && is_end_of_run { at } else { CHUNK / 2 };
        let behind = if split == CHUNK {
            Chunk::of(cell)
        } else {
            let mut behind = chunk.split_off(split);
            match at.checked_sub(split).filter(|place| *place > 0) {
                None => chunk.insert(at, cell),
                Some(place) => behind.insert(place, cell),
            }
            behind
        };
        let (before, after, next) = (chunk.len(), behind.len(), upper(behind.get(0)));
        self.chunks.insert(next, behind);
        if after < CHUNK / 4 {
            self.merge(next, after);
        }
        if before < CHUNK / 4 {
            self.merge(base, before);
        }
    }

    /// Joins a chunk that has few cells left with a neighbour, or takes it out if it has none.
    fn merge(&mut self, base: Cell<A>, left: usize) {
        if left == 0 {
            self.chunks.remove(&base);
            return;
        }
        let behind = (Bound::Excluded(base), Bound::Unbounded);
        let is_small = |(_, other): &(&Cell<A>, &Chunk<A>)| other.len() + left <= CHUNK / 2;
        let next = self.chunks.range(behind).next().filter(is_small).map(|(next, _)| (base, *next));
        let before = || self.chunks.range(..base).next_back().filter(is_small).map(|(before, _)| (*before, base));
        let Some((lower, upper)) = next.or_else(before) else { return };
        let upper = self.chunks.remove(&upper).expect("it was found");
        let lower = self.chunks.get_mut(&lower).expect("it was found");
        lower.join(&upper);
    }
}

/// The place of a pair's cell. A sequence beyond all is taken for the last.
fn place_of<A>((first, seq): (A, Seq)) -> Cell<A> {
    (first, (seq.get().min(SEQ_END - 1) / 4) << 4)
}

const fn bit_of(seq: Seq) -> u64 {
    1 << (seq.get() % 4)
}

/// The pairs of a cell, lowest first.
fn pairs_of<A: Copy>((first, bits): Cell<A>) -> impl DoubleEndedIterator<Item = (A, Seq)> {
    let is_there = move |offset: &u64| bits >> offset & 1 == 1;
    (0..4).filter(is_there).map(move |offset| (first, Seq::new((bits >> 4) * 4 + offset)))
}

impl<A: Copy + Ord + fmt::Debug> PairSet<A> {
    /// Asserts every numbered invariant.
    pub(crate) fn check(&self) {
        let (mut before, mut count, mut neighbour) = (None, 0, CHUNK);
        for (base, chunk) in &self.chunks {
            let len = chunk.len();
            let is_filled = len.max(neighbour) >= CHUNK / 4 || len + neighbour > CHUNK / 2;
            assert!((1..=CHUNK).contains(&len) && is_filled, "invariant 2 of an index: {len} in a chunk");
            assert!(*base <= upper(chunk.get(0)), "invariant 1 of an index: {:?} lies below its base", chunk.get(0));
            for cell in chunk.iter() {
                assert!(before < Some(upper(cell)), "invariant 1 of an index: {before:?} before {cell:?}");
                assert!(cell.1 & BITS != 0, "invariant 4 of an index: {cell:?}");
                before = Some(upper(cell));
                count += pairs_of(cell).count();
            }
            neighbour = len;
        }
        assert_eq!(self.len, count, "invariant 3 of an index");
    }
}

impl<A: Copy + Ord> FromIterator<(A, Seq)> for PairSet<A> {
    fn from_iter<T: IntoIterator<Item = (A, Seq)>>(pairs: T) -> Self {
        let mut pairs: Vec<(A, Seq)> = pairs.into_iter().collect();
        pairs.sort_unstable();
        let mut all = Self::new();
        pairs.into_iter().for_each(|pair| _ = all.insert(pair));
        all
    }
}

impl<A: Copy + Ord> PartialEq for PairSet<A> {
    /// Equal are equal pairs, in whatever chunks.
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<A: Copy + Ord> Eq for PairSet<A> {}

impl<A: Copy + Ord + fmt::Debug> fmt::Debug for PairSet<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, ops::Bound};

    use mortarmq_types::Seq;
    use proptest::prelude::*;

    use super::PairSet;
    use crate::pair_chunk::Chunk;

    #[test]
    fn sequences_may_lie_as_far_apart_as_they_like() {
        let seqs = [5 << 40, 7, 3 << 30, (1 << 30) + 3, 1 << 30, (1 << 30) - 1, (1 << 62) - 1, 5, 6 << 40];
        let (mut real, mut naive) = (PairSet::new(), BTreeSet::new());
        for (first, seq) in seqs.into_iter().map(|seq| (9_u64, seq)).chain([(8, 1), (10, 1)]) {
            assert!(real.insert((first, Seq::new(seq))) && naive.insert((first, Seq::new(seq))));
            real.check();
            assert!(real.iter().eq(naive.iter().copied()));
        }
        while let Some(pair) = naive.pop_last() {
            assert!(!real.contains(&(pair.0, Seq::new(pair.1.get() ^ 1 << 33))) && real.contains(&pair));
            assert!(real.remove(&pair));
            real.check();
        }
        assert_eq!(real.first(), None);
    }

    #[test]
    fn what_many_hold_in_turn_lies_in_full_chunks_of_4_bytes_each() {
        let mut set = PairSet::new();
        for seq in 0..64 * 1024 {
            set.insert((seq % 64, Seq::new(seq)));
        }
        set.check();
        let room: usize = set.chunks.values().map(Chunk::room_bytes).sum();
        assert!(room < 64 * 1024 * 5, "{room} bytes");
    }

    proptest! {
        #[test]
        fn it_does_what_a_set_does(
            steps in proptest::collection::vec((0_u8..8, 0_u64..6, 0_u64..200), 0..2500),
            adds in 2_u8..7,
            ends in ((0_u64..6, 0_u64..200), (0_u64..6, 0_u64..200)),
        ) {
            let (mut real, mut naive) = (PairSet::new(), BTreeSet::new());
            for (what, first, seq) in steps {
                let pair = (first, Seq::new(seq));
                if what < adds {
                    prop_assert_eq!(real.insert(pair), naive.insert(pair));
                } else {
                    prop_assert_eq!(real.remove(&pair), naive.remove(&pair));
                }
                prop_assert_eq!(real.contains(&pair), naive.contains(&pair));
                prop_assert_eq!(real.first(), naive.first().copied());
            }
            real.check();
            prop_assert_eq!(real.len(), naive.len());
            prop_assert!(real.iter().eq(naive.iter().copied()));
            let pair = |(first, seq)| (first, Seq::new(seq));
            let (start, end) = (pair(ends.0.min(ends.1)), pair(ends.0.max(ends.1)));
            prop_assert!(real.range(start..=end).eq(naive.range(start..=end).copied()));
            prop_assert!(real.range(start..=end).rev().eq(naive.range(start..=end).rev().copied()));
            prop_assert!(real.range(start..end).eq(naive.range(start..end).copied()));
            prop_assert!(real.range(..end).eq(naive.range(..end).copied()));
            prop_assert!(real.range(start..).eq(naive.range(start..).copied()));
            let behind = (Bound::Excluded(start), Bound::Unbounded);
            prop_assert!(real.range(behind).eq(naive.range(behind).copied()));
            let again: PairSet<u64> = naive.into_iter().collect();
            again.check();
            prop_assert_eq!(again, real);
        }
    }
}
