//! A consumer: a member that settles what it is sent, keeps its session alive, and resumes elsewhere when its node is gone.

use std::collections::{BTreeMap, VecDeque};

use mortarmq_node::{Answer, Delivery, ErrorCode, Reply, Request, Subscribe};
use mortarmq_shard::{SettleCode, SettleItem, SettleKind, StartPolicy};
use mortarmq_types::{DeliveryId, MemberId, Partition, Seq, TopicIncarnation};

use super::clients::{Line, PATIENCE_US};
use super::record::{Place, Said};
use super::world::{Event, World};

pub(crate) struct Consumer {
    pub(crate) line: Line,
    topic: TopicIncarnation,
    /// Options of the group, as JSON without the braces.
    settings: &'static str,
    member: Option<u64>,
    joined: bool,
    held: BTreeMap<DeliveryId, Held>,
    /// What was asked on this connection and is not answered, in order, with the time.
    asked: VecDeque<(u64, Asked)>,
    heartbeat_us: u64,
    pub(crate) is_careful: bool,
    /// Whether it settles nothing.
    pub(crate) holds: bool,
    /// Until then it does nothing.
    pub(crate) sleeps_until_us: u64,
}

#[derive(Clone, Debug)]
struct Held {
    place: Place,
    settle_us: u64,
    wants: Option<SettleKind>,
    is_asked: bool,
}

#[derive(Clone, Debug)]
enum Asked {
    Subscribe { member: u64 },
    Settle { delivery: DeliveryId, kind: SettleKind },
    Heartbeat,
}

impl Consumer {
    pub(crate) fn new(me: usize, node: usize, topic: TopicIncarnation, settings: &'static str) -> Self {
        Self {
            line: Line::new(me, node),
            topic,
            settings,
            member: None,
            joined: false,
            held: BTreeMap::new(),
            asked: VecDeque::new(),
            heartbeat_us: 0,
            is_careful: false,
            holds: false,
            sleeps_until_us: 0,
        }
    }

