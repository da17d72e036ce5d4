//! Crowded keys: when more messages wait for one key than a bound, those beyond it are packed.
//!
//! A message that waits for its key is an entry like any other, and of these a path has at most `max_passed_over`. One hot
//! key would fill that and stop all others. So of each key only so many messages are entries, the earliest; what waits
//! behind them was never delivered, is all alike, and takes a few bytes. When an entry of the key leaves, the next message
//! takes its place, so the earliest message of a key is always an entry. Packed messages do not count for `max_passed_over`.
//!
//! Everything that concerns all unsettled messages concerns them too: they are in the depth, they are dropped by a purge or
//! a seek forwards, and stay what they are in a seek backwards; one that expired is found when it becomes an entry and
//! would be offered.

mod packed;

use std::ops::Range;

use mortarmq_types::{Cause, DeliveryId, KeyHash, Seq};

use crate::{
    entry::Entry,
    lease::Fact,
    pair_set::PairSet,
    path_partition::PathPartition,
    rules::{Order, PathRules},
};

pub(crate) use packed::{Packed, Waiting};

/// Entries of one key at most, for a group with the default `max_passed_over` or more.
const KEY_ENTRIES_MAX: u32 = 1024;
/// So many keys can be crowded before they alone are all that a path may pass over.
const CROWDED_KEYS: u32 = 64;
/// Packed messages of one path in one partition: about 8 MiB. At this limit nothing new is offered.
pub(crate) const PACKED_MAX: u64 = 1 << 20;

impl PathPartition {
    /// Messages that wait behind a crowded key, packed; they are not among [`Self::passed_over`].
    #[must_use]
    pub const fn packed(&self) -> u64 {
        self.packed.len()
    }

    /// Whether a message waits behind a crowded key, packed.
    #[must_use]
    pub fn is_packed(&self, seq: Seq) -> bool {
        self.packed.contains(seq)
    }

    /// Whether one more message may be passed over.
    #[must_use]
    pub fn has_room(&self, rules: &PathRules) -> bool {
        self.passed_over() < u64::from(rules.max_passed_over) && self.packed.len() < PACKED_MAX
    }

    /// Notes a message that waits for its key: as an entry, or packed if its key is crowded.
    pub(crate) fn pass_over(&mut self, seq: Seq, entry: Entry, rules: &PathRules) {
        let key = entry.key_hash;
        if !self.stands_in_queue(key, seq) {
            self.entries.insert(seq, entry);
            return;
        }
        let most = key_entries_max(rules);
        let is_behind = match self.packed.first_of(key) {
            Some(first) => first < seq,
            None => self.has_entries(key, most) && self.last_of_key(key) < Some(seq),
        };
        if is_behind {
            self.pack(seq, &entry);
            return;
        }
        self.entries.insert(seq, entry);
        self.join_key(key, seq);
        if self.has_entries(key, most + 1) {
            self.pack_last(key);
        }
    }

    /// The next packed message of a key takes the place of an entry that left. Whether it can be leased is the caller's to
    /// find out.
    pub(crate) fn unpack_next(&mut self, key: KeyHash) {
        if let Some(waiting) = self.packed.pop_first(key) {
            self.entries.insert(waiting.seq, waiting.entry());
            self.keyed.insert((key, waiting.seq));
        }
    }

    /// Whether the message was offered and is not settled, as an entry or packed.
    pub(crate) fn is_passed(&self, seq: Seq) -> bool {
        self.entries.contains_key(&seq) || self.packed.contains(seq)
    }

    /// The lowest of these messages that was offered and is not settled.
    pub(crate) fn first_passed(&self, among: Range<Seq>) -> Option<Seq> {
        let entry = self.entries.range(among.clone()).next().map(|(seq, _)| *seq);
        let packed = self.packed.first(among);
        entry.into_iter().chain(packed).min()
    }

    /// The highest of these messages that was offered and is not settled.
    pub(crate) fn last_passed(&self, among: Range<Seq>) -> Option<Seq> {
        let entry = self.entries.range(among.clone()).next_back().map(|(seq, _)| *seq);
        entry.max(self.packed.last(among))
    }

