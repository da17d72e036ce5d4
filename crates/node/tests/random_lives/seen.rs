//! Deliveries as their consumers see them, and the promises about them (P5 to P8, P10).

use mortarmq_node::Delivery;
use mortarmq_types::{Attempt, Cause, DeliveryId, MemberId, MonotonicTime, Position};

use crate::consumers::Subscription;
use crate::record::{PathName, Place, Record};

/// A delivery that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: PathName,
    pub(crate) place: Place,
    pub(crate) member: MemberId,
    pub(crate) attempt: Attempt,
    pub(crate) cause: Cause,
    pub(crate) previous: DeliveryId,
    pub(crate) position: Position,
    pub(crate) key: Vec<u8>,
    /// Since when its lease runs, in awake time: its start, or its last confirmed extension.
    pub(crate) since_ms: u64,
    /// The shortest that its group may have had when it began.
    pub(crate) lease_ms: u64,
    pub(crate) said: Said,
    /// Whether a younger delivery of its message arrived first.
    pub(crate) stale: bool,
}

/// What was said of a delivery that can have ended it, whether or not it was answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    pub(crate) ack: bool,
    pub(crate) nack: bool,
    pub(crate) release: bool,
    /// That no attempt will do.
    pub(crate) dead: bool,
}

impl Record {
    /// Takes in a delivery and holds it against everything before it.
    pub(crate) fn deliver(&mut self, now: MonotonicTime, held: &Subscription, delivery: &Delivery) {
        let (path, member) = (&held.path, held.member);
        // Leased before the connection broke, perhaps by a process before this one, and not seen then.
        let comes_late = held.comes_again.as_ref().is_some_and(|again| delivery.position <= again.resumed_behind);
        if comes_late {
            self.reach("sent for the first time after a resume");
        }
        let place = (delivery.partition, delivery.seq);
        let (number, key) = read_body(delivery);
        assert_eq!(delivery.topic, path.0, "a delivery of a topic that was not subscribed to");
        let sent = self.sent.get(&number).unwrap_or_else(|| panic!("number {number} was never sent"));
        assert_eq!(sent.key, key, "the key of number {number} is another");
        let (delay_ms, age_ms) = (sent.delay_ms, self.total_ms - sent.sent_at_ms.expect("what comes was sent"));
        assert!(age_ms >= delay_ms, "P4: number {number}, delayed by {delay_ms} ms, came after {age_ms}");
        self.place(number, path.0, place);
        let lease_ms = self.path(path).options.lease_ms;
        let begun = delivery.lease_until.get() - lease_ms;
        // What is sent when its member resumes may have been leased by a process before, whose clock nobody knows.
        let left_ms = delivery.lease_until.since_ms(now);
        let since_ms = (self.awake_ms + left_ms).saturating_sub(lease_ms);
        let seen = Seen {
            path: path.clone(),
            place,
            member,
            attempt: delivery.attempt,
            cause: delivery.cause,
            previous: delivery.previous,
            position: delivery.position,
            key,
            since_ms: self.awake_at(MonotonicTime::new(begun)).min(since_ms),
            lease_ms,
            said: Said::default(),
            stale: false,
        };
        self.check_number(delivery.delivery_id, &seen);
        if !comes_late {
            self.note_position(delivery.position, true);
        }
        let stale = self.judge(delivery.delivery_id, &seen, number);
        self.note_cause(&seen);
        let all = &self.path(path).deliveries;
        let (later, itself) = (all.range(place..), all.contains_key(&place));
        if delay_ms > 0 && !itself && later.take_while(|(at, _)| at.0 == place.0).next().is_some() {
            self.reach("others passed a delayed message");
        }
        self.seen.insert(delivery.delivery_id, Seen { stale, ..seen });
        self.path_mut(path).deliveries.entry(place).or_default().insert(delivery.delivery_id);
        if !stale {
            self.check_window(member, delivery.delivery_id);
        }
    }

    /// P10: a delivery number is used once, and grows with the log.
    fn check_number(&self, id: DeliveryId, seen: &Seen) {
        assert!(!self.seen.contains_key(&id), "P10: delivery {id} came twice");
        if let Some((before, older)) = self.seen.range(..id).next_back() {
            assert!(older.position <= seen.position, "P10: delivery {before} is younger than {id}");
        }
        if let Some((behind, younger)) = self.seen.range(id..).next() {
            assert!(younger.position >= seen.position, "P10: delivery {behind} is older than {id}");
        }
    }

