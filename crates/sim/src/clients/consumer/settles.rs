//! What a consumer does with what it is given.

use mortarmq_history::Outcome;
use mortarmq_node::{Answer, Delivery, ErrorCode, Failure, Reply, Request, Single, fold};
use mortarmq_shard::{SettleCode, SettleKind};
use mortarmq_types::{DeliveryId, MemberId};

use super::records::cause;
use super::{Expect, Held, SUBSCRIPTION, Said, What};
use crate::clients::value::{hash_of, read_value, value_of};
use crate::world::{Client, Event, World};

impl World {
    /// A message came.
    pub(super) fn delivered(
        &mut self,
        number: usize,
        delivery: &Delivery,
        lease_ms: u64,
        served_until_us: Option<u64>,
    ) {
        let Some(mut known) = read_value(&delivery.record) else {
            return self.fail("P11: a delivery's record cannot be read".to_owned());
        };
        if known.message.is_empty() {
            let Some(message) = self.lost_value(delivery.topic, &known) else {
                return self.fail(format!("P11: a delivery without its value: {delivery:?}"));
            };
            // It says openly that its value is lost, and is no wrong one: the judge is told of the message, not of the bytes.
            known.hash = hash_of(&value_of(message.parse().unwrap_or(0)));
            known.message = message;
        }
        let place = (delivery.topic, delivery.partition.get(), delivery.seq.get());
        self.delivered_from.insert(place, known.message.clone());
        let id = delivery.delivery_id.get();
        let life = self.era();
        let consumer = &self.consumers[number];
        // On an ordered path a lease ends with one before it of its key; a dead letter may be brought back meanwhile.
        let ends_alone = consumer
            .group
            .is_some_and(|group| known.key.is_none() || !self.topics.get(consumer.topic).groups[group].by_key);
        if !consumer.is_joined || consumer.held.contains_key(&id) {
            // It was on its way when the member left, or is sent again for good measure.
            return;
        }
        if let Some(early_us) = self.is_early(&known.message) {
            return self.fail(format!("message {} came {early_us} us before its delay was over", known.message));
        }
        let held = Held {
            topic: delivery.topic,
            message: known.message.clone(),
            partition: delivery.partition,
            seq: delivery.seq,
            life,
            was_retried: false,
            received_us: self.now_us,
            served_until_us: served_until_us.filter(|_| ends_alone),
        };
        self.record_deliver(number, delivery, known, lease_ms);
        self.tally.operations += 1;
        self.tally.reach(cause(delivery.cause).word());
        if self.era() > 1 && delivery.cause == mortarmq_types::Cause::First {
            self.reach_across("first delivery after a restart", "first delivery after a failover");
        }
        self.consumers[number].held.insert(id, held);
        self.decide(number, id, lease_ms);
    }

    /// What the member was given and has not got is sent to it again, after the answer to its resume.
    pub(super) fn expect_rest(&mut self, number: usize, member: MemberId) {
        let consumer = &self.consumers[number];
        let Some(connection) = consumer.connection else { return };
        let held = consumer.held.keys().copied().collect();
        self.expect_sent(connection, member, &held);
    }

    /// What was sent before the connection broke, and not answered, is sent again.
    pub(super) fn settle_again(&mut self, number: usize) {
        let unanswered = std::mem::take(&mut self.consumers[number].unanswered);
        if !unanswered.is_empty() {
            let all = unanswered.into_iter().map(|id| (id, What::Ack)).collect();
            self.say(number, all);
        }
        let overdue: Vec<u64> = self.consumers[number].plans.keys().copied().collect();
        for token in overdue {
            self.at(self.now_us + 500, Event::Act { client: Client::Consumer(number), token });
        }
    }

    /// What is to become of a delivery, and when.
    pub(super) fn decide(&mut self, number: usize, id: u64, lease_ms: u64) {
        let settings = &self.settings;
        let is_healing = self.is_healing;
        let consumer = &mut self.consumers[number];
        let mut at_us = self.now_us + consumer.chance.delay(10, settings.work_us);
        let roll = consumer.chance.below(1000);
        let shares = [
            settings.nack_permille,
            settings.forget_permille,
            settings.release_permille,
            settings.dead_permille,
            settings.late_permille,
            settings.twice_permille,
            settings.extend_permille,
        ];
        let mut bound = 0;
        let chosen = shares.iter().position(|share| {
            bound += share;
            roll < bound
        });
        let is_letter = consumer.group.is_none();
        let what = match chosen.filter(|_| !is_healing && !is_letter) {
            Some(0) => What::Nack { delay_ms: consumer.chance.below(50) },
            Some(1) => return,
            Some(2) => What::Release,
            Some(3) => What::Dead,
            Some(4) => {
                at_us = self.now_us + (lease_ms + consumer.chance.between(1, 400)) * 1000;
                What::AckLate
            }
            Some(5) => What::AckTwice,
            Some(6) => What::Extend,
            _ => What::Ack,
        };
        let token = consumer.plan(id, what);
        self.at(at_us, Event::Act { client: Client::Consumer(number), token });
    }

