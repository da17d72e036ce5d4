//! What a node is told at its start, and the two clocks that come with every input.

use std::collections::BTreeSet;

use mortarmq_replica::{Limits, Membership, ReplicaConfig};
use mortarmq_shard::{DefaultKey, Defaults};
use mortarmq_types::{MonotonicTime, NodeId, ShardId, WallTime};

/// Who a node is, and the bounds of its memory.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The node's id.
    pub node_id: NodeId,
    /// Which life of this node's data this is, from 1: a node whose data was lost comes back with another.
    pub data_incarnation: u32,
    /// All nodes in the order of the configuration, this node among them, each with the first life of its data; none is a node that is
    /// alone.
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

    /// The members that the log begins with: all peers, each with the first life of its data. A node with a later life of its own learns
    /// from the start: the log tells it when it was admitted, and when it was promoted. In which order the peers are configured is no
    /// part of it.
    pub(crate) fn first_members(&self) -> Membership {
        let own = self.raft_id();
        let (voters, learns): (Vec<u64>, Vec<u64>) = if self.peers.is_empty() {
            (vec![own], Vec::new())
        } else if self.peers.iter().any(|peer| peer.raft_id() == own) {
            (self.peers.iter().map(|peer| peer.raft_id()).collect(), Vec::new())
        } else {
            let others = self.peers.iter().filter(|peer| peer.node_id != self.node_id);
            (others.map(|peer| peer.raft_id()).collect(), vec![own])
        };
        Membership::new(voters, learns)
    }

    /// Whether these can be the members of this node's group: it is one of them, with the data that it has, and the others are its peers.
    pub(crate) fn is_among(&self, members: &Membership) -> bool {
        let peers: BTreeSet<NodeId> = self.first_members().ids().map(node_of).collect();
        let named = members.ids().map(|id| u16::try_from(id >> 32).map(NodeId::new));
        let named: Result<BTreeSet<NodeId>, _> = named.collect();
        members.role(self.raft_id()).is_some() && named == Ok(peers)
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
        let is_own = |peer: &Peer| peer.node_id == self.node_id && peer.data_incarnation <= self.data_incarnation;
        let place = if self.peers.is_empty() { Some(0) } else { self.peers.iter().position(is_own) };
        let place = place.ok_or(PeersError::NotAmong { node: self.node_id })?;
        let (members, places) = (self.first_members(), self.peers.len().max(1));
        let limits = Limits { keep_bytes: self.peer_lag_bytes, ..Limits::default() };
        Ok(ReplicaConfig { limits, members, places, ..ReplicaConfig::new(self.raft_id(), Vec::new(), place) })
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

    /// The Raft id of this node.
    pub(crate) fn raft_id(&self) -> u64 {
        Peer { node_id: self.node_id, data_incarnation: self.data_incarnation }.raft_id()
    }
}

/// A node of the shard, with a life of its data.
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

/// The node and the life of a Raft id.
pub(crate) fn peer_of(raft_id: u64) -> Peer {
    Peer { node_id: node_of(raft_id), data_incarnation: raft_id as u32 }
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
    use super::{Membership, NodeConfig, Peer, PeersError, node_of};
    use mortarmq_types::NodeId;

    fn of_three(node: u16, order: [u16; 3]) -> NodeConfig {
        let peer = |node| Peer { node_id: NodeId::new(node), data_incarnation: 1 };
        NodeConfig { peers: order.map(peer).to_vec(), ..NodeConfig::new(NodeId::new(node), [1; 16], 1) }
    }

    #[test]
    fn the_order_of_the_peers_is_the_place_and_no_part_of_the_membership() {
        let (first, second) = (of_three(2, [0, 1, 2]), of_three(2, [2, 0, 1]));
        assert_eq!(first.first_members(), second.first_members());
        let places = [&first, &second].map(|config| config.replica().expect("sound").place);
        assert_eq!(places, [2, 0]);
        let nodes: Vec<u16> = second.first_members().ids().map(|id| node_of(id).get()).collect();
        assert_eq!(nodes, [0, 1, 2]);
        let alone = NodeConfig::new(NodeId::new(2), [1; 16], 1);
        assert_eq!(&alone.first_members().encode()[..], ((2_u64 << 32) | 1).to_be_bytes());
    }

    #[test]
    fn rule_4_a_node_with_a_later_life_of_its_data_learns_from_the_start() {
        let mut later = of_three(2, [0, 1, 2]);
        later.data_incarnation = 77;
        let members = later.replica().expect("sound").members;
        let id = |node: u64, life: u64| (node << 32) | life;
        assert_eq!(members, Membership::new(vec![id(0, 1), id(1, 1)], vec![id(2, 77)]));
        assert!(later.is_among(&members) && !of_three(2, [0, 1, 2]).is_among(&members), "another life of it");
        let others = Membership::new(vec![id(0, 1), id(3, 1), id(2, 77)], vec![]);
        let fewer = Membership::new(vec![id(0, 1), id(2, 77)], vec![]);
        assert!(!later.is_among(&others) && !later.is_among(&fewer));
        assert!(
            later.is_among(&Membership::new(vec![id(0, 9), id(1, 1), id(2, 77)], vec![])),
            "whatever lives the others have"
        );
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
        let mut earlier_data = of_three(2, [0, 1, 2]);
        earlier_data.data_incarnation = 0;
        assert_eq!(refused(earlier_data), PeersError::NotAmong { node: NodeId::new(2) });
        let peers = (0..10).map(|node| Peer { node_id: NodeId::new(node), data_incarnation: 1 }).collect();
        assert_eq!(refused(NodeConfig { peers, ..of_three(2, [0, 1, 2]) }), PeersError::TooMany { count: 10 });
    }
}
