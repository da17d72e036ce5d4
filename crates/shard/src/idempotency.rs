//! Idempotency keys (P3): what makes a publish under one key of a topic happen once, whoever sends it.
//!
//! A key is known by a hash. Inside its window a publish under it is answered as the first was, whatever its bytes. It is
//! kept at least a minute, and up to `idempotency_window_ms` while there is room.

use imbl::OrdMap;
use mortarmq_types::{ClusterTime, CommitIndex, Partition, Seq};

/// A key, as the state knows it: 96 bits of one hash and, as the lowest 32, the hash that places keys of messages.
///
/// Two keys with one hash would lose a message; among a million million keys that is less likely than a disk that lies. Whoever
/// could make a second key for a hash may as well publish under the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdempotencyKey(u128);

impl IdempotencyKey {
    /// The hash of a key's bytes.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let placing = crate::record::key_hash(key).get() & PLACING;
        Self(xxhash_rust::xxh3::xxh3_128(key) & !u128::from(PLACING) | u128::from(placing))
    }

    /// A stored hash.
    #[must_use]
    pub const fn new(hash: u128) -> Self {
        Self(hash)
    }

    /// The hash.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    /// What a message without a key is placed by.
    pub(crate) fn placing(self) -> u64 {
        u64::try_from(self.0 & u128::from(PLACING)).expect("32 bits")
    }
}

/// Where the first publish under a key went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstUse {
    /// The partition.
    pub partition: Partition,
    /// The sequence.
    pub seq: Seq,
    /// The command that stored it.
    pub commit_index: CommitIndex,
    /// When.
    pub at: ClusterTime,
    /// Its place among those that its command stored.
    pub(crate) place: u16,
}

/// The keys of one topic. Persistent maps: an image shares them.
///
/// # Invariants
/// 1. `order` holds each key once, under its first use; both are in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    uses: OrdMap<IdempotencyKey, FirstUse>,
    order: OrdMap<(CommitIndex, u16), IdempotencyKey>,
}

impl Keys {
    /// The first use of a key, inside its window.
    #[must_use]
    pub fn find(&self, key: IdempotencyKey, now: ClusterTime, window_ms: u64) -> Option<FirstUse> {
        self.uses.get(&key).copied().filter(|first| now.since_ms(first.at) < window_ms.max(KEEP_LEAST_MS))
    }

    /// Remembers a use, in place of one that is over.
    pub(crate) fn remember(&mut self, key: IdempotencyKey, first: FirstUse) {
        if let Some(over) = self.uses.insert(key, first) {
            self.order.remove(&(over.commit_index, over.place));
        }
        self.order.insert((first.commit_index, first.place), key);
    }

    /// Forgets the oldest, at most `limit` of those that are at least so old; says how many.
    pub(crate) fn forget(&mut self, now: ClusterTime, age_ms: u64, limit: u32) -> u32 {
        let mut gone = 0;
        while gone < limit
            && let Some((place, key)) = self.order.get_min().copied()
            && now.since_ms(self.uses[&key].at) >= age_ms
        {
            self.order.remove(&place);
            self.uses.remove(&key);
            gone += 1;
        }
        gone
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.uses.len() as u64
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }

    /// When the oldest was first used.
    pub(crate) fn oldest(&self) -> Option<ClusterTime> {
        self.order.get_min().map(|(_, key)| self.uses[key].at)
    }

    /// All of them, oldest first.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (IdempotencyKey, &FirstUse)> {
        self.order.values().map(|key| (*key, &self.uses[key]))
    }

    /// Asserts every numbered invariant.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        assert_eq!(self.uses.len(), self.order.len(), "invariant 1: every key has a place");
        let mut before = ClusterTime::ZERO;
        for ((commit_index, place), key) in &self.order {
            let first = self.uses.get(key).expect("invariant 1: a place has a key");
            assert_eq!((first.commit_index, first.place), (*commit_index, *place), "invariant 1: {key:?}");
            assert!(before <= first.at, "invariant 1: {key:?} at {} follows {before}", first.at);
            before = first.at;
        }
    }
}

/// A key is remembered at least that long (P3).
pub(crate) const KEEP_LEAST_MS: u64 = 60_000;

const PLACING: u64 = 0xFFFF_FFFF;

#[cfg(test)]
mod tests {
    use super::{FirstUse, IdempotencyKey, Keys};
    use mortarmq_types::{ClusterTime, CommitIndex, Partition, Seq};

    fn first(index: u64, at: u64) -> FirstUse {
        let (seq, commit_index) = (Seq::new(index), CommitIndex::new(index));
        FirstUse { partition: Partition::ZERO, seq, commit_index, at: ClusterTime::new(at), place: 0 }
    }

    #[test]
    fn p3_a_key_is_known_inside_its_window_and_never_less_than_a_minute() {
        let key = IdempotencyKey::of(b"order-7");
        let mut keys = Keys::default();
        keys.remember(key, first(1, 1000));
        let find = |keys: &Keys, at: u64, window: u64| keys.find(key, ClusterTime::new(at), window).is_some();
        assert!(find(&keys, 300_999, 300_000) && !find(&keys, 301_000, 300_000));
        assert!(find(&keys, 60_999, 5), "whatever the window says");
        assert_eq!(keys.find(IdempotencyKey::of(b"order-8"), ClusterTime::new(1000), 300_000), None);
        keys.remember(key, first(9, 400_000));
        keys.check();
        assert_eq!((keys.len(), keys.oldest()), (1, Some(ClusterTime::new(400_000))), "it begins anew");
        assert_eq!(keys.forget(ClusterTime::new(459_999), 60_000, 9), 0);
        assert_eq!(keys.forget(ClusterTime::new(460_000), 60_000, 9), 1);
        keys.check();
    }

    #[test]
    fn a_hash_keeps_its_value_and_places_as_keys_of_messages_are_placed() {
        let key = IdempotencyKey::of(b"order-7");
        assert_eq!(key.get(), 0x559a_5492_7d0b_e7df_f7ad_37c0_257f_c3fb_u128, "{:x}", key.get());
        assert_eq!(key.placing(), crate::record::key_hash(b"order-7").get() & 0xFFFF_FFFF);
        assert_ne!(IdempotencyKey::of(b"a"), IdempotencyKey::of(b"b"));
    }
}
