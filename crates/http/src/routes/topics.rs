//! `GET /v1/topics[?limit=&page_token=]`: all topics, by name, page by page.

use axum::Extension;
use axum::extract::State;
use mortarmq_node::views::topics::TopicSummary;
use mortarmq_node::{Query, QueryAnswer};
use serde::Serialize;

use crate::access::Rights;
use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::parameters::Parameters;
use crate::refusal::Refusal;

const LIMIT_DEFAULT: u64 = 100;
/// A larger limit is treated as this one.
const LIMIT_MAX: u64 = 1000;

#[derive(Serialize)]
struct Page {
    topics: Vec<TopicSummary>,
    /// The last name of the page; empty when nothing follows.
    next_page_token: String,
}

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Extension(rights): Extension<Rights>,
    parameters: Parameters,
) -> Answer {
    let limit = parameters.number("limit", 1..=u64::MAX)?.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX);
    let after = parameters.text("page_token")?.unwrap_or_default();
    let (mark, QueryAnswer::Topics(view)) = ask(&node, Query::Topics).await? else {
        return Err(Refusal::other_answer());
    };
    let limit = usize::try_from(limit).expect("at most LIMIT_MAX");
    mark.json(&page(view.topics, &after, limit, &rights))
}

fn page(mut topics: Vec<TopicSummary>, after: &str, limit: usize, rights: &Rights) -> Page {
    topics.retain(|topic| topic.name.as_str() > after);
    topics.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let has_more = topics.len() > limit;
    topics.truncate(limit);
    let next_page_token = topics.last().filter(|_| has_more).map_or_else(String::new, |last| last.name.clone());
    // After the cut, so that whoever sees little does not make the node look through everything for one page.
    topics.retain(|topic| rights.may_see(&topic.name));
    Page { topics, next_page_token }
}
