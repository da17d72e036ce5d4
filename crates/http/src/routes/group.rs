//! `GET /v1/topics/{topic}/groups/{group}`: one group.

use axum::extract::State;
use mortarmq_node::{ErrorCode, Query, QueryAnswer};

use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::parameters::Segments;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments((topic, group)): Segments<(String, String)>,
) -> Answer {
    let (mark, QueryAnswer::Groups(view)) = ask(&node, Query::Groups { topic: topic.clone() }).await? else {
        return Err(Refusal::other_answer());
    };
    let Some(found) = view.groups.iter().find(|found| found.stats.group == group) else {
        let text = format!("group \"{group}\" does not exist on \"{topic}\"");
        return Err(mark.refuse(Refusal::new(ErrorCode::UnknownGroup, text)));
    };
    mark.json(found)
}
