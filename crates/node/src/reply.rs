//! What a node answers: one [`Reply`] per request, in the order of the requests, and one [`QueryReply`] per query.

use mortarmq_shard::{Published, SettleCode};
use mortarmq_types::{MemberId, Position, TopicIncarnation};
use mortarmq_wire::{ErrorCode, Outcome};

use crate::views::{
    BalanceView, ClusterView, DeadLettersView, DefaultsView, GroupView, GroupsView, LeaderView, LettersView,
    MetadataView, MovedView, PeekView, StatsView, TopicView, TopicsView, TraceView,
};

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The position that the answer rests on.
    pub position: Position,
    /// What became of the request.
    pub result: Result<Answer, Failure>,
}

/// A request that was carried out.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`crate::Request::Ping`].
    Pong,
    /// A topic exists.
    Declared {
        /// The topic.
        topic: TopicIncarnation,
        /// Its name, as it is written.
        name: String,
        /// Its partitions.
        partitions: u16,
        /// Whether it was there before, with the same settings.
        existed: bool,
    },
    /// A topic does not exist.
    Deleted {
        /// Whether it was there before.
        existed: bool,
    },
    /// Topics described.
    Metadata(MetadataView),
    /// A message is stored.
    Published(Published),
    /// Several messages are stored.
    PublishedBatch(Vec<Published>),
    /// A group was joined.
    Subscribed {
        /// The handle that the edge chose.
        subscription: u16,
        /// The member.
        member: MemberId,
        /// By which it can resume.
        secret: u64,
    },
    /// A window was changed.
    Credit(CreditGranted),
    /// Deliveries were settled: one code for each.
    Settled(Vec<SettleCode>),
    /// A session goes on, or is over.
    Heartbeat,
}

/// A window as it stands after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditGranted {
    /// Messages of the window.
    pub window_messages: u16,
    /// Bytes of the window.
    pub window_bytes: u32,
    /// Messages held.
    pub held_messages: u16,
    /// Bytes held.
    pub held_bytes: u32,
    /// Grows with each change of the window.
    pub credit_epoch: u64,
}

/// A request that was not carried out, or whose fate is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The registry's code.
    pub code: ErrorCode,
    /// Whether nothing happened or it is not known (P2).
    pub outcome: Outcome,
    /// What is wrong and what to do.
    pub message: String,
    /// When a retry makes sense; 0 says nothing.
    pub retry_after_ms: u32,
}

impl Failure {
    /// A refusal with the code's own outcome.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, outcome: code.outcome(), message: message.into(), retry_after_ms: 0 }
    }
}

/// The answer to one query.
#[derive(Clone, Debug)]
pub struct QueryReply {
    /// The position that the answer rests on.
    pub position: Position,
    /// Whether it may be older than what is committed: there was no majority to ask. It claims no order then.
    pub is_stale: bool,
    /// What was asked for.
    pub result: Result<QueryAnswer, Failure>,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub enum QueryAnswer {
    /// To [`crate::Query::Stats`].
    Stats(StatsView),
    /// To [`crate::Query::Balance`].
    Balance(BalanceView),
    /// To [`crate::Query::Topics`].
    Topics(TopicsView),
    /// To [`crate::Query::Topic`].
    Topic(TopicView),
    /// To [`crate::Query::Groups`].
    Groups(GroupsView),
    /// To [`crate::Query::Peek`].
    Peek(PeekView),
    /// To [`crate::Query::DeadLetters`].
    DeadLetters(DeadLettersView),
    /// To [`crate::Query::Trace`].
    Trace(TraceView),
    /// To [`crate::Query::Leader`] and [`crate::Act::HandOver`].
    Leader(LeaderView),
    /// To [`crate::Query::Members`] and [`crate::Act::Readmit`].
    Members(ClusterView),
    /// To every [`crate::Act`] that moves or ends a path.
    Moved(MovedView),
    /// To [`crate::Act::Letters`].
    Letters(LettersView),
    /// To [`crate::Act::ChangeGroup`]. [`crate::Act::ChangeTopic`] is answered with the topic.
    Group(GroupView),
    /// To [`crate::Act::DeleteTopic`].
    Done,
    /// To [`crate::Query::Defaults`] and [`crate::Act::ChangeDefaults`].
    Defaults(DefaultsView),
}
