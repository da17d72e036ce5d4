//! `GET /v1/topics/{topic}/trace?partition=&sequence=`: the life of one message (P7).

use axum::extract::State;
use mortarmq_node::views::trace::TraceView;
use mortarmq_node::{Query, QueryAnswer};
use mortarmq_types::{Partition, Seq};
use serde::Serialize;

use crate::answer::{Answer, ask_with_position};
use crate::handle::NodeHandle;
use crate::parameters::{Parameters, Segments};
use crate::refusal::Refusal;

/// The life, and the position it is told at.
#[derive(Serialize)]
struct Life {
    commit_index: u64,
    epoch: u64,
    #[serde(flatten)]
    view: TraceView,
}

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments(topic): Segments<String>,
    parameters: Parameters,
) -> Answer {
    let partition = parameters.required("partition", 0..=u64::from(u16::MAX))?;
    let sequence = parameters.required("sequence", 1..=u64::MAX)?;
    let question = Query::Trace {
        topic,
        partition: Partition::new(u16::try_from(partition).expect("the range ends at 16 bits")),
        seq: Seq::new(sequence),
    };
    let (mark, position, QueryAnswer::Trace(view)) = ask_with_position(&node, question).await? else {
        return Err(Refusal::other_answer());
    };
    mark.json(&Life { commit_index: position.commit_index.get(), epoch: position.epoch.get(), view })
}