    /// How many of these messages were offered and are not settled. Looks at each.
    pub(crate) fn count_passed(&self, among: Range<Seq>) -> u64 {
        self.entries.range(among.clone()).count() as u64 + self.packed.count(among)
    }

    /// All messages that were offered and are not settled.
    pub(crate) fn all_passed(&self) -> u64 {
        self.entries.len() as u64 + self.packed.len()
    }

    /// Packs the last entry of a key that has one too many, unless there is something to be known of it, or it may leave.
    fn pack_last(&mut self, key: KeyHash) {
        let Some(last) = self.last_of_key(key) else { return };
        let entry = self.entry(last);
        if self.packed.len() >= PACKED_MAX || !entry.is_untouched() || self.ready.contains(&(entry.fell_due(), last)) {
            return;
        }
        let entry = entry.clone();
        self.entries.remove(&last);
        self.keyed.remove(&(key, last));
        self.pack(last, &entry);
    }

    fn pack(&mut self, seq: Seq, entry: &Entry) {
        assert!(entry.is_untouched(), "invariant 17: message {seq} is packed as {entry:?}");
        let Entry { key_hash, size_bytes, expires_at_ms, cause, .. } = *entry;
        let due = entry.fell_due();
        let fact = Fact { key_hash, size_bytes, expires_at_ms };
        let is_new = self.packed.insert(Waiting { seq, fact, due, is_replay: cause == Cause::Replayed });
        assert!(is_new, "invariant 17: message {seq} waits already");
    }

    /// Whether a key has at least so many entries.
    fn has_entries(&self, key: KeyHash, count: u32) -> bool {
        let of_key = (key, Seq::ZERO)..=(key, Seq::MAX);
        let leased = self.leased_keys.range(of_key.clone());
        leased.chain(self.keyed.range(of_key)).nth(count as usize - 1).is_some()
    }

    fn last_of_key(&self, key: KeyHash) -> Option<Seq> {
        let last =
            |part: &PairSet<KeyHash>| part.range((key, Seq::ZERO)..=(key, Seq::MAX)).next_back().map(|(_, seq)| seq);
        last(&self.keyed).max(last(&self.leased_keys))
    }

    /// Which part of invariant 17 does not hold, and for which message.
    pub(crate) fn packed_fault(&self) -> Option<(&'static str, Seq)> {
        for key in self.packed.keys() {
            let first = self.packed.first_of(key)?;
            // While the order by key is made, or once it is gone, nothing is packed.
            let is_made = self.order == Order::Key && self.reordering.is_some();
            if is_made || !self.stands_in_queue(key, first) {
                return Some(("packed key", first));
            }
            if self.head_of_key(key).is_none_or(|head| head >= first) {
                return Some(("packed before the first entry of its key", first));
            }
        }
        let twice = self.entries.keys().chain(self.settled_ahead.iter()).find(|seq| self.packed.contains(**seq));
        twice.map(|seq| ("packed twice", *seq))
    }

    pub(crate) fn check_packed(&self) {
        self.packed.check();
        assert_eq!(self.packed_fault(), None, "invariant 17, P8");
    }
}

/// How many messages of one key are entries.
fn key_entries_max(rules: &PathRules) -> u32 {
    (rules.max_passed_over / CROWDED_KEYS).clamp(1, KEY_ENTRIES_MAX)
}

impl Waiting {
    fn entry(self) -> Entry {
        if self.is_replay { Entry::replayed(self.fact) } else { Entry::new(self.fact, self.due) }
    }
}

impl Entry {
    /// Whether it waits and nothing ever happened to it.
    fn is_untouched(&self) -> bool {
        self.is_waiting() && self.previous == DeliveryId::ZERO && matches!(self.cause, Cause::First | Cause::Replayed)
    }
}

#[cfg(test)]
mod tests {
    use mortarmq_types::{Attempt, ClusterTime, DeliveryId, KeyHash, LeaseTime, MemberId, Position, Seq};

    use crate::{
        Fact, Facts, Grant, Handed, LeaseLimits, LeaseRequest, Now, Order, PathPartition, PathRules, Redriven, Settle,
        entry::Entry,
    };
    use mortarmq_types::Cause;

