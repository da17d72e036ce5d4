//! `GET /v1/topics/{topic}/groups/{group}`: one group.

use axum::extract::State;
use mortarmq_node::{ErrorCode, Query, QueryAnswer};

use crate::answer::{Answer, ask, json};
use crate::handle::NodeHandle;
use crate::parameters::Segments;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments((topic, group)): Segments<(String, String)>,
) -> Answer {
    let QueryAnswer::Groups(view) = ask(&node, Query::Groups { topic: topic.clone() }).await? else {
        return Err(Refusal::other_answer());
    };
    let Some(found) = view.groups.iter().find(|found| found.stats.group == group) else {
        return Err(Refusal::new(ErrorCode::UnknownGroup, format!("group \"{group}\" does not exist on \"{topic}\"")));
    };
    json(found)
}
