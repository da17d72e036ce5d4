//! What a consumer holds, and when each of it reaches the handler: a key's messages one after another, others freely.
//!
//! # Invariants
//! 1. Of one message at most one delivery is held: a later one takes the place of an earlier, whose lease is lost.
//! 2. Of one key in one partition at most one delivery is ready or with the handler; the others wait behind it, in
//!    the order in which they came.
//! 3. Whatever is ready or waits is held.
//!
//! # Source
//! P5, P8. When a delivery is nacked, given back or lost, the broker ends those of its key that left with it (one
//! `Deliver`, so one commit index) as released: they must not reach the handler any more.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mortarmq_types::{CommitIndex, DeliveryId, Partition};
use mortarmq_wire::ops::SettleKind;
use tokio::time::Instant;

use super::settles::{Item, MessageId};
use crate::delivery::{Delivery, Lease};

#[derive(Debug, Default)]
pub(crate) struct HandOver {
    held: HashMap<MessageId, Held>,
    keys: HashMap<Key, KeyLine>,
    ready: VecDeque<Delivery>,
    /// Runs of a key that the broker has ended and whose last messages may still be on their way here.
    ended: VecDeque<EndedRun>,
    /// To be told to the broker, which mostly knows: on a path without order it does not end what follows a nack.
    releases: Vec<Item>,
    next_renewal: Option<Instant>,
}

type Key = (Partition, Bytes);

#[derive(Debug)]
struct Held {
    delivery_id: DeliveryId,
    ownership_epoch: u64,
    commit_index: CommitIndex,
    key: Option<Key>,
    stage: Stage,
    lease: Arc<Lease>,
    msg: Option<Arc<str>>,
    lease_ms: u32,
    renew_at: Instant,
    /// When the lease runs out if it is not renewed, as far as this side can tell.
    lease_until: Instant,
    is_settling: bool,
    is_renewing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Ready,
    Handed,
}

#[derive(Debug)]
struct KeyLine {
    /// The one that is ready or with the handler.
    head: MessageId,
    waiting: VecDeque<Delivery>,
}

#[derive(Debug)]
struct EndedRun {
    key: Key,
    commit_index: CommitIndex,
}

impl HandOver {
    /// Takes a delivery from the broker. One that is held already came again at a resume, and is not handed out twice.
    pub(crate) fn arrived(&mut self, delivery: Delivery, now: Instant) {
        let id = id_of(&delivery);
        if let Some(earlier) = self.held.get(&id).map(|held| held.delivery_id) {
            if earlier >= delivery.delivery_id {
                return;
            }
            self.lost(id, earlier);
        }
        let key = (!delivery.key.is_empty()).then(|| (delivery.partition, delivery.key.clone()));
        let commit_index = delivery.position.commit_index;
        let is_ended = |run: &EndedRun| run.commit_index == commit_index && Some(&run.key) == key.as_ref();
        if self.ended.iter().any(is_ended) {
            delivery.lease.lose();
            self.releases.push(Item::of(&delivery, SettleKind::Release));
            return;
        }
        self.hold(&delivery, key.clone(), now);
        let Some(key) = key else { return self.make_ready(delivery) };
        let Some(line) = self.keys.get_mut(&key) else {
            self.keys.insert(key, KeyLine { head: id, waiting: VecDeque::new() });
            return self.make_ready(delivery);
        };
        // A key that starts again lower down, by a later command, means that what waits from there on was ended.
        let is_stale = |waiting: &Delivery| waiting.position.commit_index < commit_index && waiting.seq >= delivery.seq;
        if !line.waiting.iter().any(is_stale) {
            return line.waiting.push_back(delivery);
        }
        let (stale, kept) = line.waiting.drain(..).partition(is_stale);
        line.waiting = kept;
        line.waiting.push_back(delivery);
        self.drop_ended(stale);
    }

    /// The next one for the handler.
    pub(crate) fn pop_ready(&mut self) -> Option<Delivery> {
        let delivery = self.ready.pop_front()?;
        self.set_stage(id_of(&delivery), Stage::Handed);
        Some(delivery)
    }

