//! Messages that wait behind a crowded key, packed: 8 bytes each, and a bit.
//!
//! # Invariants
//! 1. Chunks of a key follow one another: each holds, by rising sequence, what lies from its base to below the next one's.
//! 2. No chunk is empty or larger than [`CHUNK`].
//! 3. `seqs` are exactly the sequences in the chunks, and none is there twice.

use std::{
    ops::{Bound, Range},
    sync::Arc,
};

use imbl::OrdMap;
use mortarmq_types::{ClusterTime, KeyHash, Seq};

use crate::{lease::Fact, seq_set::SeqSet};

/// Messages of any number of keys. Sharing them is cheap: what changes later is copied chunk by chunk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    /// By key and base.
    chunks: OrdMap<(KeyHash, Seq), Arc<Chunk>>,
    seqs: SeqSet,
}

/// A message of a key that waits and was never delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) seq: Seq,
    pub(crate) fact: Fact,
    /// When it fell due, if it was delayed; 0 otherwise.
    pub(crate) due: ClusterTime,
    /// Whether it is owed once more.
    pub(crate) is_replay: bool,
}

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// How far above the base each message is, and what it takes of a byte window.
    items: Vec<(u32, u32)>,
    /// What most messages do not have: nothing, or one for each of them.
    extras: Vec<Extra>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extra {
    expires_at_ms: u64,
    due: ClusterTime,
    is_replay: bool,
}

/// Messages of one chunk: a copy of it costs no more than a node of the maps around it.
const CHUNK: usize = 256;

impl Packed {
    pub(crate) const fn len(&self) -> u64 {
        self.seqs.len()
    }

    pub(crate) fn contains(&self, seq: Seq) -> bool {
        self.seqs.contains(seq)
    }

    /// The lowest sequence among these.
    pub(crate) fn first(&self, among: Range<Seq>) -> Option<Seq> {
        self.seqs.first(among)
    }

    /// The highest sequence among these.
    pub(crate) fn last(&self, among: Range<Seq>) -> Option<Seq> {
        self.seqs.last(among)
    }

    /// How many lie among these.
    pub(crate) fn count(&self, among: Range<Seq>) -> u64 {
        self.seqs.count(among)
    }

    /// The lowest message of a key.
    pub(crate) fn first_of(&self, key: KeyHash) -> Option<Seq> {
        if self.chunks.is_empty() {
            // Mostly, and asked with every lease: an iterator would allocate.
            return None;
        }
        let ((_, base), chunk) = self.chunks.range((key, Seq::ZERO)..=(key, Seq::MAX)).next()?;
        Some(base.plus(u64::from(chunk.items[0].0)))
    }

