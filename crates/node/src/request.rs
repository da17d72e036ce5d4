//! What a driver asks of a node: requests of connections, and queries of operators.

use mortarmq_shard::{PublishRun, SeekTarget, SettleItem, StartPolicy};
use mortarmq_types::{MemberId, NodeId, Partition, Seq, TopicIncarnation, WallTime};

use crate::options::Settings;
use crate::reply::Failure;

/// One request of a connection. Every one takes a place in the connection's order of answers, except [`Request::Pull`].
#[derive(Clone, Debug)]
pub enum Request {
    /// Asks for a sign of life.
    Ping,
    /// The edge refused the request; the refusal takes its place in the order.
    Refused(Failure),
    /// Makes a topic, or compares one that exists.
    Declare {
        /// The topic's name.
        name: String,
        /// Partitions; 0 is the default.
        partitions: u16,
        /// Topic settings: a JSON object, or nothing.
        options: String,
    },
    /// Deletes a topic.
    Delete {
        /// The topic's name.
        name: String,
    },
    /// Describes topics.
    Metadata {
        /// The topics' names; none is all.
        names: Vec<String>,
    },
    /// Publishes; each command of the run takes a place of its own.
    Publish(PublishRun),
    /// Joins a group.
    Subscribe(Subscribe),
    /// Changes the window of a subscription.
    Credit {
        /// The subscription.
        subscription: u16,
        /// Whether the amounts are added to the window or replace it.
        add: bool,
        /// Messages; 0xFFFF is the group's window.
        messages: u16,
        /// Bytes; 0xFFFF_FFFF is the group's window.
        bytes: u32,
    },
    /// Asks for messages once. Its answer comes when it is ready and takes no place in the order.
    Pull {
        /// The subscription.
        subscription: u16,
        /// Most messages, at least 1.
        max_messages: u16,
        /// Most bytes; 0 is no limit.
        max_bytes: u32,
        /// Bytes that end the wait.
        min_bytes: u32,
        /// How long to wait for the first message.
        wait_ms: u16,
    },
    /// Settles deliveries; the items are folded into runs, [`mortarmq_shard::command::ITEMS_MAX`] deliveries at most.
    Settle {
        /// The subscription.
        subscription: u16,
        /// The items.
        items: Vec<SettleItem>,
    },
    /// Keeps a session alive, or ends it.
    Heartbeat {
        /// The subscription.
        subscription: u16,
        /// Whether the member leaves.
        leave: bool,
    },
}

impl Request {
    /// How many places it takes in the order of answers. A pull takes none, and counts as one.
    #[must_use]
    pub fn places(&self) -> u64 {
        if let Self::Publish(run) = self { u64::from(run.count) } else { 1 }
    }

    /// What it holds in memory.
    ///
    /// # Units
    /// Bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let variable = match self {
            Self::Publish(run) => run.commands.len(),
            Self::Settle { items, .. } => items.len() * size_of::<SettleItem>(),
            Self::Declare { options, .. } => options.len(),
            Self::Subscribe(subscribe) => subscribe.options.len(),
            Self::Metadata { names } => names.iter().map(String::len).sum(),
            Self::Ping
            | Self::Refused(_)
            | Self::Delete { .. }
            | Self::Credit { .. }
            | Self::Pull { .. }
            | Self::Heartbeat { .. } => 0,
        };
        variable + size_of::<Self>()
    }
}

/// Joins a group. Names are judged by the state machine.
#[derive(Clone, Debug)]
pub struct Subscribe {
    /// The topic.
    pub topic: TopicIncarnation,
    /// The group's name.
    pub group: String,
    /// Where the group begins if this makes it and `options` say nothing.
    pub start: StartPolicy,
    /// Messages of the window; 0 pushes nothing, 0xFFFF is the group's.
    pub credit_messages: u16,
    /// Bytes of the window; 0xFFFF_FFFF is the group's.
    pub credit_bytes: u32,
    /// Group settings and `start`: a JSON object, or nothing.
    pub options: String,
    /// The handle that the edge gives the subscription: the next free one of its connection.
    pub subscription: u16,
    /// 63 random bits drawn by the driver.
    pub member: MemberId,
    /// Random bits drawn by the driver; the log holds only a hash of them.
    pub secret: u64,
}

/// A delivery that a connection could not send: its lease is given back (failure rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// The partition.
    pub partition: Partition,
    /// The message.
    pub seq: Seq,
    /// The delivery.
    pub delivery_id: mortarmq_types::DeliveryId,
}

