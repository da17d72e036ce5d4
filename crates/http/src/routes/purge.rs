//! `POST /v1/topics/{topic}/purge`: drops everything that its groups owe, or one of them.

use axum::extract::State;
use mortarmq_node::Act;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, act, json};
use crate::handle::NodeHandle;
use crate::intake::JsonBody;
use crate::parameters::Segments;

/// The body; nothing is all groups.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    #[serde(default)]
    group: Option<String>,
}

#[derive(Serialize)]
struct Purged {
    commit_index: u64,
    epoch: u64,
    dropped: u64,
}

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments(topic): Segments<String>,
    JsonBody(asked): JsonBody<Asked>,
) -> Answer {
    let (position, view) = act(&node, Act::Purge { topic, group: asked.group }).await?;
    let (commit_index, epoch) = (position.commit_index.get(), position.epoch.get());
    json(&Purged { commit_index, epoch, dropped: view.dropped })
}
