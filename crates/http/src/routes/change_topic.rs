//! `PATCH /v1/topics/{topic}`: other settings for a topic, or more partitions.

use axum::extract::State;
use mortarmq_node::{Act, QueryAnswer, Settings};

use crate::answer::{Answer, Changed, change, json};
use crate::handle::NodeHandle;
use crate::intake::JsonBody;
use crate::parameters::Segments;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments(topic): Segments<String>,
    JsonBody(settings): JsonBody<Settings>,
) -> Answer {
    let changed = change(&node, Act::ChangeTopic { topic, settings }).await?;
    let (position, QueryAnswer::Topic(view)) = changed else { return Err(Refusal::other_answer()) };
    json(&Changed::new(position, view))
}
