//! `GET /healthz`: whether the process lives and means to go on.

use axum::extract::State;
use axum::http::StatusCode;
use serde_json::json;

use crate::answer::{Answer, json_with_status};
use crate::handle::NodeHandle;

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>) -> Answer {
    if node.readiness().stopping {
        json_with_status(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "shutting down"}))
    } else {
        json_with_status(StatusCode::OK, &json!({"status": "ok"}))
    }
}
