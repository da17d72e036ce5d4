//! `GET /metrics`: counters for Prometheus.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::answer::text;
use crate::handle::NodeHandle;

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>) -> Response {
    text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", node.metrics().await)
}
