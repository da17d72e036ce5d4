//! What belongs to the present connection only, and is gone with it.

use std::collections::VecDeque;

use bytes::BytesMut;
use mortarmq_wire::Op;

/// The outgoing bytes and the requests whose answers are awaited, in their order.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Frames that the connection task has not taken yet.
    pub(crate) out: BytesMut,
    /// Requests that were put into `out` or sent, oldest first. Answers come in this order; PULL is not among them.
    pub(crate) sent: VecDeque<Sent>,
    /// Whether there is a connection.
    pub(crate) is_up: bool,
    /// Whether the server has said that it takes nothing now and others may: it is left for the next one.
    pub(crate) takes_nothing: bool,
}

impl Link {
    /// Starts anew: nothing of the connection before is valid on another.
    pub(crate) fn reset(&mut self, is_up: bool) {
        self.out.clear();
        self.sent.clear();
        self.is_up = is_up;
        self.takes_nothing = false;
    }
}

/// Whose request it was.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The producer line's entry with this index.
    Publish { line: u32, index: u64, op: Op },
    /// The subscription's settles in flight.
    Settle { subscription: u32 },
    /// A sign of life of the subscription's member.
    Heartbeat { subscription: u32 },
    /// That the subscription wants no more pushes.
    Credit { subscription: u32 },
    /// The subscription's last word.
    Leave { subscription: u32 },
    /// The subscription's own SUB.
    Subscribe { subscription: u32 },
    /// A call's request.
    Call { call: u64, op: Op },
    /// A METADATA by which lines and subscriptions get their topic's handle.
    Resolve { topics: Box<[String]> },
    /// A sign of life of the connection.
    Ping,
}

impl Sent {
    pub(crate) const fn op(&self) -> Op {
        match self {
            Self::Publish { op, .. } | Self::Call { op, .. } => *op,
            Self::Settle { .. } => Op::Settle,
            Self::Credit { .. } => Op::Credit,
            Self::Heartbeat { .. } | Self::Leave { .. } => Op::Heartbeat,
            Self::Subscribe { .. } => Op::Subscribe,
            Self::Resolve { .. } => Op::Metadata,
            Self::Ping => Op::Ping,
        }
    }
}
