//! `GET /v1/topics/{topic}/groups`: the groups of one topic.

use axum::extract::State;
use mortarmq_node::{Query, QueryAnswer};

use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::parameters::Segments;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>, Segments(topic): Segments<String>) -> Answer {
    let (mark, QueryAnswer::Groups(view)) = ask(&node, Query::Groups { topic }).await? else {
        return Err(Refusal::other_answer());
    };
    mark.json(&view)
}