    pub(crate) fn wakes(&mut self, world: &mut World) {
        // Whatever it finds to do, it looks again soon.
        world.at(LOOK_US, Event::Wake { client: self.line.me });
        if world.now_us < self.sleeps_until_us {
            return;
        }
        if self.asked.front().is_some_and(|(since_us, _)| *since_us + PATIENCE_US <= world.now_us) {
            world.record.reach("a consumer heard nothing");
            self.go_elsewhere(world);
        }
        if self.line.connection.is_none() {
            return self.subscribe(world);
        }
        if !self.joined {
            return;
        }
        if world.now_us >= self.heartbeat_us {
            self.heartbeat_us = world.now_us + SESSION_US / 3;
            self.ask(world, Asked::Heartbeat, Request::Heartbeat { subscription: 1, leave: false });
        }
        if self.holds {
            return;
        }
        let due: Vec<_> =
            self.held.iter().filter(|(_, held)| !held.is_asked && held.settle_us <= world.now_us).collect();
        let due: Vec<_> = due.into_iter().map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.settle(world, id));
    }

    fn subscribe(&mut self, world: &mut World) {
        let Some(connection) = self.line.open(world) else { return };
        let (options, member) = match self.member {
            None => (format!("{{{}}}", self.settings), 1 + world.random.below(1 << 40)),
            Some(member) => {
                let held: Vec<String> = self.held.keys().map(|id| id.get().to_string()).collect();
                let held = held.join(",");
                (format!("{{\"resume\":{{\"member_id\":{member},\"secret\":{member},\"held\":[{held}]}}}}"), member)
            }
        };
        let request = Request::Subscribe(Subscribe {
            topic: self.topic,
            group: "workers".to_owned(),
            start: StartPolicy::Earliest,
            credit_messages: 8,
            credit_bytes: u32::MAX,
            options,
            subscription: 1,
            member: MemberId::new(member),
            secret: member,
        });
        self.asked.push_back((world.now_us, Asked::Subscribe { member }));
        world.send(connection, request);
    }

    fn ask(&mut self, world: &mut World, asked: Asked, request: Request) {
        let Some(connection) = self.line.connection else { return };
        self.asked.push_back((world.now_us, asked));
        world.send(connection, request);
    }

    fn settle(&mut self, world: &mut World, id: DeliveryId) {
        let chance = world.random.below(100);
        let is_careful = self.is_careful;
        let Some(held) = self.held.get_mut(&id) else { return };
        let kind = held.wants.clone().or(match chance {
            _ if is_careful => Some(SettleKind::Ack),
            0..80 => Some(SettleKind::Ack),
            80..88 => Some(SettleKind::Nack { delay_ms: 0, error: "no".to_owned() }),
            88..92 => Some(SettleKind::Release),
            // It is forgotten, and its lease ends.
            _ => None,
        });
        let Some(kind) = kind else {
            self.held.remove(&id);
            return world.record.said(id, Said::Forgotten);
        };
        (held.wants, held.is_asked) = (Some(kind.clone()), true);
        let Place { partition, seq } = held.place;
        world.record.said(
            id,
            match kind {
                SettleKind::Ack => Said::Ack,
                SettleKind::Nack { .. } => Said::Nack,
                _ => Said::Release,
            },
        );
        let item = SettleItem {
            partition: Partition::new(partition),
            first_seq: Seq::new(seq),
            first_delivery: id,
            count: 1,
            kind: kind.clone(),
        };
        let request = Request::Settle { subscription: 1, items: vec![item] };
        self.ask(world, Asked::Settle { delivery: id, kind }, request);
    }

    pub(crate) fn got(&mut self, world: &mut World, message: Delivery, until_us: u64) {
        let Some(member) = self.member else { return };
        let place = Place { partition: message.partition.get(), seq: message.seq.get() };
        world.record.delivered(&message, member, until_us, world.now_us);
        let hold_us = 1000 + world.random.below(if self.is_careful { 20_000 } else { 400_000 });
        let held = Held { place, settle_us: world.now_us + hold_us, wants: None, is_asked: false };
        self.held.entry(message.delivery_id).or_insert(held);
    }

    pub(crate) fn answered(&mut self, world: &mut World, reply: Reply) {
        let Some((asked_us, asked)) = self.asked.pop_front() else { return };
        match (asked, reply.result) {
            (Asked::Subscribe { member }, Ok(Answer::Subscribed { member: made, .. })) => {
                assert_eq!(made.get(), member, "the member that was asked for");
                if self.member.replace(member) == Some(member) {
                    world.record.reach("resumed");
                }
                world.record.heard_of(member, asked_us);
                self.joined = true;
            }
            (Asked::Subscribe { .. }, Err(failure)) if failure.code == ErrorCode::UnknownMember => {
                world.record.reach("too late to resume");
                self.member = None;
                self.held.clear();
                self.go_elsewhere(world);
            }
            (Asked::Settle { delivery, kind }, Ok(Answer::Settled(codes))) => {
                self.held.remove(&delivery);
                match codes[..] {
                    [SettleCode::Done] => world.record.settled(delivery, &kind),
                    [_] => world.record.reach("settled before, or too late"),
                    _ => panic!("one item has one code, not {codes:?}"),
                }
            }
            (Asked::Heartbeat, Ok(_)) => {
                if let Some(member) = self.member {
                    world.record.heard_of(member, asked_us);
                }
            }
            (_, Ok(other)) => panic!("answered with {other:?}"),
            (_, Err(failure)) => {
                world.record.reach_code(failure.code.name());
                self.go_elsewhere(world);
            }
        }
    }

    pub(crate) fn broken(&mut self, world: &mut World) {
        self.go_elsewhere(world);
    }

    /// It holds on to what it has and asks again for what was not answered.
    fn go_elsewhere(&mut self, world: &mut World) {
        self.line.leave(world);
        self.joined = false;
        self.asked.clear();
        for held in self.held.values_mut() {
            held.is_asked = false;
        }
    }
}

/// How long a member may be silent, as the tests set it.
pub(crate) const SESSION_US: u64 = 3_000_000;
const LOOK_US: u64 = 5000;
