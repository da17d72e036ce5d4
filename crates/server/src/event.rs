//! What reaches the shard's loop, and what it sends to connections.

use std::time::Duration;

use mortarmq_node::{
    Act, CatchUpDone, Delivery, DiskState, Failure, Gauges, Peer, PeerWord, Query, QueryReply, ReadResult, Reply,
    Request, Unsent,
};
use mortarmq_storage::Stretch;
use mortarmq_types::{ConnectionId, Position};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::outlet::Outlet;

/// One input of the shard's loop.
pub(crate) enum Event {
    /// A connection is open; what is for it goes to `outlet`.
    Connected { connection: ConnectionId, outlet: Outlet },
    /// A connection is closed.
    Disconnected { connection: ConnectionId },
    /// Requests of a connection, in their order.
    Requests { connection: ConnectionId, requests: Vec<Request> },
    /// Nothing more is asked on a connection; it closes once everything is answered.
    NoMoreRequests { connection: ConnectionId },
    /// A connection is being ended because it takes its messages too slowly.
    TurnedOut { connection: ConnectionId },
    /// Deliveries that a connection gives back.
    Unsent { connection: ConnectionId, subscription: u16, unsent: Vec<Unsent> },
    /// A question of an operator.
    Query { question: Query, answer: oneshot::Sender<QueryReply> },
    /// A change that an operator asks for.
    Act { act: Act, answer: oneshot::Sender<QueryReply> },
    /// What the node holds, for metrics.
    Gauges { answer: oneshot::Sender<Gauges> },
    /// What another node says; its place is free when it was heard.
    Peer { word: Box<PeerWord>, place: OwnedSemaphorePermit },
    /// A node whose data is gone asks to be readmitted.
    Asking { peer: Peer },
    /// A batch is durable; how long that took.
    JournalWritten { ready_number: u64, took: Duration },
    /// Segment work is done.
    SegmentsWritten { ticket: u64 },
    /// A checkpoint is durable.
    CheckpointWritten { log_index: u64, bytes: u64 },
    /// There was no room for a checkpoint.
    CheckpointPutOff { log_index: u64 },
    /// What was to be done for a snapshot is done.
    CatchUpDone { done: CatchUpDone },
    /// Bytes of a segment, an index or a ledger are damaged; whether the segment writer waits for their repair.
    Damaged { stretch: Stretch, is_waited_for: bool },
    /// The disk stands otherwise than it did.
    Disk { state: DiskState },
    /// A read is done.
    ReadDone { ticket: u64, result: ReadResult },
    /// The node is about to stop, and lets go of its clients from now on: another may lead.
    StandAside,
    /// Everything that waits is to be finished, then the loop ends.
    Stop,
}

/// What waits of events that can wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patient {
    /// Events with a publish: one for each time that a connection was read.
    pub(crate) publishers: u64,
    /// Of all requests.
    pub(crate) bytes: usize,
    /// Whether a request is no publish: it may end what a batch waits for.
    pub(crate) has_others: bool,
}

impl Patient {
    /// More came.
    pub(crate) const fn add(&mut self, more: Self) {
        self.publishers += more.publishers;
        self.bytes += more.bytes;
        self.has_others |= more.has_others;
    }
}

impl Event {
    /// What is in an event that can wait while the journal writes: it would change nothing before. None for all others.
    pub(crate) fn patience(&self) -> Option<Patient> {
        match self {
            Self::Requests { requests, .. } => Some(Patient {
                publishers: u64::from(requests.iter().any(is_publish)),
                bytes: requests.iter().map(Request::held_bytes).sum(),
                has_others: !requests.iter().all(is_publish),
            }),
            Self::SegmentsWritten { .. } => Some(Patient::default()),
            Self::Asking { .. }
            | Self::Connected { .. }
            | Self::NoMoreRequests { .. }
            | Self::Disconnected { .. }
            | Self::TurnedOut { .. }
            | Self::Unsent { .. }
            | Self::Query { .. }
            | Self::Act { .. }
            | Self::Gauges { .. }
            | Self::Peer { .. }
            | Self::StandAside
            | Self::JournalWritten { .. }
            | Self::CheckpointWritten { .. }
            | Self::CheckpointPutOff { .. }
            | Self::CatchUpDone { .. }
            | Self::Damaged { .. }
            | Self::Disk { .. }
            | Self::ReadDone { .. }
            | Self::Stop => None,
        }
    }
}

const fn is_publish(request: &Request) -> bool {
    matches!(request, Request::Publish(_))
}

/// What the shard's loop sends to a connection.
#[derive(Debug)]
pub(crate) enum ToConnection {
    /// Answers, in the order of the requests.
    Replies(Vec<Reply>),
    /// Messages to send.
    Deliveries { subscription: u16, messages: Vec<Delivery> },
    /// The answer to a pull.
    PullEnded { subscription: u16, position: Position, result: Result<u16, Failure> },
}
