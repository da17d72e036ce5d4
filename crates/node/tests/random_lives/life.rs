//! One life of a node: what is done to it at random, and how its answers are taken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mortarmq_node::{Answer, Failure, Node, Outcome, Reply, Request};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{ConnectionId, DeliveryId, MemberId, MonotonicTime, TopicIncarnation, WallTime};
use mortarmq_wire::ErrorCode;

use crate::changes::Change;
use crate::consumers::{SettleSaid, Subscription};
use crate::groups::GroupOptions;
use crate::publishes::Line;
use crate::random::Random;
use crate::record::{PathName, Record, TopicRecord};
use crate::resumes::Parted;
use crate::support::{Crashed, Rig, RigOptions};

/// A node and its clients.
pub(crate) struct Life {
    pub(crate) random: Random,
    pub(crate) rig: Rig,
    pub(crate) record: Record,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) parted: Vec<Parted>,
    pub(crate) lines: Vec<Line>,
    pub(crate) groups: Vec<GroupOptions>,
    pub(crate) changes: Vec<Change>,
    pub(crate) changed_groups: BTreeSet<PathName>,
    /// Messages that were sent under idempotency keys, lately.
    pub(crate) keyed: Vec<u64>,
    pub(crate) last_message: u64,
    pub(crate) last_producer: u64,
    pub(crate) last_member: u64,
    pub(crate) step: u64,
    last_connection: u64,
    options: RigOptions,
    armed: bool,
}

/// One connection, and what it waits for, in order.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    expects: VecDeque<Expect>,
    pub(crate) last_subscription: u16,
    last_commit: u64,
}

/// What a request is to be answered with.
#[derive(Debug)]
pub(crate) enum Expect {
    Publish {
        messages: Vec<u64>,
        errors: Vec<ErrorCode>,
    },
    Declare {
        name: String,
        partitions: u16,
    },
    Delete {
        topic: TopicIncarnation,
    },
    Subscribe {
        member: MemberId,
    },
    /// Not mine: with a wrong secret.
    Resume {
        member: MemberId,
        is_mine: bool,
    },
    Settle {
        said: Vec<SettleSaid>,
        sent_ms: u64,
    },
    Credit {
        member: MemberId,
    },
    Heartbeat {
        member: MemberId,
    },
    Leave {
        member: MemberId,
    },
    Ping,
    Metadata,
}

const TOPICS: [&str; 2] = ["orders", "Parcels.v2"];