    /// Does what was planned, if the consumer can.
    pub(super) fn carry_out(&mut self, number: usize, token: u64) {
        let consumer = &mut self.consumers[number];
        if !consumer.is_joined {
            // Its member goes on elsewhere first.
            return;
        }
        let Some((id, what)) = consumer.plans.remove(&token) else { return };
        let mut all = vec![(id, what.clone())];
        if what == What::Ack && consumer.chance.one_in(3) {
            // Acks of one go come in one request.
            let also: Vec<u64> =
                consumer.plans.iter().filter(|(_, (_, what))| *what == What::Ack).map(|(token, _)| *token).collect();
            for token in also.into_iter().take(50) {
                all.extend(consumer.plans.remove(&token));
            }
            all.sort_by_key(|(id, _)| *id);
        }
        match what {
            What::AckTwice => all.push((id, What::Ack)),
            What::Extend => {
                let lease_us = consumer.chance.delay(1000, 200_000);
                let token = consumer.plan(id, What::Ack);
                self.at(self.now_us + lease_us, Event::Act { client: Client::Consumer(number), token });
            }
            What::Ack | What::AckLate | What::Nack { .. } | What::Dead | What::Release => {}
        }
        self.say(number, all);
    }

    /// Sends settles in one request.
    pub(super) fn say(&mut self, number: usize, all: Vec<(u64, What)>) {
        let call = self.now_ns();
        let consumer = &mut self.consumers[number];
        let Some(connection) = consumer.connection else { return };
        let mut said = Vec::new();
        let mut singles = Vec::new();
        for (delivery_id, what) in all {
            let Some(held) = consumer.held.get(&delivery_id).cloned() else { continue };
            let kind = match &what {
                What::Ack | What::AckLate | What::AckTwice => SettleKind::Ack,
                What::Nack { delay_ms } => SettleKind::Nack {
                    delay_ms: u32::try_from(*delay_ms).unwrap_or(u32::MAX),
                    error: "not now".to_owned(),
                },
                What::Dead => SettleKind::DeadLetter { error: "never".to_owned() },
                What::Release => SettleKind::Release,
                What::Extend => SettleKind::Extend,
            };
            let (partition, seq) = (held.partition, held.seq);
            singles.push(Single { partition, seq, delivery_id: DeliveryId::new(delivery_id), kind });
            said.push(Said { delivery_id, held, what, call });
        }
        if said.is_empty() {
            return;
        }
        self.tally.operations += said.len() as u64;
        consumer.expects.push_back(Expect::Settled(said));
        let request = Request::Settle { subscription: SUBSCRIPTION, items: fold(singles) };
        self.send(connection, vec![request]);
    }

    pub(super) fn settled(&mut self, number: usize, all: Vec<Said>, reply: Reply) {
        let position = reply.position;
        match reply.result {
            Ok(Answer::Settled(codes)) if codes.len() == all.len() => {
                let life = self.era();
                for (said, code) in all.into_iter().zip(codes) {
                    let outcome = if code == SettleCode::Done { Outcome::Ok } else { Outcome::Refused };
                    self.record_settle(number, &said, Some(position), outcome, Some(self.now_ns()));
                    self.note_settled(&said, outcome, life);
                    self.expect_lease_over(number, &said, outcome);
                    if said.what != What::Extend || outcome != Outcome::Ok {
                        self.consumers[number].held.remove(&said.delivery_id);
                    }
                }
            }
            Ok(other) => self.fail(format!("{} settles were answered with {other:?}", all.len())),
            Err(failure) => self.settle_refused(number, all, &failure),
        }
    }

    /// An ack that comes within the lease is taken (P5): time in which the node is down is none, and a member that is there
    /// has what it holds. What an operator moves away meanwhile is another matter.
    fn expect_lease_over(&mut self, number: usize, said: &Said, outcome: Outcome) {
        let is_plain = outcome == Outcome::Refused && said.what == What::Ack && !said.held.was_retried;
        let (Some(until_us), Some(served_us)) = (said.held.served_until_us.filter(|_| is_plain), self.served_us())
        else {
            return;
        };
        let left_us = until_us.saturating_sub(served_us);
        if left_us > 0 && !self.operator.may_move(self.consumers[number].topic, said.held.received_us) {
            let id = said.delivery_id;
            self.fail(format!("P5: the ack of delivery {id} is refused, and its lease lasts for {left_us} us more"));
        }
    }

    pub(super) fn note_settled(&mut self, said: &Said, outcome: Outcome, life: u64) {
        let is_ok = outcome == Outcome::Ok;
        if is_ok && said.held.was_retried {
            self.tally.reach("ack retried after a lost answer");
            if self.has_peers() && said.held.life != life {
                self.tally.reach("ack retried after a failover");
            }
        }
        if is_ok && said.held.life != life {
            self.reach_across("lease alive across a restart", "lease alive across a failover");
        }
        if !is_ok && said.what == What::AckLate {
            self.tally.reach("late ack refused");
        }
        let is_later = if self.has_peers() { said.held.life != life } else { life > 1 };
        if is_ok && said.what == What::Dead && is_later {
            self.reach_across("dead letter around a restart", "dead letter during a failover");
        }
    }

    pub(super) fn settle_refused(&mut self, number: usize, all: Vec<Said>, failure: &Failure) {
        let is_unknown = failure.outcome == mortarmq_node::Outcome::Unknown;
        let outcome = if is_unknown { Outcome::Unknown } else { Outcome::Refused };
        let ret = (!is_unknown).then(|| self.now_ns());
        for said in &all {
            self.record_settle(number, said, None, outcome, ret);
        }
        if failure.code == ErrorCode::UnknownTopic {
            return self.member_is_gone(number);
        }
        if self.leave_if_not_served(number, failure).is_some() && !self.has_peers() {
            return;
        }
        // Back-pressure: it is said again, unless the member is over by now.
        for said in all {
            if !self.consumers[number].held.contains_key(&said.delivery_id) {
                continue;
            }
            let token = self.consumers[number].plan(said.delivery_id, said.what);
            let at_us = self.now_us + 50_000;
            self.at(at_us, Event::Act { client: Client::Consumer(number), token });
        }
    }
}
