//! `GET /v1/topics/{topic}[?partition=]`: one topic with its settings and partitions.

use axum::extract::State;
use mortarmq_node::{ErrorCode, Query, QueryAnswer};

use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::parameters::{Parameters, Segments};
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments(name): Segments<String>,
    parameters: Parameters,
) -> Answer {
    let partition = parameters.number("partition", 0..=u64::from(u16::MAX))?;
    let (mark, QueryAnswer::Topic(mut view)) = ask(&node, Query::Topic { name }).await? else {
        return Err(Refusal::other_answer());
    };
    if let Some(wanted) = partition {
        view.partition_stats.retain(|found| u64::from(found.index) == wanted);
        if view.partition_stats.is_empty() {
            let last = view.summary.partitions.saturating_sub(1);
            let message = format!("invalid partition {wanted}: {} has 0 to {last}", view.summary.name);
            return Err(mark.refuse(Refusal::new(ErrorCode::UnknownPartition, message)));
        }
    }
    mark.json(&view)
}
