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
}

/// What `GET /readyz` and `GET /healthz` tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether requests are served: recovery is done, and a majority is there.
    pub ready: bool,
    /// Why it is not ready; not looked at otherwise.
    pub why: String,
    /// What is worse than it should be while the node serves, one sentence each.
    pub degraded: Vec<String>,
    /// Whether a stop was asked for.
    pub stopping: bool,
}