    /// The keys that have messages here, each once.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyHash> {
        let first = self.chunks.get_min().map(|((key, _), _)| *key);
        let next = |key: &KeyHash| {
            let behind = (Bound::Excluded((*key, Seq::MAX)), Bound::Unbounded);
            self.chunks.range(behind).next().map(|((key, _), _)| *key)
        };
        std::iter::successors(first, next)
    }

    /// All messages, by key and then by sequence.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Waiting> {
        self.chunks
            .iter()
            .flat_map(|((key, base), chunk)| (0..chunk.items.len()).map(move |place| chunk.waiting(*key, *base, place)))
    }

    /// The messages of one key, lowest first.
    pub(crate) fn of_key(&self, key: KeyHash) -> impl Iterator<Item = Waiting> {
        self.chunks
            .range((key, Seq::ZERO)..=(key, Seq::MAX))
            .flat_map(|((key, base), chunk)| (0..chunk.items.len()).map(move |place| chunk.waiting(*key, *base, place)))
    }

    /// Adds a message; says whether there was none of this sequence.
    pub(crate) fn insert(&mut self, waiting: Waiting) -> bool {
        if !self.seqs.insert(waiting.seq) {
            return false;
        }
        let base = self.chunk_for(waiting.fact.key_hash, waiting.seq);
        let chunk = self.chunks.get_mut(&(waiting.fact.key_hash, base)).expect("it was found or made");
        Arc::make_mut(chunk).insert(base, waiting);
        true
    }

    /// Takes out the lowest message of a key.
    pub(crate) fn pop_first(&mut self, key: KeyHash) -> Option<Waiting> {
        let seq = self.first_of(key)?;
        self.remove(key, seq)
    }

    /// Takes out a message, whatever its key. Looks for it in every key that has messages here.
    pub(crate) fn take(&mut self, seq: Seq) -> Option<Waiting> {
        if !self.contains(seq) {
            return None;
        }
        let keys: Vec<KeyHash> = self.keys().collect();
        keys.into_iter().find_map(|key| self.remove(key, seq))
    }

    fn remove(&mut self, key: KeyHash, seq: Seq) -> Option<Waiting> {
        let base = self.base_of(key, seq)?;
        let chunk = self.chunks.get_mut(&(key, base))?;
        let place = chunk.place_of(base, seq).ok()?;
        let waiting = chunk.waiting(key, base, place);
        if chunk.items.len() == 1 {
            self.chunks.remove(&(key, base));
        } else {
            Arc::make_mut(chunk).remove(place);
        }
        let was_there = self.seqs.remove(seq);
        assert!(was_there, "invariant 3: message {seq} is in a chunk");
        Some(waiting)
    }

    /// The base of the chunk in which a message of this sequence would be.
    fn base_of(&self, key: KeyHash, seq: Seq) -> Option<Seq> {
        self.chunks.range((key, Seq::ZERO)..=(key, seq)).next_back().map(|((_, base), _)| *base)
    }

    /// The base of a chunk that has room for this message and is near enough. It is made if there is none.
    fn chunk_for(&mut self, key: KeyHash, seq: Seq) -> Seq {
        let Some(base) = self.base_of(key, seq).filter(|base| offset(*base, seq).is_some()) else {
            return self.chunk_below(key, seq);
        };
        let chunk = self.chunks.get_mut(&(key, base)).expect("it was found");
        if chunk.items.len() < CHUNK {
            return base;
        }
        let place = chunk.place_of(base, seq).unwrap_or_else(|place| place);
        if place == CHUNK {
            // Whatever is appended in order fills its chunks.
            self.chunks.insert((key, seq), Arc::default());
            return seq;
        }
        let (upper_base, upper) = Arc::make_mut(chunk).split(base);
        self.chunks.insert((key, upper_base), Arc::new(upper));
        if seq < upper_base { base } else { upper_base }
    }

    /// Lowers the first chunk of a key, if it has room and is near enough; otherwise makes one.
    fn chunk_below(&mut self, key: KeyHash, seq: Seq) -> Seq {
        let next = self.chunks.range((key, seq)..=(key, Seq::MAX)).next();
        let near = next.filter(|((_, base), chunk)| chunk.items.len() < CHUNK && chunk.reaches(*base, seq));
        let chunk = match near.map(|((_, base), _)| *base) {
            None => Arc::default(),
            Some(base) => {
                let mut chunk = self.chunks.remove(&(key, base)).expect("it was found");
                Arc::make_mut(&mut chunk).lower(base, seq);
                chunk
            }
        };
        self.chunks.insert((key, seq), chunk);
        seq
    }

    /// Asserts every numbered invariant.
    pub(crate) fn check(&self) {
        let mut before: Option<Waiting> = None;
        let mut count = 0;
        for ((key, base), chunk) in &self.chunks {
            let len = chunk.items.len();
            assert!((1..=CHUNK).contains(&len), "invariant 2 of packed messages: {len} in a chunk");
            assert!(chunk.extras.is_empty() || chunk.extras.len() == len, "a chunk with other extras than messages");
            for place in 0..len {
                let waiting = chunk.waiting(*key, *base, place);
                let follows = before.is_none_or(|before| before.fact.key_hash != *key || before.seq < waiting.seq);
                assert!(follows && *base <= waiting.seq, "invariant 1 of packed messages: {before:?}, {waiting:?}");
                assert!(self.seqs.contains(waiting.seq), "invariant 3 of packed messages: {waiting:?} is not a member");
                before = Some(waiting);
                count += 1;
            }
        }
        assert_eq!(self.seqs.len(), count, "invariant 3 of packed messages: members");
    }
}

impl PartialEq for Packed {
    /// Equal are equal messages, in whatever chunks.
    fn eq(&self, other: &Self) -> bool {
        self.seqs == other.seqs && self.iter().eq(other.iter())
    }
}

impl Eq for Packed {}

impl Chunk {
    fn waiting(&self, key_hash: KeyHash, base: Seq, place: usize) -> Waiting {
        let (offset, size_bytes) = self.items[place];
        let Extra { expires_at_ms, due, is_replay } = self.extras.get(place).copied().unwrap_or_default();
        let fact = Fact { key_hash, size_bytes, expires_at_ms };
        Waiting { seq: base.plus(u64::from(offset)), fact, due, is_replay }
    }

    fn place_of(&self, base: Seq, seq: Seq) -> Result<usize, usize> {
        let wanted = seq.above(base);
        self.items.binary_search_by(|(offset, _)| u64::from(*offset).cmp(&wanted))
    }

