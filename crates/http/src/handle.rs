//! What the router needs of the process that serves it.

use std::future::Future;

use mortarmq_node::{Act, Query, QueryReply};

use crate::access::Access;

/// The node and its process, as the router sees them. Cheap to clone: every request has one.
pub trait NodeHandle: Clone + Send + Sync + 'static {
    /// Asks the node. `None`: the node is stopping and answers nothing more.
    fn query(&self, question: Query) -> impl Future<Output = Option<QueryReply>> + Send;

    /// Asks the node for a change; answered when it is applied. `None`: the node is stopping, and whether the change was made
    /// is not known.
    fn act(&self, act: Act) -> impl Future<Output = Option<QueryReply>> + Send;

    /// Who may do what. Does not wait for the node.
    fn access(&self) -> &Access;

    /// What `GET /v1/broker` tells. Does not wait for the node.
    fn broker(&self) -> BrokerStatus;

    /// Whether the node serves. Does not wait for the node.
    fn readiness(&self) -> Readiness;

    /// The metrics of the process, in the Prometheus text format 0.0.4.
    fn metrics(&self) -> impl Future<Output = String> + Send;
}

/// What `GET /v1/broker` tells.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BrokerStatus {
    /// The node.
    pub node_id: u16,
    /// Seconds since the process began to serve.
    pub uptime_s: u64,
    /// Open client connections.
    pub connections: u64,
    /// The version of the binary.
    pub version: String,
    /// 0 healthy, 1 soft, 2 read-only.
    pub quorum_state: u8,
    /// What the node is in its cluster.
    pub role: Role,
    /// Who leads, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_id: Option<u16>,
    /// How the other nodes stand with this one, by id; none on a node that is alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerStatus>,
}

impl BrokerStatus {
    /// A node that leads alone.
    #[must_use]
    pub fn alone(node_id: u16, version: impl Into<String>) -> Self {
        Self {
            node_id,
            uptime_s: 0,
            connections: 0,
            version: version.into(),
            quorum_state: 0,
            role: Role::Leader,
            leader_id: Some(node_id),
            peers: Vec::new(),
        }
    }
}

/// What a node is in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It leads; so does a node that is alone.
    Leader,
    /// It hears another one that leads.
    Follower,
    /// It knows of nobody who leads.
    #[default]
    None,
}

impl Role {
    /// As routes and commands name it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::None => "none",
        }
    }
}

/// Another node of the cluster, as this one knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PeerStatus {
    /// The node.
    pub id: u16,
    /// How the link to it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkStatus>,
    /// How it follows; only a leader knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
}

/// The link to another node, and what that says of itself. What it has not said yet is left out.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LinkStatus {
    /// Where it is dialled.
    pub address: String,
    /// Whether it is connected.
    pub up: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The version of its binary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How far its wall clock is ahead of this node's, when it was last heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// Whether it lists the same nodes at the same addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_peers: Option<bool>,
    /// Whether its data lies on the device of this node's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_device: Option<bool>,
}

/// How a node follows its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Replication {
    /// `current`, `lagging`, `catching_up` or `silent`.
    pub state: &'static str,
    /// Entries of the log that it has not acknowledged.
    pub lag_entries: u64,
    /// What it lacks of the log; none where that is more than its leader has in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_bytes: Option<u64>,
    /// Milliseconds since it was heard; none if it never was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
}

/// What `GET /readyz` and `GET /healthz` tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether requests are served, or handed to the node that leads: recovery is done, and a leader is known.
    pub ready: bool,
    /// What the node is in its cluster.
    pub role: Role,
    /// Why it is not ready; not looked at otherwise.
    pub why: String,
    /// What is worse than it should be while the node serves, one sentence each.
    pub degraded: Vec<String>,
    /// Whether a stop was asked for.
    pub stopping: bool,
}
