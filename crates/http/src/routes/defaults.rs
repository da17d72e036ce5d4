//! `GET /v1/defaults`: the initial values of the cluster.

use axum::extract::State;
use mortarmq_node::{Query, QueryAnswer};

use crate::answer::{Answer, Changed, ask_with_position};
use crate::handle::NodeHandle;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>) -> Answer {
    let (mark, position, QueryAnswer::Defaults(view)) = ask_with_position(&node, Query::Defaults).await? else {
        return Err(Refusal::other_answer());
    };
    mark.json(&Changed::new(position, view))
}
