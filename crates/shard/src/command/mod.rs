//! Commands: everything that can change a shard, and their bytes in the log.
//!
//! A batch is one log entry: a [`Stamp`] and many commands. [`batch`] holds the batch's layout, [`publish`] the encoding
//! of publishes (made at the edge, copied once into the batch), [`codec`] the rest. Any bytes decode to a command or to a
//! [`CommandError`]; any command that decodes applies without panic.

pub mod batch;
pub mod codec;
pub mod letters;
pub mod publish;

use crate::defaults::{Defaults, DefaultsPatch};
use crate::idempotency::IdempotencyKey;
use crate::settings::SettingsPatch;
use bytes::Bytes;
use mortarmq_delivery::Fact;
use mortarmq_types::{
    DeliveryId, KeyHash, MemberId, Partition, PathId, ProducerId, ProducerSeq, Seq, TopicIncarnation,
};

pub use batch::{Batch, BatchBuilder, Stamp};
pub use codec::CommandError;
pub use letters::{DropDead, Letter, Redrive};
pub use publish::{PublishRun, PublishRunBuilder};

/// Most items of one settle, and most records of one batch publish.
pub const ITEMS_MAX: usize = 1024;
/// Most steps that one command may take.
pub const STEPS_MAX: u32 = 1024;
/// Pieces of memory that a message may make: its producer's line, its key, when its partition's delays are due, that the
/// partition has facts, and its share of the entries.
const OF_A_MESSAGE: usize = 5;

/// One change of the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Writes the cluster's initial values to the catalog; later ones are ignored.
    SetDefaults(Defaults),
    /// Makes a topic, or compares one that exists.
    CreateTopic(CreateTopic),
    /// Deletes a topic by name.
    DeleteTopic {
        /// The topic's name.
        name: String,
    },
    /// Stores one message.
    Publish(Publish),
    /// Stores several messages, all or none.
    PublishBatch(PublishBatch),
    /// Makes a member, and its group if there is none.
    JoinGroup(JoinGroup),
    /// Ends a member.
    EndMember(EndMember),
    /// Leases what is next on a path to a member.
    Deliver(Deliver),
    /// Ends or extends deliveries.
    Settle(Settle),
    /// Drops everything that a path owes.
    PurgePath {
        /// The path.
        path: PathId,
    },
    /// Moves a path to another place.
    SeekPath {
        /// The path.
        path: PathId,
        /// Where to.
        target: SeekTarget,
    },
    /// Ends a path, and drops what it owes.
    DeleteGroup {
        /// The path.
        path: PathId,
    },
    /// Finds a member again.
    ResumeMember(ResumeMember),
    /// Lets the oldest messages of a partition go.
    Trim(Trim),
    /// Brings dead messages back to the paths that they died on.
    Redrive(Redrive),
    /// Drops single dead letters.
    DropDead(DropDead),
    /// Gives a topic other settings, or more partitions.
    ChangeTopic(ChangeTopic),
    /// Gives a group other settings.
    ChangeGroup(ChangeGroup),
    /// Gives the cluster other initial values.
    ChangeDefaults(DefaultsPatch),
}

impl Command {
    /// How many pieces of memory it may make for a topic, as [`crate::state::paths`] gives them back: at most 5 of a message
    /// and 3 of an item, so some thousands. A topic that it makes is not counted.
    pub(crate) fn pieces_max(&self) -> usize {
        let all = STEPS_MAX as usize;
        match self {
            // The path with its name, the member, and when it expires.
            Self::JoinGroup(_) => all + 5,
            // Of the topic and of its dead letters.
            Self::ChangeTopic(_) => 2 * all,
            Self::Publish(_) => OF_A_MESSAGE,
            Self::PublishBatch(batch) => OF_A_MESSAGE * batch.records.len(),
            // What the path has in a partition, when a lease ends there, and the entries.
            Self::Deliver(deliver) => 3 * (deliver.max_messages as usize).min(all) + 3,
            // When a lease ends, how old its run is, and that its dead letters have facts; and the entries.
            Self::Settle(settle) => 3 * settle.items.len() + 3,
            Self::Redrive(_) | Self::DropDead(_) | Self::PurgePath { .. } | Self::SeekPath { .. } => all,
            Self::SetDefaults(_)
            | Self::CreateTopic(_)
            | Self::DeleteTopic { .. }
            | Self::EndMember(_)
            | Self::DeleteGroup { .. }
            | Self::ResumeMember(_)
            | Self::Trim(_)
            | Self::ChangeGroup(_)
            | Self::ChangeDefaults(_) => 0,
        }
    }
}

/// Where a path is moved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// To the earliest message there is, in all partitions.
    Earliest,
    /// Behind the last message, in all partitions.
    Latest,
    /// To these sequences; partitions that are not named stay where they are.
    At(Vec<(Partition, Seq)>),
}

/// Lets the oldest messages of a partition go, as far as its topic's settings permit when it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// The first message that stays, at the latest.
    pub below: Seq,
}

/// Makes a topic, or compares one that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateTopic {
    /// The topic's name.
    pub name: String,
    /// The settings given; only these are compared.
    pub settings: SettingsPatch,
}

/// Gives a topic other settings, or more partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeTopic {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The settings given; the others stay as they are.
    pub settings: SettingsPatch,
}

/// Gives a group other settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeGroup {
    /// The path.
    pub path: PathId,
    /// The settings given; the others stay as they are.
    pub settings: SettingsPatch,
}

