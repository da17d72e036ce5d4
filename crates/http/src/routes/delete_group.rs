//! `DELETE /v1/topics/{topic}/groups/{group}`: ends a group, and drops what it owes.

use axum::extract::State;
use mortarmq_node::Act;
use serde::Serialize;

use crate::answer::{Answer, act, json};
use crate::handle::NodeHandle;
use crate::parameters::Segments;

#[derive(Serialize)]
struct Deleted {
    commit_index: u64,
    epoch: u64,
    dropped: u64,
}

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments((topic, group)): Segments<(String, String)>,
) -> Answer {
    let (position, view) = act(&node, Act::DeleteGroup { topic, group }).await?;
    let (commit_index, epoch) = (position.commit_index.get(), position.epoch.get());
    json(&Deleted { commit_index, epoch, dropped: view.dropped })
}
