//! `POST /v1/cluster/leader/transfer`: another node leads from now on. Answered when it does.

use axum::extract::State;
use mortarmq_node::{Act, QueryAnswer};
use mortarmq_types::NodeId;
use serde::Deserialize;

use crate::answer::{Answer, Changed, change, json};
use crate::handle::NodeHandle;
use crate::intake::JsonBody;
use crate::refusal::Refusal;

/// The body: who is to lead.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    to: u16,
}

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>, JsonBody(asked): JsonBody<Asked>) -> Answer {
    let act = Act::HandOver { to: NodeId::new(asked.to) };
    let (position, QueryAnswer::Leader(view)) = change(&node, act).await? else {
        return Err(Refusal::other_answer());
    };
    json(&Changed::new(position, view))
}
