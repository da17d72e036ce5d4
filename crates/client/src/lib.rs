//! The Rust client of MortarMQ's wire protocol: an idempotent producer, a consumer with lease renewal, reconnect.
//!
//! # Publish
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use mortarmq_client::{Client, ClientOptions, Message, ProducerOptions, TopicOptions};
//!
//! // One address or several: any node takes any request, and a lost connection is opened again at the next.
//! let client = Client::connect(ClientOptions::to("127.0.0.1:7188")).await?;
//! client.declare_topic("orders", TopicOptions::default()).await?;
//! let producer = client.producer("orders", ProducerOptions::default()).await?;
//!
//! // Wait for each answer …
//! let stored = producer.publish(Message::of(b"100").key(b"customer-7").header("order-id", b"41")).await?;
//! println!("stored on the disks of a majority, at {}", stored.seq);
//!
//! // … or have many under way: some hundred thousand a second on one connection.
//! let mut receipts = Vec::new();
//! for amount in ["200", "300"] {
//!     receipts.push(producer.send(Message::of(amount.as_bytes())).await?);
//! }
//! for receipt in receipts {
//!     receipt.await?;
//! }
//! client.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! A message can have a delay, a life and an idempotency key: see [`Message`].
//!
//! # Consume
//!
//! ```no_run
//! # async fn example(client: mortarmq_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! # async fn charge(_: &mortarmq_client::Delivery) -> Result<(), String> { Ok(()) }
//! use mortarmq_client::ConsumerOptions;
//!
//! let consumer = client.consumer("orders", "billing", ConsumerOptions::default()).await?;
//! let ctrl_c = async { drop(tokio::signal::ctrl_c().await) };
//! // Eight at once, never two of one key. Ok acks; an error comes again later, and is kept with a dead letter.
//! consumer.run(8, ctrl_c, |delivery| async move { charge(&delivery).await }).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Or with a loop of your own:
//!
//! ```no_run
//! # async fn example(client: mortarmq_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! # async fn charge(_: &mortarmq_client::Delivery) -> Result<(), String> { Ok(()) }
//! use mortarmq_client::ConsumerOptions;
//!
//! let options = ConsumerOptions::default().set("lease_ms", 60_000).set("max_attempts", 10);
//! let mut consumer = client.consumer("orders", "billing", options).await?;
//! while let Some(delivery) = consumer.next().await {
//!     let delivery = delivery?;
//!     let settled = tokio::select! {
//!         result = charge(&delivery) => match result {
//!             Ok(()) => delivery.ack().await,
//!             Err(text) => delivery.nack(5_000, &text).await,
//!         },
//!         // Somebody else has the message by now, so stop.
//!         () = delivery.lost() => continue,
//!     };
//!     match settled {
//!         Err(error) if !error.has_moved_on() => return Err(error.into()),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Consumer::pull`] asks for messages instead of having them pushed. A message may come twice, for a stated cause
//! ([`Delivery::cause`]): the example `idempotent_consumer` shows how its effect still happens once.
//!
//! # What an error says
//!
//! | | question | answer |
//! |---|---|---|
//! | [`PublishError`] | stored, not stored, or nobody knows? | `Ok` is stored; [`outcome`](PublishError::outcome): `Refused` is not stored and never will be, `Unknown` may be |
//! | [`SettleError`] | is the message still mine? | [`has_moved_on`](SettleError::has_moved_on): no, drop the work |
//! | each, and [`ClientError`] | does a retry help? | [`retry_helps`](ClientError::retry_helps) |
//!
//! The client itself repeats whatever a repeat can help, under the same number, until it is answered, for as long as
//! [`ReconnectOptions::give_up_after`] says (for ever, unless it is set). So an error that reaches you is mostly for you to act
//! upon; its text says how.
//!
//! # How it ends
//!
//! [`Client::close`], [`Producer::close`] and [`Consumer::close`] wait until everything is answered. Dropping a handle does the
//! same in the background as long as the connection holds, and leaves no task behind.
//!
//! # What is inside
//!
//! It knows the protocol (`mortarmq-wire`) and nothing of how a broker works inside. A [`Client`] is one connection,
//! owned by one task (`connection.rs`); everything that must survive the loss of that connection, such as publishes
//! that were not answered, deliveries that were not settled and requests under way, is in the engine behind it
//! (`engine.rs`), which does no I/O. The handles ([`Client`], [`Producer`], [`Consumer`], [`Delivery`]) put work into
//! the engine and wait for its answers. Read on in `engine/line.rs` (how a publish keeps its number until it is
//! answered) and `engine/hand_over.rs` (how a key's messages reach the handler one after another).

mod backoff;
mod client;
mod connection;
mod consumer;
mod delivery;
mod engine;
mod errors;
#[cfg(feature = "history")]
mod history;
mod message;
mod options;
mod producer;
#[cfg_attr(
    not(feature = "history"),
    allow(dead_code, reason = "what a history is told is read only where one is written")
)]
mod recording;
mod settle;
mod worker;

pub use client::{Client, Metadata, Node, Topic, TopicInfo};
pub use consumer::Consumer;
pub use delivery::Delivery;
pub use errors::{ClientError, PublishError, ServerError, SettleError};
#[cfg(feature = "history")]
pub use history::Recording;
pub use message::Message;
pub use mortarmq_transport::Roots;
pub use mortarmq_types::{
    Attempt, Cause, CommitIndex, DeliveryId, Epoch, Partition, Position, ProducerId, ProducerSeq, Seq, WallTime,
};
pub use mortarmq_wire::ops::{StartPolicy, TopicState};
pub use mortarmq_wire::{ErrorCode, Outcome};
pub use options::{
    ClientOptions, ConsumerOptions, ProducerOptions, PullOptions, ReconnectOptions, TlsOptions, TopicOptions,
};
pub use producer::{Producer, Published, Receipt};
pub use settle::SettleReceipt;
pub use worker::Verdict;
