//! Consumers: pushed to or pulling; they ack, refuse, renew, give back, forget, are late, ack twice; they lose connections and
//! resume, leave and die.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use mortarmq_history::{Cause, Deliver, Extend, Nack, NackTo, Operate, OperateKind, Outcome, Record, Settle};
use mortarmq_node::{Answer, Delivery, ErrorCode, Failure, Reply, Request, Single, Subscribe, fold};
use mortarmq_shard::{SettleCode, SettleKind, StartPolicy};
use mortarmq_types::{ConnectionId, DeliveryId, MemberId, Partition, Seq, TopicIncarnation};

use super::value::read_value;
use crate::history::path_name;
use crate::random::Random;
use crate::topics::LETTERS_GROUP;
use crate::world::{Client, Event, ToClient, World};

/// A consumer.
pub(crate) struct Consumer {
    pub(crate) number: usize,
    pub(crate) topic: usize,
    /// Its group; none reads dead letters.
    pub(crate) group: Option<usize>,
    connection: Option<ConnectionId>,
    incarnation: Option<TopicIncarnation>,
    /// Counts members: each is another consumer to a history.
    member_number: u64,
    member: Option<Member>,
    is_joined: bool,
    expects: VecDeque<Expect>,
    /// What it was given, by delivery.
    held: BTreeMap<u64, Held>,
    /// What it means to do, by token.
    plans: BTreeMap<u64, (u64, What)>,
    last_token: u64,
    pull_is_open: bool,
    /// Acks without an answer, to be sent again.
    unanswered: Vec<u64>,
    /// When the last request was sent that was answered: the member lived then.
    heard_ns: u64,
    next_heartbeat_us: u64,
    /// When it asked to join.
    joined_call_ns: u64,
    chance: Random,
}

/// What lets a member go on elsewhere.
#[derive(Clone, Copy, Debug)]
struct Member {
    id: MemberId,
    secret: u64,
    topic: TopicIncarnation,
}

/// A delivery.
#[derive(Clone, Debug)]
struct Held {
    topic: TopicIncarnation,
    message: String,
    partition: Partition,
    seq: Seq,
    life: u64,
    was_retried: bool,
}

/// What becomes of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Ack,
    AckLate,
    AckTwice,
    Nack { delay_ms: u64 },
    Dead,
    Release,
    Extend,
}

#[derive(Debug)]
enum Expect {
    Found,
    Joined { is_resume: bool },
    Settled(Vec<Said>),
    Heartbeat { call: u64 },
    Left { call: u64 },
}

/// One settle that waits for its answer.
#[derive(Clone, Debug)]
struct Said {
    delivery_id: u64,
    held: Held,
    what: What,
    call: u64,
}

impl Consumer {
    pub(crate) fn new(number: usize, topic: usize, group: Option<usize>, chance: Random) -> Self {
        Self {
            number,
            topic,
            group,
            connection: None,
            incarnation: None,
            member_number: 1,
            member: None,
            is_joined: false,
            expects: VecDeque::new(),
            held: BTreeMap::new(),
            plans: BTreeMap::new(),
            last_token: HEARTBEAT,
            pull_is_open: false,
            unanswered: Vec::new(),
            heard_ns: 0,
            next_heartbeat_us: 0,
            joined_call_ns: 0,
            chance,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.plans.is_empty() && self.expects.iter().all(|expect| matches!(expect, Expect::Heartbeat { .. }))
    }

    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        self.connection
    }

    fn name(&self) -> String {
        format!("c{}.{}", self.number, self.member_number)
    }

    fn plan(&mut self, delivery_id: u64, what: What) -> u64 {
        self.last_token += 1;
        self.plans.insert(self.last_token, (delivery_id, what));
        self.last_token
    }
}

impl World {
    pub(crate) fn connect_consumer(&mut self, number: usize) {
        if self.consumers[number].connection.is_some() {
            return;
        }
        let client = Client::Consumer(number);
        let Some(connection) = self.open_link(client, 0) else {
            let at_us = self.now_us + self.net.delay(10_000, 60_000);
            return self.at(at_us, Event::Connect { client });
        };
        self.consumers[number].connection = Some(connection);
        self.find_topic(number);
    }