/// What of one of them every group has acked goes at once; the other keeps all.
pub(crate) fn options_of(name: &str) -> String {
    if name == TOPICS[1] { r#"{"keep_settled":false}"#.to_owned() } else { String::new() }
}

impl Life {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let recent_bytes = *random.pick(&[200, 2000, 1 << 20]);
        let checkpoint_after_bytes = *random.pick(&[1 << 16, 1 << 18, 1 << 30]);
        // Of small files, and with marks that lie close together, in every other life.
        let segment_bytes = if seed.is_multiple_of(2) { 1024 } else { 1 << 16 };
        // With what is read ahead few deliveries wait for a read, and in most lives some are to.
        let read_ahead_bytes = if seed.is_multiple_of(3) { 256 << 10 } else { 0 };
        let options = RigOptions {
            recent_bytes,
            read_ahead_bytes,
            journal_file_bytes: 1 << 18,
            checkpoint_after_bytes,
            segment_bytes,
            ..RigOptions::default()
        };
        let rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
        let groups = (0..3).map(|number| GroupOptions::random(&mut random, number)).collect();
        let mut life = Self {
            random,
            rig,
            record: Record::default(),
            connections: BTreeMap::new(),
            subscriptions: Vec::new(),
            parted: Vec::new(),
            lines: Vec::new(),
            groups,
            changes: Vec::new(),
            changed_groups: BTreeSet::new(),
            keyed: Vec::new(),
            last_message: 0,
            last_producer: 0,
            last_member: 0,
            step: 0,
            last_connection: 0,
            options,
            armed: false,
        };
        // Leases that began before the first moment have room below it.
        life.record.awake_ms = 1 << 32;
        life.record.clock.insert(life.rig.now.monotonic, life.record.awake_ms);
        life
    }

    /// Lives on for some steps, through crashes.
    pub(crate) fn live(&mut self, steps: u64) {
        if self.random.one_in(20) {
            self.flood().expect("no crash was asked for yet");
        }
        for step in 0..steps {
            self.step = step;
            if self.random.one_in(10) && !self.armed {
                self.rig.slow = !self.rig.slow;
            }
            let result = self.act();
            self.absorb();
            match result.and_then(|()| self.look_closely()) {
                Ok(()) => {}
                Err(Crashed(_)) => self.restart(true),
            }
            if self.random.one_in(90) {
                // The process dies now, or at one of the next disk operations.
                if self.random.one_in(3) {
                    self.restart(true);
                } else {
                    self.armed = true;
                    let operations = self.random.between(1, 12);
                    self.rig.disk.crash_at(self.rig.disk.operations() + operations);
                }
            }
        }
    }

    /// Ends a life: everything is consumed, by a disk that does not fail.
    pub(crate) fn end(&mut self) {
        if self.armed {
            self.restart(false);
        }
        if let Err(Crashed(text)) = self.drain() {
            panic!("this disk does not fail: {text}");
        }
    }

    fn act(&mut self) -> Result<(), Crashed> {
        if self.connections.is_empty() || (self.connections.len() < 4 && self.random.one_in(8)) {
            self.connect();
        }
        let connection = self.random_connection().expect("one was made if there was none");
        match self.random.below(111) {
            100..104 => self.publish_keyed(connection),
            104..108 => return self.change_something(),
            108..111 => return self.redrive_some(),
            0..6 => self.declare(connection),
            6..24 => {
                let count = self.random.between(1, 12);
                self.publish_numbered(count);
            }
            24..29 => {
                let count = self.random.between(1, 6);
                self.publish_unnumbered(connection, count);
            }
            29..33 => self.repeat_numbers(),
            33..36 => self.misuse_numbers(),
            36..40 => self.subscribe(connection),
            40..42 => self.resume(connection),
            42..62 => self.settle_some(connection),
            62..66 => self.pull(),
            66..72 => self.heartbeat_some(),
            72..75 => self.change_credit(),
            75 => self.leave(),
            76 if self.random.one_in(6) => self.delete(connection),
            77 => self.disconnect(connection),
            78 => self.send(connection, Request::Ping, vec![Expect::Ping]),
            79 => self.send(connection, Request::Metadata { names: Vec::new() }, vec![Expect::Metadata]),
            80..83 => return self.ask_something(),
            83..95 => {
                let ms = self.random.between(1, 300);
                self.pass(ms)?;
            }
            95..98 => {
                let ms = self.random.between(300, 2500);
                self.pass_in_turns(ms)?;
            }
            98 => {
                // A stall: nobody could settle, so this is no one's fault.
                let ms = self.random.between(1100, 9000);
                self.pass(ms)?;
                self.record.reach("gap");
            }
            _ => return self.rig.catch_up(),
        }
        if self.random.one_in(3) {
            let which = self.random.below(3);
            self.rig.finish_one(which)?;
        }
        self.rig.pump()
    }

    /// One turn of the loop after some time.
    pub(crate) fn pass(&mut self, ms: u64) -> Result<(), Crashed> {
        self.rig.now.monotonic = self.rig.now.monotonic.after_ms(ms);
        self.rig.now.wall = self.rig.now.wall.after_ms(ms);
        self.record.awake_ms += ms.min(1000);
        self.record.total_ms += ms;
        self.record.clock.insert(self.rig.now.monotonic, self.record.awake_ms);
        self.rig.node.handle_tick(self.rig.now);
        self.rig.pump()?;
        self.absorb();
        Ok(())
    }

    pub(crate) fn pass_in_turns(&mut self, ms: u64) -> Result<(), Crashed> {
        for _ in 0..ms.div_ceil(250) {
            self.pass(250)?;
            if self.rig.slow {
                let which = self.random.below(3);
                self.rig.finish_one(which)?;
            }
        }
        Ok(())
    }

    fn restart(&mut self, may_be_cut: bool) {
        self.absorb();
        self.record.reach(if self.armed { "death at a disk operation" } else { "death between" });
        self.record.restarts += 1;
        self.record.lossy = true;
        self.changes.clear();
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in all {
            self.drop_connection(connection, true);
        }
        self.armed = false;
        let outage_ms = self.random.below(20_000);
        self.options.now = self.rig.now;
        if self.random.one_in(3) {
            // Another boot: its clock begins anew, and how long it took nobody knows.
            self.options.boot += 1;
            self.options.now.monotonic = MonotonicTime::new(self.random.between(1, 5_000_000));
            self.record.reach("another boot");
        } else {
            self.options.now.monotonic = self.options.now.monotonic.after_ms(outage_ms);
            self.record.total_ms += outage_ms;
        }
        self.options.now.wall = WallTime::new(self.random.between(1, 2_000_000_000_000));
        self.recover(may_be_cut);
    }

    fn recover(&mut self, may_be_cut: bool) {
        let mut disk = self.rig.disk.clone();
        loop {
            disk = if self.random.one_in(2) {
                disk.after_process_kill()
            } else {
                self.record.reach("power loss");
                disk.after_power_loss(self.random.next())
            };
            let is_cut = may_be_cut && self.random.one_in(5);
            if is_cut {
                disk.crash_at(disk.operations() + self.random.between(1, 15));
            }
            match Rig::start(&disk, self.options) {
                Ok(rig) => {
                    self.rig = rig;
                    self.armed = is_cut;
                    break;
                }
                Err(error) => {
                    assert!(is_cut, "no recovery: {error:?}");
                    self.record.reach("recovery cut");
                }
            }
        }
        self.begin_process();
    }

    fn begin_process(&mut self) {
        if self.rig.from_checkpoint {
            self.record.reach("start from a checkpoint");
        }
        if self.rig.torn {
            self.record.reach("torn tail");
        }
        let now = self.rig.now.monotonic;
        self.record.clock = BTreeMap::from([(MonotonicTime::ZERO, self.record.awake_ms), (now, self.record.awake_ms)]);
        self.record.floor = self.record.highest;
        let position = self.rig.node.position();
        assert!(position >= self.record.floor, "P10: {position:?} after {:?}", self.record.floor);
        // A new process gives every session that was not over its full time.
        let awake_ms = self.record.awake_ms;
        for member in self.record.members.values_mut().filter(|found| awake_ms - found.heard_ms < found.session_ms) {
            member.heard_ms = awake_ms;
        }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.rig.node
    }

    pub(crate) fn connect(&mut self) -> ConnectionId {
        self.last_connection += 1;
        let connection = ConnectionId::new(self.last_connection);
        self.rig.connect(connection);
        self.connections.insert(connection, Connection::default());
        connection
    }

    pub(crate) fn disconnect(&mut self, connection: ConnectionId) {
        self.absorb();
        self.rig.node.handle_disconnected(self.rig.now, connection);
        self.record.lossy = true;
        self.drop_connection(connection, false);
    }

    /// Nothing will be answered there any more.
    fn drop_connection(&mut self, connection: ConnectionId, in_crash: bool) {
        let gone = self.connections.remove(&connection).expect("it was open");
        for expect in gone.expects {
            if let Expect::Publish { messages, .. } = expect {
                for message in messages {
                    self.record.lose(message, in_crash);
                }
            }
        }
        self.cut_lines(connection);
        self.part(|subscription| subscription.connection == connection);
        self.rig.replies.remove(&connection);
    }

    /// Sends a request; it is carried out with the next pump, together with what else was sent.
    pub(crate) fn send(&mut self, connection: ConnectionId, request: Request, expects: Vec<Expect>) {
        self.connections.get_mut(&connection).expect("it is open").expects.extend(expects);
        self.rig.node.handle_requests(self.rig.now, connection, vec![request]);
    }

    fn declare(&mut self, connection: ConnectionId) {
        let name = (*self.random.pick(&TOPICS)).to_owned();
        let known = self.record.topics.values().find(|topic| topic.name == name && !topic.delete_sent);
        let partitions =
            known.map_or_else(|| u16::try_from(self.random.between(1, 4)).expect("few"), |topic| topic.partitions);
        let request = Request::Declare { name: name.clone(), partitions, options: options_of(&name) };
        self.send(connection, request, vec![Expect::Declare { name, partitions }]);
    }

    fn delete(&mut self, connection: ConnectionId) {
        let Some(topic) = self.random_topic() else { return };
        let name = self.record.topics[&topic].name.clone();
        self.record.topic_mut(topic).delete_sent = true;
        self.record.reach("topic deleted");
        self.send(connection, Request::Delete { name }, vec![Expect::Delete { topic }]);
    }

    pub(crate) fn random_connection(&mut self) -> Option<ConnectionId> {
        let open: Vec<ConnectionId> = self.connections.keys().copied().collect();
        if open.is_empty() { None } else { Some(*self.random.pick(&open)) }
    }

    pub(crate) fn random_topic(&mut self) -> Option<TopicIncarnation> {
        let alive: Vec<TopicIncarnation> =
            self.record.topics.iter().filter(|(_, topic)| !topic.delete_sent).map(|(id, _)| *id).collect();
        if alive.is_empty() { None } else { Some(*self.random.pick(&alive)) }
    }

    /// Takes everything that arrived: deliveries first, as they are sent before the answers of their batch.
    pub(crate) fn absorb(&mut self) {
        self.absorb_deliveries();
        for (connection, replies) in std::mem::take(&mut self.rig.replies) {
            for reply in replies {
                let open = self.connections.get_mut(&connection).expect("an answer to a connection that is closed");
                let expect = open.expects.pop_front().expect("an answer that nobody waits for");
                self.take(connection, expect, reply);
            }
        }
        self.absorb_pulls();
        self.absorb_changes();
    }

    fn take(&mut self, connection: ConnectionId, expect: Expect, reply: Reply) {
        let is_command = matches!(
            &reply.result,
            Ok(Answer::Published(_) | Answer::PublishedBatch(_) | Answer::Settled(_) | Answer::Subscribed { .. })
        );
        self.record.note_position(reply.position, is_command);
        if is_command {
            let open = self.connections.get_mut(&connection).expect("looked at by the caller");
            let commit = reply.position.commit_index.get();
            assert!(commit > open.last_commit, "answers are in the order of the requests, and so are their commands");
            open.last_commit = commit;
        }
        let position = reply.position;
        if reply.result.as_ref().is_err_and(is_overdue) {
            return self.take_overdue(expect, &reply.result);
        }
        match (expect, reply.result) {
            (Expect::Publish { messages, errors }, Ok(Answer::Published(published))) => {
                assert!(errors.is_empty(), "P2, P3: {messages:?} was stored, {errors:?} was right");
                self.record.confirm(messages[0], &published, position.commit_index);
            }
            (Expect::Publish { messages, errors }, Ok(Answer::PublishedBatch(published))) => {
                assert!(errors.is_empty() && messages.len() == published.len());
                for (message, published) in messages.iter().zip(&published) {
                    self.record.confirm(*message, published, position.commit_index);
                }
            }
            (Expect::Publish { messages, errors }, Err(failure)) => {
                for message in messages {
                    self.record.refuse(message, &failure, &errors);
                }
            }
            (Expect::Declare { name, partitions }, Ok(Answer::Declared { topic, partitions: made, .. })) => {
                assert_eq!(partitions, made);
                self.note_topic(topic, name, made);
            }
            // Two declares of a new topic may name different counts.
            (Expect::Declare { .. }, Err(failure)) => assert_eq!(failure.code, ErrorCode::TopicExistsMismatch),
            (Expect::Delete { topic }, Ok(Answer::Deleted { .. })) => {
                assert!(!self.node().shard().state().topics.contains_key(&topic), "a deleted topic is gone");
            }
            (Expect::Ping, Ok(Answer::Pong)) | (Expect::Metadata, Ok(Answer::Metadata(_))) => {}
            (expect, result) => self.take_consumer(connection, expect, position, result),
        }
    }

    /// The journal took too long: what was asked may have happened, and nobody will tell.
    fn take_overdue(&mut self, expect: Expect, result: &Result<Answer, Failure>) {
        self.record.reach("overdue");
        self.record.lossy = true;
        match expect {
            Expect::Publish { messages, .. } => {
                let failure = result.as_ref().expect_err("looked at by the caller");
                for message in messages {
                    self.record.refuse(message, failure, &[failure.code]);
                }
            }
            Expect::Subscribe { member } => self.subscriptions.retain(|held| held.member != member),
            Expect::Resume { member, .. } => self.part(|held| held.member == member),
            Expect::Declare { .. } | Expect::Delete { .. } | Expect::Settle { .. } | Expect::Leave { .. } => {}
            Expect::Credit { .. } | Expect::Heartbeat { .. } | Expect::Ping | Expect::Metadata => {
                panic!("{expect:?} needs no journal and was answered {result:?}")
            }
        }
    }

    fn note_topic(&mut self, topic: TopicIncarnation, name: String, partitions: u16) {
        if self.record.topics.contains_key(&topic) {
            return;
        }
        if self.record.topics.values().any(|known| known.name == name) {
            self.record.reach("topic made again");
        }
        self.record.topics.insert(topic, TopicRecord { name, partitions, ..TopicRecord::default() });
        for _ in 0..3 {
            self.new_line(topic);
        }
    }

    /// Whether a delivery number was never given.
    pub(crate) fn unknown_delivery(&mut self) -> DeliveryId {
        DeliveryId::new(1_000_000 + self.random.below(1000))
    }
}

/// Whether a request was answered because its batch took too long.
pub(crate) fn is_overdue(failure: &Failure) -> bool {
    failure.code == ErrorCode::QuorumLost && failure.outcome == Outcome::Unknown
}
