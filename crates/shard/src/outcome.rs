//! What apply answers: one [`Outcome`] per command. Refusals are data; their text and code are made at the edge.

use crate::names::NameError;
use mortarmq_types::{MemberId, Partition, PathId, ProducerSeq, Seq, TopicIncarnation};

/// The result of one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody waits for more than that it was applied.
    Done,
    /// A message is stored.
    Published(Published),
    /// Several messages are stored.
    PublishedBatch(Vec<Published>),
    /// A topic exists.
    TopicDeclared {
        /// The topic.
        topic: TopicIncarnation,
        /// Its partitions.
        partitions: u16,
        /// Whether it was there before, with the same settings.
        existed: bool,
    },
    /// A topic does not exist.
    TopicDeleted {
        /// The topic that was there, if one was.
        topic: Option<TopicIncarnation>,
    },
    /// A member joined its path, or was found again there.
    Joined {
        /// The path.
        path: PathId,
        /// The member.
        member: MemberId,
    },
    /// Messages were leased.
    Delivered {
        /// How many.
        count: u32,
        /// What the next message takes, if none were leased because it does not fit into the bytes that were asked for.
        too_large: Option<u32>,
    },
    /// Deliveries were settled: one code for each.
    Settled(Vec<SettleCode>),
    /// An operator redrove or dropped dead letters: one code for each.
    Letters(Vec<LetterCode>),
    /// An operator moved a path, or ended it.
    Moved {
        /// Messages that are owed once more.
        replayed: u64,
        /// Messages that are dropped.
        dropped: u64,
        /// Whether the move goes on with the next batches and will concern more messages than these.
        is_partial: bool,
    },
    /// Settings are changed.
    Changed,
    /// The command changed nothing.
    Refused(Refusal),
}

/// Where a message is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The partition.
    pub partition: Partition,
    /// The sequence.
    pub seq: Seq,
    /// Whether this was a retry of a publish that was stored before.
    pub deduplicated: bool,
}

/// The answer to one item of a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleCode {
    /// It is done, now or before.
    Done,
    /// The message was delivered again since.
    Stale,
    /// The delivery is not live, and how it ended is not known or was another way.
    Unknown,
}

/// The answer for one dead letter of a redrive or purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LetterCode {
    /// It left the book of dead letters.
    Done,
    /// There is no such dead letter.
    Unknown,
    /// It left the book of dead letters before.
    Settled,
    /// A consumer of the dead-letter topic holds it.
    Leased,
    /// Its message is unsettled on the path that it died on: it was redriven or replayed, and is not settled yet.
    Unsettled,
    /// The group that it died on does not exist any more.
    GroupGone,
    /// Its record cannot be read, or does not say where it comes from.
    Unreadable,
    /// A purge or seek of one of the two paths goes on.
    Moving,
    /// One of the two paths has as many unsettled messages as it may.
    Full,
}

impl LetterCode {
    /// The word used in answers: why nothing was done.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unknown => "unknown",
            Self::Settled => "settled",
            Self::Leased => "leased",
            Self::Unsettled => "unsettled",
            Self::GroupGone => "group_gone",
            Self::Unreadable => "unreadable",
            Self::Moving => "moving",
            Self::Full => "full",
        }
    }
}

