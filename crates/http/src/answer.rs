//! Answers: one line of JSON, or plain text.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use mortarmq_node::views::MovedView;
use mortarmq_node::{Act, Query, QueryAnswer};
use serde::Serialize;

use crate::handle::NodeHandle;
use crate::refusal::Refusal;

/// What a route returns.
pub(crate) type Answer = Result<Response, Refusal>;

/// Asks the node.
pub(crate) async fn ask(node: &impl NodeHandle, question: Query) -> Result<(Mark, QueryAnswer), Refusal> {
    let (mark, _, answer) = ask_with_position(node, question).await?;
    Ok((mark, answer))
}

/// Asks the node, and returns the position that the answer rests on too.
pub(crate) async fn ask_with_position(
    node: &impl NodeHandle,
    question: Query,
) -> Result<(Mark, mortarmq_types::Position, QueryAnswer), Refusal> {
    let reply = node.query(question).await.ok_or_else(Refusal::stopping)?;
    let mark = Mark { is_stale: reply.is_stale };
    let answer = reply.result.map_err(|failure| mark.refuse(failure.into()))?;
    Ok((mark, reply.position, answer))
}

/// Whether the answer to a question may be older than what is committed, since there was no majority to ask. It says so then,
/// refusals too: what is unknown here may be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    is_stale: bool,
}

impl Mark {
    /// A view as one line of JSON.
    pub(crate) fn json(self, view: &impl Serialize) -> Answer {
        let line = serde_json::to_vec(view).map_err(|error| Refusal::internal(&error.to_string()))?;
        Ok(self.json_line(line))
    }

    /// An object in JSON that is written already.
    pub(crate) fn json_line(self, mut line: Vec<u8>) -> Response {
        if self.is_stale {
            let rest = line.split_off(1);
            line.extend_from_slice(br#""stale":true,"#);
            line.extend_from_slice(&rest);
        }
        json_line(StatusCode::OK, line)
    }

    /// A refusal that rests on the same answer.
    pub(crate) const fn refuse(self, refusal: Refusal) -> Refusal {
        if self.is_stale { refusal.stale() } else { refusal }
    }
}

/// Asks the node for a change; the position of its command, and what it did.
pub(crate) async fn act(node: &impl NodeHandle, act: Act) -> Result<(mortarmq_types::Position, MovedView), Refusal> {
    let (position, QueryAnswer::Moved(view)) = change(node, act).await? else { return Err(Refusal::other_answer()) };
    Ok((position, view))
}

/// Asks the node for a change; the position of its command, and what there is now.
pub(crate) async fn change(
    node: &impl NodeHandle,
    act: Act,
) -> Result<(mortarmq_types::Position, QueryAnswer), Refusal> {
    let reply = node.act(act).await.ok_or_else(Refusal::cut_off)?;
    Ok((reply.position, reply.result?))
}

/// What there is after a change, with the position of its command.
#[derive(Serialize)]
pub(crate) struct Changed<T> {
    commit_index: u64,
    epoch: u64,
    #[serde(flatten)]
    view: T,
}

impl<T: Serialize> Changed<T> {
    /// Joins the two.
    pub(crate) fn new(position: mortarmq_types::Position, view: T) -> Self {
        Self { commit_index: position.commit_index.get(), epoch: position.epoch.get(), view }
    }
}

/// A view as one line of JSON.
pub(crate) fn json(view: &impl Serialize) -> Answer {
    json_with_status(StatusCode::OK, view)
}

/// A view as one line of JSON, with a status of its own.
pub(crate) fn json_with_status(status: StatusCode, view: &impl Serialize) -> Answer {
    let line = serde_json::to_vec(view).map_err(|error| Refusal::internal(&error.to_string()))?;
    Ok(json_line(status, line))
}

/// JSON that is written already. The line end is added here, so that no answer misses it; the length is known, so the
/// server sends it as Content-Length.
pub(crate) fn json_line(status: StatusCode, mut line: Vec<u8>) -> Response {
    line.push(b'\n');
    with_type(status, "application/json", line)
}

/// Plain text.
pub(crate) fn text(status: StatusCode, content_type: &'static str, text: String) -> Response {
    with_type(status, content_type, text.into_bytes())
}

fn with_type(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response {
    let mut response = (status, Body::from(body)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