    fn find_topic(&mut self, number: usize) {
        let consumer = &mut self.consumers[number];
        let Some(connection) = consumer.connection else { return };
        consumer.expects.push_back(Expect::Found);
        let request = match consumer.group {
            Some(_) => self.topics.declare(consumer.topic),
            None => Request::Metadata { names: vec![format!("$dlq.{}", self.topics.get(consumer.topic).name)] },
        };
        self.send(connection, vec![request]);
    }

    fn find_later(&mut self, number: usize) {
        let at_us = self.now_us + self.consumers[number].chance.delay(20_000, 100_000);
        self.at(at_us, Event::Act { client: Client::Consumer(number), token: FIND });
    }

    /// Joins as a new member, or goes on as the one that it was.
    fn join(&mut self, number: usize) {
        let (member, secret) = (self.net.next() >> 1 | 1, self.net.next() >> 1);
        let now_ns = self.now_ns();
        let consumer = &mut self.consumers[number];
        let (Some(connection), Some(topic)) = (consumer.connection, consumer.incarnation) else { return };
        if consumer.member.is_some_and(|member| member.topic != topic) {
            consumer.member = None;
        }
        let (group, options, window) = match consumer.group {
            Some(group) => {
                let plan = &self.topics.get(consumer.topic).groups[group];
                (plan.name.clone(), plan.options.clone(), plan.window)
            }
            None => (LETTERS_GROUP.to_owned(), String::new(), 64),
        };
        let resume = consumer.member.map(|member| {
            let held: Vec<String> = consumer.held.keys().map(u64::to_string).collect();
            format!(
                "\"resume\":{{\"member_id\":{},\"secret\":{},\"held\":[{}]}}",
                member.id,
                member.secret,
                held.join(",")
            )
        });
        let is_resume = resume.is_some();
        let options: Vec<String> = [(!options.is_empty()).then_some(options), resume].into_iter().flatten().collect();
        consumer.joined_call_ns = now_ns;
        consumer.expects.push_back(Expect::Joined { is_resume });
        let request = Request::Subscribe(Subscribe {
            topic,
            group,
            start: StartPolicy::Earliest,
            credit_messages: window,
            credit_bytes: u32::MAX,
            options: format!("{{{}}}", options.join(",")),
            subscription: SUBSCRIPTION,
            member: MemberId::new(member),
            secret,
        });
        self.send(connection, vec![request]);
    }

    pub(crate) fn consumer_lost(&mut self, number: usize) {
        let consumer = &mut self.consumers[number];
        let topic = consumer.incarnation.take();
        consumer.connection = None;
        consumer.is_joined = false;
        consumer.pull_is_open = false;
        for expect in std::mem::take(&mut consumer.expects) {
            match expect {
                Expect::Settled(said) => {
                    for said in said {
                        self.record_settle(number, &said, None, Outcome::Unknown, None);
                        let consumer = &mut self.consumers[number];
                        if said.what == What::Ack || said.what == What::AckTwice || said.what == What::AckLate {
                            consumer.unanswered.push(said.delivery_id);
                            consumer.held.insert(said.delivery_id, Held { was_retried: true, ..said.held });
                        }
                    }
                }
                Expect::Left { call } => {
                    self.record_left(number, call, None);
                    self.be_another(number);
                }
                // It may have joined, and been given messages that never came.
                Expect::Joined { is_resume: false } => self.joined_in_vain(number, topic),
                Expect::Found | Expect::Joined { is_resume: true } | Expect::Heartbeat { .. } => {}
            }
        }
    }

    /// Nobody knows whether a member was made; it is never heard of again.
    fn joined_in_vain(&mut self, number: usize, topic: Option<TopicIncarnation>) {
        let Some(topic) = topic else { return };
        let call = self.consumers[number].joined_call_ns;
        self.record_left_of(number, topic, call, None);
        self.be_another(number);
    }

    /// The member is over, and the consumer another one.
    fn be_another(&mut self, number: usize) {
        let consumer = &mut self.consumers[number];
        consumer.member = None;
        consumer.is_joined = false;
        consumer.member_number += 1;
        consumer.held.clear();
        consumer.plans.clear();
        consumer.unanswered.clear();
        consumer.pull_is_open = false;
    }