    /// P5, P6, P7, P8. Says whether a younger delivery of the message arrived before.
    fn judge(&mut self, id: DeliveryId, seen: &Seen, number: u64) -> bool {
        let path = self.path(&seen.path);
        if let Some(acked) = path.acked.get(&seen.place) {
            assert!(acked.by > id, "P6: {:?} was acked as delivery {} and comes again as {id}", seen.place, acked.by);
        }
        let died = path.dead.range((seen.place, DeliveryId::ZERO)..(seen.place, id)).next_back();
        let is_redriven = self.topics[&seen.path.0].redriven_from.is_some();
        assert!(died.is_none() || is_redriven, "P4: {:?} is dead by {died:?}, and comes again as {id}", seen.place);
        let last = path.deliveries.get(&seen.place).and_then(|all| all.last()).copied();
        if last.is_some_and(|last| last > id) {
            self.reach("a delivery arrived after a younger one");
            return true;
        }
        match last {
            None if seen.cause == Cause::First => {
                assert_eq!((seen.previous, seen.attempt), (DeliveryId::ZERO, Attempt::FIRST), "P7: {seen:?}");
            }
            None => {
                assert!(self.may_be_unseen(), "P7: {id} of {number} follows {}, and nothing was lost", seen.previous)
            }
            Some(last) => self.judge_again(last, id, seen),
        }
        // What a deleted topic owed is dropped; what was on its way may still come, with holes.
        let is_ordered = self.path(&seen.path).options.by_key
            && self.path(&seen.path).options.keeps_order
            && !self.topics[&seen.path.0].delete_sent;
        if is_ordered && !seen.key.is_empty() {
            self.judge_order(id, seen);
        }
        false
    }

    fn judge_again(&self, last: DeliveryId, id: DeliveryId, seen: &Seen) {
        let before = &self.seen[&last];
        assert!(
            before.said.ack || self.can_have_failed(last),
            "P5: {last} is live, and {id} comes: {before:?} {seen:?}"
        );
        assert_ne!(seen.cause, Cause::First, "P7: {seen:?} came before as {last}");
        assert!(seen.previous >= last, "P7: {id} follows {}, and {last} was between", seen.previous);
        if seen.previous != last {
            assert!(self.may_be_unseen(), "P7: {id} follows {}, which nobody got", seen.previous);
            return;
        }
        let member = &self.members[&before.member];
        let is_true = match seen.cause {
            Cause::Nacked => before.said.nack,
            Cause::Released => before.said.release || member.leave_sent || self.follows_a_failure(last),
            Cause::ConsumerLost => self.is_silent(before.member),
            Cause::LeaseExpired => self.has_run_out(before),
            Cause::Redriven => before.said.dead,
            Cause::First | Cause::Replayed => false,
        };
        assert!(is_true, "P7: {id} names {:?}, and that was not: {before:?}", seen.cause);
        let begins_anew = seen.cause == Cause::Redriven;
        let attempt = if begins_anew { 1 } else { before.attempt.get() + u32::from(seen.cause.counts()) };
        assert_eq!(seen.attempt.get(), attempt, "P7: {id} after {last}, cause {:?}", seen.cause);
    }

    /// P8: everything before it in its key is settled, or came with it.
    fn judge_order(&self, id: DeliveryId, seen: &Seen) {
        let topic = &self.topics[&seen.path.0];
        let path = self.path(&seen.path);
        for (place, number) in topic.messages.range((seen.place.0, mortarmq_types::Seq::ZERO)..seen.place) {
            // A delayed one is earlier only once it is due, which its consumer cannot know.
            if self.sent[number].key != seen.key || self.sent[number].delay_ms > 0 || !self.owes(path, *number) {
                continue;
            }
            let can_be_settled = path.can_be_settled(place);
            let came_along = path.deliveries.get(place).is_some_and(|all| {
                all.iter().any(|other| {
                    let other = &self.seen[other];
                    other.position == seen.position && other.member == seen.member
                })
            });
            assert!(
                can_be_settled || came_along,
                "P8: {id} of {:?} overtakes {place:?}, number {number}: {seen:?} {:?} {:?}",
                seen.place,
                self.sent[number],
                path.deliveries.get(place)
            );
        }
    }

