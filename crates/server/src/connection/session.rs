//! What a connection knows: its handles, the answers it waits for, and how far it has come.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use mortarmq_http::{Access, Action, Rights};
use mortarmq_node::{ErrorCode, Failure, Handles, Request};
use mortarmq_shard::PublishRunBuilder;
use mortarmq_types::{MemberId, NodeId, TopicIncarnation};

use super::ack_latency::AckLatency;
use super::expected::Expected;
use crate::metrics::Metrics;
use crate::relay::Moving;

/// The state of one connection, without its socket.
pub(crate) struct Session {
    pub(crate) identity: Identity,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stage: Stage,
    /// What whoever connected may do; nothing before CONNECT.
    pub(crate) rights: Option<Rights>,
    pub(crate) access: Arc<Access>,
    pub(crate) handles: Handles,
    /// What may be done with the topics of the handles; empty where nobody is asked for a token.
    topic_rights: BTreeMap<TopicIncarnation, TopicRights>,
    pub(crate) subscriptions: BTreeMap<u16, Subscription>,
    pub(crate) expected: Expected,
    pub(crate) ack_latency: AckLatency,
    /// What it takes to go on at the node that leads; none where the connection cannot.
    pub(crate) moving: Option<Box<Moving>>,
    /// Requests for the node, in their order; publishes are collected in `run` until another request comes.
    requests: Vec<Request>,
    run: PublishRunBuilder,
}

/// What the node tells of itself to every connection.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) node_id: NodeId,
    /// Where clients reach it.
    pub(crate) client_address: SocketAddr,
    /// The longest that a PULL waits.
    pub(crate) poll_max_wait_ms: u16,
    /// Whether the client came to another node, which carries what it says here.
    pub(crate) is_carried: bool,
}

impl Identity {
    /// The same for a client that reached the node at this address. A node that listens on every address of its machine names
    /// the one that the client knows: `0.0.0.0` leads nobody anywhere.
    pub(crate) fn reached_at(&self, local: Option<IpAddr>) -> Self {
        let mut identity = self.clone();
        if let Some(local) = local.filter(|_| self.client_address.ip().is_unspecified()) {
            // An IPv4 client of a socket for both has an address that is written as IPv6.
            identity.client_address.set_ip(local.to_canonical());
        }
        identity
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// CONNECT has not come.
    BeforeConnect,
    /// CONNECT came with a token that is none: nothing is taken, and it is told so a little later.
    Rejected,
    /// Every request is taken.
    Open,
    /// Nothing more is taken; what is open is answered, then the connection closes.
    Ending,
}

/// What may be done with a topic.
#[derive(Clone, Debug)]
struct TopicRights {
    name: Box<str>,
    produce: bool,
    consume: bool,
}

/// A subscription that was asked for on this connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subscription {
    pub(crate) topic: TopicIncarnation,
    /// The member; known once SUB is answered, as a resume keeps the former one.
    pub(crate) member: Option<MemberId>,
}

impl Session {
    pub(crate) fn new(identity: Identity, access: Arc<Access>, metrics: Arc<Metrics>) -> Self {
        Self {
            identity,
            metrics,
            stage: Stage::BeforeConnect,
            rights: None,
            access,
            handles: Handles::default(),
            topic_rights: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            expected: Expected::new(Instant::now()),
            ack_latency: AckLatency::default(),
            moving: None,
            requests: Vec::new(),
            run: PublishRunBuilder::default(),
        }
    }

    /// The handle of a topic, given now if it has none, and with it what may be done with the topic. None when all are
    /// used up.
    pub(crate) fn handle_of(&mut self, topic: TopicIncarnation, name: &str) -> Option<u16> {
        let handle = self.handles.handle_of(topic)?;
        if let Some(moving) = &mut self.moving {
            moving.name(handle, topic, name);
        }
        if !self.access.is_open() {
            let may = |action| self.rights.as_ref().is_some_and(|rights| rights.may(action, name));
            let (produce, consume) = (may(Action::Produce), may(Action::Consume));
            self.topic_rights.insert(topic, TopicRights { name: name.into(), produce, consume });
        }
        Some(handle)
    }

    /// Whether a topic may be seen.
    pub(crate) fn may_see(&self, name: &str) -> bool {
        self.rights.as_ref().is_some_and(|rights| rights.may_see(name))
    }

    /// Refuses an action on a topic of this name that no grant allows.
    pub(crate) fn check(&self, action: Action, name: &str) -> Result<(), Failure> {
        match &self.rights {
            Some(rights) if rights.may(action, name) => Ok(()),
            Some(_) | None => Err(forbidden(action, name)),
        }
    }

    /// Refuses to publish to a topic, or to consume from it, without a grant. It is asked for every publish.
    pub(crate) fn check_topic(&self, action: Action, topic: TopicIncarnation) -> Result<(), Failure> {
        if self.access.is_open() {
            return Ok(());
        }
        let Some(rights) = self.topic_rights.get(&topic) else { return Err(forbidden(action, "")) };
        let is_allowed = match action {
            Action::Produce => rights.produce,
            Action::Consume => rights.consume,
            Action::Create | Action::Admin => false,
        };
        if is_allowed { Ok(()) } else { Err(forbidden(action, &rights.name)) }
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

/// Names the grant that is missing.
fn forbidden(action: Action, name: &str) -> Failure {
    let text = match action {
        Action::Admin => "this needs a token with the grant {\"action\": \"admin\"}; nothing was changed".to_owned(),
        Action::Produce | Action::Consume | Action::Create => format!(
            "the token may not {word} on topic {name:?}; it needs the grant \
             {{\"action\": \"{word}\", \"patterns\": [{name:?}]}}",
            word = action.word()
        ),
    };
    Failure::new(ErrorCode::Forbidden, text)
}
