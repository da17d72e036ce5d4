//! `GET /readyz`: whether requests are served here, and what is worse than it should be.

use axum::extract::State;
use mortarmq_node::ErrorCode;
use serde::Serialize;

use crate::answer::{Answer, json};
use crate::handle::NodeHandle;
use crate::refusal::Refusal;

#[derive(Serialize)]
struct Ready {
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    degraded: Vec<String>,
}

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>) -> Answer {
    let readiness = node.readiness();
    if readiness.stopping {
        return Err(Refusal::stopping());
    }
    if !readiness.ready {
        return Err(Refusal::new(ErrorCode::ReadOnlyDegraded, readiness.why));
    }
    json(&Ready { status: "ready", degraded: readiness.degraded })
}
