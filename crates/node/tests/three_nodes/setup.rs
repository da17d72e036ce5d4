//! What tests begin with: a cluster that leads, a topic, clients; and how they end.

use mortarmq_node::Request;
use mortarmq_types::{CommitIndex, TopicIncarnation};

use super::clients::Client;
use super::consumer::Consumer;
use super::machine::{NodeOptions, files};
use super::producer::Producer;
use super::world::World;

pub(crate) const OPTIONS: NodeOptions = NodeOptions {
    nodes: 3,
    checkpoint_after_bytes: 1 << 30,
    recent_bytes: 1 << 20,
    publish_timeout_ms: 5000,
    peer_lag_bytes: 64 << 20,
    unwritten_bytes_max: 64 << 20,
    journal_keep_bytes: 256 << 20,
};

/// What the groups of these tests are like.
pub(crate) const GROUP: &str = "\"lease_ms\":2000,\"session_ms\":3000,\"max_attempts\":0,\"retry_backoff_base_ms\":50,\
                                \"retry_backoff_max_ms\":200";

/// A cluster under load, its leader, and a follower of it.
pub(crate) fn loaded(seed: u64, options: NodeOptions) -> (World, usize, usize) {
    loaded_for(seed, options, 1500)
}

/// As [`loaded`], after so many milliseconds.
pub(crate) fn loaded_for(seed: u64, options: NodeOptions, ms: u64) -> (World, usize, usize) {
    let mut world = World::new(seed, options);
    let topic = world.declare("orders", 2);
    for id in 1..=2 {
        world.add_producer(topic, id, 4000);
    }
    world.add_consumer(topic);
    world.run_for(ms);
    let leader = world.leader().expect("all is well");
    (world, leader, (leader + 1) % options.nodes)
}

impl World {
    /// Waits for a leader.
    pub(crate) fn wait_for_leader(&mut self) -> usize {
        assert!(self.run_until(5000, |world| world.leader().is_some()), "P12: nobody leads");
        self.leader().expect("just seen")
    }

    /// Makes a topic, whoever leads.
    pub(crate) fn declare(&mut self, name: &str, partitions: u16) -> TopicIncarnation {
        for _ in 0..100 {
            let leader = self.wait_for_leader();
            let connection = self.connect(usize::MAX, leader).expect("it runs");
            self.connections.remove(&connection);
            let request = Request::Declare { name: name.to_owned(), partitions, options: String::new() };
            let now = self.now(leader);
            self.node_mut(leader).expect("it runs").handle_requests(now, connection, vec![request]);
            self.dispatch(leader);
            let is_there = |world: &Self| {
                let node = world.node(leader);
                node.and_then(|node| node.shard().state().topic_by_name(name).map(|(id, _)| id))
            };
            if self.run_until(500, |world| is_there(world).is_some()) {
                return is_there(self).expect("just seen");
            }
        }
        panic!("P12: no topic can be made");
    }

    /// A topic that is there.
    pub(crate) fn topic(&mut self, name: &str) -> TopicIncarnation {
        let leader = self.wait_for_leader();
        let state = self.node(leader).expect("it leads").shard().state();
        state.topic_by_name(name).expect("it was declared").0
    }

    pub(crate) fn add_producer(&mut self, topic: TopicIncarnation, id: u64, every_us: u64) -> usize {
        let node = self.clients.len() % self.machines.len();
        self.add_client(|me| Client::Producer(Producer::new(me, node, topic, id, every_us)))
    }

    pub(crate) fn add_consumer(&mut self, topic: TopicIncarnation) -> usize {
        let node = self.clients.len() % self.machines.len();
        self.add_client(|me| Client::Consumer(Consumer::new(me, node, topic, GROUP)))
    }

    /// Everything works again: all messages are settled, and all nodes are equal.
    pub(crate) fn end(&mut self) {
        self.heal();
        self.net.late_one_in = 0;
        for node in 0..self.machines.len() {
            self.machines[node].sync_us = 300;
            self.machines[node].holds_segments = false;
            self.start(node);
        }
        // What came for a node that stands still has to come in its order: no pause is cut short.
        let awake_us = self.machines.iter().map(|machine| machine.paused_until_us).max().unwrap_or(0);
        self.run_for(awake_us.saturating_sub(self.now_us) / 1000 + 1);
        let begun_us = self.now_us;
        // P12: with all nodes up, the next publish is confirmed soon.
        let confirmed = |world: &Self| world.record.published_us.last().is_some_and(|last| *last > begun_us);
        let publishes = |client: &Client| matches!(client, Client::Producer(producer) if !producer.stops);
        let has_producers = self.clients.iter().any(publishes);
        assert!(!has_producers || self.run_until(5000, confirmed), "P12: nothing is confirmed after all is healed");
        self.wind_down();
        // Whether it is done is a look at everything, so it is not asked at every event.
        let most_us = self.now_us + 60_000_000;
        while !self.is_done() {
            assert!(self.now_us < most_us, "P4: not everything is settled: {}", self.standing());
            self.run_for(50);
        }
        // What was done last reaches everybody, segments too.
        self.run_for(1500);
        self.record.check_end();
        self.check_equal();
    }

    fn is_done(&self) -> bool {
        let idle = |client: &Client| match client {
            Client::Producer(producer) => producer.is_idle(),
            Client::Consumer(_) => true,
        };
        self.clients.iter().all(idle) && (0..self.machines.len()).all(|node| self.depth(node) == Some(0))
    }

    /// What a node still owes; `None` if it does not run, or owes nobody anything yet.
    fn depth(&self, node: usize) -> Option<u64> {
        let state = self.node(node)?.shard().state();
        if state.paths.is_empty() {
            // Its consumers have not come yet: what they will be owed is not settled.
            return None;
        }
        let mut depth = 0;
        for path in state.paths.values() {
            let books = state.books(path);
            assert_eq!(
                books.produced,
                books.delivered + books.dropped + books.dlq + books.depth,
                "P9: the books of {} do not balance on node {node}",
                path.group
            );
            depth += books.depth;
        }
        Some(depth)
    }

    fn standing(&self) -> String {
        let node = |node: usize| {
            let found = self.node(node);
            let position = found.map(|found| (found.position(), found.is_leader(), found.leader()));
            format!("node {node}: {position:?}, depth {:?}", self.depth(node))
        };
        (0..self.machines.len()).map(node).collect::<Vec<_>>().join("; ")
    }

    /// All nodes have the same state and the same files.
    pub(crate) fn check_equal(&self) {
        let index = |node: usize| self.node(node).map(|found| found.position().commit_index);
        let highest = (0..self.machines.len()).filter_map(index).max().unwrap_or(CommitIndex::ZERO);
        for node in 0..self.machines.len() {
            // Equal states at equal commit indexes are looked at in every turn.
            assert_eq!(index(node), Some(highest), "node {node} stays behind: {}", self.standing());
            self.depth(node);
            self.node(node).expect("it runs").check();
        }
        let first = files(&self.machines[0].disk);
        for node in 1..self.machines.len() {
            let other = files(&self.machines[node].disk);
            let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&first), names(&other), "nodes 0 and {node} have other files");
            for ((name, bytes), (_, others)) in first.iter().zip(&other) {
                assert!(bytes == others, "{name} is another one on node {node}");
            }
        }
    }
}
