//! What a node is told at its start, and the two clocks that come with every input.

use std::collections::BTreeSet;

use bytes::Bytes;
use mortarmq_replica::{Limits, ReplicaConfig};
use mortarmq_shard::{DefaultKey, Defaults};
use mortarmq_types::{MonotonicTime, NodeId, ShardId, WallTime};

/// Who a node is, and the bounds of its memory.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The node's id.
    pub node_id: NodeId,
    /// Which life of this node's data this is, from 1: a node whose data was lost comes back with another.
    pub data_incarnation: u32,
    /// All voters in the order of the configuration, this node among them; none is a node that is alone.
    pub peers: Vec<Peer>,
    /// The shard it hosts.
    pub shard: ShardId,
    /// Random, drawn anew by each process: pulls are named with it.
    pub node_incarnation: u64,
    /// The machine's present boot; it stands in each journal batch.
    pub boot_id: [u8; 16],
    /// Requests that may wait for their batch.
    ///
    /// # Units
    /// Bytes.
    pub max_pending_bytes: u64,
    /// Newest records kept in memory, so that a consumer that keeps up reads no disk.
    ///
    /// # Units
    /// Bytes.
    pub recent_bytes: u64,
    /// What a read for a consumer that is behind may bring, with what comes next; 0: nothing is read ahead.
    ///
    /// # Units
    /// Bytes.
    pub read_ahead_bytes: u64,
    /// Effects that the segment writer may be behind (failure rule 8).
    ///
    /// # Units
    /// Bytes.
    pub unwritten_bytes_max: u64,
    /// A checkpoint is taken after so much journal at the latest; while it is small, earlier.
    ///
    /// # Units
    /// Bytes.
    pub checkpoint_after_bytes: u64,
    /// Journal that is kept behind a checkpoint, for nodes that lag; 0 is the default: with peers 1 GiB, alone none.
    ///
    /// # Units
    /// Bytes.
    pub journal_keep_bytes: u64,
    /// Applied log that is kept in memory for peers that lag: one that lacks more lags for the operator, and one that lacks
    /// what is no longer there can be brought up by files only.
    ///
    /// # Units
    /// Bytes.
    pub peer_lag_bytes: u64,
    /// A publish that waits longer is answered `unknown`.
    pub publish_timeout_ms: u64,
    /// What the first leader of a cluster writes to its catalog; without effect later.
    pub initial: Defaults,
    /// Those of them that were set: [`crate::Node::initial_differences`] says where the catalog has others.
    pub initial_set: Vec<DefaultKey>,
}

impl NodeConfig {
    /// The configuration of a single node with the default bounds.
    #[must_use]
    pub fn new(node_id: NodeId, boot_id: [u8; 16], node_incarnation: u64) -> Self {
        Self {
            node_id,
            data_incarnation: FIRST_DATA_INCARNATION,
            peers: Vec::new(),
            shard: ShardId::ZERO,
            node_incarnation,
            boot_id,
            max_pending_bytes: 64 << 20,
            recent_bytes: 64 << 20,
            read_ahead_bytes: 256 << 10,
            unwritten_bytes_max: 64 << 20,
            checkpoint_after_bytes: 512 << 20,
            journal_keep_bytes: 0,
            peer_lag_bytes: 64 << 20,
            publish_timeout_ms: 5000,
            initial: Defaults::BUILD,
            initial_set: Vec::new(),
        }
    }

    /// The voters' Raft ids, big-endian and rising: what opens each journal file and stands in each checkpoint. In which
    /// order they are configured is no part of it.
    pub(crate) fn membership(&self) -> Bytes {
        let mut ids = self.voters();
        ids.sort_unstable();
        ids.iter().flat_map(|id| id.to_be_bytes()).collect()
    }

    /// What the replica is told of this node and the others.
    ///
    /// # Errors
    /// When the peers cannot be the voters of one shard.
    pub(crate) fn replica(&self) -> Result<ReplicaConfig, PeersError> {
        let nodes: BTreeSet<NodeId> = self.peers.iter().map(|peer| peer.node_id).collect();
        if nodes.len() != self.peers.len() {
            return Err(PeersError::Twice);
        }
        if self.peers.len() > PEERS_MAX {
            return Err(PeersError::TooMany { count: self.peers.len() });
        }
        let (id, voters) = (self.raft_id(), self.voters());
        let place = voters.iter().position(|voter| *voter == id).ok_or(PeersError::NotAmong { node: self.node_id })?;
        let limits = Limits { keep_bytes: self.peer_lag_bytes, ..Limits::default() };
        Ok(ReplicaConfig { limits, ..ReplicaConfig::new(id, voters, place) })
    }

    /// How much journal is kept behind a checkpoint: without any, a peer that was away for long could be brought up by
    /// files only.
    ///
    /// # Units
    /// Bytes.
    pub(crate) fn kept_journal_bytes(&self) -> u64 {
        let is_default = self.journal_keep_bytes == 0 && self.has_peers();
        if is_default { PEERS_JOURNAL_BYTES } else { self.journal_keep_bytes }
    }