/// Why a command changed nothing. All of them are final: nothing was stored (P2).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No topic has this incarnation or name.
    #[error("the topic does not exist")]
    UnknownTopic,
    /// The topic has no such partition.
    #[error("the topic has {partitions} partitions, from 0; {requested} is not one of them")]
    UnknownPartition {
        /// What was asked for.
        requested: Partition,
        /// How many there are.
        partitions: u16,
    },
    /// The path is gone.
    #[error("the group does not exist")]
    UnknownGroup,
    /// An earlier purge or seek of the path goes on.
    #[error("a purge, a seek or a change of order of this group is not done yet; nothing was moved")]
    MoveUnderWay,
    /// The member is gone.
    #[error("the subscription has ended")]
    UnknownMember,
    /// A name breaks a rule.
    #[error("{0}")]
    Name(NameError),
    /// A topic of this name exists in another case.
    #[error("a topic {existing:?} exists, and names are unique without regard to case")]
    NameCase {
        /// The name that exists.
        existing: String,
    },
    /// The topic exists with other settings.
    #[error("the topic exists with other settings: {}", differences.join("; "))]
    TopicMismatch {
        /// The settings that differ.
        differences: Vec<String>,
    },
    /// The group exists with other settings.
    #[error("the group exists with other settings: {}", differences.join("; "))]
    GroupMismatch {
        /// The settings that differ.
        differences: Vec<String>,
    },
    /// A client's publish to a dead-letter topic, or its deletion.
    #[error("a dead-letter topic takes messages from the broker only, and is deleted with its source")]
    DeadLetterTopic,
    /// A group of a dead-letter topic with a limit of attempts.
    #[error("max_attempts is 0 on a dead-letter topic: a message that dies there stays there")]
    DeadLetterAttempts,
    /// A setting that cannot be changed.
    #[error("{key} is fixed when it is made, and cannot be changed; nothing was changed")]
    Fixed {
        /// The setting.
        key: &'static str,
    },
    /// Fewer partitions than there are.
    #[error("partitions only grows: there are {have}, {asked} would be fewer; nothing was changed")]
    FewerPartitions {
        /// How many there are.
        have: u64,
        /// How many were asked for.
        asked: u64,
    },
    /// Other partitions of a dead-letter topic than its source has.
    #[error("a dead-letter topic has the partitions of its source, and grows with it; nothing was changed")]
    DeadLetterPartitions,
    /// The group that keeps the book of dead letters is to be deleted.
    #[error("group default of a dead-letter topic stays as long as the topic: purge it instead")]
    DeadLetterGroup,
    /// The value is larger than the topic accepts.
    #[error("the value has {found} bytes, the topic accepts {limit}")]
    TooLarge {
        /// Bytes of the value.
        found: u32,
        /// The topic's `max_message_bytes`.
        limit: u64,
    },
    /// A producer number further ahead than the next.
    #[error("producer number {found} is ahead: {expected} comes next")]
    SeqGap {
        /// The number that comes next.
        expected: ProducerSeq,
        /// The number given.
        found: ProducerSeq,
    },
    /// A producer number that is no longer, or was never, known.
    #[error("producer number {found} is older than the window, or its producer is not known")]
    SeqExpired {
        /// The number given.
        found: ProducerSeq,
    },
    /// A producer number used for other bytes.
    #[error("producer number {found} was used for other bytes: two producers share one identity; nothing was stored")]
    SeqReused {
        /// The number given.
        found: ProducerSeq,
    },
    /// Only one of producer id and number is 0, or a batch's numbers do not follow one another.
    #[error("producer id and producer number are both 0 or both not 0, and the numbers of a batch follow one another")]
    SeqInvalid,
    /// The shard keeps as many producers as it may.
    #[error("the shard keeps as much as it may ({limit} entries), and remembers no new producer")]
    ProducerQuota {
        /// The limit.
        limit: u64,
    },
    /// The partition has as many delayed messages as it may.
    #[error("partition {partition} has as many delayed messages as it may ({limit})")]
    DelayedFull {
        /// The partition.
        partition: Partition,
        /// The limit, `max_delayed_per_partition`.
        limit: u64,
    },
    /// The shard keeps as many entries of producers and delayed messages as it may.
    #[error("the shard keeps as much as it may ({limit} entries), and takes no new delayed message")]
    DelayQuota {
        /// The limit.
        limit: u64,
    },
    /// The shard keeps as much as it may, and the idempotency key is new.
    #[error("the shard keeps as much as it may ({limit} entries), and remembers no new idempotency key")]
    KeyQuota {
        /// The limit, `state_entries_max`.
        limit: u64,
    },
    /// A group has as many members as it may.
    #[error("a group has at most {limit} members")]
    MemberLimit {
        /// The limit.
        limit: usize,
    },
    /// The shard has as many partitions or groups as it may.
    #[error("the shard has as many {what} as it may ({limit})")]
    CatalogQuota {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}
