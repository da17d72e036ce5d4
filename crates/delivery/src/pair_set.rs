//! An index: messages in the order of something else, such as a time, a key or a member.
//!
//! Pairs stand in sorted vectors, which are full when they came in order: a tree of pairs would be half empty then.
//!
//! # Invariants
//! 1. Chunks follow one another: each holds, rising, what lies from its base to below the next one's.
//! 2. No chunk is empty or larger than [`CHUNK`]; of two neighbours one at least has a quarter of that, or both together
//!    have more than half.
//! 3. `len` is the number of pairs.

use std::{
    collections::BTreeMap,
    fmt,
    ops::{Bound, RangeBounds},
};

use mortarmq_types::Seq;

/// Pairs of something and a message.
#[derive(Clone)]
pub(crate) struct PairSet<A> {
    /// By base.
    chunks: BTreeMap<(A, Seq), Vec<(A, Seq)>>,
    len: usize,
}

const CHUNK: usize = 64;

impl<A: Copy + Ord> PairSet<A> {
    pub(crate) const fn new() -> Self {
        Self { chunks: BTreeMap::new(), len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The lowest pair.
    pub(crate) fn first(&self) -> Option<&(A, Seq)> {
        self.chunks.first_key_value().map(|(_, chunk)| &chunk[0])
    }

    pub(crate) fn contains(&self, pair: &(A, Seq)) -> bool {
        let chunk = self.chunks.range(..=*pair).next_back();
        chunk.is_some_and(|(_, chunk)| chunk.binary_search(pair).is_ok())
    }

    /// Adds a pair; says whether it is new.
    pub(crate) fn insert(&mut self, pair: (A, Seq)) -> bool {
        let base = self.chunk_for(pair);
        let chunk = self.chunks.get_mut(&base).expect("it was found or made");
        let Err(place) = chunk.binary_search(&pair) else { return false };
        if chunk.len() < CHUNK {
            chunk.insert(place, pair);
        } else {
            self.insert_into_full(base, pair);
        }
        self.len += 1;
        true
    }

    /// Takes a pair out; says whether it was there.
    pub(crate) fn remove(&mut self, pair: &(A, Seq)) -> bool {
        let Some((base, chunk)) = self.chunks.range_mut(..=*pair).next_back() else { return false };
        let Ok(place) = chunk.binary_search(pair) else { return false };
        chunk.remove(place);
        self.len -= 1;
        let (base, left) = (*base, chunk.len());
        if left < CHUNK / 4 {
            self.merge(base, left);
        }
        true
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &(A, Seq)> {
        self.chunks.values().flatten()
    }

    /// The pairs in a range, lowest first.
    pub(crate) fn range(&self, range: impl RangeBounds<(A, Seq)>) -> impl DoubleEndedIterator<Item = &(A, Seq)> {
        let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        // The first of them may stand in the chunk whose base lies below.
        let first = match start {
            Bound::Included(pair) | Bound::Excluded(pair) => {
                self.chunks.range(..=pair).next_back().map_or(Bound::Unbounded, |(base, _)| Bound::Included(*base))
            }
            Bound::Unbounded => Bound::Unbounded,
        };
        self.chunks.range((first, end)).flat_map(move |(_, chunk)| {
            let from = match start {
                Bound::Included(pair) => chunk.partition_point(|one| *one < pair),
                Bound::Excluded(pair) => chunk.partition_point(|one| *one <= pair),
                Bound::Unbounded => 0,
            };
            let to = match end {
                Bound::Included(pair) => chunk.partition_point(|one| *one <= pair),
                Bound::Excluded(pair) => chunk.partition_point(|one| *one < pair),
                Bound::Unbounded => chunk.len(),
            };
            chunk[from..to.max(from)].iter()
        })
    }

    /// The base of the chunk in which the pair is or belongs. It is made if there is none.
    fn chunk_for(&mut self, pair: (A, Seq)) -> (A, Seq) {
        if let Some((base, _)) = self.chunks.range(..=pair).next_back() {
            return *base;
        }
        // Below all chunks: the first one begins here.
        let chunk = self.chunks.pop_first().map(|(_, chunk)| chunk).unwrap_or_default();
        self.chunks.insert(pair, chunk);
        pair
    }

    fn insert_into_full(&mut self, base: (A, Seq), pair: (A, Seq)) {
        let is_last = self.chunks.last_key_value().is_some_and(|(last, _)| *last == base);
        let chunk = self.chunks.get_mut(&base).expect("found by the caller");
        if is_last && chunk[CHUNK - 1] < pair {
            // Whatever is appended in order fills its chunks.
            self.chunks.insert(pair, vec![pair]);
            return;
        }
        let mut upper = chunk.split_off(CHUNK / 2);
        let half = if pair < upper[0] { chunk } else { &mut upper };
        let place = half.partition_point(|one| *one < pair);
        half.insert(place, pair);
        self.chunks.insert(upper[0], upper);
    }

    /// Joins a chunk that has few pairs left with a neighbour, or takes it out if it has none.
    fn merge(&mut self, base: (A, Seq), left: usize) {
        if left == 0 {
            self.chunks.remove(&base);
            return;
        }
        let behind = (Bound::Excluded(base), Bound::Unbounded);
        let is_small = |(_, other): &(&(A, Seq), &Vec<(A, Seq)>)| other.len() + left <= CHUNK / 2;
        let next = self.chunks.range(behind).next().filter(is_small).map(|(next, _)| (base, *next));
        let before = || self.chunks.range(..base).next_back().filter(is_small).map(|(before, _)| (*before, base));
        let Some((lower, upper)) = next.or_else(before) else { return };
        let upper = self.chunks.remove(&upper).expect("it was found");
        let lower = self.chunks.get_mut(&lower).expect("it was found");
        let mut both = Vec::with_capacity(CHUNK / 2);
        both.extend(lower.iter().chain(&upper));
        *lower = both;
    }
}

impl<A: Copy + Ord + fmt::Debug> PairSet<A> {
    /// Asserts every numbered invariant.
    pub(crate) fn check(&self) {
        let (mut before, mut count, mut neighbour) = (None, 0, CHUNK);
        for (base, chunk) in &self.chunks {
            let len = chunk.len();
            let is_filled = len.max(neighbour) >= CHUNK / 4 || len + neighbour > CHUNK / 2;
            assert!((1..=CHUNK).contains(&len) && is_filled, "invariant 2 of an index: {len} in a chunk");
            assert!(*base <= chunk[0], "invariant 1 of an index: {:?} lies below its base", chunk[0]);
            for pair in chunk {
                assert!(before < Some(pair), "invariant 1 of an index: {before:?} before {pair:?}");
                before = Some(pair);
                count += 1;
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
                prop_assert_eq!(real.first(), naive.first());
            }
            real.check();
            prop_assert_eq!(real.len(), naive.len());
            prop_assert!(real.iter().eq(naive.iter()));
            let pair = |(first, seq)| (first, Seq::new(seq));
            let (start, end) = (pair(ends.0.min(ends.1)), pair(ends.0.max(ends.1)));
            prop_assert!(real.range(start..=end).eq(naive.range(start..=end)));
            prop_assert!(real.range(start..=end).rev().eq(naive.range(start..=end).rev()));
            prop_assert!(real.range(start..end).eq(naive.range(start..end)));
            prop_assert!(real.range(..end).eq(naive.range(..end)));
            prop_assert!(real.range(start..).eq(naive.range(start..)));
            let behind = (Bound::Excluded(start), Bound::Unbounded);
            prop_assert!(real.range(behind).eq(naive.range(behind)));
            let again: PairSet<u64> = naive.into_iter().collect();
            again.check();
            prop_assert_eq!(again, real);
        }
    }
}
