//! `POST /v1/topics/{topic}/dlq`: dead letters go back to where they died, or are dropped.
//!
//! It is answered when all are done, however long that takes at the rate that was asked for. A client that goes away ends it.

use std::collections::BTreeMap;

use axum::extract::State;
use mortarmq_node::{Act, LetterAction, LettersAct, QueryAnswer};
use mortarmq_types::{Partition, Seq};
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, json};
use crate::handle::NodeHandle;
use crate::intake::JsonBody;
use crate::parameters::Segments;
use crate::refusal::Refusal;

/// The body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    action: Action,
    #[serde(default)]
    partition: Option<u16>,
    #[serde(default)]
    sequences: Option<Vec<u64>>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    limit: Option<u64>,
    #[serde(default)]
    rate: Option<u32>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Redrive,
    Purge,
}

#[derive(Serialize)]
struct Told {
    commit_index: u64,
    epoch: u64,
    matched: u64,
    done: u64,
    /// How many stay, by the reason.
    refused: BTreeMap<&'static str, u64>,
}

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments(topic): Segments<String>,
    JsonBody(asked): JsonBody<Asked>,
) -> Answer {
    let reply = node.act(asked.act(topic)?).await.ok_or_else(Refusal::cut_off)?;
    let QueryAnswer::Letters(view) = reply.result? else { return Err(Refusal::other_answer()) };
    json(&Told {
        commit_index: reply.position.commit_index.get(),
        epoch: reply.position.epoch.get(),
        matched: view.matched,
        done: view.done,
        refused: view.refused,
    })
}

impl Asked {
    fn act(self, topic: String) -> Result<Act, Refusal> {
        let sequences = match self.sequences {
            None => Vec::new(),
            // Taken for no list at all, it would mean every dead letter.
            Some(none) if none.is_empty() => {
                return Err(Refusal::parameter("sequences=[] names nothing: leave it out for all dead letters"));
            }
            Some(many) if many.len() > SEQUENCES_MAX => {
                let text = format!("{} sequences are too many: name at most {SEQUENCES_MAX}", many.len());
                return Err(Refusal::parameter(text));
            }
            Some(some) => some.into_iter().map(Seq::new).collect(),
        };
        if self.rate == Some(0) {
            return Err(Refusal::parameter("rate=0 is out of range: leave it out for no limit"));
        }
        Ok(Act::Letters(LettersAct {
            topic,
            action: match self.action {
                Action::Redrive => LetterAction::Redrive,
                Action::Purge => LetterAction::Purge,
            },
            partition: self.partition.map(Partition::new),
            sequences,
            reason: self.reason,
            limit: self.limit,
            rate: self.rate,
            dry_run: self.dry_run,
        }))
    }
}

/// As many as one command may name.
const SEQUENCES_MAX: usize = 1024;
