//! One path (consumer group) in one partition: leases, settles, retries, dead letters, order by key, and the books.
//!
//! [`PathPartition`] is a pure state machine. It knows nothing of topics, disks or sockets, and has no clock: time, the
//! group's settings and what is known of the messages come with every call, so that equal calls give equal states on
//! every replica. It holds no payload and no entry for a message that was never offered: a backlog costs nothing here.
//!
//! How a driver calls it, once per applied batch:
//!
//! 1. [`PathPartition::end_due`] ends the leases that ran out at the batch's stamp;
//! 2. [`PathPartition::lease`], [`PathPartition::settle`] and [`PathPartition::end_member`], in the order of the commands;
//! 3. [`PathPartition::next_due`] says when the next stamp is needed although no command arrives.
//!
//! A checkpoint asks for [`PathPartition::image`] between two batches, and encodes it elsewhere; [`PathPartition::decode`] gives the same state back.
//!
//! Start reading at [`path_partition`] (the state and its invariants), then [`lease`], [`settle`] and [`ending`].

mod alone;
mod backoff;
mod crowd;
mod entries;
mod key_order;
mod pair_chunk;
mod pair_set;
mod runs;
mod seq_set;
mod tenure;

pub mod books;
pub mod chunked;
pub mod ending;
pub mod entry;
pub mod image;
pub mod lease;
pub mod moves;
pub mod path_partition;
pub mod redrive;
pub mod rules;
pub mod settle;
pub mod trim;

pub use books::Books;
pub use chunked::ChunkedMap;
pub use ending::{Death, End, Ended};
pub use entry::{Entry, Lease, State};
pub use image::{ImageError, PathPartitionImage};
pub use lease::{Delayed, Dropped, DuePosition, Fact, Facts, Handed, LeaseLimits, LeaseRequest, LeaseStop, Leased};
pub use moves::{Fate, MoveCount, MoveUnderWay, Moved};
pub use path_partition::PathPartition;
pub use redrive::{Redriven, Refused};
pub use rules::{Grant, Now, Order, PathRules};
pub use settle::{Settle, SettleError, Settled};
pub use tenure::Granted;
