//! `PATCH /v1/topics/{topic}/groups/{group}`: other settings for a group.

use axum::extract::State;
use mortarmq_node::{Act, QueryAnswer, Settings};

use crate::answer::{Answer, Changed, change, json};
use crate::handle::NodeHandle;
use crate::intake::JsonBody;
use crate::parameters::Segments;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments((topic, group)): Segments<(String, String)>,
    JsonBody(settings): JsonBody<Settings>,
) -> Answer {
    let changed = change(&node, Act::ChangeGroup { topic, group, settings }).await?;
    let (position, QueryAnswer::Group(view)) = changed else { return Err(Refusal::other_answer()) };
    json(&Changed::new(position, view))
}
