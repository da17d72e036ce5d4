//! `GET /v1/cluster/leader`: who leads.

use axum::extract::State;
use mortarmq_node::{Query, QueryAnswer};

use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(State(node): State<H>) -> Answer {
    let (mark, QueryAnswer::Leader(view)) = ask(&node, Query::Leader).await? else {
        return Err(Refusal::other_answer());
    };
    mark.json(&view)
}