/// Stores one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Where to.
    pub topic: TopicIncarnation,
    /// The partition as it stands in the request; [`Partition::ANY`] leaves it to the broker.
    pub requested: Partition,
    /// Who sends; 0 is not idempotent.
    pub producer_id: ProducerId,
    /// The message.
    pub record: PublishRecord,
}

/// Stores several messages with consecutive producer numbers, all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishBatch {
    /// Where to.
    pub topic: TopicIncarnation,
    /// The partition as it stands in the request.
    pub requested: Partition,
    /// Who sends; 0 is not idempotent.
    pub producer_id: ProducerId,
    /// The messages, at most [`ITEMS_MAX`].
    pub records: Vec<PublishRecord>,
}

/// One message of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRecord {
    /// The producer's number.
    pub producer_seq: ProducerSeq,
    /// Hash of the key.
    pub key_hash: KeyHash,
    /// Hash of key, headers and value.
    pub content_hash: u64,
    /// Bytes of key, headers and value, as credit counts them.
    pub payload_bytes: u32,
    /// Bytes of the value alone, as the topic's limit counts them.
    pub value_bytes: u32,
    /// When the message falls due and when it loses its worth.
    pub times: Times,
    /// Under which key it is stored once, if one was given.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The encoded record (see [`crate::record`]).
    pub record: Bytes,
}

/// What a publish may ask for beside being stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Of time.
    pub times: Times,
    /// To be stored once under this key.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// What a message asks of time, from the moment in which it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// It is not delivered before it is that old; 0 is no delay.
    pub delay_ms: u64,
    /// It is not delivered once it is that old; 0 leaves it to the topic's `ttl_ms`.
    pub ttl_ms: u64,
}

/// Where a new group begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartPolicy {
    /// At the earliest message there is.
    Earliest,
    /// At the next message to come.
    Latest,
    /// At these sequences; partitions that are not named begin at the earliest.
    At(Vec<(Partition, Seq)>),
}

/// Makes a member, and its group if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinGroup {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The group's name.
    pub group: String,
    /// The settings given; only these are compared.
    pub settings: SettingsPatch,
    /// Where the group begins if this makes it; never compared.
    pub start: StartPolicy,
    /// The member, drawn by the node.
    pub member: MemberId,
    /// Hash of the member's secret; the log holds no secret.
    pub secret_hash: u64,
}

/// Finds a member again for whoever knows its secret. It changes nothing: where a session is connected is the leader's
/// own, but whether there is one to resume only the log decides, which may just have ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeMember {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The group's name.
    pub group: String,
    /// The member.
    pub member: MemberId,
    /// Hash of the secret that was shown.
    pub secret_hash: u64,
}

/// Ends a member: it left, or was silent for its session time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndMember {
    /// The path.
    pub path: PathId,
    /// The member.
    pub member: MemberId,
    /// Whether it was lost (its leases end as `consumer_lost`) or left (`released`).
    pub lost: bool,
}

/// On which terms messages are leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Up to the member's window, less what it holds by pushes.
    Push {
        /// Messages the member may hold.
        window_messages: u32,
        /// Bytes the member may hold.
        window_bytes: u64,
    },
    /// Once, for one pull.
    Pull {
        /// The node that took the pull, in its present life.
        node_incarnation: u64,
        /// The pull's number on that node.
        pull_id: u64,
        /// Most bytes; 0 is no limit.
        max_bytes: u64,
    },
}

/// Leases what is next on a path to a member. It names no sequences: apply takes what is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    /// The path.
    pub path: PathId,
    /// The member.
    pub member: MemberId,
    /// On which terms.
    pub grant: Grant,
    /// Most messages.
    pub max_messages: u32,
    /// Facts of messages that the state no longer keeps, read from the index by the leader.
    pub stretch: Option<Stretch>,
}

/// Facts of consecutive messages of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The partition.
    pub partition: Partition,
    /// The sequence of the first fact.
    pub first: Seq,
    /// The facts, at most [`STEPS_MAX`].
    pub facts: Vec<Fact>,
}

/// Ends or extends deliveries of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The path.
    pub path: PathId,
    /// The items, in order; [`ITEMS_MAX`] deliveries at most in all.
    pub items: Vec<SettleItem>,
}

/// What a settle does to its deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettleKind {
    /// Done: never deliver it again.
    Ack,
    /// Not done: deliver it again, later.
    Nack {
        /// Wait before the next attempt; 0 is the group's backoff.
        delay_ms: u32,
        /// Why, in the consumer's words.
        error: String,
    },
    /// No attempt will do: the message is dead.
    DeadLetter {
        /// Why, in the consumer's words.
        error: String,
    },
    /// Not looked at: deliver it again, and count no attempt.
    Release,
    /// Still at work: begin the lease anew.
    Extend,
    /// The broker's own: the record cannot be read, so the message is held (failure rule 3).
    Hold {
        /// Why, with file and offset.
        error: String,
    },
    /// The broker's own: try a held message again; the item names the delivery that found it unreadable.
    Resume,
}

/// Consecutive deliveries of consecutive messages, all settled in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettleItem {
    /// The partition.
    pub partition: Partition,
    /// The first message.
    pub first_seq: Seq,
    /// Its delivery.
    pub first_delivery: DeliveryId,
    /// How many.
    pub count: u32,
    /// What is done to them.
    pub kind: SettleKind,
}
