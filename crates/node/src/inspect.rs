//! Looking at a node from outside: gauges for metrics, and its invariants.

use mortarmq_replica::Promise;
use mortarmq_shard::{DefaultKey, Shard};
use mortarmq_types::ConnectionId;

use crate::node::Node;

/// What a node holds right now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Bytes of requests that wait for the journal.
    pub pending_bytes: u64,
    /// Bytes of effects that the segment writer has not written.
    pub unwritten_bytes: u64,
    /// Bytes of records kept in memory.
    pub recent_bytes: u64,
    /// Open connections.
    pub connections: u64,
    /// Sessions of members.
    pub sessions: u64,
    /// Parked pulls.
    pub pulls: u64,
    /// Records that could not be read since the start.
    pub unreadable: u64,
    /// Publishes refused with back-pressure since the start.
    pub back_pressure: u64,
    /// Damaged places of segments, indexes and ledgers that other nodes are asked for.
    pub repairing: u64,
    /// Those that were repaired since the start.
    pub repaired: u64,
}

impl Node {
    /// What the node holds right now.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        Gauges {
            pending_bytes: self.overflow_bytes
                + self.open.len() as u64
                + self.proposed.iter().map(|batch| batch.bytes).sum::<u64>(),
            unwritten_bytes: self.unwritten_bytes,
            recent_bytes: self.recent.bytes(),
            connections: (self.connections.len() - self.streams.len()) as u64,
            sessions: self.sessions.len() as u64,
            pulls: self.pulls.len() as u64,
            unreadable: self.unreadable,
            back_pressure: self.refused_back_pressure,
            repairing: self.repairs.open(),
            repaired: self.repairs.repaired(),
        }
    }

    /// Whether this node leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leads
    }

    /// Whether messages or the ends of pulls wait for a read, or for their connection to keep up.
    #[must_use]
    pub fn has_unsent(&self, connection: ConnectionId) -> bool {
        self.sends.has_unsent(connection)
    }

    /// Which initial values were configured and are not the cluster's, with the configured value and the one in use. Right once
    /// the node [is ready](Node::is_ready).
    #[must_use]
    pub fn initial_differences(&self) -> Vec<(DefaultKey, u64, u64)> {
        let used = self.shard.state().defaults();
        let values = self.config.initial_set.iter().map(|key| (*key, self.config.initial.get(*key), used.get(*key)));
        values.filter(|(_, configured, used)| configured != used).collect()
    }

    /// The state machine.
    #[must_use]
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Whether it still keeps what it promised to another node. While the others bring it up anew it has not all of its log, and says
    /// nothing that would rest on it.
    #[must_use]
    pub fn keeps(&self, promise: Promise) -> bool {
        let is_excused = self.is_rejoining() && matches!(promise, Promise::Log { .. });
        is_excused || self.replica.keeps(promise)
    }

    /// Asserts every numbered invariant of the node's parts.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        self.shard.check();
        self.replica.check();
        self.asks.check();
        self.streams.check();
        let unwritten: u64 = self.unwritten.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(unwritten, self.unwritten_bytes, "unwritten bytes are those of the tickets that are not written");
    }
}
