//! What clients did and saw, kept outside the broker: it judges every answer and every delivery at once.

use std::collections::{BTreeMap, BTreeSet};

use mortarmq_node::Delivery;
use mortarmq_shard::SettleKind;
use mortarmq_types::{Cause, DeliveryId, Partition, Seq};

use super::consumer::SESSION_US;
use super::support::number_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) partition: u16,
    pub(crate) seq: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    /// What the runs met.
    pub(crate) reached: BTreeMap<String, u64>,
    /// When publishes were answered OK.
    pub(crate) published_us: Vec<u64>,
    last_value: u64,
    keys: BTreeMap<u64, u64>,
    refused: BTreeSet<u64>,
    places: BTreeMap<u64, Place>,
    values: BTreeMap<Place, u64>,
    messages: BTreeMap<Place, Message>,
    /// Which message a delivery is of.
    deliveries: BTreeMap<DeliveryId, Place>,
    /// When each member last kept its session.
    heard_us: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct Message {
    seen: BTreeMap<DeliveryId, Seen>,
    last: Option<DeliveryId>,
    is_acked: bool,
}

#[derive(Debug)]
struct Seen {
    member: u64,
    attempt: u64,
    until_us: u64,
    said: Option<Said>,
}

/// What a consumer said of a delivery, or will not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Ack,
    Nack,
    Release,
    Forgotten,
}