    /// A consumer dies with what it holds.
    pub(crate) fn die(&mut self, number: usize) {
        let Some(connection) = self.consumers.get(number).and_then(|consumer| consumer.connection) else { return };
        let now_ns = self.now_ns();
        let expects = std::mem::take(&mut self.consumers[number].expects);
        for expect in expects {
            match expect {
                Expect::Settled(said) => {
                    for said in said {
                        self.record_settle(number, &said, None, Outcome::Unknown, None);
                    }
                }
                Expect::Left { call } => self.record_left(number, call, None),
                Expect::Joined { is_resume: false } => {
                    let topic = self.consumers[number].incarnation;
                    self.joined_in_vain(number, topic);
                }
                Expect::Found | Expect::Joined { is_resume: true } | Expect::Heartbeat { .. } => {}
            }
        }
        self.record_left(number, now_ns, None);
        self.be_another(number);
        self.break_link(connection);
    }

    /// A consumer leaves.
    pub(crate) fn leave(&mut self, number: usize) {
        let now_ns = self.now_ns();
        let Some(consumer) = self.consumers.get_mut(number).filter(|consumer| consumer.is_joined) else { return };
        let Some(connection) = consumer.connection else { return };
        consumer.is_joined = false;
        consumer.plans.clear();
        consumer.expects.push_back(Expect::Left { call: now_ns });
        self.send(connection, vec![Request::Heartbeat { subscription: SUBSCRIPTION, leave: true }]);
    }

    pub(crate) fn consumer_receives(&mut self, number: usize, message: ToClient) {
        match message {
            ToClient::Replies(replies) => {
                for reply in replies {
                    let Some(expect) = self.consumers[number].expects.pop_front() else {
                        return self.fail(format!("consumer {number} got an answer to nothing: {reply:?}"));
                    };
                    self.consumer_told(number, expect, reply);
                }
            }
            ToClient::Delivery { delivery, lease_ms } => self.delivered(number, &delivery, lease_ms),
            ToClient::PullEnded { result } => {
                self.consumers[number].pull_is_open = false;
                if let Err(failure) = &result
                    && failure.code == ErrorCode::UnknownMember
                {
                    return self.member_is_gone(number);
                }
                let at_us = self.now_us + self.consumers[number].chance.delay(100, 5_000);
                self.at(at_us, Event::Act { client: Client::Consumer(number), token: PULL });
            }
        }
    }

    fn consumer_told(&mut self, number: usize, expect: Expect, reply: Reply) {
        match expect {
            Expect::Found => self.consumer_found(number, reply),
            Expect::Joined { is_resume } => self.consumer_joined(number, is_resume, reply),
            Expect::Settled(said) => self.settled(number, said, reply),
            Expect::Heartbeat { call } => {
                if reply.result.is_ok() {
                    self.consumers[number].heard_ns = call;
                }
                if let Err(failure) = &reply.result
                    && failure.code == ErrorCode::UnknownMember
                {
                    self.member_is_gone(number);
                }
            }
            Expect::Left { call } => {
                let position = reply.result.is_ok().then_some(reply.position);
                self.record_left(number, call, position);
                self.be_another(number);
                self.find_later(number);
            }
        }
    }

    fn consumer_found(&mut self, number: usize, reply: Reply) {
        let topic = self.consumers[number].topic;
        match reply.result {
            Ok(Answer::Declared { topic: incarnation, .. }) => {
                if self.topics.learn(topic, incarnation) {
                    self.topic_is_new(incarnation);
                }
                if self.topics.get(topic).current == Some(incarnation) {
                    self.consumers[number].incarnation = Some(incarnation);
                    return self.join(number);
                }
            }
            Ok(Answer::Metadata(view)) => {
                if let (Some(found), Some(source)) = (view.topics.first(), self.topics.get(topic).current) {
                    self.letters.insert(found.topic, source);
                    self.consumers[number].incarnation = Some(found.topic);
                    return self.join(number);
                }
            }
            Ok(other) => return self.fail(format!("a consumer asked for its topic and got {other:?}")),
            Err(_) => {}
        }
        self.find_later(number);
    }

