//! A sorted map that keeps its entries close together, and that an image can share.
//!
//! A B-tree whose nodes split in the middle is half empty where keys come in rising order, as sequences do. Here entries lie
//! in chunks that grow by small steps and are full when the next one begins. Of a map that is shared, a change copies one
//! chunk.
//!
//! # Invariants
//! 1. No chunk is empty or larger than its limit, 128 entries or about 4 KiB, and the entries of a chunk rise.
//! 2. No key of a chunk is below the chunk's own, and none of the chunk before it is above that.
//! 3. `len` is the number of entries.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use imbl::OrdMap;

/// The steps in which a chunk grows and shrinks.
pub(crate) const CHUNK_STEP: usize = 16;

/// A sorted map in chunks.
#[derive(Clone, Debug)]
pub struct ChunkedMap<K: Ord, V> {
    /// Each chunk by a key at or below its first.
    chunks: OrdMap<K, Arc<Vec<(K, V)>>>,
    len: usize,
}

impl<K: Ord + Copy, V: Clone> ChunkedMap<K, V> {
    /// Most entries of a chunk: so many are copied when one of a shared chunk changes.
    const CHUNK_MAX: usize = match 4096 / size_of::<(K, V)>() {
        most @ 32..128 => most,
        0..32 => 32,
        _ => 128,
    };

    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        let (_, chunk) = self.chunk_around(*key)?;
        let place = chunk.binary_search_by_key(key, |entry| entry.0).ok()?;
        Some(&chunk[place].1)
    }

    /// Whether there is an entry with this key.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The value of a key, to change it. Its chunk is copied if it is shared.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let bound = self.chunk_of(*key)?;
        let chunk = self.chunks.get_mut(&bound)?;
        let place = chunk.binary_search_by_key(key, |entry| entry.0).ok()?;
        Some(&mut Arc::make_mut(chunk)[place].1)
    }

    /// The entry with the lowest key.
    #[must_use]
    pub fn first(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// The entry with the highest key.
    #[must_use]
    pub fn last(&self) -> Option<(&K, &V)> {
        self.iter().next_back()
    }

    /// The entries within bounds, by rising key; none if these exclude each other.
    pub fn range(&self, bounds: impl RangeBounds<K>) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        let (start, end) = (bounds.start_bound().cloned(), bounds.end_bound().cloned());
        let first = match start {
            Bound::Included(key) | Bound::Excluded(key) => self.chunk_of(key).map_or(Bound::Unbounded, Bound::Included),
            Bound::Unbounded => Bound::Unbounded,
        };
        let is_empty = match (start, end) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
                start >= end
            }
        };
        let chunks = (!is_empty).then(|| self.chunks.range((first, end)));
        chunks.into_iter().flatten().flat_map(move |(_, chunk)| {
            let from = match start {
                Bound::Included(key) => chunk.partition_point(|entry| entry.0 < key),
                Bound::Excluded(key) => chunk.partition_point(|entry| entry.0 <= key),
                Bound::Unbounded => 0,
            };
            let to = match end {
                Bound::Included(key) => chunk.partition_point(|entry| entry.0 <= key),
                Bound::Excluded(key) => chunk.partition_point(|entry| entry.0 < key),
                Bound::Unbounded => chunk.len(),
            };
            chunk[from..to].iter().map(|entry| (&entry.0, &entry.1))
        })
    }

    /// All entries, by rising key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.chunks.values().flat_map(|chunk| chunk.iter().map(|entry| (&entry.0, &entry.1)))
    }

    /// All keys, rising.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values, by rising key.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// How many entries lie above a key. Costs a step per chunk.
    #[must_use]
    pub fn count_above(&self, key: K) -> usize {
        let Some(first) = self.chunk_of(key) else { return self.len };
        let mut chunks = self.chunks.range(first..).map(|(_, chunk)| chunk);
        let in_first = chunks.next().map_or(0, |chunk| chunk.len() - chunk.partition_point(|entry| entry.0 <= key));
        in_first + chunks.map(|chunk| chunk.len()).sum::<usize>()
    }

    /// Adds an entry, or gives a key another value. Returns the value that the key had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some(bound) = self.chunk_of(key).or_else(|| self.chunks.get_min().map(|(bound, _)| *bound)) else {
            self.len = 1;
            self.chunks.insert(key, Arc::new(vec![(key, value)]));
            return None;
        };
        let chunk = Arc::make_mut(self.chunks.get_mut(&bound).expect("found above"));
        let place = match chunk.binary_search_by_key(&key, |entry| entry.0) {
            Ok(place) => return Some(std::mem::replace(&mut chunk[place].1, value)),
            Err(place) => place,
        };
        self.len += 1;
        if chunk.len() < Self::CHUNK_MAX {
            add(chunk, place, (key, value), Self::CHUNK_MAX);
            if key < bound {
                let chunk = self.chunks.remove(&bound).expect("found above");
                self.chunks.insert(key, chunk);
            }
            return None;
        }
        // What comes behind all of a full chunk begins the next one, so that rising keys leave full chunks behind.
        if place == chunk.len() || key < bound {
            self.chunks.insert(key, Arc::new(vec![(key, value)]));
            return None;
        }
        let mut behind = Vec::with_capacity(Self::CHUNK_MAX / 2 + CHUNK_STEP);
        behind.extend(chunk.drain(Self::CHUNK_MAX / 2..));
        chunk.shrink_to(Self::CHUNK_MAX / 2 + CHUNK_STEP);
        match place.checked_sub(Self::CHUNK_MAX / 2) {
            Some(place) => add(&mut behind, place, (key, value), Self::CHUNK_MAX),
            None => add(chunk, place, (key, value), Self::CHUNK_MAX),
        }
        self.chunks.insert(behind[0].0, Arc::new(behind));
        None
    }

    /// Takes an entry out. Returns its value, if it was there.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let bound = self.chunk_of(*key)?;
        let place = self.chunks.get(&bound)?.binary_search_by_key(key, |entry| entry.0).ok()?;
        let chunk = Arc::make_mut(self.chunks.get_mut(&bound)?);
        let (_, value) = chunk.remove(place);
        if chunk.capacity() >= chunk.len() + 2 * CHUNK_STEP {
            chunk.shrink_to(chunk.len() + CHUNK_STEP);
        }
        let left = chunk.len();
        self.len -= 1;
        if left == 0 {
            self.chunks.remove(&bound);
        } else if left < Self::CHUNK_MAX / 4 {
            self.join(bound);
        }
        Some(value)
    }

    /// Joins a small chunk with the one behind it, if both have room in one.
    fn join(&mut self, bound: K) {
        let behind = self.chunks.range((Bound::Excluded(bound), Bound::Unbounded)).next();
        let Some((next, _)) = behind.filter(|(_, next)| next.len() <= Self::CHUNK_MAX / 2) else { return };
        let next = *next;
        let (Some(behind), Some(chunk)) = (self.chunks.remove(&next), self.chunks.get_mut(&bound)) else { return };
        let chunk = Arc::make_mut(chunk);
        chunk.reserve_exact(behind.len());
        chunk.extend_from_slice(&behind);
    }

    /// The chunk in which a key is, if it is in any; none if the key is below all.
    fn chunk_of(&self, key: K) -> Option<K> {
        self.chunk_around(key).map(|(bound, _)| *bound)
    }

    /// That chunk itself. Most keys are in the last one, and mostly there are no more than two: then no iterator is made, which
    /// allocates.
    fn chunk_around(&self, key: K) -> Option<(&K, &Arc<Vec<(K, V)>>)> {
        let (bound, last) = self.chunks.get_max()?;
        if *bound <= key {
            return Some((bound, last));
        }
        match self.chunks.len() {
            ..=2 => self.chunks.get_min().filter(|(bound, _)| *bound <= key).map(|(bound, chunk)| (bound, chunk)),
            _ => self.chunks.range(..=key).next_back(),
        }
    }

    /// Asserts the invariants.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        let mut last = None;
        for (bound, chunk) in &self.chunks {
            assert!(!chunk.is_empty() && chunk.len() <= Self::CHUNK_MAX, "invariant 1: a chunk of {}", chunk.len());
            assert!(chunk.is_sorted_by(|left, right| left.0 < right.0), "invariant 1: the keys of a chunk do not rise");
            assert!(last < Some(*bound) && *bound <= chunk[0].0, "invariant 2: chunks overlap");
            last = chunk.last().map(|entry| entry.0);
        }
        assert_eq!(self.len, self.chunks.values().map(|chunk| chunk.len()).sum::<usize>(), "invariant 3");
    }
}

