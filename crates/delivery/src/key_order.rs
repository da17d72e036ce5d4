//! Order by key: which message of a key may leave, and which end together (P8).
//!
//! Under [`Order::Key`] every unsettled keyed message stands in its key's queue, lowest sequence first. Only the head can
//! be leased, once nothing of the key is leased any more, and what one call leases behind it. Under [`Order::None`] the
//! queues are empty, so nothing is ever held back and nothing follows: no caller asks which order is in force.
//!
//! A change of the order moves the messages one by one, lowest first; meanwhile some stand in queues and others do not, and
//! nothing is leased.
//!
//! A message that an operator brings back joins its key's queue when it is offered again, and one that was delayed when it
//! falls due. It may stand before messages that are leased: it waits for those, and what waits behind it waits for it.

use std::ops::Bound;

use mortarmq_types::{DeliveryId, KeyHash, Seq};

use crate::{
    entry::{Entry, Lease, State},
    pair_set::PairSet,
    path_partition::PathPartition,
    rules::Order,
    tenure::Tenures,
};

impl PathPartition {
    /// Goes over to the order that the group's settings now ask for.
    ///
    /// Each unsettled message that was offered takes a step of the budget; what is left goes on with [`Self::go_on`], at the
    /// next stamps, and until then nothing is leased. Another change waits until this one is done. Leases that were granted
    /// before it keep running, but are no longer taken for granted in key order.
    ///
    /// # Source
    /// P8; DESIGN section 2, "No command costs more than 1,024 steps".
    pub fn follow_order(&mut self, order: Order, budget: &mut u32) {
        if self.order != order && self.reordering.is_none() {
            self.order = order;
            self.reordering = Some(Seq::ZERO);
        }
        self.take_order_steps(budget);
    }

    /// Goes on with a change of order, lowest message first.
    pub(crate) fn take_order_steps(&mut self, budget: &mut u32) {
        while let Some(from) = self.reordering {
            let Some(seq) = self.entries.range(from..Seq::MAX).next().map(|(seq, _)| *seq) else {
                self.reordering = None;
                return;
            };
            if *budget == 0 {
                return;
            }
            *budget -= 1;
            self.reordering = Some(seq.next());
            self.reorder(seq);
        }
    }

    /// Moves one message into or out of its key's queue.
    fn reorder(&mut self, seq: Seq) {
        let entry = self.entry(seq);
        let (key, is_waiting) = (entry.key_hash, entry.is_waiting());
        if self.order == Order::Key {
            // All before it stand in their queues already, and nothing is leased in key order.
            if key.is_some() {
                self.keyed.insert((key, seq));
                if self.head_of_key(key) != Some(seq) {
                    self.make_unready(seq);
                }
            }
            return;
        }
        if let State::Leased(lease) = &mut self.entry_mut(seq).state {
            lease.ordered = false;
        }
        if self.leased_keys.remove(&(key, seq)) {
            self.keyed.insert((key, seq));
        }
        if is_waiting {
            self.make_ready(seq);
        }
        // What stood behind it stands at the head now, for as long as it stands in the queue; what is packed of its key comes
        // out of it message by message.
        self.leave_key(key, seq);
    }

    /// Whether an unsettled message that was offered stands in its key's queue.
    pub(crate) fn stands_in_queue(&self, key: KeyHash, seq: Seq) -> bool {
        key.is_some()
            && match (self.order, self.reordering) {
                (Order::Key, None) => true,
                (Order::None, None) => false,
                (Order::Key, Some(from)) => seq < from,
                (Order::None, Some(from)) => seq >= from,
            }
    }

    /// Adds a message to its key's queue: at the end, or where its sequence belongs if it comes late. What it overtakes there
    /// waits for it.
    pub(crate) fn join_key(&mut self, key: KeyHash, seq: Seq) {
        if self.order == Order::Key && key.is_some() {
            self.keyed.insert((key, seq));
        }
        // Ready can be the one behind it, or the one behind what is leased, if this call leased that.
        let last_leased = self.leased_keys.range((key, seq)..=(key, Seq::MAX)).next_back().map(|(_, seq)| seq);
        for before in [Some(seq), last_leased].into_iter().flatten() {
            if let Some(next) = self.next_of_key(key, before) {
                self.make_unready(next);
            }
        }
    }

    /// Takes a settled message out of its key's queue and lets the next one move.
    pub(crate) fn leave_key(&mut self, key: KeyHash, seq: Seq) {
        if !self.keyed.remove(&(key, seq)) {
            return;
        }
        self.unpack_next(key);
        self.free_head(key);
    }