    /// Whether there are other voters.
    pub(crate) fn has_peers(&self) -> bool {
        self.peers.len() > 1
    }

    fn voters(&self) -> Vec<u64> {
        if self.peers.is_empty() {
            return vec![self.raft_id()];
        }
        self.peers.iter().map(|peer| peer.raft_id()).collect()
    }

    /// The Raft id of this node.
    pub(crate) fn raft_id(&self) -> u64 {
        Peer { node_id: self.node_id, data_incarnation: self.data_incarnation }.raft_id()
    }
}

/// A voter of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The node.
    pub node_id: NodeId,
    /// Which life of its data votes, from 1: one with other data is another voter (failure rule 4).
    pub data_incarnation: u32,
}

impl Peer {
    /// Its Raft id: node id and incarnation of its data, never 0.
    #[must_use]
    pub(crate) fn raft_id(self) -> u64 {
        (u64::from(self.node_id.get()) << 32) | u64::from(self.data_incarnation)
    }
}

/// The node of a Raft id.
pub(crate) fn node_of(raft_id: u64) -> NodeId {
    NodeId::new(u16::try_from(raft_id >> 32).expect("a Raft id is made of a node id and an incarnation"))
}

/// Why the peers of a configuration cannot be the voters of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeersError {
    /// A node is named twice.
    #[error("a node is named twice among the peers")]
    Twice,
    /// The node that starts is not one of them, or with other data than it has.
    #[error("node {node} is not among the peers with the data that it has")]
    NotAmong {
        /// The node.
        node: NodeId,
    },
    /// More than are of use: each further one has to write everything, too.
    #[error("{count} peers are too many: a shard has at most {PEERS_MAX} voters")]
    TooMany {
        /// How many there are.
        count: usize,
    },
}

/// Most voters of a shard. Beyond ten, two of them could stand for election at one moment, again and again.
pub const PEERS_MAX: usize = 9;

/// What is kept for peers that lag unless the configuration says otherwise.
const PEERS_JOURNAL_BYTES: u64 = 1 << 30;

const FIRST_DATA_INCARNATION: u32 = 1;

/// The driver's clocks at the moment of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Counts on through suspends and does not jump.
    pub monotonic: MonotonicTime,
    /// For display.
    pub wall: WallTime,
}

#[cfg(test)]
mod tests {
    use super::{NodeConfig, Peer, PeersError, node_of};
    use mortarmq_types::NodeId;

    fn of_three(node: u16, order: [u16; 3]) -> NodeConfig {
        let peer = |node| Peer { node_id: NodeId::new(node), data_incarnation: 1 };
        NodeConfig { peers: order.map(peer).to_vec(), ..NodeConfig::new(NodeId::new(node), [1; 16], 1) }
    }

    #[test]
    fn the_order_of_the_peers_is_the_place_and_no_part_of_the_membership() {
        let (first, second) = (of_three(2, [0, 1, 2]), of_three(2, [2, 0, 1]));
        assert_eq!(first.membership(), second.membership());
        let places = [&first, &second].map(|config| config.replica().expect("sound").place);
        assert_eq!(places, [2, 0]);
        let nodes: Vec<u16> = second.replica().expect("sound").voters.iter().map(|id| node_of(*id).get()).collect();
        assert_eq!(nodes, [2, 0, 1]);
        let alone = NodeConfig::new(NodeId::new(2), [1; 16], 1);
        assert_eq!(&alone.membership()[..], ((2_u64 << 32) | 1).to_be_bytes());
    }

    #[test]
    fn journal_is_kept_for_peers_unless_it_is_said_how_much() {
        let alone = NodeConfig::new(NodeId::new(2), [1; 16], 1);
        assert_eq!((alone.kept_journal_bytes(), of_three(1, [0, 1, 2]).kept_journal_bytes()), (0, 1 << 30));
        let said = NodeConfig { journal_keep_bytes: 7, ..of_three(1, [0, 1, 2]) };
        assert_eq!(said.kept_journal_bytes(), 7);
    }

    #[test]
    fn peers_that_cannot_be_the_voters_of_a_shard_are_refused() {
        let refused = |config: NodeConfig| config.replica().expect_err("refused");
        assert_eq!(refused(of_three(2, [0, 1, 1])), PeersError::Twice);
        assert_eq!(refused(of_three(3, [0, 1, 2])), PeersError::NotAmong { node: NodeId::new(3) });
        let mut other_data = of_three(2, [0, 1, 2]);
        other_data.data_incarnation = 2;
        assert_eq!(refused(other_data), PeersError::NotAmong { node: NodeId::new(2) });
        let peers = (0..10).map(|node| Peer { node_id: NodeId::new(node), data_incarnation: 1 }).collect();
        assert_eq!(refused(NodeConfig { peers, ..of_three(2, [0, 1, 2]) }), PeersError::TooMany { count: 10 });
    }
}