    const RULES: PathRules = PathRules {
        order: Order::Key,
        lease_ms: 1000,
        backoff_base_ms: 0,
        backoff_max_ms: 0,
        max_passed_over: 200,
        max_acked_ahead: 0,
        max_in_flight: 0,
        max_attempts: 0,
    };
    const NOW: Now = Now { cluster: ClusterTime::ZERO, lease: LeaseTime::ZERO };

    struct OneKey;

    impl Facts for OneKey {
        fn fact(&self, _: Seq) -> Option<Fact> {
            Some(Fact { key_hash: KeyHash::new(7), size_bytes: 1, expires_at_ms: 0 })
        }
    }

    fn lease(path: &mut PathPartition, last_delivery_id: &mut DeliveryId, messages: u32) -> Vec<(Seq, DeliveryId)> {
        let limits = LeaseLimits { messages, bytes: 1000, steps: 1000, first_may_exceed_bytes: false };
        let (grant, granted_at, last_seq) = (Grant::Push, Position::default(), Seq::new(10));
        let request = LeaseRequest {
            member: MemberId::new(1),
            grant,
            limits,
            may_pass_over: true,
            last_seq,
            now: NOW,
            granted_at,
            alone: false,
        };
        let mut handed = Handed::default();
        path.lease(&request, &RULES, &OneKey, last_delivery_id, &mut handed);
        path.check(last_seq);
        handed.leased.iter().map(|leased| (leased.seq, leased.delivery_id)).collect()
    }

    #[test]
    fn p8_an_entry_among_packed_messages_of_its_key_waits_for_those_before_it() {
        // Goal: what is not packed, but comes back into the middle of a crowded key, keeps its place. Method: 7 is taken out
        // and put back as it would be after a delivery.
        let (mut path, mut last) = (PathPartition::new(Seq::FIRST), DeliveryId::new(100));
        let first = lease(&mut path, &mut last, 1);
        assert_eq!(lease(&mut path, &mut last, 9), []);
        // Three are entries: 1, 2 and 3.
        assert_eq!((path.passed_over(), path.packed()), (3, 7));
        let waiting = path.packed.take(Seq::new(7)).expect("it is packed");
        let entry = Entry {
            attempt: Attempt::new(2),
            cause: Cause::Nacked,
            previous: DeliveryId::new(5),
            ..Entry::new(waiting.fact, ClusterTime::ZERO)
        };
        path.entries.insert(Seq::new(7), entry);
        path.join_key(KeyHash::new(7), Seq::new(7));
        path.check(Seq::new(10));
        let mut order = Vec::new();
        let mut leased = first;
        while !leased.is_empty() {
            for (seq, delivery_id) in leased {
                order.push(seq.get());
                path.settle(seq, delivery_id, Settle::Ack, &RULES, NOW, &mut Vec::new()).expect("it is leased");
                path.check(Seq::new(10));
            }
            leased = lease(&mut path, &mut last, 9);
        }
        assert_eq!(order, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn p4_what_is_packed_behind_redriven_messages_is_the_lowest_whose_record_is_needed() {
        // Goal: retention keeps what is still to be read. Method: all entries of the key are redriven, whose bytes are in their
        // dead letters; what comes behind them is packed.
        let (mut path, mut last) = (PathPartition::new(Seq::FIRST), DeliveryId::new(100));
        // The last first: what is behind a message that fails ends with it.
        for (seq, delivery_id) in lease(&mut path, &mut last, 3).into_iter().rev() {
            path.settle(seq, delivery_id, Settle::DeadLetter, &RULES, NOW, &mut Vec::new()).expect("it is leased");
        }
        for seq in 1..=3 {
            let (seq, previous, source) = (Seq::new(seq), DeliveryId::new(100 + seq), Seq::new(20 + seq));
            let redriven = Redriven { seq, key_hash: KeyHash::new(7), size_bytes: 1, previous, source };
            path.redrive(&redriven, &RULES, &OneKey).expect("it died here");
        }
        assert_eq!(lease(&mut path, &mut last, 1).len(), 1);
        assert_eq!(lease(&mut path, &mut last, 9), []);
        assert_eq!((path.passed_over(), path.packed(), path.position()), (3, 7, Seq::new(11)));
        assert_eq!(path.lowest_offered(), Some(Seq::new(4)));
    }
}
