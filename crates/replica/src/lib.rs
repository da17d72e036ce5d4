//! Raft driving for one shard, without I/O, clock or randomness.
//!
//! This crate turns ticks, peer messages, proposals and disk completions into appends, sends and committed bytes. It
//! knows nothing of what the bytes mean, of topics, files or sockets. Consensus itself is the `raft` library; what is
//! here keeps its traps out of everybody else's way: what must be durable before what is said, in which order, and
//! nothing that a replay of the same inputs would not repeat.
//!
//! A driver starts with [`Replica::recover_begin`], feeds every journal batch to [`Recovery::handle_batch`] and applies
//! what that returns, then takes the [`Replica`] from [`Recovery::finish`]. From then on it calls the `handle_*` inputs
//! and [`Replica::propose`], and after them [`Replica::poll_output`] until that returns `None`.
//!
//! Read [`output`] first (what leaves), then [`replica`] (the loop), `ready_queue` (persist, then speak), [`recovery`]
//! and `log_tail` (what is remembered), `reads` (the read index), `handover` (a leader whose disk hangs), `election`
//! (time-outs without randomness), [`membership`] (who votes, and how that changes), [`catch_up`] (what is said where the log does not reach), and [`peer_message`] (what a peer may say, and its bytes).

mod election;
mod handover;
mod log_tail;
mod reads;
mod ready_queue;

pub mod catch_up;
pub mod config;
pub mod entry;
pub mod membership;
pub mod output;
pub mod peer_message;
pub mod promise;
pub mod recovery;
pub mod replica;

pub use catch_up::{CatchUpMessage, CatchUpWord, Snapshot};
pub use config::{ConfigError, Limits, ReplicaConfig};
pub use entry::{Entry, EntryKind, HardState};
pub use membership::{Change, MemberRole, Membership};
pub use output::Output;
pub use peer_message::{PeerBytesError, PeerMessage, RefusedMessage};
pub use promise::Promise;
pub use recovery::{Recovery, RecoveryError};
pub use replica::{ChangeError, Follower, HandOverError, NotLeader, ProposeError, Proposed, Replica};
