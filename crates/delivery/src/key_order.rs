//! Order by key: which message of a key may leave, and which end together (P8).
//!
//! Under [`Order::Key`] every unsettled keyed message stands in its key's queue, lowest sequence first. Only the head can
//! be leased, and what one call leases behind it. Under [`Order::None`] the queues are empty, so nothing is ever held
//! back and nothing follows: no caller asks which order is in force.

use std::ops::Bound;

use mortarmq_types::{DeliveryId, KeyHash, Seq};

use crate::{
    entry::{Entry, State},
    path_partition::PathPartition,
    rules::Order,
};

impl PathPartition {
    /// Adopts the order that the group's settings now ask for.
    ///
    /// A change costs a walk over all entries; it is an operator's act. Leases that were granted before it keep
    /// running, but are no longer taken for granted in key order.
    pub(crate) fn follow_order(&mut self, order: Order) {
        if self.order == order {
            return;
        }
        self.order = order;
        self.keyed.clear();
        self.ready.clear();
        for (seq, entry) in &self.entries.clone() {
            if entry.lease().is_some_and(|lease| lease.ordered)
                && let State::Leased(lease) = &mut self.entry_mut(*seq).state
            {
                lease.ordered = false;
            }
            let is_head = join(&mut self.keyed, order, entry.key_hash, *seq);
            if entry.is_waiting() && is_head {
                self.ready.insert(*seq);
            }
        }
    }

    /// Adds a message to the end of its key's queue.
    pub(crate) fn join_key(&mut self, key: KeyHash, seq: Seq) {
        join(&mut self.keyed, self.order, key, seq);
    }

    /// Takes a settled message out of its key's queue and lets the next one move.
    pub(crate) fn leave_key(&mut self, key: KeyHash, seq: Seq) {
        if !self.keyed.remove(&(key, seq)) {
            return;
        }
        if let Some(head) = self.head_of_key(key)
            && self.entries.get(&head).is_some_and(Entry::is_waiting)
        {
            self.ready.insert(head);
        }
    }

    /// Whether an earlier message of the key is unsettled.
    pub(crate) fn is_held_back(&self, key: KeyHash, seq: Seq) -> bool {
        self.head_of_key(key).is_some_and(|head| head < seq)
    }

    /// Whether a message that was never offered must wait for its key.
    ///
    /// It need not if all that is unsettled before it was leased by the call that asks, whose deliveries are numbered
    /// above `before`. Such a call leases a key from its head on, so looking at the last of the queue is enough.
    pub(crate) fn must_wait(&self, key: KeyHash, before: DeliveryId) -> bool {
        let Some((_, last)) = self.keyed.range((key, Seq::ZERO)..=(key, Seq::MAX)).next_back() else { return false };
        let lease = self.entries.get(last).and_then(Entry::lease);
        lease.is_none_or(|lease| lease.delivery_id <= before)
    }

    /// The next unsettled message of the key after this one.
    pub(crate) fn next_of_key(&self, key: KeyHash, seq: Seq) -> Option<Seq> {
        self.after_in_key(key, seq).next()
    }

    /// The messages of the key that were leased together with this one and come after it.
    ///
    /// They stand right behind it: invariant 6 leaves no room for anything else between two of them.
    pub(crate) fn followers(&self, key: KeyHash, seq: Seq) -> Vec<Seq> {
        let is_together = |seq: &Seq| self.entries.get(seq).and_then(Entry::lease).is_some_and(|lease| lease.ordered);
        self.after_in_key(key, seq).take_while(is_together).collect()
    }

    fn head_of_key(&self, key: KeyHash) -> Option<Seq> {
        self.keyed.range((key, Seq::ZERO)..=(key, Seq::MAX)).next().map(|(_, seq)| *seq)
    }

    fn after_in_key(&self, key: KeyHash, seq: Seq) -> impl Iterator<Item = Seq> {
        let bounds = (Bound::Excluded((key, seq)), Bound::Included((key, Seq::MAX)));
        self.keyed.range(bounds).map(|(_, seq)| *seq)
    }
}

/// Adds a message to its key's queue, if there is one to join, and says whether it stands at the head.
fn join(keyed: &mut std::collections::BTreeSet<(KeyHash, Seq)>, order: Order, key: KeyHash, seq: Seq) -> bool {
    if order == Order::None || !key.is_some() {
        return true;
    }
    keyed.insert((key, seq));
    keyed.range((key, Seq::ZERO)..).next() == Some(&(key, seq))
}
