//! Any node serves any client: what only the leader can answer is carried to it.
//!
//! Publishes and what is answered once are forwarded by the node itself (docs/decisions/015-forwarding.md). Whoever consumes needs a
//! connection that the leader knows, and an operator's request is a stream of its own: both are carried as they are, over a
//! connection of their own to the leader's `listen_peer`, sealed or in TLS as all that nodes say to each other. What comes that way is never
//! carried on: one hop. When the leader is another one, the carried connection ends, and the client resumes wherever it likes.
//!
//! Reading order: `client.rs` (a client's connection goes on at the leader), `operator.rs` (one request does), `doors.rs` (the leader's side).

mod client;
mod doors;
mod operator;

use std::io;
use std::sync::Arc;

use mortarmq_transport::Stream;
use mortarmq_transport::sealed::{Opener, Sealer};
use mortarmq_types::NodeId;

use crate::peers::{Dial, DialError, Lane, OwnSide, carried, connect};
use crate::shared::Status;

pub(crate) use client::{Moving, go_on};
pub(crate) use doors::{Doors, OperatorDoor};
pub(crate) use operator::at_leader;

/// The way to whichever node leads.
pub(crate) struct Relay {
    own: OwnSide,
    others: Vec<Dial>,
    status: Arc<Status>,
}

impl Relay {
    pub(crate) fn new(own: OwnSide, others: Vec<Dial>, status: Arc<Status>) -> Self {
        Self { own, others, status }
    }

    /// The node that leads, if that is another one.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        self.status.leader_elsewhere()
    }

    /// Connects to a node.
    async fn dial(&self, to: NodeId, lane: Lane) -> Result<Stream, DialError> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "it is none of peers");
        let dial = self.others.iter().find(|dial| dial.node == to).ok_or_else(unknown)?;
        let (stream, keys) = connect(&self.own, dial, lane).await?;
        Ok(carried(stream, Opener::new(&keys.of_listener), Sealer::new(&keys.of_dialler)))
    }
}
