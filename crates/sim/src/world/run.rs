//! A run: the world is made of a plan, events happen, clients finish, and the end is judged.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use mortarmq_shard::Times;
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{CommitIndex, ConnectionId, Position};

use super::cluster::{Cluster, PATIENCE_US};
use super::event::{Client, Event, ToClient};
use super::net::Net;
use super::promises::Promises;
use super::readmit::READMISSION;
use super::{Machine, MachineClock, Samples, World};
use crate::clients::consumer::Consumer;
use crate::clients::operator::Operator;
use crate::clients::producer::Producer;
use crate::history::Histories;
use crate::plan::{Anchor, Fault, FaultKind, Plan, Settings, Way};
use crate::random::Random;
use crate::tally::Tally;
use crate::topics::Topics;
use crate::trace::{Lines, Trace};

/// What is left of a world.
pub(crate) struct RunEnd {
    pub(crate) histories: Histories,
    pub(crate) failure: Option<String>,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) simulated_us: u64,
    /// Faults whose moment never came.
    pub(crate) unreached: Vec<crate::plan::Fault>,
}

impl World {
    /// A world in which nothing has happened yet.
    pub(crate) fn new(plan: &Plan, lines: Option<Lines>) -> Self {
        let settings = plan.settings.clone();
        let seed = settings.seed;
        let topics = Topics::new(&settings, &mut Random::of(seed, 1));
        let mut chance = Random::of(seed, 2);
        let nodes = (0..settings.nodes.clamp(1, NODES_MAX)).map(|node| machine(node, plan, &mut chance)).collect();
        let consumers = consumers(&topics, &settings);
        let producers = (0..usize::try_from(settings.producers).expect("few"))
            .map(|number| Producer::new(number, number % topics.len(), Random::of(seed, 500 + number as u64)))
            .collect();
        let mut world = Self {
            now_us: 0,
            queue: BinaryHeap::new(),
            last_serial: 0,
            nodes,
            peers: Net::new(Random::of(seed, 6)),
            cluster: Cluster::default(),
            links: BTreeMap::new(),
            last_connection: 0,
            producers,
            consumers,
            operator: Operator::default(),
            topics,
            histories: Histories::default(),
            samples: Samples::default(),
            trace: Trace::new(lines),
            tally: Tally::default(),
            last_message: 0,
            letters: BTreeMap::new(),
            lost_values: BTreeMap::new(),
            delivered_from: BTreeMap::new(),
            keeps_former: plan.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Rot { way: Way::Old, .. })),
            topic_since: BTreeMap::new(),
            not_before: BTreeMap::new(),
            is_healing: false,
            drained_looks: 0,
            open_before: String::new(),
            failure: None,
            is_over: false,
            net: Random::of(seed, 3),
            disk_chance: Random::of(seed, 4),
            loss: Random::of(seed, 5),
            settings,
        };
        world.plan_all(plan);
        world
    }

    fn plan_all(&mut self, plan: &Plan) {
        for node in 0..self.nodes.len() {
            self.at(0, Event::Start { node });
        }
        for number in 0..self.producers.len() {
            self.at(1000, Event::Connect { client: Client::Producer(number) });
        }
        for number in 0..self.consumers.len() {
            // Dead letters are left to the operator until the end.
            if self.consumers[number].group.is_some() {
                self.at(3000 + 500 * number as u64, Event::Connect { client: Client::Consumer(number) });
            }
        }
        for step in &plan.steps {
            self.at(step.at_us, Event::Deed(step.what));
        }
        for fault in &plan.faults {
            if let Anchor::At(at_us) = fault.anchor {
                let node = place_of(fault.node, self.nodes.len());
                self.at(at_us, Event::Fault { node, kind: fault.kind });
            }
        }
        if self.has_peers() {
            self.at(PATIENCE_US, Event::Patience);
        }
        self.at(self.settings.work_ms * 1000, Event::EndOfWork);
    }

    /// Lets everything happen.
    pub(crate) fn run(mut self) -> RunEnd {
        while !self.is_over {
            let Some(event) = self.next_event() else { break };
            self.happen(event);
        }
        if self.failure.is_none() {
            (0..self.nodes.len()).for_each(|node| self.check_all(node));
        }
        self.record_silent_members();
        let unreached = self.nodes.iter().flat_map(|machine| machine.faults.clone()).collect();
        let Self { mut histories, failure, trace, tally, now_us, topics, .. } = self;
        histories.close(&topics, now_us);
        RunEnd { histories, failure, trace, tally, simulated_us: now_us, unreached }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deed(deed) => self.deed(deed),
            Event::Fault { node, kind } => {
                let leader = self.leader();
                // Where nobody leads just now, whoever did last.
                let struck = node.or(leader).or_else(|| self.last_leader()).unwrap_or(0);
                self.strike(struck, kind);
                self.note_losses(leader);
            }
            Event::Heal { node, what } => self.heal(node, what),
            Event::Start { node } => self.start(node),
            Event::Turn { node, life } if self.lives(node, life) => self.turn(node),
            Event::Input { node, life, input } if self.lives(node, life) => self.give(node, input),
            Event::Journal { node, life } if self.lives(node, life) => self.journal(node, 0),
            Event::JournalDone { node, life, written } if self.lives(node, life) => self.journal_done(node, written),
            Event::Segments { node, life } if self.lives(node, life) => self.segments(node),
            Event::SegmentsDone { node, life } if self.lives(node, life) => self.segments_done(node),
            Event::Read { node, life, ticket } if self.lives(node, life) => self.read(node, ticket),
            Event::Look { node, life } if self.lives(node, life) => self.look(node),
            Event::HalfClosed { node, life, connection } if self.lives(node, life) => self.half_closed(connection),
            Event::StopConnections { node, life } if self.lives(node, life) => self.stop_loop(node),
            Event::Scrub { node, life } if self.lives(node, life) => self.scrub(node),
            Event::Turn { .. }
            | Event::Input { .. }
            | Event::Journal { .. }
            | Event::JournalDone { .. }
            | Event::Segments { .. }
            | Event::SegmentsDone { .. }
            | Event::Read { .. }
            | Event::Look { .. }
            | Event::HalfClosed { .. }
            | Event::StopConnections { .. }
            | Event::Scrub { .. } => {}
            Event::Peer { to, bytes } => self.peer_arrives(to, bytes),
            Event::Cut { cut, is_cut } => {
                self.peers.set_cut(cut, is_cut && !self.is_healing);
                self.forget_loss();
            }
            Event::Patience => self.lose_patience(),
            Event::Connect { client } => self.connect(client),
            Event::Arrive { connection } => self.arrive(connection),
            Event::Pump { connection } => self.pump(connection),
            Event::Receive { connection, message } => self.receive(connection, message),
            Event::Lost { connection } => self.lost(connection),
            Event::Act { client, token } => self.act(client, token),
            Event::Answer { query: READMISSION, .. } => {}
            Event::Answer { query, reply } => self.answered(query, *reply),
            Event::LookResumed { connection, life, member, owed } => {
                self.look_resumed(connection, life, member, &owed);
            }
            Event::EndOfWork => self.end_work(),
            Event::Drained => self.look_drained(),
        }
    }

    fn lives(&self, node: usize, life: u64) -> bool {
        self.nodes[node].life == life && self.nodes[node].process.is_some()
    }

    fn connect(&mut self, client: Client) {
        match client {
            Client::Producer(number) => self.connect_producer(number),
            Client::Consumer(number) => self.connect_consumer(number),
        }
    }

    fn receive(&mut self, connection: ConnectionId, message: ToClient) {
        let Some(link) = self.links.get_mut(&connection).filter(|link| link.is_open) else { return };
        link.silent_looks = 0;
        match link.client {
            Client::Producer(number) => self.producer_receives(number, message),
            Client::Consumer(number) => self.consumer_receives(number, message),
        }
    }

    fn lost(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.remove(&connection) else { return };
        match link.client {
            Client::Producer(number) => self.producer_lost(number),
            Client::Consumer(number) => self.consumer_lost(number),
        }
        let at_us = self.now_us + self.net.delay(200, 20_000);
        self.at(at_us, Event::Connect { client: link.client });
    }

    fn act(&mut self, client: Client, token: u64) {
        match client {
            Client::Producer(number) => self.producer_acts(number, token),
            Client::Consumer(number) => self.consumer_acts(number, token),
        }
    }

    /// Nothing fails any more, and everything that was begun is to be finished.
    fn end_work(&mut self) {
        self.is_healing = true;
        self.trace.note(self.now_us, "end of work", &[]);
        self.peers.heal();
        for machine in &mut self.nodes {
            machine.is_healed = true;
            machine.disk.set_capacity(None);
            machine.is_full = false;
            machine.slow_sync_us = None;
        }
        let stalled: Vec<ConnectionId> =
            self.links.iter().filter(|(_, link)| link.stalled_until_us > self.now_us).map(|(id, _)| *id).collect();
        for connection in stalled {
            if let Some(link) = self.links.get_mut(&connection) {
                link.stalled_until_us = self.now_us;
            }
            self.at(self.now_us, Event::Pump { connection });
        }
        // A fault that waits for an operation of the disk would strike in the time of healing: it is taken back with the disk.
        for node in 0..self.nodes.len() {
            self.disarm(node);
        }
        for number in 0..self.consumers.len() {
            if self.consumers[number].group.is_none() {
                self.at(self.now_us + 1000, Event::Connect { client: Client::Consumer(number) });
            }
        }
        self.operator.is_done = true;
        self.mend_at_the_end();
        self.at(self.now_us + DRAIN_LOOK_US, Event::Drained);
    }

    /// Whether everything is answered and nothing is owed: seen twice, the run is over.
    fn look_drained(&mut self) {
        let open = self.what_is_open();
        if open == self.open_before {
            self.purge_unreadable();
        }
        if open.is_empty() && self.tally.operations < self.settings.operations {
            // A message is an operation at least of one who publishes it, one who gets it and one who settles it.
            let each = (self.settings.operations - self.tally.operations) / 3 / self.producers.len().max(1) as u64 + 1;
            (0..self.producers.len()).for_each(|number| self.publish(number, each, 0, Times::default(), false));
            self.drained_looks = 0;
        } else if open.is_empty() {
            self.drained_looks += 1;
            if self.drained_looks == 2 {
                self.scrape_end();
                let Some(process) = &self.nodes[0].process else { return };
                let lost = self.topics.end_missing(|id| process.node.shard().state().topics.contains_key(&id));
                if let Some(name) = lost {
                    self.fail(format!("topic {name} is gone, and nobody deleted it"));
                }
                self.is_over = true;
                return;
            }
        } else {
            self.drained_looks = 0;
            if self.now_us > self.settings.work_ms * 1000 + DRAIN_LIMIT_US {
                return self
                    .fail(format!("P4, P12: healed for {} s, and not finished: {open}", DRAIN_LIMIT_US / 1_000_000));
            }
        }
        self.open_before = open;
        self.at(self.now_us + DRAIN_LOOK_US, Event::Drained);
    }

    fn what_is_open(&mut self) -> String {
        let mut open = Vec::new();
        for producer in &self.producers {
            if !producer.is_done() {
                open.push(format!("producer {} waits for {}", producer.number, producer.open_count()));
            }
        }
        for consumer in &self.consumers {
            if !consumer.is_done() {
                open.push(consumer.what_is_open());
            }
        }
        if self.operator.waits() {
            open.push("the operator waits".to_owned());
        }
        open.extend(self.look_equal());
        let Some(node) = self.main_node() else { return open.join("; ") };
        let state = node.shard().state();
        for path in state.paths.values() {
            let books = state.books(path);
            if books.depth > 0 {
                let topic = state.topics.get(&path.topic).map_or("", |topic| topic.name.as_str());
                open.push(format!("a path of {topic} owes {}", books.depth));
            }
        }
        open.join("; ")
    }
}

