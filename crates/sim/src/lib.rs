//! The simulator: the node's own code on simulated disks, clocks and connections, with clients that behave badly and
//! everything that can fail. One seed decides all of it, so whatever goes wrong goes wrong again.
//!
//! It is the second driver of `mortarmq-node`, beside the server, and like it holds no rule of the contract. What clients
//! did and saw is a history, which `mortarmq-check` judges; what the node holds is looked at by its own invariants.
//!
//! - [`plan`]: what is to happen, [`draw`] makes one of a seed;
//! - `world/`: the machines and what moves them; `run.rs` is the way of a run, `turn.rs` the shard's loop, `disk_work.rs` the
//!   threads that write and read, `link.rs` the connections, `faults.rs` what fails;
//! - `clients/`: producers, consumers and an operator;
//! - [`play`]: from a plan to its verdict; [`Tally`]: what was met on the way.
//!
//! Reading order: `plan.rs`, `world/mod.rs`, `world/run.rs`, `world/turn.rs`, `clients/producer.rs`.

mod clients;
mod history;
mod judge;
pub mod plan;
mod random;
pub mod schedule;
mod shrink;
mod swarm;
mod tally;
mod topics;
mod trace;
mod world;

pub use judge::{Keep, Outcome, play};
pub use plan::Plan;
pub use shrink::{Shrunk, shrink};
pub use swarm::draw;
pub use tally::{RARE_STATES, RARE_STATES_OF_SEVERAL, Tally};
