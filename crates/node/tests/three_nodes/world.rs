//! The world: machines, links and clients, one event after another in simulated time. All of it is drawn from one seed.
//!
//! After every turn of a node it looks: one leader per epoch, equal states at equal commit indexes, and nothing that was
//! told goes back.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use mortarmq_node::{
    CatchUpDone, CatchUpWord, Failure, Node, Now, Output, PeerWord, QueryReply, ReadJob, Reply, Request, TICK_MS,
};
use mortarmq_types::{ClusterTime, CommitIndex, ConnectionId, Epoch, NodeId, ShardId, WallTime};

use super::clients::{Client, Heard};
use super::machine::{JournalJob, Machine, NodeOptions, SegmentJob, Told};
use super::net::Net;
use super::random::Random;
use super::record::Record;

pub(crate) struct World {
    pub(crate) now_us: u64,
    pub(crate) machines: Vec<Machine>,
    pub(crate) net: Net,
    pub(crate) clients: Vec<Client>,
    pub(crate) record: Record,
    pub(crate) options: NodeOptions,
    pub(crate) random: Random,
    /// Answers to questions, by their number.
    pub(crate) answers: BTreeMap<u64, QueryReply>,
    /// Answers to pulls.
    pub(crate) pulls_ended: Vec<Result<u16, Failure>>,
    /// Answers on connections of nobody.
    pub(crate) heard: Vec<(ConnectionId, Reply)>,
    /// Messages about forwarded requests.
    pub(crate) forwarded: u64,
    /// Who led each epoch.
    pub(crate) leaders: BTreeMap<Epoch, usize>,
    /// What the state was at a moment of the log, as the first node that was there had it. A batch without commands has no
    /// commit index of its own, but a time.
    digests: BTreeMap<Moment, u64>,
    /// The latest moment of each node that was seen.
    seen: Vec<Moment>,
    events: BTreeMap<(u64, u64), Event>,
    event_count: u64,
    /// Whose a connection is, and to which node and life.
    pub(crate) connections: BTreeMap<ConnectionId, (usize, usize, u64)>,
    last_connection: u64,
    last_question: u64,
    turns: u64,
    /// Pieces of files that arrived: by file, how often each was sent.
    pub(crate) pieces: BTreeMap<(String, u64), u64>,
}

#[derive(Debug)]
pub(crate) enum Event {
    Tick {
        node: usize,
        life: u64,
    },
    /// The bytes of a message.
    Peer {
        from: usize,
        to: usize,
        message: Bytes,
    },
    /// The journal thread carries out its next job.
    Journal {
        node: usize,
        life: u64,
    },
    Segments {
        node: usize,
        life: u64,
    },
    Read {
        node: usize,
        life: u64,
        ticket: u64,
        job: ReadJob,
    },
    Told {
        node: usize,
        life: u64,
        told: ToldBox,
    },
    Request {
        connection: ConnectionId,
        request: Request,
    },
    Disconnect {
        connection: ConnectionId,
    },
    /// A client hears something, unless it has left that connection.
    Client {
        client: usize,
        connection: ConnectionId,
        heard: Heard,
    },
    Wake {
        client: usize,
    },
    Start {
        node: usize,
    },
    /// A node whose data is gone asks the others, and goes on by what they say.
    Enter {
        node: usize,
    },
    /// All links carry everything again.
    Heal,
    FastDisk {
        node: usize,
    },
}

/// What a thread told, which says nothing of itself.
pub(crate) struct ToldBox(pub(crate) Told);

impl std::fmt::Debug for ToldBox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("told")
    }
}

impl World {
    /// Machines with empty disks, all of which start.
    pub(crate) fn new(seed: u64, options: NodeOptions) -> Self {
        let mut world = Self {
            now_us: 0,
            machines: (0..options.nodes).map(Machine::new).collect(),
            net: Net::new(Random::of(seed, 2), options.nodes),
            clients: Vec::new(),
            record: Record::default(),
            options,
            random: Random::of(seed, 3),
            answers: BTreeMap::new(),
            pulls_ended: Vec::new(),
            heard: Vec::new(),
            forwarded: 0,
            leaders: BTreeMap::new(),
            digests: BTreeMap::new(),
            seen: vec![Moment::default(); options.nodes],
            events: BTreeMap::new(),
            event_count: 0,
            connections: BTreeMap::new(),
            last_connection: 0,
            last_question: 0,
            turns: 0,
            pieces: BTreeMap::new(),
        };
        for node in 0..options.nodes {
            let after_us = world.random.below(50_000);
            world.at(after_us, Event::Start { node });
        }
        world
    }