/// The place of a node among so many; nothing of whoever leads.
fn place_of(node: u64, nodes: usize) -> Option<usize> {
    (node > 0 || nodes == 1).then(|| usize::try_from(node.saturating_sub(1)).unwrap_or(0).min(nodes - 1))
}

fn machine(number: u64, plan: &Plan, chance: &mut Random) -> Machine {
    let settings = &plan.settings;
    let is_mine = |fault: &&Fault| {
        let nodes = settings.nodes.clamp(1, NODES_MAX);
        let place = fault.node.clamp(1, nodes) - 1;
        matches!(fault.anchor, Anchor::Nth { .. }) && place == number
    };
    Machine {
        disk: MemoryDisk::new(),
        clock: MachineClock {
            boot: 1,
            boot_ms: chance.between(1, 100_000_000),
            booted_at_us: 0,
            // Each is slow in its own way, and none is fast: a lease lasts at least as long as the world says.
            slow_ppm: settings.slow_clock_ppm * [1, 0, 2, 0, 1][usize::try_from(number).expect("few")],
            wall_base_ms: 1_700_000_000_000,
        },
        process: None,
        life: 0,
        sites: BTreeMap::new(),
        faults: plan.faults.iter().filter(is_mine).copied().collect(),
        armed: None,
        slow_sync_us: None,
        down_since_us: None,
        down_us: 0,
        paused_until_us: 0,
        troubled_until_us: 0,
        told: Position::default(),
        told_commit: CommitIndex::ZERO,
        promises: Promises::default(),
        is_healed: false,
        fetches_in: None,
        is_full: false,
        is_wiped: false,
        counts: true,
        damages: Vec::new(),
        rotten_dirs: BTreeSet::new(),
        former: None,
    }
}

/// The consumers of every group, and one of each topic's dead letters.
fn consumers(topics: &Topics, settings: &Settings) -> Vec<Consumer> {
    let mut consumers = Vec::new();
    let mut add = |topic, group| {
        let number = consumers.len();
        consumers.push(Consumer::new(number, topic, group, Random::of(settings.seed, 1000 + number as u64)));
    };
    for (topic, group) in topics.all_groups() {
        (0..settings.consumers.max(1)).for_each(|_| add(topic, Some(group)));
    }
    (0..topics.len()).for_each(|topic| add(topic, None));
    consumers
}

/// Most nodes of a world.
const NODES_MAX: u64 = 5;
const DRAIN_LOOK_US: u64 = 400_000;
/// Longer than every lease, session, delay and backoff of a plan together.
const DRAIN_LIMIT_US: u64 = 180_000_000;
