//! What a node is told at its start, and the two clocks that come with every input.

use bytes::Bytes;
use mortarmq_shard::{DefaultKey, Defaults};
use mortarmq_types::{MonotonicTime, NodeId, ShardId, WallTime};

/// Who a node is, and the bounds of its memory.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The node's id.
    pub node_id: NodeId,
    /// Which life of this node's data this is, from 1: a node whose data was lost comes back with another.
    pub data_incarnation: u32,
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
    /// Journal that is kept behind a checkpoint, for nodes that lag.
    ///
    /// # Units
    /// Bytes.
    pub journal_keep_bytes: u64,
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
            shard: ShardId::ZERO,
            node_incarnation,
            boot_id,
            max_pending_bytes: 64 << 20,
            recent_bytes: 64 << 20,
            unwritten_bytes_max: 64 << 20,
            checkpoint_after_bytes: 512 << 20,
            journal_keep_bytes: 0,
            publish_timeout_ms: 5000,
            initial: Defaults::BUILD,
            initial_set: Vec::new(),
        }
    }

    /// The voters' Raft ids, big-endian: what opens each journal file and stands in each checkpoint.
    pub(crate) fn membership(&self) -> Bytes {
        Bytes::copy_from_slice(&self.raft_id().to_be_bytes())
    }

    /// The Raft id of this node: node id and incarnation of its data, never 0.
    #[must_use]
    pub(crate) fn raft_id(&self) -> u64 {
        (u64::from(self.node_id.get()) << 32) | u64::from(self.data_incarnation)
    }
}

const FIRST_DATA_INCARNATION: u32 = 1;

/// The driver's clocks at the moment of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Counts on through suspends and does not jump.
    pub monotonic: MonotonicTime,
    /// For display.
    pub wall: WallTime,
}