    fn consumer_joined(&mut self, number: usize, is_resume: bool, reply: Reply) {
        match reply.result {
            Ok(Answer::Subscribed { member, secret, .. }) => {
                let life = self.nodes[0].life;
                let consumer = &mut self.consumers[number];
                let Some(topic) = consumer.incarnation else { return };
                consumer.is_joined = true;
                consumer.heard_ns = consumer.joined_call_ns;
                consumer.member = Some(Member { id: member, secret, topic });
                if is_resume {
                    self.tally.reach("resumed");
                    let consumer = &self.consumers[number];
                    if consumer.held.values().any(|held| held.life != life) {
                        self.tally.reach("resumed after a restart");
                    }
                    self.settle_again(number);
                }
                self.consumers[number].next_heartbeat_us = 0;
                self.heartbeat(number);
                self.pull(number);
            }
            Ok(other) => self.fail(format!("a subscribe was answered with {other:?}")),
            Err(failure) if failure.code == ErrorCode::UnknownMember => {
                if !is_resume {
                    return self.fail(format!("a new member was refused: {failure:?}"));
                }
                self.member_is_gone(number);
            }
            Err(_) => {
                self.consumers[number].incarnation = None;
                self.find_later(number);
            }
        }
    }

    /// Its session is over: it joins as another one.
    fn member_is_gone(&mut self, number: usize) {
        if self.consumers[number].expects.iter().any(|expect| matches!(expect, Expect::Left { .. })) {
            // It is leaving, which is answered by itself.
            return;
        }
        if self.consumers[number].member.is_some() {
            self.tally.reach("session over");
            let heard_ns = self.consumers[number].heard_ns;
            self.record_left(number, heard_ns, None);
            self.be_another(number);
        }
        self.find_later(number);
    }

