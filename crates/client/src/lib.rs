//! The Rust client of MortarMQ's wire protocol: an idempotent producer, a consumer with lease renewal, reconnect.
//!
//! It knows the protocol (`mortarmq-wire`) and nothing of how a broker works inside. A [`Client`] is one connection,
//! owned by one task (`connection.rs`); everything that must survive the loss of that connection, such as publishes
//! that were not answered, deliveries that were not settled and requests under way, is in the engine behind it
//! (`engine.rs`), which does no I/O. The handles ([`Client`], [`Producer`], [`Consumer`], [`Delivery`]) put work into
//! the engine and wait for its answers.
//!
//! Read [`Client`] first for how it is used, then `engine/line.rs` (how a publish keeps its number until it is
//! answered) and `engine/hand_over.rs` (how a key's messages reach the handler one after another).

mod backoff;
mod client;
mod connection;
mod consumer;
mod delivery;
mod engine;
mod errors;
mod message;
mod options;
mod producer;
mod settle;
mod worker;

pub use client::{Client, Metadata, Node, Topic, TopicInfo};
pub use consumer::Consumer;
pub use delivery::Delivery;
pub use errors::{ClientError, PublishError, ServerError, SettleError};
pub use message::Message;
pub use mortarmq_transport::Roots;
pub use mortarmq_types::{
    Attempt, Cause, CommitIndex, DeliveryId, Epoch, Partition, Position, ProducerId, ProducerSeq, Seq, WallTime,
};
pub use mortarmq_wire::ops::{StartPolicy, TopicState};
pub use mortarmq_wire::{ErrorCode, Outcome};
pub use options::{ClientOptions, ConsumerOptions, ProducerOptions, PullOptions, ReconnectOptions, TlsOptions};
pub use producer::{Producer, Published, Receipt};
pub use settle::SettleReceipt;
pub use worker::Verdict;
