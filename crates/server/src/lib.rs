//! The driver: threads, TCP, the admin listener, metrics. It moves bytes, time and threads, and holds no rule of the
//! contract: whatever could be right in one driver and wrong in another is decided in `mortarmq-node`.
//!
//! | thread | file | what it does |
//! |---|---|---|
//! | the shard's loop | `shard_loop.rs` | owns the node: events in, outputs out; never blocks |
//! | journal writer | `journal_thread.rs` | writes and fsyncs batches, one after the other |
//! | segment writer | `segment_thread.rs` | appends records and ledger events behind the journal |
//! | scrub | `scrub_thread.rs` | reads everything again, slowly, and names damage |
//! | read pool | `read_pool.rs` | reads payloads for deliveries, peeks and traces |
//! | disk watch | `room.rs` | looks once a second how full the disk is |
//! | tokio | `listener.rs`, `connection/`, `web_socket/`, `admin.rs` | sockets and frames, the operator routes |
//!
//! Reading order: [`server`] (start and stop), `recover.rs` (journal to node), `event.rs`, `inbox.rs` and `shard_loop.rs`, then
//! `connection/mod.rs` (one task per connection) with `connection/intake.rs` (frames to requests) and
//! `connection/answers.rs` (answers to frames). [`config`] is what a node is told.

mod admin;
mod admin_listener;
mod certificates;
mod clock;
pub mod config;
mod connection;
mod courier;
mod event;
mod file_system;
mod inbox;
mod journal_thread;
mod listener;
mod machine;
pub mod metrics;
mod open_files;
mod outlet;
mod peers;
mod random;
mod read_pool;
mod recover;
mod relay;
mod room;
mod scrub_thread;
mod segment_thread;
pub mod server;
mod shard_loop;
mod shared;
mod standing;
mod threads;
mod turn_away;
mod web_socket;

/// Checking a data directory that no node uses, for the command that does it.
pub use mortarmq_storage::{DirectoryLock, Finding, LockError, RealDisk, Summary, VerifyError, verify};

/// Who may do what, for the commands that make tokens.
pub use mortarmq_http::access;

pub use config::{Config, ConfigError, Origin, Source};
pub use file_system::{FileSystem, Keeps, file_system, known_file_system};
pub use machine::free_bytes;
pub use mortarmq_node::drive::{ForeignData, RecoverError};
pub use open_files::{FILES_WANTED, TooFewFiles, client_places};
pub use peers::AssemblyError;
pub use recover::RecoverySummary;
pub use server::{Addresses, Running, Server, StartError, socket_threads};
pub use threads::EXIT_DISK_FAILED;
pub use web_socket::Origins;