    /// What was sent before the connection broke, and not answered, is sent again.
    fn settle_again(&mut self, number: usize) {
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

    /// Says that it lives, and when it does so next. One chain of heartbeats is enough.
    fn heartbeat(&mut self, number: usize) {
        let (now_us, now_ns, every_us) = (self.now_us, self.now_ns(), self.heartbeat_us(number));
        let consumer = &mut self.consumers[number];
        let (true, Some(connection)) = (consumer.is_joined, consumer.connection) else { return };
        if now_us < consumer.next_heartbeat_us {
            return;
        }
        consumer.next_heartbeat_us = now_us + every_us;
        self.at(now_us + every_us, Event::Act { client: Client::Consumer(number), token: HEARTBEAT });
        let consumer = &mut self.consumers[number];
        consumer.expects.push_back(Expect::Heartbeat { call: now_ns });
        self.send(connection, vec![Request::Heartbeat { subscription: SUBSCRIPTION, leave: false }]);
    }

    fn heartbeat_us(&self, number: usize) -> u64 {
        let consumer = &self.consumers[number];
        let session_ms =
            consumer.group.map_or(10_000, |group| self.topics.get(consumer.topic).groups[group].session_ms);
        session_ms * 1000 / 3
    }

    fn pull(&mut self, number: usize) {
        let consumer = &mut self.consumers[number];
        let pulls = consumer.group.is_some_and(|group| self.topics.get(consumer.topic).groups[group].window == 0);
        let Some(connection) = consumer.connection.filter(|_| pulls && consumer.is_joined && !consumer.pull_is_open)
        else {
            return;
        };
        consumer.pull_is_open = true;
        let max_messages = *consumer.chance.pick(&[1, 5, 50]);
        let wait_ms = *consumer.chance.pick(&[0, 20, 300]);
        let request = Request::Pull { subscription: SUBSCRIPTION, max_messages, max_bytes: 0, min_bytes: 1, wait_ms };
        self.send(connection, vec![request]);
    }

    pub(crate) fn consumer_acts(&mut self, number: usize, token: u64) {
        match token {
            FIND => {
                let consumer = &self.consumers[number];
                let waits = consumer.expects.iter().any(|expect| !matches!(expect, Expect::Heartbeat { .. }));
                if !consumer.is_joined && !waits {
                    self.find_topic(number);
                }
            }
            PULL => self.pull(number),
            HEARTBEAT => self.heartbeat(number),
            _ => self.carry_out(number, token),
        }
    }

    /// A message came.
    fn delivered(&mut self, number: usize, delivery: &Delivery, lease_ms: u64) {
        let Some(known) = read_value(&delivery.record) else {
            return self.fail("P11: a delivery's record cannot be read".to_owned());
        };
        let id = delivery.delivery_id.get();
        let life = self.nodes[0].life;
        let consumer = &mut self.consumers[number];
        if !consumer.is_joined || consumer.held.contains_key(&id) {
            // It was on its way when the member left, or is sent again for good measure.
            return;
        }
        let held = Held {
            topic: delivery.topic,
            message: known.message.clone(),
            partition: delivery.partition,
            seq: delivery.seq,
            life,
            was_retried: false,
        };
        let (call, ret) = ((self.samples.before(delivery.position.commit_index) + 1) * 1000, self.now_ns());
        let (incarnation, path) = self.path_of(number, delivery.topic);
        let client = self.consumers[number].name();
        let record = Record::Deliver(Deliver {
            client: Some(Cow::Owned(client)),
            path: Cow::Owned(path),
            msg: Cow::Owned(known.message),
            key: known.key.map(Cow::Owned),
            call: call.min(ret),
            ret: Some(ret),
            partition: Some(u32::from(delivery.partition.get())),
            seq: Some(delivery.seq.get()),
            delivery_id: Some(id),
            attempt: Some(delivery.attempt.get()),
            cause: Some(cause(delivery.cause)),
            prev: (delivery.previous != DeliveryId::ZERO).then(|| delivery.previous.get()),
            // The node's clock counts milliseconds.
            lease_ms: Some(lease_ms.saturating_sub(1)),
            hash: Some(Cow::Owned(known.hash)),
            commit: Some(delivery.position.commit_index.get()),
            epoch: Some(delivery.position.epoch.get()),
            origin: known.origin.filter(|_| self.consumers[number].group.is_none()).map(|origin| {
                // Histories call an incarnation by its own name.
                let group = origin.rsplit_once('/').map_or("", |(_, group)| group);
                let name = self.topics.incarnation(incarnation).map_or("", |known| known.name.as_str());
                Cow::Owned(format!("{name}/{group}"))
            }),
            txn: None,
        });
        self.histories.record(incarnation, &record);
        self.tally.operations += 1;
        self.tally.reach(cause(delivery.cause).word());
        if self.nodes[0].life > 1 && delivery.cause == mortarmq_types::Cause::First {
            self.tally.reach("first delivery after a restart");
        }
        self.consumers[number].held.insert(id, held);
        self.decide(number, id, lease_ms);
    }

    /// What is to become of a delivery, and when.
    fn decide(&mut self, number: usize, id: u64, lease_ms: u64) {
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
    fn carry_out(&mut self, number: usize, token: u64) {
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
    fn say(&mut self, number: usize, all: Vec<(u64, What)>) {
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

    fn settled(&mut self, number: usize, all: Vec<Said>, reply: Reply) {
        let position = reply.position;
        match reply.result {
            Ok(Answer::Settled(codes)) if codes.len() == all.len() => {
                let life = self.nodes[0].life;
                for (said, code) in all.into_iter().zip(codes) {
                    let outcome = if code == SettleCode::Done { Outcome::Ok } else { Outcome::Refused };
                    self.record_settle(number, &said, Some(position), outcome, Some(self.now_ns()));
                    self.note_settled(&said, outcome, life);
                    if said.what != What::Extend || outcome != Outcome::Ok {
                        self.consumers[number].held.remove(&said.delivery_id);
                    }
                }
            }
            Ok(other) => self.fail(format!("{} settles were answered with {other:?}", all.len())),
            Err(failure) => self.settle_refused(number, all, &failure),
        }
    }

    fn note_settled(&mut self, said: &Said, outcome: Outcome, life: u64) {
        let is_ok = outcome == Outcome::Ok;
        if is_ok && said.held.was_retried {
            self.tally.reach("ack retried after a lost answer");
        }
        if is_ok && said.held.life != life {
            self.tally.reach("lease alive across a restart");
        }
        if !is_ok && said.what == What::AckLate {
            self.tally.reach("late ack refused");
        }
        if is_ok && said.what == What::Dead && self.nodes[0].life > 1 {
            self.tally.reach("dead letter around a restart");
        }
    }

    fn settle_refused(&mut self, number: usize, all: Vec<Said>, failure: &Failure) {
        let is_unknown = failure.outcome == mortarmq_node::Outcome::Unknown;
        let outcome = if is_unknown { Outcome::Unknown } else { Outcome::Refused };
        let ret = (!is_unknown).then(|| self.now_ns());
        for said in &all {
            self.record_settle(number, said, None, outcome, ret);
        }
        if failure.code == ErrorCode::UnknownMember || failure.code == ErrorCode::UnknownTopic {
            return self.member_is_gone(number);
        }
        // Back-pressure: it is said again.
        for said in all {
            let token = self.consumers[number].plan(said.delivery_id, said.what);
            let at_us = self.now_us + 50_000;
            self.at(at_us, Event::Act { client: Client::Consumer(number), token });
        }
    }

    fn path_of(&self, number: usize, topic: TopicIncarnation) -> (TopicIncarnation, String) {
        let incarnation = self.letters.get(&topic).copied().unwrap_or(topic);
        let name = path_name(&self.topics, incarnation, self.consumers[number].group).unwrap_or_default();
        (incarnation, name)
    }

    fn record_settle(
        &mut self,
        number: usize,
        said: &Said,
        position: Option<mortarmq_types::Position>,
        outcome: Outcome,
        ret: Option<u64>,
    ) {
        let (incarnation, path) = self.path_of(number, said.held.topic);
        let settle = Settle {
            client: Some(Cow::Owned(self.consumers[number].name())),
            path: Cow::Owned(path),
            msg: Cow::Owned(said.held.message.clone()),
            delivery_id: Some(said.delivery_id),
            call: said.call,
            ret,
            outcome,
            commit: position.map(|position| position.commit_index.get()),
            epoch: position.map(|position| position.epoch.get()),
            txn: None,
        };
        let record = match said.what {
            What::Ack | What::AckLate | What::AckTwice => Record::Ack(settle),
            What::Nack { .. } => Record::Nack(Nack { settle, to: NackTo::Retry }),
            What::Dead => Record::Nack(Nack { settle, to: NackTo::Dead }),
            What::Release => Record::Nack(Nack { settle, to: NackTo::Release }),
            What::Extend => Record::Extend(Extend { settle, lease_ms: None }),
        };
        self.histories.record(incarnation, &record);
    }

    fn record_left(&mut self, number: usize, call: u64, position: Option<mortarmq_types::Position>) {
        let Some(member) = self.consumers[number].member else { return };
        self.record_left_of(number, member.topic, call, position);
    }

    fn record_left_of(
        &mut self,
        number: usize,
        topic: TopicIncarnation,
        call: u64,
        position: Option<mortarmq_types::Position>,
    ) {
        let (incarnation, path) = self.path_of(number, topic);
        let record = Record::Operate(Operate {
            client: Some(Cow::Owned(self.consumers[number].name())),
            kind: OperateKind::Leave,
            path: Cow::Owned(path),
            msg: None,
            call,
            ret: position.is_some().then(|| self.now_ns()),
            outcome: if position.is_some() { Outcome::Ok } else { Outcome::Unknown },
            commit: position.map(|position| position.commit_index.get()),
            epoch: position.map(|position| position.epoch.get()),
        });
        self.histories.record(incarnation, &record);
    }
}

fn cause(cause: mortarmq_types::Cause) -> Cause {
    match cause {
        mortarmq_types::Cause::First => Cause::First,
        mortarmq_types::Cause::LeaseExpired => Cause::LeaseExpired,
        mortarmq_types::Cause::Nacked => Cause::Nacked,
        mortarmq_types::Cause::Released => Cause::Released,
        mortarmq_types::Cause::ConsumerLost => Cause::ConsumerLost,
        mortarmq_types::Cause::Redriven => Cause::Redriven,
        mortarmq_types::Cause::Replayed => Cause::Replayed,
    }
}

/// Each connection has one subscription.
const SUBSCRIPTION: u16 = 1;
const FIND: u64 = 1;
const PULL: u64 = 2;
const HEARTBEAT: u64 = 3;
