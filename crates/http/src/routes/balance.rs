//! `GET /v1/balance[?topic=]`: the books of every path. They add up in every answer (P9).

use axum::Extension;
use axum::extract::State;
use mortarmq_node::{Query, QueryAnswer};

use crate::access::Rights;
use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Extension(rights): Extension<Rights>,
    parameters: Parameters,
) -> Answer {
    let topic = parameters.text("topic")?;
    let (mark, QueryAnswer::Balance(mut view)) = ask(&node, Query::Balance { topic }).await? else {
        return Err(Refusal::other_answer());
    };
    view.paths.retain(|path| rights.may_see(&path.topic));
    view.without_group.retain(|topic| rights.may_see(&topic.topic));
    mark.json(&view)
}
