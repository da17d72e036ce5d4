//! Positions and quantities of MortarMQ, and their text forms.
//!
//! This is the lowest crate: it knows nothing of any other and holds no logic. A plain `u64` can be a sequence, a
//! delivery number or a time; the types here keep the compiler between them. Read [`position`] first (what orders
//! things), then [`identity`] (what names things), [`time`], and [`cause`] (why a delivery ended or a message left).

mod numbers;

pub mod cause;
pub mod identity;
pub mod mutants;
pub mod position;
pub mod time;

pub use cause::{Cause, DropReason};
pub use identity::{ConnectionId, KeyHash, MemberId, NodeId, Partition, PathId, ProducerId, ShardId, TopicIncarnation};
pub use mutants::Mutant;
pub use position::{Attempt, CommitIndex, DeliveryId, Epoch, Position, ProducerSeq, Seq};
pub use time::{ClusterTime, LeaseTime, MonotonicTime, WallTime};
