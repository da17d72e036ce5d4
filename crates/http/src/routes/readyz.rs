//! `GET /readyz[?role=leader]`: whether requests are served here, and what is worse than it should be.
//!
//! Any node of a cluster that hears a leader serves any client, so a balancer may send them to all that are ready. Who would rather
//! spare the hop to the one that leads asks with `role=leader`.

use axum::extract::State;
use mortarmq_node::ErrorCode;
use serde::Serialize;

use crate::answer::{Answer, json};
use crate::handle::{NodeHandle, Role};
use crate::parameters::Parameters;
use crate::refusal::Refusal;

#[derive(Serialize)]
struct Ready {
    status: &'static str,
    role: Role,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    degraded: Vec<String>,
}

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>, parameters: Parameters) -> Answer {
    let wants_leader = match parameters.text("role")?.as_deref() {
        None => false,
        Some("leader") => true,
        Some(other) => return Err(Refusal::parameter(format!("role={other} is no choice: write leader, or nothing"))),
    };
    let readiness = node.readiness();
    if readiness.stopping {
        return Err(Refusal::stopping());
    }
    if !readiness.ready {
        return Err(Refusal::new(ErrorCode::ReadOnlyDegraded, readiness.why));
    }
    if wants_leader && readiness.role != Role::Leader {
        return Err(Refusal::new(ErrorCode::ReadOnlyDegraded, "this node is ready, and another one leads"));
    }
    json(&Ready { status: "ready", role: readiness.role, degraded: readiness.degraded })
}
