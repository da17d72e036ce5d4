//! `PATCH /v1/defaults`: other initial values for the cluster.

use axum::extract::State;
use mortarmq_node::{Act, QueryAnswer, Settings};

use crate::answer::{Answer, Changed, change, json};
use crate::handle::NodeHandle;
use crate::intake::JsonBody;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>, JsonBody(values): JsonBody<Settings>) -> Answer {
    let (position, QueryAnswer::Defaults(view)) = change(&node, Act::ChangeDefaults { values }).await? else {
        return Err(Refusal::other_answer());
    };
    json(&Changed::new(position, view))
}
