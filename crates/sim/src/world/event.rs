//! What can happen next, and what reaches a node.

use std::time::Duration;

use bytes::Bytes;
use mortarmq_node::{
    Act, CatchUpDone, Delivery, DiskState, Failure, Peer, PeerWord, Query, ReadResult, Reply, Request, Unsent,
};
use mortarmq_storage::Stretch;
use mortarmq_types::{ConnectionId, DeliveryId, MemberId};

use crate::plan::{Deed, FaultKind};

/// One thing that happens at a moment. What belongs to a process names its life, and is nothing once that is over.
#[derive(Debug)]
pub(crate) enum Event {
    /// A client or operator does something.
    Deed(Deed),
    /// A fault strikes a node, or the one that leads.
    Fault { node: Option<usize>, kind: FaultKind },
    /// A fault that lasts is over.
    Heal { node: usize, what: Healed },
    /// A node starts.
    Start { node: usize },
    /// The shard's loop turns.
    Turn { node: usize, life: u64 },
    /// Something reaches the shard's loop.
    Input { node: usize, life: u64, input: Input },
    /// The journal thread carries out its next job.
    Journal { node: usize, life: u64 },
    /// The journal thread is done with a job that was carried out before.
    JournalDone { node: usize, life: u64, written: Option<(u64, Duration)> },
    /// The segment writer carries out what it has to do.
    Segments { node: usize, life: u64 },
    /// The segment writer is done.
    SegmentsDone { node: usize, life: u64 },
    /// A read is carried out.
    Read { node: usize, life: u64, ticket: u64 },
    /// The disk is looked at.
    Look { node: usize, life: u64 },
    /// The scrub reads on.
    Scrub { node: usize, life: u64 },
    /// A stop waits no longer for connections.
    StopConnections { node: usize, life: u64 },
    /// The bytes of a message between nodes arrive.
    Peer { to: usize, bytes: Bytes },
    /// Links between nodes that were cut carry something again, or nothing again.
    Cut { cut: u64, is_cut: bool },
    /// Clients whose node says nothing look for another.
    Patience,
    /// A client connects.
    Connect { client: Client },
    /// Requests arrive at a node.
    Arrive { connection: ConnectionId },
    /// Nothing more comes on a connection.
    HalfClosed { node: usize, life: u64, connection: ConnectionId },
    /// A connection moves what waits in it.
    Pump { connection: ConnectionId },
    /// Something arrives at a client.
    Receive { connection: ConnectionId, message: ToClient },
    /// A client notices that its connection is gone.
    Lost { connection: ConnectionId },
    /// A client does what it meant to do at this moment.
    Act { client: Client, token: u64 },
    /// An answer reaches the operator.
    Answer { query: u64, reply: Box<mortarmq_node::QueryReply> },
    /// A member resumed a while ago: what it was owed is on its way.
    LookResumed { connection: ConnectionId, life: u64, member: MemberId, owed: Vec<DeliveryId> },
    /// Work ends; everything is healed.
    EndOfWork,
    /// The books are looked at, to see whether anything is left.
    Drained,
}

/// What is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Healed {
    DiskFull,
    SlowSync,
}

/// A client of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    Producer(usize),
    Consumer(usize),
}

/// What reaches the shard's loop, as in the server.
#[derive(Debug)]
pub(crate) enum Input {
    Connected {
        connection: ConnectionId,
    },
    /// Nothing more is asked on a connection.
    NoMoreRequests {
        connection: ConnectionId,
    },
    Disconnected {
        connection: ConnectionId,
    },
    /// What was begun is to be finished, then the loop ends.
    Stop,
    Requests {
        connection: ConnectionId,
        requests: Vec<Request>,
    },
    TurnedOut {
        connection: ConnectionId,
    },
    Unsent {
        connection: ConnectionId,
        subscription: u16,
        unsent: Vec<Unsent>,
    },
    Query {
        query: u64,
        question: Query,
    },
    Act {
        query: u64,
        act: Act,
    },
    /// A node whose data is gone asks to be readmitted.
    Asking {
        peer: Peer,
    },
    /// Another node says something.
    Peer {
        word: Box<PeerWord>,
    },
    /// The office is to be handed over.
    HandOver,
    /// The node is about to stop, and shall have no office.
    StandAside,
    JournalWritten {
        ready_number: u64,
        took: Duration,
    },
    SegmentsWritten {
        ticket: u64,
    },
    CheckpointWritten {
        log_index: u64,
        bytes: u64,
    },
    CatchUpDone {
        done: Box<CatchUpDone>,
    },
    CheckpointPutOff {
        log_index: u64,
    },
    Damaged {
        stretch: Stretch,
        is_waited_for: bool,
    },
    Disk {
        state: DiskState,
    },
    ReadDone {
        ticket: u64,
        result: ReadResult,
    },
}

/// What goes to a client.
#[derive(Debug)]
pub(crate) enum ToClient {
    Replies(Vec<Reply>),
    /// A message, with what is left of its lease when it was sent.
    Delivery {
        delivery: Box<Delivery>,
        lease_ms: u64,
        /// When that is over, as [`World::served_us`](super::World::served_us) counts; nothing where nobody can know.
        served_until_us: Option<u64>,
    },
    PullEnded {
        result: Result<u16, Failure>,
    },
}
