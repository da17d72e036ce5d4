//! Answers to queries as data: the shapes of the operator routes. One file per question makes them from the state.

pub mod balance;
pub mod cluster;
pub mod dead_letters;
pub mod defaults;
pub mod groups;
pub mod leader;
pub mod letters;
pub mod metadata;
pub mod moved;
pub mod peek;
pub mod stats;
pub mod topics;
pub mod trace;

pub use balance::{BalanceView, PathBooks};
pub use cluster::{AskingView, ClusterView, NodeView};
pub use dead_letters::{DeadLetterView, DeadLettersView};
pub use defaults::DefaultsView;
pub use groups::{GroupView, GroupsView, MemberView};
pub use leader::LeaderView;
pub use letters::LettersView;
pub use metadata::{MetadataView, TopicMetadata};
pub use moved::MovedView;
pub use peek::{PeekView, PeekedMessage};
pub use stats::{GroupPartitionStats, GroupStats, PartitionStats, StatsView, TopicStats};
pub use topics::{TopicPartitionView, TopicSummary, TopicView, TopicsView};
pub use trace::{TraceEvent, TraceView};
