//! A request of an operator is answered by the node that leads.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mortarmq_node::{ErrorCode, Failure, Outcome};
use mortarmq_types::NodeId;

use super::Relay;
use crate::peers::Lane;

/// Answers what is of this node, and carries all else to the one that leads.
pub(crate) async fn at_leader(State(relay): State<Arc<Relay>>, request: Request, next: Next) -> Response {
    match relay.leader() {
        Some(leader) if !is_of_this_node(request.uri().path()) => carry(&relay, leader, request).await,
        _ => next.run(request).await,
    }
}

/// What each node says of itself. A question for all else has one answer, that of the leader.
fn is_of_this_node(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/metrics" | "/v1/broker" | "/v1/cluster/leader")
}

async fn carry(relay: &Relay, leader: NodeId, request: Request) -> Response {
    let stream = match relay.dial(leader, Lane::Operators).await {
        Ok(stream) => stream,
        Err(error) => {
            let text =
                format!("node {leader} leads and cannot be reached from this one ({error}); ask again, or ask it");
            return mortarmq_http::refused(Failure::new(ErrorCode::ReadOnlyDegraded, text));
        }
    };
    match ask(stream, request).await {
        Ok(response) => response,
        // It may have done it (failure rule 6).
        Err(error) => {
            tracing::debug!(%leader, %error, "a carried request of an operator broke");
            let text = format!(
                "the connection to node {leader}, which leads, broke before it answered; look before you ask again"
            );
            let mut failure = Failure::new(ErrorCode::ReadOnlyDegraded, text);
            failure.outcome = Outcome::Unknown;
            mortarmq_http::refused(failure)
        }
    }
}

async fn ask(stream: mortarmq_transport::Stream, request: Request) -> io::Result<Response> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the answer's body.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a carried request of an operator ended");
        }
    });
    let (mut parts, body) = request.into_parts();
    // The carried connection is for one request.
    parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let response = sender.send_request(Request::from_parts(parts, body)).await.map_err(io::Error::other)?;
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(CONNECTION);
    Ok(Response::from_parts(parts, Body::new(body)))
}