/// Adds an entry to a chunk that has room.
pub(crate) fn add<T>(chunk: &mut Vec<T>, place: usize, entry: T, most: usize) {
    if chunk.len() == chunk.capacity() {
        // The chunk to which rising keys are added is soon full.
        let is_last = place == chunk.len();
        let more = if is_last { chunk.len().max(CHUNK_STEP) } else { CHUNK_STEP };
        chunk.reserve_exact(more.min(most - chunk.len()));
    }
    chunk.insert(place, entry);
}

impl<K: Ord + Copy, V: Clone> Default for ChunkedMap<K, V> {
    fn default() -> Self {
        Self { chunks: OrdMap::new(), len: 0 }
    }
}

/// Maps are equal if their entries are, however these lie in chunks.
impl<K: Ord + Copy, V: Clone + PartialEq> PartialEq for ChunkedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Ord + Copy, V: Clone + Eq> Eq for ChunkedMap<K, V> {}

/// Of several entries with one key the last stays.
impl<K: Ord + Copy, V: Clone> FromIterator<(K, V)> for ChunkedMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Self {
        let mut map = Self::default();
        for (key, value) in entries {
            map.insert(key, value);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::ChunkedMap;
    use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};
    use std::collections::BTreeMap;
    use std::ops::Bound;

    /// Of all maps here: their entries are small.
    const CHUNK_MAX: usize = 128;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16),
        /// So many keys behind the highest.
        Append(u16),
        Remove(u16),
        /// So many of the lowest.
        RemoveFirst(u16),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..2000_u16).prop_map(Step::Insert),
            1 => (1..400_u16).prop_map(Step::Append),
            4 => (0..2000_u16).prop_map(Step::Remove),
            1 => (1..300_u16).prop_map(Step::RemoveFirst),
        ];
        (prop_oneof![Just(0_u16), 500..1500_u16], prop::collection::vec(step, 0..300)).prop_map(|(first, mut steps)| {
            steps.insert(0, Step::Append(first));
            steps
        })
    }

    fn bounds() -> impl Strategy<Value = (Bound<u32>, Bound<u32>)> {
        let bound = (0..3000_u32, 0..5).prop_map(|(key, kind)| match kind {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key),
            _ => Bound::Excluded(key),
        });
        (bound.clone(), bound)
    }

    fn excludes((start, end): (Bound<u32>, Bound<u32>)) -> bool {
        match (start, end) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => {
                start >= end
            }
        }
    }

    proptest! {
        #[test]
        fn it_answers_as_a_map_of_the_standard_library_does(
            steps in steps(), places in prop::collection::vec(bounds(), 20), value in any::<u8>()
        ) {
            let (mut map, mut model) = (ChunkedMap::default(), BTreeMap::new());
            for (number, step) in steps.into_iter().enumerate() {
                let image = (number % 16 == 0).then(|| (map.clone(), model.clone()));
                match step {
                    Step::Insert(key) => {
                        assert_eq!(map.insert(u32::from(key), value), model.insert(u32::from(key), value));
                    }
                    Step::Append(count) => {
                        let next = model.last_key_value().map_or(7, |(key, _)| key + 1);
                        for key in next..next + u32::from(count) {
                            assert_eq!(map.insert(key, value), model.insert(key, value));
                        }
                    }
                    Step::Remove(key) => assert_eq!(map.remove(&u32::from(key)), model.remove(&u32::from(key))),
                    Step::RemoveFirst(count) => {
                        for _ in 0..count {
                            let Some((key, _)) = model.pop_first() else { break };
                            assert!(map.remove(&key).is_some());
                        }
                    }
                }
                map.check();
                assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
                if let Some((image, was)) = image {
                    assert!(image.iter().eq(was.iter()), "a change shows in a copy that was taken before");
                }
            }
            assert!(map.iter().eq(model.iter()) && map.iter().rev().eq(model.iter().rev()));
            assert_eq!((map.first(), map.last()), (model.first_key_value(), model.last_key_value()));
            assert_eq!(map, model.iter().map(|(key, value)| (*key, *value)).collect());
            for place in places {
                let expected: Vec<_> = if excludes(place) { Vec::new() } else { model.range(place).collect() };
                assert!(map.range(place).eq(expected.iter().copied()), "{place:?}");
                assert!(map.range(place).rev().eq(expected.into_iter().rev()), "{place:?} from behind");
                if let Bound::Included(key) | Bound::Excluded(key) = place.0 {
                    assert_eq!(map.get(&key), model.get(&key));
                    assert_eq!(map.count_above(key), model.keys().filter(|has| **has > key).count());
                }
            }
        }
    }

    #[test]
    fn rising_keys_leave_full_chunks_behind() {
        let map: ChunkedMap<u32, ()> = (0..10_000).map(|key| (key, ())).collect();
        assert_eq!(map.chunks.len(), 10_000_usize.div_ceil(CHUNK_MAX));
    }

    #[test]
    fn no_more_room_is_kept_than_a_step_per_chunk() {
        // Goal: memory follows the entries, also where they come and go in no order. Method: a permutation of the keys.
        let mut map: ChunkedMap<u64, u64> = (0..10_007).map(|key| (key * 4_999 % 10_007, key)).collect();
        let spare = |map: &ChunkedMap<u64, u64>| -> usize {
            map.chunks.values().map(|chunk| chunk.capacity() - chunk.len()).sum()
        };
        assert!(spare(&map) < map.chunks.len() * 2 * super::CHUNK_STEP, "{} entries of room are empty", spare(&map));
        for key in (0..10_007).map(|key| key * 2_003 % 10_007).filter(|key| key % 8 != 0) {
            assert!(map.remove(&key).is_some());
        }
        map.check();
        assert!(spare(&map) < map.chunks.len() * 2 * super::CHUNK_STEP, "{} entries of room are empty", spare(&map));
        assert!(map.chunks.len() < map.len() / (CHUNK_MAX / 8), "{} chunks for {}", map.chunks.len(), map.len());
    }
}
