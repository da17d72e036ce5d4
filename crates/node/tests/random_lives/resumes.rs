//! Members that lost their connection and go on with another.

use mortarmq_node::{Answer, Delivery, Failure, Request, Subscribe};
use mortarmq_shard::StartPolicy;
use mortarmq_types::{ConnectionId, DeliveryId, MemberId, Position};
use mortarmq_wire::ErrorCode;
use std::collections::BTreeSet;

use crate::consumers::Subscription;
use crate::life::{Expect, Life};
use crate::record::PathName;

/// What a resume can bring.
#[derive(Clone, Debug)]
pub(crate) struct ComesAgain {
    /// Once each: what was seen, was not confirmed as acked, and was not named as held.
    ids: BTreeSet<DeliveryId>,
    /// The highest position known when it was asked for: what was leased before and is seen for the first time was on its
    /// way when the connection broke.
    pub(crate) resumed_behind: Position,
}

/// A member without a connection.
#[derive(Clone, Debug)]
pub(crate) struct Parted {
    path: PathName,
    member: MemberId,
    window: u64,
    /// Restarts of the broker when it lost its connection.
    restarts: u64,
}

impl Life {
    /// Takes subscriptions from their connections; members that joined can go on elsewhere.
    pub(crate) fn part(&mut self, is_gone: impl Fn(&Subscription) -> bool) {
        let (gone, stay) = std::mem::take(&mut self.subscriptions).into_iter().partition(is_gone);
        self.subscriptions = stay;
        let restarts = self.record.restarts;
        for Subscription { path, member, window, joined, comes_again, .. } in gone {
            if joined || comes_again.is_some() {
                self.parted.push(Parted { path, member, window, restarts });
            }
        }
    }

    /// A member goes on, and names some of what it holds.
    pub(crate) fn resume(&mut self, connection: ConnectionId) {
        if self.parted.is_empty() || self.subscriptions.len() >= 8 {
            return;
        }
        let place = usize::try_from(self.random.below(self.parted.len() as u64)).expect("few");
        let is_mine = !self.random.one_in(8);
        let parted = if is_mine { self.parted.remove(place) } else { self.parted[place].clone() };
        let Parted { path, member, window: before, restarts } = parted;
        let of_member = |id: &DeliveryId| self.record.seen[id].member == member;
        let seen: Vec<DeliveryId> = self.record.seen.keys().filter(|id| of_member(id)).copied().collect();
        let (mut held, mut ids) = (Vec::new(), BTreeSet::new());
        for id in seen {
            if self.random.one_in(3) {
                let seen = &self.record.seen[&id];
                if !self.record.path(&seen.path).acked.contains_key(&seen.place) {
                    ids.insert(id);
                }
            } else {
                held.push(id.to_string());
            }
        }
        let has_let_go = held.is_empty();
        let secret = member.get() + u64::from(!is_mine);
        let options =
            format!("{{\"resume\":{{\"member_id\":{member},\"secret\":{secret},\"held\":[{}]}}}}", held.join(","));
        let window: u16 = *self.random.pick(&[0, 2, 20]);
        let open = self.connections.get_mut(&connection).expect("it is open");
        open.last_subscription += 1;
        let handle = open.last_subscription;
        let request = Request::Subscribe(Subscribe {
            topic: path.0,
            group: path.1.clone(),
            start: StartPolicy::Earliest,
            credit_messages: window,
            credit_bytes: u32::MAX,
            options,
            subscription: handle,
            member: MemberId::new(u64::MAX),
            secret: 0,
        });
        if is_mine {
            self.hear(member);
            self.record.members.get_mut(&member).expect("every member is recorded").window_max =
                before.max(u64::from(window)).max(self.record.members[&member].window_max);
            let comes_again = Some(ComesAgain { ids, resumed_behind: self.record.highest });
            let (joined, pull, window) = (false, None, u64::from(window));
            self.subscriptions.push(Subscription {
                connection,
                handle,
                path,
                member,
                joined,
                window,
                pull,
                comes_again,
            });
            if restarts < self.record.restarts {
                self.record.reach("resumed after a restart");
            }
            if !has_let_go {
                self.record.reach("not sent again");
            }
        }
        self.send(connection, request, vec![Expect::Resume { member, is_mine }]);
    }

    pub(crate) fn judge_resume(&mut self, member: MemberId, is_mine: bool, result: Result<Answer, Failure>) {
        match result {
            Ok(Answer::Subscribed { member: found, secret, .. }) => {
                assert!(is_mine, "a wrong secret was taken");
                assert_eq!((found, secret), (member, member.get()), "a resume repeats member and secret");
                self.subscription_mut(member).expect("its connection is open").joined = true;
                self.record.reach("resumed");
            }
            Err(failure) if is_mine => {
                self.subscriptions.retain(|held| held.member != member);
                let deleted = self.record.topics[&self.record.members[&member].path.0].delete_sent;
                if !(deleted && failure.code == ErrorCode::UnknownTopic) {
                    self.judge_gone(member, &failure);
                    self.record.reach("too late to resume");
                }
            }
            Err(failure) => {
                assert!(matches!(failure.code, ErrorCode::UnknownMember | ErrorCode::UnknownTopic), "{failure:?}");
                self.record.reach("resume with a wrong secret");
            }
            Ok(other) => panic!("a resume is answered with a subscription, not {other:?}"),
        }
    }

    /// A delivery that was seen before: only a resume can bring it, once, unchanged, and only while its lease lives.
    pub(crate) fn absorb_again(&mut self, destination: (ConnectionId, u16), delivery: &Delivery) {
        let id = delivery.delivery_id;
        let seen = self.record.seen[&id].clone();
        let mut all = self.subscriptions.iter_mut();
        let found = all.find(|held| (held.connection, held.handle) == destination).expect("looked at by the caller");
        let comes_again = found.comes_again.as_mut().is_some_and(|again| again.ids.remove(&id));
        assert!(comes_again, "P10: delivery {id} came twice, on {destination:?}");
        assert_eq!(found.member, seen.member, "P5: {id} is another member's");
        let Delivery { attempt, cause, previous, position, .. } = *delivery;
        let same = (attempt, cause, previous, position, (delivery.partition, delivery.seq));
        let before = (seen.attempt, seen.cause, seen.previous, seen.position, seen.place);
        assert_eq!(same, before, "what is sent again is unchanged");
        let last = self.record.path(&seen.path).deliveries[&seen.place].last();
        // While its record was read its lease may have ended, and its message been delivered anew.
        if last != Some(&id) {
            self.record.reach("sent again too late");
        }
        self.record.reach("sent again");
    }
}