    /// Lets something happen so long from now.
    pub(crate) fn at(&mut self, after_us: u64, event: Event) {
        self.event_count += 1;
        self.events.insert((self.now_us + after_us, self.event_count), event);
    }

    /// Lets time pass.
    pub(crate) fn run_for(&mut self, ms: u64) {
        let end_us = self.now_us + ms * 1000;
        self.run_until_us(end_us, |_| false);
        self.now_us = end_us;
    }

    /// Lets time pass until something holds, at most so long; says whether it does.
    pub(crate) fn run_until(&mut self, most_ms: u64, holds: impl Fn(&Self) -> bool) -> bool {
        let end_us = self.now_us + most_ms * 1000;
        self.run_until_us(end_us, &holds);
        holds(self)
    }

    fn run_until_us(&mut self, end_us: u64, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            let Some(next) = self.events.first_entry().filter(|next| next.key().0 <= end_us) else { return };
            let ((at_us, _), event) = next.remove_entry();
            self.now_us = self.now_us.max(at_us);
            self.step(event);
        }
    }

    fn step(&mut self, event: Event) {
        let node = match &event {
            Event::Tick { node, .. } | Event::Told { node, .. } => Some(*node),
            Event::Peer { to, .. } => Some(*to),
            Event::Request { connection, .. } => self.connections.get(connection).map(|(_, node, _)| *node),
            _ => None,
        };
        if let Some(until_us) =
            node.map(|node| self.machines[node].paused_until_us).filter(|until| *until > self.now_us)
        {
            // Threads and network go on while the loop stands still; what they bring waits, in its order.
            return self.at(until_us - self.now_us, event);
        }
        match event {
            Event::Tick { node, life } => self.tick(node, life),
            Event::Peer { from, to, message } => self.hear_peer(from, to, message),
            Event::Journal { node, life } => self.journal(node, life),
            Event::Segments { node, life } => self.segments(node, life),
            Event::Read { node, life, ticket, job } => {
                if self.machines[node].life == life
                    && let Some(process) = &self.machines[node].process
                {
                    let told = process.read(ticket, &job);
                    self.at(1, Event::Told { node, life, told: ToldBox(told) });
                }
            }
            Event::Told { node, life, told } => self.tell(node, life, told.0),
            Event::Request { connection, request } => {
                let Some(&(_, node, life)) = self.connections.get(&connection) else { return };
                let now = self.now(node);
                if self.machines[node].life == life
                    && let Some(found) = self.node_mut(node)
                {
                    found.handle_requests(now, connection, vec![request]);
                    self.dispatch(node);
                }
            }
            Event::Disconnect { connection } => {
                let Some((_, node, life)) = self.connections.remove(&connection) else { return };
                let now = self.now(node);
                if self.machines[node].life == life
                    && let Some(found) = self.node_mut(node)
                {
                    found.handle_disconnected(now, connection);
                    self.dispatch(node);
                }
            }
            Event::Client { client, connection, heard } => self.client_hears(client, connection, heard),
            Event::Wake { client } => self.client_wakes(client),
            Event::Start { node } => self.start(node),
            Event::Enter { node } => self.enter(node),
            Event::Heal => self.heal(),
            Event::FastDisk { node } => self.machines[node].sync_us = 300,
        }
    }

    /// A message of another node arrives.
    fn hear_peer(&mut self, from: usize, to: usize, message: Bytes) {
        let now = self.now(to);
        let (_, word) = PeerWord::decode(message).expect("nothing is changed on the way");
        if let PeerWord::CatchUp(message) = &word
            && let CatchUpWord::Piece { file, offset, .. } = &message.word
        {
            *self.pieces.entry((file.clone(), *offset)).or_default() += 1;
        }
        if let Some(node) = self.node_mut(to) {
            if let PeerWord::Log(message) = &word {
                assert_eq!(message.from() >> 32, from as u64, "a message names its sender");
            }
            node.handle_word(now, word);
            self.dispatch(to);
        }
    }

    pub(crate) fn now(&self, node: usize) -> Now {
        self.machines[node].clock.now(self.now_us)
    }

    pub(crate) fn node(&self, node: usize) -> Option<&Node> {
        self.machines[node].process.as_ref().map(|process| &process.node)
    }

    pub(crate) fn node_mut(&mut self, node: usize) -> Option<&mut Node> {
        self.machines[node].process.as_mut().map(|process| &mut process.node)
    }

    /// The node that leads the latest epoch and serves.
    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |node: &usize| self.node(*node).is_some_and(Node::is_ready);
        let ready = (0..self.machines.len()).filter(leads);
        ready.max_by_key(|node| self.node(*node).map(|found| found.position().epoch))
    }

    /// A node starts, if it does not run.
    pub(crate) fn start(&mut self, node: usize) {
        if self.machines[node].process.is_some() {
            return;
        }
        if self.machines[node].is_wiped {
            return self.enter(node);
        }
        let (now_us, options) = (self.now_us, self.options);
        if let Err(error) = self.machines[node].start(node, now_us, options) {
            assert!(self.machines[node].crash_anywhere, "P1: node {node} does not start: {error}");
            return self.crash(node, &error);
        }
        self.seen[node] = Moment::default();
        let life = self.machines[node].life;
        self.at(0, Event::Tick { node, life });
        self.dispatch(node);
    }

    /// All links carry everything again.
    pub(crate) fn heal(&mut self) {
        self.net.heal();
        (self.net.lost_one_in, self.net.doubled_one_in) = (0, 0);
    }

    /// The process of a node dies. Its clients notice soon.
    pub(crate) fn kill(&mut self, node: usize) {
        self.machines[node].kill();
        self.break_connections(node);
    }

    /// The power of a machine goes.
    pub(crate) fn lose_power(&mut self, node: usize) {
        let (seed, now_us) = (self.random.next(), self.now_us);
        self.machines[node].lose_power(seed, now_us);
        self.break_connections(node);
    }

    /// The disk of a machine stopped, as it was asked to.
    fn crash(&mut self, node: usize, error: &str) {
        if std::mem::take(&mut self.machines[node].crash_anywhere) {
            self.lose_power(node);
            return self.at(20_000, Event::Start { node });
        }
        let crash = self.machines[node].crash.take().filter(|crash| crash.is_armed);
        let crash = crash.unwrap_or_else(|| panic!("node {node}: {error}"));
        self.record.reach("crash of a catch-up");
        if crash.is_power {
            self.lose_power(node);
        } else {
            self.kill(node);
        }
        self.at(20_000, Event::Start { node });
    }

    fn break_connections(&mut self, node: usize) {
        let broken: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, (_, of, _))| *of == node)
            .map(|(id, (client, ..))| (*id, *client))
            .collect();
        for (connection, client) in broken {
            self.connections.remove(&connection);
            let after_us = 200 + self.random.below(2000);
            self.at(after_us, Event::Client { client, connection, heard: Heard::Broken });
        }
    }

    /// Opens a connection of a client; `None` if nobody is there.
    pub(crate) fn connect(&mut self, client: usize, node: usize) -> Option<ConnectionId> {
        let life = self.machines[node].life;
        self.last_connection += 1;
        let connection = ConnectionId::new(self.last_connection);
        self.node_mut(node)?.handle_connected(connection);
        self.connections.insert(connection, (client, node, life));
        Some(connection)
    }

    pub(crate) fn send(&mut self, connection: ConnectionId, request: Request) {
        // One after another on one connection.
        self.at(CLIENT_US, Event::Request { connection, request });
    }

    /// Asks a node something at once; the answer comes under the number that is returned.
    pub(crate) fn ask(&mut self, node: usize, question: mortarmq_node::Query) -> u64 {
        self.last_question += 1;
        let (number, now) = (self.last_question, self.now(node));
        self.node_mut(node).expect("it runs").handle_query(now, number, question);
        self.dispatch(node);
        number
    }

    /// As [`Self::ask`], for something that is to be done.
    pub(crate) fn act(&mut self, node: usize, act: mortarmq_node::Act) -> u64 {
        self.last_question += 1;
        let (number, now) = (self.last_question, self.now(node));
        self.node_mut(node).expect("it runs").handle_act(now, number, act);
        self.dispatch(node);
        number
    }

    fn tick(&mut self, node: usize, life: u64) {
        let now = self.now(node);
        if self.machines[node].life != life {
            return;
        }
        let Some(process) = self.machines[node].process.as_mut() else { return };
        let is_woken = process.node.next_wake().is_some_and(|wake| wake <= now.monotonic);
        if is_woken || now.monotonic >= process.next_tick {
            process.node.handle_tick(now);
            process.next_tick = now.monotonic.after_ms(TICK_MS);
        }
        self.dispatch(node);
        let Some(process) = self.machines[node].process.as_ref() else { return };
        let wake = process.node.next_wake().map_or(process.next_tick, |wake| wake.min(process.next_tick));
        let patience_ms = wake.since_ms(now.monotonic).clamp(1, TICK_MS);
        self.at(patience_ms * 1000, Event::Tick { node, life });
    }

    fn journal(&mut self, node: usize, life: u64) {
        if self.machines[node].life != life {
            return;
        }
        let sync_us = self.machines[node].sync_us;
        let Some(process) = self.machines[node].process.as_mut() else { return };
        let told = match process.journal_step() {
            Ok(told) => told,
            Err(error) => return self.crash(node, &error),
        };
        let told_after_us = self.random.below(sync_us / 2 + 1);
        if let Some(told) = told {
            self.at(told_after_us, Event::Told { node, life, told: ToldBox(told) });
        }
        self.poke_journal(node, true);
    }

    /// Lets the journal thread begin, if it has something to do and is idle or has just ended.
    fn poke_journal(&mut self, node: usize, has_ended: bool) {
        let machine = &mut self.machines[node];
        let (life, sync_us) = (machine.life, machine.sync_us);
        let Some(process) = machine.process.as_mut() else { return };
        if process.journal_is_busy && !has_ended {
            return;
        }
        process.journal_is_busy = !process.journal_jobs.is_empty();
        if process.journal_is_busy {
            let took_us = sync_us / 2 + self.random.below(sync_us / 2 + 1);
            self.at(took_us, Event::Journal { node, life });
        }
    }

    fn segments(&mut self, node: usize, life: u64) {
        if self.machines[node].life != life {
            return;
        }
        if self.machines[node].holds_segments {
            return self.at(10_000, Event::Segments { node, life });
        }
        let Machine { process, disk, crash, .. } = &mut self.machines[node];
        let Some(process) = process else { return };
        process.segments_are_busy = false;
        let told = match process.segment_step(disk, crash) {
            Ok(told) => told,
            Err(error) => return self.crash(node, &error),
        };
        if told.iter().any(|told| matches!(told, Told::Damaged { .. })) {
            // What waits is tried again.
            process.segments_are_busy = true;
            self.at(20_000, Event::Segments { node, life });
        }
        for told in told {
            let after_us = self.random.below(200);
            self.at(after_us, Event::Told { node, life, told: ToldBox(told) });
        }
    }

    fn tell(&mut self, node: usize, life: u64, told: Told) {
        if self.machines[node].life != life {
            return;
        }
        let now = self.now(node);
        if matches!(told, Told::CatchUp { done: CatchUpDone::Finished }) {
            self.record.reach("snapshot installed");
        }
        let Some(found) = self.node_mut(node) else { return };
        match told {
            Told::Journal { ready_number } => found.handle_journal_written(now, ready_number),
            Told::Segments { ticket } => found.handle_segments_written(now, ticket),
            Told::Checkpoint { log_index, bytes } => found.handle_checkpoint_written(now, log_index, bytes),
            Told::PutOff { log_index } => found.handle_checkpoint_put_off(now, log_index),
            Told::Damaged { stretch, is_waited_for } => found.handle_damage(now, stretch, is_waited_for),
            Told::CatchUp { done } => found.handle_catch_up_done(now, done),
            Told::Read { ticket, result } => found.handle_read(now, ticket, result),
        }
        self.dispatch(node);
    }

    /// Carries outputs out, in order.
    pub(crate) fn dispatch(&mut self, node: usize) {
        let now = self.now(node);
        let life = self.machines[node].life;
        while let Some(output) = self.node_mut(node).and_then(|found| found.poll_output(now)) {
            let process = self.machines[node].process.as_mut().expect("it gave an output");
            match output {
                Output::Journal { ready_number, batch } => {
                    self.machines[node].journal_writes += 1;
                    let process = self.machines[node].process.as_mut().expect("it gave an output");
                    process.journal_jobs.push_back(JournalJob::Append { ready_number, batch });
                    self.poke_journal(node, false);
                }
                Output::ReleaseJournal { log_index, keep_bytes, frees_spares } => {
                    assert!(keep_bytes > 0 || frees_spares, "what a peer lacks must be there after a restart too");
                    process.journal_jobs.push_back(JournalJob::Release { log_index, keep_bytes, frees_spares });
                    self.poke_journal(node, false);
                }
                Output::Members { membership, .. } => process.journal.set_membership(membership),
                Output::Segments { ticket, work } => self.give_segments(node, SegmentJob::Work { ticket, work }),
                Output::CatchUp { work } => self.give_segments(node, SegmentJob::CatchUp { work }),
                Output::Checkpoint { meta, image, holds } => {
                    self.record.reach("checkpoint");
                    self.give_segments(node, SegmentJob::Checkpoint { meta, image, holds });
                }
                Output::Read { ticket, job } => {
                    let after_us = 20 + self.random.below(300);
                    self.at(after_us, Event::Read { node, life, ticket, job });
                }
                Output::SendPeer { to, message } => self.say(node, to, &PeerWord::Log(message)),
                Output::SendCatchUp { to, message } => self.say(node, to, &PeerWord::CatchUp(message)),
                Output::SendForward { to, message } => {
                    self.forwarded += 1;
                    self.say(node, to, &PeerWord::Forward(message));
                }
                Output::Replies { connection, replies } => {
                    replies.into_iter().for_each(|reply| self.hand(connection, Heard::Reply(reply)));
                }
                Output::Deliveries { connection, messages, .. } => {
                    for message in messages {
                        // Failure rule 7: the driver looks at its clock just before it writes.
                        let left_ms = message.lease_until.since_ms(now.monotonic);
                        if message.send_before <= now.monotonic {
                            self.record.reach("too late to send");
                            continue;
                        }
                        let until_us = self.now_us + left_ms * 1000;
                        self.hand(connection, Heard::Message { message: Box::new(message), until_us });
                    }
                }
                Output::PullEnded { result, .. } => self.pulls_ended.push(result),
                Output::Query { query, reply } => {
                    self.answers.insert(query, *reply);
                }
                Output::Role { epoch, is_leader: true, .. } => {
                    let before = self.leaders.insert(epoch, node);
                    assert!(before.is_none_or(|other| other == node), "two leaders in epoch {epoch}");
                }
                Output::Role { .. } | Output::GroupExpired { .. } => {}
            }
        }
        self.look(node);
    }

    fn say(&mut self, from: usize, to: NodeId, word: &PeerWord) {
        let mut bytes = BytesMut::new();
        word.encode(ShardId::ZERO, &mut bytes);
        let (to, message) = (usize::from(to.get()), bytes.freeze());
        for after_us in self.net.carry(from, to) {
            self.at(after_us, Event::Peer { from, to, message: message.clone() });
        }
    }

    fn give_segments(&mut self, node: usize, job: SegmentJob) {
        let life = self.machines[node].life;
        let process = self.machines[node].process.as_mut().expect("it gave an output");
        process.segment_jobs.push_back(job);
        if !std::mem::replace(&mut process.segments_are_busy, true) {
            let after_us = 50 + self.random.below(500);
            self.at(after_us, Event::Segments { node, life });
        }
    }

    fn hand(&mut self, connection: ConnectionId, heard: Heard) {
        if let Some(&(client, ..)) = self.connections.get(&connection) {
            if client == usize::MAX {
                // A connection of nobody: the test looks itself.
                self.heard.extend(if let Heard::Reply(reply) = heard { Some((connection, reply)) } else { None });
                return;
            }
            self.at(CLIENT_US, Event::Client { client, connection, heard });
        }
    }

    /// What must hold after each turn of a node.
    fn look(&mut self, node: usize) {
        self.turns += 1;
        let Some(found) = self.node(node) else { return };
        let state = found.shard().state();
        let moment = (state.commit_index, state.epoch, state.time, state.gaps_ms, state.wall);
        if self.turns.is_multiple_of(CHECK_EVERY) {
            found.check();
        }
        if moment == self.seen[node] {
            return;
        }
        assert!(moment > self.seen[node], "P10: node {node} went back from {:?} to {moment:?}", self.seen[node]);
        // An image is made of all that there is: some of the moments are enough, the same on all nodes.
        if !moment.0.get().is_multiple_of(COMPARE_EVERY) {
            self.seen[node] = moment;
            return;
        }
        let digest = digest(found);
        let first = *self.digests.entry(moment).or_insert(digest);
        assert_eq!(first, digest, "node {node} has another state at {moment:?}");
        self.seen[node] = moment;
    }
}

/// Commit index, epoch, cluster time, the sum of gaps, and wall time.
type Moment = (CommitIndex, Epoch, ClusterTime, u64, WallTime);

/// What stands for a whole state.
pub(crate) fn digest(node: &Node) -> u64 {
    let mut bytes = BytesMut::new();
    node.shard().image().encode(&mut bytes);
    // FNV-1a, eight bytes at a time: only equal bytes are asked for.
    let mut bytes = bytes.freeze();
    let mut hash = 0xCBF2_9CE4_8422_2325_u64 ^ bytes.len() as u64;
    while bytes.len() >= 8 {
        hash = (hash ^ bytes.get_u64()).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    }
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3))
}

/// From a client to a node, and back.
const CLIENT_US: u64 = 150;
/// The states at every so-many-th commit index are compared.
const COMPARE_EVERY: u64 = 32;
/// A node checks its invariants after so many turns: that looks at all that it holds.
const CHECK_EVERY: u64 = 512;
