//! `GET /v1/cluster/members[?detail=]`: the nodes of the cluster, and how they stand.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use mortarmq_node::views::{AskingView, NodeView};
use mortarmq_node::{Query, QueryAnswer};
use serde::Serialize;

use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

#[derive(Serialize)]
struct Members {
    members: Vec<Member>,
    /// Nodes whose data is gone and that wait to be readmitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    asking: Vec<AskingView>,
}

#[derive(Serialize)]
struct Member {
    id: u16,
    /// The address by which the client reached the node that answers; of another one where its links are dialled.
    addr: String,
    status: &'static str,
    draining: bool,
    /// Partitions that this node leads.
    owned_partitions: u64,
    outbound_moves: u64,
    voter: bool,
    leader: bool,
    heartbeat_age_seconds: u64,
    incarnation: u32,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_entries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag_bytes: Option<u64>,
    /// Stands in for the details that `detail=true` asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    status_error: Option<&'static str>,
}

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>, headers: HeaderMap, parameters: Parameters) -> Answer {
    let detail = parameters.flag("detail")?;
    let (_, QueryAnswer::Members(cluster)) = ask(&node, Query::Members).await? else {
        return Err(Refusal::other_answer());
    };
    let (mark, QueryAnswer::Topics(topics)) = ask(&node, Query::Topics).await? else {
        return Err(Refusal::other_answer());
    };
    let partitions = topics.topics.iter().map(|topic| u64::from(topic.partitions)).sum();
    let broker = node.broker();
    let here = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let member = |view: NodeView| {
        let peer = broker.peers.iter().find(|peer| peer.id == view.id).and_then(|peer| peer.link.as_ref());
        Member {
            id: view.id,
            addr: peer.map_or(here, |link| &link.address).to_owned(),
            status: if view.reached { "alive" } else { "dead" },
            draining: false,
            owned_partitions: if view.leads { partitions } else { 0 },
            outbound_moves: 0,
            voter: view.role != "learner",
            leader: view.leads,
            heartbeat_age_seconds: view.silent_ms.unwrap_or_default() / 1000,
            incarnation: view.incarnation,
            role: view.role,
            state: view.state,
            lag_entries: view.lag_entries,
            lag_bytes: view.lag_bytes,
            status_error: detail.then_some("node_status is not in this version"),
        }
    };
    let members = cluster.members.into_iter().map(member).collect();
    mark.json(&Members { members, asking: cluster.asking })
}
