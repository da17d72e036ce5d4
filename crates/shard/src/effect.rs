//! What apply asks its driver to do. Effects of one batch are in order; none of them is needed for the state itself.

use crate::command::Grant;
use crate::ledger::LedgerEvent;
use bytes::Bytes;
use mortarmq_delivery::Leased;
use mortarmq_types::{CommitIndex, KeyHash, MemberId, Partition, PathId, Seq, TopicIncarnation};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append a message to its segment.
    Append(AppendEffect),
    /// Send leased messages to their member.
    Deliver(DeliverEffect),
    /// Append to the history of deliveries.
    Ledger(LedgerEffect),
    /// Begin new segment and ledger files at this size from now on, in bytes.
    SegmentBytes(u64),
    /// Remove the files of a topic.
    TopicDeleted(TopicIncarnation),
    /// A path is gone with its topic.
    PathDeleted(PathId),
    /// A member's session is over.
    MemberEnded {
        /// The path.
        path: PathId,
        /// The member.
        member: MemberId,
    },
    /// Deliveries of a path ended by themselves or by a settle: credit may be free, retries may be ready.
    PathMoved(PathId),
}

/// A message to append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendEffect {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// The message's place.
    pub seq: Seq,
    /// The command that stored it.
    pub commit_index: CommitIndex,
    /// For the index.
    pub key_hash: KeyHash,
    /// For the index: bytes of key, headers and value.
    pub payload_bytes: u32,
    /// The encoded record, sharing the batch's memory.
    pub record: Bytes,
}

/// Leased messages of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliverEffect {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The path.
    pub path: PathId,
    /// Who gets them.
    pub member: MemberId,
    /// On which terms.
    pub grant: Grant,
    /// The partition.
    pub partition: Partition,
    /// The `Deliver` command.
    pub commit_index: CommitIndex,
    /// How long each lease runs from the batch's stamp.
    pub lease_ms: u64,
    /// The messages.
    pub leases: Vec<Leased>,
}

/// An event for the ledger of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEffect {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// What happened.
    pub event: LedgerEvent,
}
