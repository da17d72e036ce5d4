//! `GET /v1/topics/{topic}/peek[?partition=&from=&max=]`: messages, without leasing any.
//!
//! An answer may hold fewer messages than `max` although more are there; a reader goes on behind the last sequence until
//! an answer holds none.

use axum::extract::State;
use mortarmq_node::{Query, QueryAnswer};

use crate::answer::{Answer, ask};
use crate::handle::NodeHandle;
use crate::page::{Page, list};
use crate::parameters::{Parameters, Segments};
use crate::payload::write_message;
use crate::refusal::Refusal;

pub(crate) async fn answer<H: NodeHandle>(
    State(node): State<H>,
    Segments(topic): Segments<String>,
    parameters: Parameters,
) -> Answer {
    let Page { partition, from, max } = Page::of(&parameters)?;
    let (mark, QueryAnswer::Peek(view)) = ask(&node, Query::Peek { topic, partition, from, max }).await? else {
        return Err(Refusal::other_answer());
    };
    let messages = list("messages", &view.messages, |out, message| write_message(out, &view.topic, message));
    Ok(mark.json_line(messages))
}