    /// Rule 8: what a member holds by pushes never exceeds its window.
    fn check_window(&mut self, member: MemberId, id: DeliveryId) {
        let mut found = self.members[&member].clone();
        found.holds.insert(id);
        found.holds.retain(|held| !self.can_have_ended(*held));
        let held = found.holds.len() as u64;
        assert!(
            found.pulled || held <= found.window_max,
            "{member:?} holds {held}, its window is {}",
            found.window_max
        );
        self.members.insert(member, found);
    }

    fn note_cause(&mut self, seen: &Seen) {
        self.reach(match seen.cause {
            Cause::First => "first",
            Cause::LeaseExpired => "lease_expired",
            Cause::Nacked => "nacked",
            Cause::ConsumerLost => "consumer_lost",
            Cause::Released => "released",
            Cause::Redriven => {
                let from = self.topics[&seen.path.0].redriven_from;
                let from = from.unwrap_or_else(|| panic!("P7: nobody redrove {:?}", seen.place));
                let is_old = self.restarts > from;
                if is_old { "redriven after a restart" } else { "redriven" }
            }
            Cause::Replayed => panic!("P7: {:?} cannot be", seen.cause),
        });
        if seen.attempt.get() >= 3 {
            self.reach("third attempt");
        }
    }

    pub(crate) fn can_have_ended(&self, id: DeliveryId) -> bool {
        let seen = &self.seen[&id];
        seen.stale || seen.said.ack || self.can_have_failed(id)
    }

    /// Whether a delivery can have ended other than by an ack.
    pub(crate) fn can_have_failed(&self, id: DeliveryId) -> bool {
        let seen = &self.seen[&id];
        seen.said.nack || seen.said.release || seen.said.dead || self.can_have_ended_by_itself(id)
    }

    /// Whether a delivery can have ended without a word about it.
    pub(crate) fn can_have_ended_by_itself(&self, id: DeliveryId) -> bool {
        let seen = &self.seen[&id];
        let gone = self.members[&seen.member].leave_sent || self.is_silent(seen.member);
        gone || self.has_run_out(seen) || self.follows_a_failure(id) || self.topics[&seen.path.0].delete_sent
    }

    fn has_run_out(&self, seen: &Seen) -> bool {
        self.awake_ms - seen.since_ms >= seen.lease_ms
    }

    /// Whether a delivery may have been granted that nobody saw: what is queued for a member that is lost is not sent.
    fn may_be_unseen(&self) -> bool {
        self.lossy || self.members.keys().any(|member| self.is_silent(*member))
    }

    pub(crate) fn is_silent(&self, member: MemberId) -> bool {
        let found = &self.members[&member];
        self.awake_ms - found.heard_ms >= found.session_ms
    }

    /// Whether an earlier message of its key, leased together with it, can have failed (P8).
    fn follows_a_failure(&self, id: DeliveryId) -> bool {
        let seen = &self.seen[&id];
        let options = &self.path(&seen.path).options;
        if (!options.by_key && options.keeps_order) || seen.key.is_empty() {
            return false;
        }
        let together = |other: &Seen| {
            other.position == seen.position
                && other.path == seen.path
                && other.key == seen.key
                && other.place.0 == seen.place.0
        };
        self.seen.range(..id).rev().take_while(|(_, other)| other.position == seen.position).any(|(_, other)| {
            together(other)
                && (other.said.nack
                    || other.said.release
                    || other.said.dead
                    || self.has_run_out(other)
                    || self.is_silent(other.member))
        })
    }
}

/// The number and the key of a message.
pub(crate) fn read_body(delivery: &Delivery) -> (u64, Vec<u8>) {
    let body = delivery.record.body();
    let key_bytes = usize::from(u16::from_be_bytes([body[0], body[1]]));
    let (key, value) = body[2..].split_at(key_bytes);
    (read_value(&value[4..]), key.to_vec())
}

/// The number that a value begins with.
pub(crate) fn read_value(value: &[u8]) -> u64 {
    let digits = value.split(|byte| *byte == b':').next().expect("a split has a first part");
    std::str::from_utf8(digits).expect("digits").parse().expect("a number")
}
