//! `GET /stats[?topic=]`: counters of topics and groups, from one snapshot.

use axum::Extension;
use axum::extract::State;
use mortarmq_node::{Query, QueryAnswer};

use crate::access::Rights;
use crate::answer::{Answer, ask, json};
use crate::handle::NodeHandle;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Extension(rights): Extension<Rights>,
    parameters: Parameters,
) -> Answer {
    let topic = parameters.text("topic")?;
    let (_, QueryAnswer::Stats(mut view)) = ask(&node, Query::Stats { topic }).await? else {
        return Err(Refusal::other_answer());
    };
    view.topics.retain(|topic| rights.may_see(&topic.topic));
    json(&view)
}