impl Record {
    pub(crate) fn reach(&mut self, what: &str) {
        *self.reached.entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn reach_code(&mut self, name: &str) {
        self.reach(name);
    }

    pub(crate) fn new_value(&mut self) -> u64 {
        self.last_value += 1;
        self.last_value
    }

    pub(crate) fn sent(&mut self, value: u64, key: u64) {
        self.keys.insert(value, key);
    }

    /// A publish was answered OK (P1, P3).
    pub(crate) fn published(&mut self, value: u64, partition: Partition, seq: Seq, deduplicated: bool, now_us: u64) {
        let place = Place { partition: partition.get(), seq: seq.get() };
        if deduplicated {
            self.reach("deduplicated");
        }
        self.is_at(value, place);
        self.published_us.push(now_us);
    }

    pub(crate) fn refused(&mut self, value: u64) {
        self.refused.insert(value);
    }

    pub(crate) fn is_at(&mut self, value: u64, place: Place) {
        let other = *self.values.entry(place).or_insert(value);
        assert_eq!(other, value, "P1: {place:?} holds two messages");
        let first = *self.places.entry(value).or_insert(place);
        assert_eq!(first, place, "P3: message {value} is stored twice");
        assert!(!self.refused.contains(&value), "P2: message {value} was refused and is stored");
    }

    /// A member was heard: what it sent at that moment to keep its session was answered OK.
    pub(crate) fn heard_of(&mut self, member: u64, sent_us: u64) {
        let heard_us = self.heard_us.entry(member).or_default();
        *heard_us = sent_us.max(*heard_us);
    }

    pub(crate) fn said(&mut self, delivery: DeliveryId, said: Said) {
        let seen = self.seen_mut(delivery);
        // What was said first may have been heard, whatever is said later.
        if seen.said.is_none_or(|before| before == Said::Forgotten) {
            seen.said = Some(said);
        }
    }

    /// A settle was answered OK (P6).
    pub(crate) fn settled(&mut self, delivery: DeliveryId, kind: &SettleKind) {
        let place = self.deliveries[&delivery];
        let message = self.messages.get_mut(&place).expect("it was delivered");
        if matches!(kind, SettleKind::Ack) {
            assert!(!message.is_acked, "P6: {place:?} is acked twice");
            message.is_acked = true;
        }
    }

    fn seen_mut(&mut self, delivery: DeliveryId) -> &mut Seen {
        let place = self.deliveries[&delivery];
        let message = self.messages.get_mut(&place).expect("it was delivered");
        message.seen.get_mut(&delivery).expect("it was delivered")
    }

    /// A message came (P2, P5, P6, P7, P8).
    pub(crate) fn delivered(&mut self, delivery: &Delivery, member: u64, until_us: u64, now_us: u64) {
        let place = Place { partition: delivery.partition.get(), seq: delivery.seq.get() };
        let (id, attempt) = (delivery.delivery_id, u64::from(delivery.attempt.get()));
        self.is_at(number_of(delivery), place);
        let message = self.messages.entry(place).or_default();
        assert!(!message.is_acked, "P6: {place:?} is delivered again as {id}, and was acked");
        if let Some(seen) = message.seen.get_mut(&id) {
            assert_eq!((seen.member, seen.attempt), (member, attempt), "P5: delivery {id} of {place:?} changed");
            // A failover can lengthen a lease.
            seen.until_us = until_us.max(seen.until_us);
            return self.reach("sent again");
        }
        if let Some(before) = message.last {
            assert!(before < id, "P5: {place:?} is delivered as {id} after {before}");
            let seen = &message.seen[&before];
            let is_next = delivery.previous == before;
            // What was leased in between and never reached anybody ended somehow.
            let explained = !is_next
                || match delivery.cause {
                    Cause::LeaseExpired => now_us + GRACE_US >= seen.until_us,
                    Cause::Nacked => seen.said == Some(Said::Nack),
                    Cause::ConsumerLost => {
                        let heard_us = self.heard_us.get(&seen.member).copied().unwrap_or(0);
                        now_us + GRACE_US >= heard_us + SESSION_US
                    }
                    // Given back by its consumer, or with an earlier message of its key.
                    Cause::Released => seen.said != Some(Said::Forgotten) || self.keys[&self.values[&place]] != 0,
                    Cause::First | Cause::Redriven | Cause::Replayed => false,
                };
            assert!(
                explained,
                "P5: {place:?} comes as {id} ({:?}, attempt {attempt}) at {now_us} while {before} is {seen:?}, heard {:?}",
                delivery.cause,
                self.heard_us.get(&seen.member)
            );
            let cause = format!("{:?}", delivery.cause);
            *self.reached.entry(cause).or_default() += 1;
        } else if delivery.cause == Cause::First {
            assert_eq!(attempt, 1, "P7: the first delivery is attempt 1");
        }
        let message = self.messages.get_mut(&place).expect("made above");
        message.last = Some(id);
        message.seen.insert(id, Seen { member, attempt, until_us, said: None });
        self.deliveries.insert(id, place);
        self.check_order(place, member, now_us);
    }

    /// No message overtakes an earlier one of its key that is not settled (P8).
    fn check_order(&self, place: Place, member: u64, now_us: u64) {
        let key_of = |place: &Place| self.values.get(place).and_then(|value| self.keys.get(value)).copied();
        let Some(key) = key_of(&place).filter(|key| *key != 0) else { return };
        let first = Place { seq: 0, ..place };
        for (earlier, message) in self.messages.range(first..place) {
            if key_of(earlier) != Some(key) || message.is_acked {
                continue;
            }
            let Some(seen) = message.last.map(|last| &message.seen[&last]) else { continue };
            let may_be_settled = seen.said == Some(Said::Ack);
            let goes_along = seen.member == member && seen.said.is_none() && now_us <= seen.until_us + GRACE_US;
            assert!(
                may_be_settled || goes_along,
                "P8: {place:?} overtakes {earlier:?} of key {key}, which is {seen:?}, at {now_us}"
            );
        }
    }

    /// Everything that was stored was delivered and settled (P1, P4).
    pub(crate) fn check_end(&self) {
        for (value, place) in &self.places {
            assert!(self.messages.contains_key(place), "P1, P4: message {value} at {place:?} was never delivered");
        }
    }

    pub(crate) fn deliveries(&self) -> usize {
        self.deliveries.len()
    }
}

/// Clocks run a little differently, and leases are counted in whole milliseconds.
const GRACE_US: u64 = 30_000;
