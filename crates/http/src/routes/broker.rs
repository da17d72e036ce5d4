//! `GET /v1/broker`: the process that answers.

use axum::extract::State;

use crate::answer::{Answer, json};
use crate::handle::NodeHandle;

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>) -> Answer {
    json(&node.broker())
}
