//! The operator routes: a router over the node's queries (docs/reference/operations.md, "Operator routes").
//!
//! What `mortarmq` asks a broker, curl can ask: a command has no route of its own. This crate turns a request into one
//! [`mortarmq_node::Query`] or [`mortarmq_node::Act`] and its answer into one line of JSON. It knows nothing of frames, Raft, disks or threads;
//! the driver gives it a [`NodeHandle`] and serves what [`router`] returns.
//!
//! Start with [`router`] (which paths there are, and what every request passes through), then one file of `routes`
//! (each is one route), then `refusal` (errors and their statuses) and `payload` (how stored bytes become JSON).
//! Routes that change something are answered when the change is applied; `intake` keeps foreign web pages away from them.

pub mod access;
mod answer;
mod handle;
mod intake;
mod page;
mod parameters;
mod payload;
mod refusal;
mod router;
mod routes;

pub use access::{Access, Action, Grant, Rights, Token};
pub use handle::{BrokerStatus, NodeHandle, Readiness};
pub use refusal::{refused, status};
pub use router::router;
