//! `POST /v1/topics/{topic}/groups/{group}/seek`: a group goes on from another place.

use axum::extract::State;
use mortarmq_node::{Act, SeekTarget};
use mortarmq_types::{Partition, Seq, WallTime};
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, act, json};
use crate::handle::NodeHandle;
use crate::intake::JsonBody;
use crate::parameters::Segments;
use crate::refusal::Refusal;

/// The body: one of the ways to name a place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    #[serde(default)]
    to: Option<String>,
    #[serde(default)]
    partition: Option<u16>,
    #[serde(default)]
    sequence: Option<u64>,
    #[serde(default)]
    time_ms: Option<u64>,
}

#[derive(Serialize)]
struct Moved {
    commit_index: u64,
    epoch: u64,
    replayed: u64,
    dropped: u64,
    /// Set if the move goes on and will concern more messages than these.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments((topic, group)): Segments<(String, String)>,
    JsonBody(asked): JsonBody<Asked>,
) -> Answer {
    let (position, view) = act(&node, asked.act(topic, group)?).await?;
    json(&Moved {
        commit_index: position.commit_index.get(),
        epoch: position.epoch.get(),
        replayed: view.replayed,
        dropped: view.dropped,
        partial: view.is_partial,
    })
}

impl Asked {
    fn act(&self, topic: String, group: String) -> Result<Act, Refusal> {
        let to = match (self.to.as_deref(), self.partition, self.sequence, self.time_ms) {
            (Some("earliest"), None, None, None) => SeekTarget::Earliest,
            (Some("latest"), None, None, None) => SeekTarget::Latest,
            (Some(word), None, None, None) => {
                return Err(Refusal::parameter(format!("to={word:?} is no place: write earliest or latest")));
            }
            (None, Some(_), Some(0), None) => {
                return Err(Refusal::parameter("sequence=0 is out of range: the first message of a partition is 1"));
            }
            (None, Some(partition), Some(sequence), None) => {
                SeekTarget::At(vec![(Partition::new(partition), Seq::new(sequence))])
            }
            (None, None, None, Some(time_ms)) => {
                return Ok(Act::SeekTime { topic, group, time: WallTime::new(time_ms) });
            }
            _ => return Err(Refusal::parameter(ONE_PLACE)),
        };
        Ok(Act::Seek { topic, group, to })
    }
}

const ONE_PLACE: &str =
    r#"name one place: {"to":"earliest"}, {"to":"latest"}, {"partition":0,"sequence":41} or {"time_ms":1700000000000}"#;