    fn insert(&mut self, base: Seq, waiting: Waiting) {
        let Waiting { seq, fact, due, is_replay } = waiting;
        let place = self.place_of(base, seq).unwrap_or_else(|place| place);
        let extra = Extra { expires_at_ms: fact.expires_at_ms, due, is_replay };
        if extra != Extra::default() && self.extras.is_empty() {
            self.extras = vec![Extra::default(); self.items.len()];
        }
        if extra != Extra::default() || !self.extras.is_empty() {
            self.extras.insert(place, extra);
        }
        let offset = offset(base, seq).expect("the caller chose a chunk that is near enough");
        self.items.insert(place, (offset, fact.size_bytes));
    }

    fn remove(&mut self, place: usize) {
        self.items.remove(place);
        if !self.extras.is_empty() {
            self.extras.remove(place);
        }
    }

    /// Whether all messages are near enough to a base that is lower.
    fn reaches(&self, base: Seq, lower: Seq) -> bool {
        self.items.last().is_some_and(|(highest, _)| offset(lower, base.plus(u64::from(*highest))).is_some())
    }

    /// Counts from a lower base, which all messages are near enough to.
    fn lower(&mut self, base: Seq, lower: Seq) {
        let by = offset(lower, base).expect("nearer than the messages");
        self.items.iter_mut().for_each(|(offset, _)| *offset += by);
    }

    /// Takes out the upper half, with a base of its own.
    fn split(&mut self, base: Seq) -> (Seq, Self) {
        let half = self.items.len() / 2;
        let mut items = self.items.split_off(half);
        let extras = if self.extras.is_empty() { Vec::new() } else { self.extras.split_off(half) };
        let by = items[0].0;
        items.iter_mut().for_each(|(offset, _)| *offset -= by);
        (base.plus(u64::from(by)), Self { items, extras })
    }
}

/// How far a sequence lies above a base, unless that is too far.
fn offset(base: Seq, seq: Seq) -> Option<u32> {
    u32::try_from(seq.above(base)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mortarmq_types::{ClusterTime, KeyHash, Seq};
    use proptest::prelude::*;

    use super::{Packed, Waiting};
    use crate::lease::Fact;

    fn waiting(key: u64, seq: u64) -> Waiting {
        let rare = |number: u64| if seq.is_multiple_of(50) { number } else { 0 };
        let fact = Fact { key_hash: KeyHash::new(key), size_bytes: seq as u32, expires_at_ms: rare(seq) };
        Waiting { seq: Seq::new(seq), fact, due: ClusterTime::new(rare(7)), is_replay: rare(1) == 1 }
    }

    proptest! {
        #[test]
        fn it_keeps_every_message_in_the_order_of_its_key(
            steps in proptest::collection::vec((0_u8..6, 1_u64..3, 0_u64..4000), 0..1500),
            far in any::<bool>(),
        ) {
            let (mut real, mut naive) = (Packed::default(), BTreeMap::new());
            for (what, key, number) in steps {
                // Some lie so far apart that they cannot share a base; a sequence has one key.
                let seq = if far && number.is_multiple_of(97) { number << 33 } else { number } * 2 + key;
                match what {
                    0 => {
                        let first = naive.range((key, 0)..=(key, u64::MAX)).next().map(|(place, _)| *place);
                        let expected = first.map(|place| naive.remove(&place).unwrap());
                        assert_eq!(real.pop_first(KeyHash::new(key)), expected);
                    }
                    1 => assert_eq!(real.take(Seq::new(seq)), naive.remove(&(key, seq))),
                    _ => {
                        let is_new = naive.insert((key, seq), waiting(key, seq)).is_none();
                        assert_eq!(real.insert(waiting(key, seq)), is_new);
                    }
                }
            }
            real.check();
            prop_assert!(real.iter().eq(naive.values().copied()));
            prop_assert!(real.of_key(KeyHash::new(2)).eq(naive.range((2, 0)..).map(|(_, waiting)| *waiting)));
            let mut again = Packed::default();
            naive.values().rev().for_each(|waiting| assert!(again.insert(*waiting)));
            again.check();
            prop_assert_eq!(again, real);
        }
    }

    #[test]
    fn a_million_in_order_take_eight_bytes_each_and_a_bit() {
        let mut packed = Packed::default();
        for seq in 1..=1_000_000 {
            packed.insert(Waiting {
                fact: Fact { expires_at_ms: 0, ..waiting(1, seq).fact },
                due: ClusterTime::ZERO,
                is_replay: false,
                ..waiting(1, seq)
            });
        }
        let bytes: usize =
            packed.chunks.values().map(|chunk| chunk.items.capacity() * 8 + chunk.extras.capacity() * 24).sum();
        assert!(bytes <= 8_100_000, "{bytes}");
    }
}
