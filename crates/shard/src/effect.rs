//! What apply asks its driver to do. Effects of one batch are in order; none of them is needed for the state itself.

use crate::command::Grant;
use crate::dead_letter::Envelope;
use crate::ledger::LedgerEvent;
use bytes::Bytes;
use mortarmq_delivery::Leased;
use mortarmq_types::{CommitIndex, KeyHash, MemberId, Partition, PathId, Position, Seq, TopicIncarnation};

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append a message to its segment.
    Append(AppendEffect),
    /// Append a copy of a message, with what the broker adds to it.
    Copy(Box<CopyEffect>),
    /// Send leased messages to their member.
    Deliver(DeliverEffect),
    /// Append to the history of deliveries.
    Ledger(LedgerEffect),
    /// Begin new segment and ledger files at this size from now on, in bytes.
    SegmentBytes(u64),
    /// Let go of the files of a partition that hold nothing from a sequence on.
    Trim {
        /// The topic.
        topic: TopicIncarnation,
        /// The partition.
        partition: Partition,
        /// Nobody needs what lies below.
        below: Seq,
    },
    /// Remove the files of a topic.
    TopicDeleted(TopicIncarnation),
    /// A path is gone, by itself or with its topic.
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
    /// A group that nobody used is deleted, with what it still owed.
    GroupExpired {
        /// The topic.
        topic: TopicIncarnation,
        /// The group's name.
        group: String,
        /// Messages that it still owed.
        dropped: u64,
    },
    /// A path has other settings: sessions and windows follow.
    PathChanged(PathId),
    /// Delayed messages of a topic are due: its paths may have something to deliver.
    TopicMoved(TopicIncarnation),
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
    /// For the index: when the message loses its worth, cluster time in milliseconds; 0 = never.
    pub expires_at_ms: u64,
    /// The encoded record, sharing the batch's memory.
    pub record: Bytes,
}

/// Where a message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePlace {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// The message.
    pub seq: Seq,
}

/// A message to append, made of one that lies in a segment already. Carried out in the order of apply, so its source is
/// always there: no file goes before a checkpoint covers the command that freed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyEffect {
    /// The message to copy.
    pub from: MessagePlace,
    /// The place of the copy.
    pub to: MessagePlace,
    /// The command that stored it; for what ended by itself, the last one before.
    pub commit_index: CommitIndex,
    /// For the index.
    pub key_hash: KeyHash,
    /// For the index: bytes of key, headers and value, with what is added.
    pub payload_bytes: u32,
    /// What is added.
    pub envelope: Envelope,
    /// Whether the source is itself a dead letter, of a message that was redriven: its envelope stays behind.
    pub unwraps: bool,
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
    /// The command that granted them: this one, unless a pull came again.
    pub granted_at: Position,
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
