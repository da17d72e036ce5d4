//! `DELETE /v1/topics/{topic}`: ends a topic, with its groups and dead letters.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use mortarmq_node::{Act, QueryAnswer};

use crate::answer::{Answer, change};
use crate::handle::NodeHandle;
use crate::parameters::Segments;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>, Segments(name): Segments<String>) -> Answer {
    let (_, QueryAnswer::Done) = change(&node, Act::DeleteTopic { name }).await? else {
        return Err(Refusal::other_answer());
    };
    Ok(StatusCode::NO_CONTENT.into_response())
}
