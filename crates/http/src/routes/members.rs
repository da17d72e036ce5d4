//! `GET /v1/cluster/members[?detail=]`: the nodes of the cluster. This version runs one, the node that answers.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use mortarmq_node::{Query, QueryAnswer};
use serde::Serialize;

use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

#[derive(Serialize)]
struct Members {
    members: [Member; 1],
}

#[derive(Serialize)]
struct Member {
    id: u16,
    /// The address by which the client reached this node.
    addr: String,
    status: &'static str,
    draining: bool,
    /// Partitions that this node leads.
    owned_partitions: u64,
    outbound_moves: u64,
    voter: bool,
    leader: bool,
    heartbeat_age_seconds: u64,
    /// Stands in for the details that `detail=true` asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    status_error: Option<&'static str>,
}

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>, headers: HeaderMap, parameters: Parameters) -> Answer {
    let detail = parameters.flag("detail")?;
    let (_, QueryAnswer::Leader(leader)) = ask(&node, Query::Leader).await? else {
        return Err(Refusal::other_answer());
    };
    let (mark, QueryAnswer::Topics(topics)) = ask(&node, Query::Topics).await? else {
        return Err(Refusal::other_answer());
    };
    let id = node.broker().node_id;
    let is_leader = leader.leader_id == Some(id);
    let partitions = topics.topics.iter().map(|topic| u64::from(topic.partitions)).sum();
    let member = Member {
        id,
        addr: headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned(),
        status: "alive",
        draining: false,
        owned_partitions: if is_leader { partitions } else { 0 },
        outbound_moves: 0,
        voter: true,
        leader: is_leader,
        heartbeat_age_seconds: 0,
        status_error: detail.then_some("node_status is not in this version"),
    };
    mark.json(&Members { members: [member] })
}
