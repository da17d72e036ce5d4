//! What a connection knows: its handles, the answers it waits for, and how far it has come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use mortarmq_node::{Failure, Handles, Request};
use mortarmq_shard::PublishRunBuilder;
use mortarmq_types::{MemberId, NodeId, TopicIncarnation};

use super::ack_latency::AckLatency;
use super::expected::Expected;
use crate::metrics::Metrics;

/// The state of one connection, without its socket.
pub(crate) struct Session {
    pub(crate) identity: Identity,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stage: Stage,
    pub(crate) handles: Handles,
    pub(crate) subscriptions: BTreeMap<u16, Subscription>,
    pub(crate) expected: Expected,
    pub(crate) ack_latency: AckLatency,
    /// Requests for the node, in their order; publishes are collected in `run` until another request comes.
    requests: Vec<Request>,
    run: PublishRunBuilder,
}

/// What the node tells of itself to every connection.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) node_id: NodeId,
    /// Where clients reach it.
    pub(crate) client_address: String,
    /// The longest that a PULL waits.
    pub(crate) poll_max_wait_ms: u16,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// CONNECT has not come.
    BeforeConnect,
    /// Every request is taken.
    Open,
    /// Nothing more is taken; what is open is answered, then the connection closes.
    Ending,
}

/// A subscription that was asked for on this connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription {
    pub(crate) topic: TopicIncarnation,
    /// The member; known once SUB is answered, as a resume keeps the former one.
    pub(crate) member: Option<MemberId>,
}

impl Session {
    pub(crate) fn new(identity: Identity, metrics: Arc<Metrics>) -> Self {
        Self {
            identity,
            metrics,
            stage: Stage::BeforeConnect,
            handles: Handles::default(),
            subscriptions: BTreeMap::new(),
            expected: Expected::new(Instant::now()),
            ack_latency: AckLatency::default(),
            requests: Vec::new(),
            run: PublishRunBuilder::default(),
        }
    }

    /// Adds a request that takes the next place in the order of answers.
    pub(crate) fn ask(&mut self, op: u8, frame_bytes: usize, request: Request) {
        self.close_run();
        self.requests.push(request);
        self.expected.push(op, frame_bytes);
    }

    /// Adds a request that is answered out of order: a pull.
    pub(crate) fn ask_unordered(&mut self, request: Request) {
        self.close_run();
        self.expected.push_pull();
        self.requests.push(request);
    }

    /// Refuses a request in its turn. Behind a refusal that closes nothing more is taken.
    pub(crate) fn refuse(&mut self, op: u8, frame_bytes: usize, failure: Failure) {
        if failure.code.closes() {
            self.stage = Stage::Ending;
        }
        self.ask(op, frame_bytes, Request::Refused(failure));
    }

    /// The run that publishes to a topic are added to. One run holds one topic.
    pub(crate) fn run_of(&mut self, topic: TopicIncarnation) -> &mut PublishRunBuilder {
        if self.run.topic().is_some_and(|other| other != topic) {
            self.close_run();
        }
        &mut self.run
    }

    /// Takes the requests that were collected.
    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        self.close_run();
        std::mem::take(&mut self.requests)
    }

    fn close_run(&mut self) {
        if let Some(run) = self.run.take() {
            self.requests.push(Request::Publish(run));
        }
    }
}