/// A question of an operator. The answer rests on a read index of the present epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Counters of all topics, or of one.
    Stats {
        /// The topic's name.
        topic: Option<String>,
    },
    /// The books of all paths, or of one topic's.
    Balance {
        /// The topic's name.
        topic: Option<String>,
    },
    /// All topics.
    Topics,
    /// One topic with its settings and partitions.
    Topic {
        /// The topic's name.
        name: String,
    },
    /// The groups of one topic.
    Groups {
        /// The topic's name.
        topic: String,
    },
    /// Messages, without leasing any.
    Peek {
        /// The topic's name.
        topic: String,
        /// The partition.
        partition: Partition,
        /// The first sequence wanted.
        from: Seq,
        /// Most messages.
        max: u32,
    },
    /// Dead letters of a topic, without leasing any.
    DeadLetters {
        /// The name of the topic they come from.
        topic: String,
        /// The partition.
        partition: Partition,
        /// The first sequence wanted, in the dead-letter topic.
        from: Seq,
        /// Most of them.
        max: u32,
    },
    /// The life of one message.
    Trace {
        /// The topic's name.
        topic: String,
        /// The partition.
        partition: Partition,
        /// The message.
        seq: Seq,
    },
    /// The initial values of the cluster.
    Defaults,
    /// Who leads. Any node that knows answers: one that does not lead, from what it last heard.
    Leader,
    /// The members of the cluster, and how they stand.
    Members,
}

impl Query {
    /// The name of the topic that is asked about, if it is one.
    #[must_use]
    pub fn topic(&self) -> Option<&str> {
        match self {
            Self::Stats { topic: name } | Self::Balance { topic: name } => name.as_deref(),
            Self::Topic { name }
            | Self::Groups { topic: name }
            | Self::Peek { topic: name, .. }
            | Self::DeadLetters { topic: name, .. }
            | Self::Trace { topic: name, .. } => Some(name),
            Self::Topics | Self::Leader | Self::Members | Self::Defaults => None,
        }
    }
}

/// A change that an operator asks for. It is answered when it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Drops everything that the groups of a topic owe, or one of them.
    Purge {
        /// The topic's name.
        topic: String,
        /// The group's name; none is all.
        group: Option<String>,
    },
    /// Moves a group to another place.
    Seek {
        /// The topic's name.
        topic: String,
        /// The group's name.
        group: String,
        /// Where to.
        to: SeekTarget,
    },
    /// Moves a group to the first messages that were published at a time or later.
    SeekTime {
        /// The topic's name.
        topic: String,
        /// The group's name.
        group: String,
        /// The time, by the leader's wall clock.
        time: WallTime,
    },
    /// Ends a group, and drops what it owes.
    DeleteGroup {
        /// The topic's name.
        topic: String,
        /// The group's name.
        group: String,
    },
    /// Redrives or purges dead letters. It is answered when all are done, however long that takes.
    Letters(LettersAct),
    /// Gives a topic other settings, or more partitions.
    ChangeTopic {
        /// The topic's name.
        topic: String,
        /// Settings and their values, as in the options of a DECLARE.
        settings: Settings,
    },
    /// Gives a group other settings.
    ChangeGroup {
        /// The topic's name.
        topic: String,
        /// The group's name.
        group: String,
        /// Settings and their values, as in the options of a SUB.
        settings: Settings,
    },
    /// Ends a topic, with its groups and dead letters.
    DeleteTopic {
        /// The topic's name.
        name: String,
    },
    /// Gives the cluster other initial values.
    ChangeDefaults {
        /// Keys and their values.
        values: Settings,
    },
    /// Hands the office over. It is answered when the other node leads, or does not.
    HandOver {
        /// The node that is to lead.
        to: NodeId,
    },
    /// Takes a node whose data is gone back as the life that it asks as. It is answered when it is admitted as a learner; it is promoted when
    /// it has what the others have.
    Readmit {
        /// The node.
        node: NodeId,
    },
}

impl Act {
    /// The name of the topic that is concerned, if it is one.
    #[must_use]
    pub fn topic(&self) -> Option<&str> {
        match self {
            Self::Purge { topic, .. }
            | Self::Seek { topic, .. }
            | Self::SeekTime { topic, .. }
            | Self::DeleteGroup { topic, .. }
            | Self::ChangeTopic { topic, .. }
            | Self::ChangeGroup { topic, .. }
            | Self::DeleteTopic { name: topic }
            | Self::Letters(LettersAct { topic, .. }) => Some(topic),
            Self::ChangeDefaults { .. } | Self::HandOver { .. } | Self::Readmit { .. } => None,
        }
    }
}

/// Dead letters that an operator means, and what is to be done with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LettersAct {
    /// The name of the topic they come from.
    pub topic: String,
    /// What is to be done.
    pub action: LetterAction,
    /// Their partition; none is all of them.
    pub partition: Option<Partition>,
    /// Their sequences; none is every one that is not settled.
    pub sequences: Vec<Seq>,
    /// Only those that died for this reason: the words of an envelope.
    pub reason: Option<String>,
    /// At most so many.
    pub limit: Option<u64>,
    /// At most so many per second, not 0.
    pub rate: Option<u32>,
    /// Whether they are only counted.
    pub dry_run: bool,
}

/// What is done with dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterAction {
    /// Their messages go back to the paths that they died on.
    Redrive,
    /// They leave the book of dead letters.
    Purge,
}
