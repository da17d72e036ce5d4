//! Consumers: pushed to or pulling; they ack, refuse, renew, give back, forget, are late, ack twice; they lose connections and
//! resume, leave and die.

mod ends;
mod records;
mod settles;

use std::collections::{BTreeMap, VecDeque};

use mortarmq_history::Outcome;
use mortarmq_node::{Answer, ErrorCode, Reply, Request, Subscribe};
use mortarmq_shard::{Setting, StartPolicy};
use mortarmq_types::{ConnectionId, MemberId, Partition, Seq, TopicIncarnation};

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
    /// Pulls of members that are over, whose answers are still to come.
    forgotten_pulls: u64,
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
    received_us: u64,
    /// When its lease is over, in time in which its node was up; none of what may end earlier.
    served_until_us: Option<u64>,
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
            forgotten_pulls: 0,
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

    /// What keeps it from being done.
    pub(crate) fn what_is_open(&self) -> String {
        let waits: Vec<&Expect> =
            self.expects.iter().filter(|expect| !matches!(expect, Expect::Heartbeat { .. })).collect();
        format!(
            "consumer {} (joined: {}) waits for {waits:?} and means to do {:?}",
            self.number, self.is_joined, self.plans
        )
    }

    /// Whether it waits for an answer.
    pub(crate) fn waits(&self) -> bool {
        !self.expects.is_empty()
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
        let Some(connection) = self.open_link(client) else {
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
        let consumer = &self.consumers[number];
        if consumer.member.is_some_and(|member| Some(member.topic) != consumer.incarnation) {
            // Its topic is gone, and all that it held with it.
            let heard_ns = consumer.heard_ns;
            self.record_left(number, heard_ns, None);
            self.be_another(number);
        }
        let resumed = self.consumers[number].member;
        self.join_as(number, resumed);
    }

    /// Joins as a member that it was, or as a new one.
    fn join_as(&mut self, number: usize, resumed: Option<Member>) {
        let (member, secret) = (self.net.next() >> 1 | 1, self.net.next() >> 1);
        let now_ns = self.now_ns();
        let consumer = &mut self.consumers[number];
        let (Some(connection), Some(topic)) = (consumer.connection, consumer.incarnation) else { return };
        let (group, options, window) = match consumer.group {
            Some(group) => {
                let plan = &self.topics.get(consumer.topic).groups[group];
                (plan.name.clone(), plan.options.clone(), plan.window)
            }
            None => (LETTERS_GROUP.to_owned(), String::new(), 64),
        };
        let resume = resumed.map(|member| {
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
        (consumer.pull_is_open, consumer.forgotten_pulls) = (false, 0);
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
            ToClient::Delivery { delivery, lease_ms, served_until_us } => {
                self.delivered(number, &delivery, lease_ms, served_until_us);
            }
            ToClient::PullEnded { .. } if self.consumers[number].forgotten_pulls > 0 => {
                self.consumers[number].forgotten_pulls -= 1;
            }
            ToClient::PullEnded { result } => {
                self.consumers[number].pull_is_open = false;
                if let Err(failure) = &result
                    && let Some(()) = self.leave_if_not_served(number, failure)
                {
                    return;
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
                if let Err(failure) = &reply.result {
                    self.leave_if_not_served(number, failure);
                }
            }
            Expect::Left { call } => {
                let position = reply.result.is_ok().then_some(reply.position);
                self.record_left(number, call, position);
                self.be_another(number);
                if position.is_none() {
                    // Its subscription may stand, and with it the number: it ends with its connection.
                    let connection = self.consumers[number].connection;
                    return self.go_elsewhere(connection);
                }
                if !self.consumers[number].expects.iter().any(|expect| matches!(expect, Expect::Joined { .. })) {
                    self.find_later(number);
                }
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
            Err(failure) => {
                if self.sends_elsewhere(&failure) {
                    let connection = self.consumers[number].connection;
                    return self.go_elsewhere(connection);
                }
            }
        }
        self.find_later(number);
    }

    fn consumer_joined(&mut self, number: usize, is_resume: bool, reply: Reply) {
        match reply.result {
            Ok(Answer::Subscribed { member, secret, .. }) => {
                let life = self.era();
                let consumer = &mut self.consumers[number];
                let Some(topic) = consumer.incarnation else { return };
                consumer.is_joined = true;
                consumer.heard_ns = consumer.joined_call_ns;
                consumer.member = Some(Member { id: member, secret, topic });
                let (of_topic, group) = (consumer.topic, consumer.group);
                group.into_iter().for_each(|group| self.topics.get_mut(of_topic).groups[group].is_made = true);
                if !is_resume {
                    // Whatever was meant to be done was another member's.
                    self.consumers[number].plans.clear();
                }
                if is_resume {
                    self.tally.reach("resumed");
                    let consumer = &self.consumers[number];
                    if consumer.held.values().any(|held| held.life != life) {
                        self.reach_across("resumed after a restart", "resumed after a failover");
                    }
                    self.expect_rest(number, member);
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
            Err(failure) => {
                let topic = self.consumers[number].incarnation.take();
                if !is_resume && failure.outcome == mortarmq_node::Outcome::Unknown {
                    self.joined_in_vain(number, topic);
                }
                if self.sends_elsewhere(&failure) {
                    let connection = self.consumers[number].connection;
                    return self.go_elsewhere(connection);
                }
                self.find_later(number);
            }
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
        self.session_ms(number) * 1000 / 3
    }

    /// How long its node waits for a word of it. The group of dead letters keeps what groups have from the start.
    fn session_ms(&self, number: usize) -> u64 {
        let consumer = &self.consumers[number];
        consumer.group.map_or_else(
            || Setting::SessionMs.default_value(),
            |group| self.topics.get(consumer.topic).groups[group].session_ms,
        )
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
}

/// Each connection has one subscription.
const SUBSCRIPTION: u16 = 1;
const FIND: u64 = 1;
const PULL: u64 = 2;
const HEARTBEAT: u64 = 3;
