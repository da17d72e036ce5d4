//! `POST /v1/cluster/members/{id}/readmit`: a node whose data is gone comes back, as the life that it asks as. Answered when it is admitted
//! as a learner; that it was promoted, the list of members says.

use axum::extract::State;
use mortarmq_node::{Act, QueryAnswer};
use mortarmq_types::NodeId;
use serde::Deserialize;

use crate::answer::{Answer, Changed, change, json};
use crate::handle::NodeHandle;
use crate::intake::JsonBody;
use crate::parameters::Segments;
use crate::refusal::Refusal;

/// The body: nothing yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {}

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments(id): Segments<String>,
    JsonBody(Asked {}): JsonBody<Asked>,
) -> Answer {
    let readmitted = id.parse().map(NodeId::new);
    let readmitted = readmitted.map_err(|_| Refusal::parameter(format!("{id} is no node: write its id")))?;
    let (position, QueryAnswer::Members(view)) = change(&node, Act::Readmit { node: readmitted }).await? else {
        return Err(Refusal::other_answer());
    };
    json(&Changed::new(position, view))
}