    /// Lets the head of a key's queue move if it waits and nothing of its key is leased in key order.
    pub(crate) fn free_head(&mut self, key: KeyHash) {
        if self.leased_of_key(key).is_some() {
            return;
        }
        if let Some(head) = self.head_of_key(key)
            && self.entries.get(&head).is_some_and(Entry::is_waiting)
        {
            self.make_ready(head);
        }
    }

    /// Whether a message at the position must wait for its key.
    ///
    /// It need not if all that is unsettled before it, and all that is leased of its key, was leased by the call that asks,
    /// whose deliveries are numbered above `before`. Such a call leases a key from its head on, and what is leased of a
    /// key was leased together, so looking at the last before it and at any lease is enough. It must if anything behind it is
    /// leased already, by whichever call: it would follow what it should precede.
    pub(crate) fn must_wait(&self, key: KeyHash, seq: Seq, before: DeliveryId) -> bool {
        let is_older =
            |seq: &Seq| self.entries.get(seq).and_then(Entry::lease).is_none_or(|lease| lease.delivery_id <= before);
        let last_of =
            |part: &PairSet<KeyHash>| part.range((key, Seq::ZERO)..(key, seq)).next_back().map(|(_, last)| last);
        let last = last_of(&self.keyed).max(last_of(&self.leased_keys));
        let is_crowded = || self.packed.first_of(key).is_some_and(|first| first < seq);
        let is_passed = || after(&self.leased_keys, key, seq).next().is_some();
        last.is_some_and(|last| is_older(&last))
            || self.leased_of_key(key).is_some_and(|leased| is_older(&leased))
            || is_passed()
            || is_crowded()
    }

    /// The lowest message of the key whose lease was granted in key order.
    pub(crate) fn leased_of_key(&self, key: KeyHash) -> Option<Seq> {
        first(&self.leased_keys, key)
    }

    /// The next unsettled message of the key after this one.
    pub(crate) fn next_of_key(&self, key: KeyHash, seq: Seq) -> Option<Seq> {
        let waiting = after(&self.keyed, key, seq).next();
        waiting.into_iter().chain(after(&self.leased_keys, key, seq).next()).min()
    }

    /// The messages of the key that were leased together with this one and come after it.
    ///
    /// All that is leased of a key in key order was leased together (invariant 6).
    pub(crate) fn followers(&self, key: KeyHash, seq: Seq) -> Vec<Seq> {
        after(&self.leased_keys, key, seq).collect()
    }

    pub(crate) fn head_of_key(&self, key: KeyHash) -> Option<Seq> {
        first(&self.keyed, key).into_iter().chain(first(&self.leased_keys, key)).min()
    }
}

/// The lowest message that an index holds of the key.
fn first(index: &PairSet<KeyHash>, key: KeyHash) -> Option<Seq> {
    index.range((key, Seq::ZERO)..=(key, Seq::MAX)).next().map(|(_, seq)| seq)
}

/// What an index holds of the key behind a message.
fn after(index: &PairSet<KeyHash>, key: KeyHash, seq: Seq) -> impl Iterator<Item = Seq> {
    let bounds = (Bound::Excluded((key, seq)), Bound::Included((key, Seq::MAX)));
    index.range(bounds).map(|(_, seq)| seq)
}

/// What of a key stands before a message, lowest sequence first: for checks of invariant 6.
#[derive(Debug, Default)]
pub(crate) struct Ahead<'a> {
    /// The last lease that was granted in key order.
    out: Option<&'a Lease>,
    /// Something that such a lease may not stand behind.
    unsettled: Option<&'a Entry>,
    count: usize,
}

impl<'a> Ahead<'a> {
    /// Whether nothing does.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the next message of the key.
    pub(crate) fn push(&mut self, entry: &'a Entry) {
        self.count += 1;
        match entry.lease().filter(|lease| lease.ordered) {
            Some(lease) => self.out = Some(lease),
            None if entry.is_late() => {}
            None => self.unsettled = Some(entry),
        }
    }

    /// Whether the next message of the key may stand as it does.
    pub(crate) fn leads(&self, next: &Entry, tenures: &Tenures) -> bool {
        let Some(lease) = next.lease().filter(|lease| lease.ordered) else { return true };
        let member = |lease: &Lease| tenures.of(lease).member;
        let together = |earlier: &Lease| member(earlier) == member(lease) && earlier.delivery_id < lease.delivery_id;
        self.unsettled.is_none() && self.out.is_none_or(together)
    }
}
