//! Real faults against three real nodes: named scenarios, each under the same load, each judged by the checker.
//!
//! Where the simulator plays the broker's code on simulated disks and clocks, this runs the binary as it is: processes are killed and
//! paused, disks lose their power, fail and fill up, networks lose packets, bytes rot and clocks jump. It knows the broker as
//! its clients and operators do: by its wire protocol, its operator routes, its log and its folder, and judges by what they saw.
//!
//! # Where to start reading
//! A file of [`scenarios`], such as `scenarios/kill.rs`: what is done and what must hold. The verbs they are written in are in `run`.
//! What always must hold is in `conclude`. `load` is what the clients do meanwhile; `cluster`, `node`, `disk` and `network` are
//! what is broken; [`room`] makes sure that nothing of it outlives the program.

mod chance;
mod cluster;
mod conclude;
mod disk;
mod failure;
mod ground;
mod load;
mod network;
mod node;
mod operator;
mod run;
mod runner;
mod scenario;
mod tools;
mod wait;

pub mod measure;
pub mod room;
pub mod scenarios;
pub mod table;

pub use chance::Chance;
pub use failure::Failure;
pub use ground::{Disks, Ground, Links};
pub use load::Counts;
pub use run::{Cast, Run};
pub use runner::{Options, run};
pub use scenario::{Class, Scenario};
pub use wait::listen_for_stop;