    /// Every delivery that waits here or is with the handler.
    pub(crate) fn held_ids(&self) -> impl Iterator<Item = DeliveryId> {
        self.held.values().map(|held| held.delivery_id)
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// A settle of this delivery was asked for, or failed: as long as it is under way its lease is not renewed.
    pub(crate) fn set_settling(&mut self, id: MessageId, delivery_id: DeliveryId, is_settling: bool) {
        if let Some(held) = self.held.get_mut(&id)
            && held.delivery_id == delivery_id
        {
            held.is_settling = is_settling;
            self.note_renewal(id);
        }
    }

    /// The broker has ended this delivery as asked. `goes_back`: it was no ack, so what left with it was ended too.
    pub(crate) fn settled(&mut self, id: MessageId, delivery_id: DeliveryId, goes_back: bool) {
        if self.held.get(&id).is_none_or(|held| held.delivery_id != delivery_id) {
            return;
        }
        let Some(held) = self.held.remove(&id) else { return };
        if held.stage == Stage::Ready {
            self.ready.retain(|ready| id_of(ready) != id);
        }
        let Some(key) = held.key else { return };
        let Some(line) = self.keys.get_mut(&key) else { return };
        if line.head == id {
            self.advance(key, goes_back.then_some(held.commit_index));
        } else {
            line.waiting.retain(|waiting| id_of(waiting) != id);
        }
    }

    /// The lease of this delivery is lost.
    pub(crate) fn lost(&mut self, id: MessageId, delivery_id: DeliveryId) {
        if let Some(held) = self.held.get(&id)
            && held.delivery_id == delivery_id
        {
            held.lease.lose();
            self.settled(id, delivery_id, true);
        }
    }

    /// The broker has renewed this lease, or would not do so now.
    pub(crate) fn renewed(&mut self, id: MessageId, delivery_id: DeliveryId, is_renewed: bool, now: Instant) {
        let Some(held) = self.held.get_mut(&id).filter(|held| held.delivery_id == delivery_id) else { return };
        held.is_renewing = false;
        let lease = Duration::from_millis(u64::from(held.lease_ms));
        if is_renewed {
            held.renew_at = now + renewal_after(lease);
            held.lease_until = now + lease;
        } else {
            held.renew_at = now + (lease / 8).max(SHORTEST_WAIT);
        }
        self.note_renewal(id);
    }

    /// When [`Self::renewals`] has something to do.
    pub(crate) const fn next_renewal(&self) -> Option<Instant> {
        self.next_renewal
    }

    /// The renewals that are due if any are wanted, a little ahead so that they gather in few frames. Forgets what the
    /// handler dropped unsettled once its lease has run out.
    pub(crate) fn renewals(&mut self, are_wanted: bool, now: Instant) -> Vec<Item> {
        let (mut items, mut dropped, mut next) = (Vec::new(), Vec::new(), None);
        for (id, held) in &mut self.held {
            if held.is_settling || held.is_renewing {
                continue;
            }
            let is_dropped = held.stage == Stage::Handed && Arc::strong_count(&held.lease) == 1;
            let slack = Duration::from_millis(u64::from(held.lease_ms) / 8);
            if is_dropped && held.lease_until <= now {
                dropped.push((*id, held.delivery_id));
                continue;
            } else if is_dropped {
                held.renew_at = held.lease_until;
            } else if held.renew_at <= now + slack && are_wanted {
                held.is_renewing = true;
                items.push(held.item(*id, SettleKind::Progress));
                continue;
            } else if held.renew_at <= now {
                held.renew_at = now + renewal_after(4 * slack);
            }
            next = Some(next.map_or(held.renew_at, |next: Instant| next.min(held.renew_at)));
        }
        self.next_renewal = next;
        for (id, delivery_id) in dropped {
            self.lost(id, delivery_id);
        }
        items
    }

    /// What is to be given back because the broker may still think that it is held here.
    pub(crate) fn take_releases(&mut self) -> Vec<Item> {
        std::mem::take(&mut self.releases)
    }

    /// Gives back everything that is not being settled, and forgets it.
    pub(crate) fn release_all(&mut self) -> Vec<Item> {
        let mut items = self.take_releases();
        for (id, held) in self.held.drain().filter(|(_, held)| !held.is_settling) {
            held.lease.lose();
            items.push(held.item(id, SettleKind::Release));
        }
        items.sort_by_key(|item| item.message);
        self.keys.clear();
        self.ready.clear();
        self.next_renewal = None;
        items
    }

    fn hold(&mut self, delivery: &Delivery, key: Option<Key>, now: Instant) {
        let id = id_of(delivery);
        let lease = Duration::from_millis(u64::from(delivery.lease_ms));
        let held = Held {
            delivery_id: delivery.delivery_id,
            ownership_epoch: delivery.ownership_epoch,
            commit_index: delivery.position.commit_index,
            key,
            stage: Stage::Waiting,
            lease: Arc::clone(&delivery.lease),
            msg: delivery.msg.clone(),
            lease_ms: delivery.lease_ms,
            renew_at: now + renewal_after(lease),
            lease_until: now + lease,
            is_settling: false,
            is_renewing: false,
        };
        self.held.insert(id, held);
        self.note_renewal(id);
    }

    fn make_ready(&mut self, delivery: Delivery) {
        self.set_stage(id_of(&delivery), Stage::Ready);
        self.ready.push_back(delivery);
    }

    /// The head of a key's line is gone: the next one moves up, behind a run that the broker ended.
    fn advance(&mut self, key: Key, ended: Option<CommitIndex>) {
        if let (Some(commit_index), Some(line)) = (ended, self.keys.get_mut(&key)) {
            let (gone, kept) =
                line.waiting.drain(..).partition(|waiting| waiting.position.commit_index == commit_index);
            line.waiting = kept;
            self.drop_ended(gone);
            self.ended.push_back(EndedRun { key: key.clone(), commit_index });
            if self.ended.len() > MAX_ENDED_RUNS {
                self.ended.pop_front();
            }
        }
        let Some(line) = self.keys.get_mut(&key) else { return };
        match line.waiting.pop_front() {
            Some(next) => {
                line.head = id_of(&next);
                self.make_ready(next);
            }
            None => drop(self.keys.remove(&key)),
        }
    }

    /// Forgets what the broker has ended, and says so to it, in case it has not.
    fn drop_ended(&mut self, ended: VecDeque<Delivery>) {
        for delivery in ended {
            delivery.lease.lose();
            self.held.remove(&id_of(&delivery));
            self.releases.push(Item::of(&delivery, SettleKind::Release));
        }
    }

    fn set_stage(&mut self, id: MessageId, stage: Stage) {
        if let Some(held) = self.held.get_mut(&id) {
            held.stage = stage;
        }
    }

    fn note_renewal(&mut self, id: MessageId) {
        let Some(held) = self.held.get(&id) else { return };
        if !held.is_settling && !held.is_renewing {
            let next = self.next_renewal.unwrap_or(held.renew_at);
            self.next_renewal = Some(next.min(held.renew_at));
        }
    }
}

impl Held {
    fn item(&self, message: MessageId, kind: SettleKind) -> Item {
        Item {
            kind,
            message,
            delivery_id: self.delivery_id,
            ownership_epoch: self.ownership_epoch,
            delay_ms: 0,
            error_text: Bytes::new(),
            lease_ms: self.lease_ms,
            msg: self.msg.clone(),
            call_ns: 0,
            is_repeat: false,
            reply: None,
        }
    }
}

const fn id_of(delivery: &Delivery) -> MessageId {
    MessageId { partition: delivery.partition, seq: delivery.seq }
}

/// A lease is renewed at its half: one lost attempt still leaves time for another.
fn renewal_after(lease: Duration) -> Duration {
    (lease / 2).max(SHORTEST_WAIT)
}

/// The shortest wait before a renewal, so that a lease of nearly nothing does not keep the client busy.
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
/// How many ended runs are remembered. Their last messages are already on their way when the settle that ended them is
/// answered, so a few would do.
const MAX_ENDED_RUNS: usize = 256;

#[cfg(test)]
mod tests;
