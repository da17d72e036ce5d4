//! What every request passes through before its route: limits on headers and body.
//!
//! No route of this version takes a body. What a client sends nevertheless is read and dropped up to a limit, so that it
//! sees the answer and not a broken connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use mortarmq_node::ErrorCode;

use crate::answer::text;
use crate::refusal::Refusal;

/// Names and values of the headers and the address together. The server below refuses more than 100 headers.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a body, counted as they come: what a client declares proves nothing.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Read and dropped of a body above the limit, so that its client sees the answer.
const DROPPED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;
/// How long a body may take.
const BODY_WAIT: Duration = Duration::from_secs(10);

/// Refuses what is too large, and gives the rest to its route.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    if header_bytes(&request) > HEADER_BYTES_MAX {
        let message = format!("headers are limited to {HEADER_BYTES_MAX} bytes\n");
        return text(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, PLAIN_TEXT, message);
    }
    let (parts, mut body) = request.into_parts();
    match tokio::time::timeout(BODY_WAIT, drop_body(&mut body)).await {
        Ok(Ok(received)) if received <= BODY_BYTES_MAX => next.run(Request::from_parts(parts, Body::empty())).await,
        Ok(Ok(_)) => {
            let message = format!("the body is larger than {BODY_BYTES_MAX} bytes: send less");
            Refusal::new(ErrorCode::TooLarge, message).into_response()
        }
        Ok(Err(_)) | Err(_) => {
            Refusal::parameter(format!("the body did not arrive within {} s: send it again", BODY_WAIT.as_secs()))
                .into_response()
        }
    }
}

/// Answers a path that no version knows.
pub(crate) async fn unknown_path() -> Response {
    text(StatusCode::NOT_FOUND, PLAIN_TEXT, "404 page not found\n".to_owned())
}

/// Answers a method that its path does not have; the router adds the Allow header.
pub(crate) async fn wrong_method(method: Method) -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, PLAIN_TEXT, format!("405 {method} is not allowed here\n"))
}

fn header_bytes(request: &Request) -> usize {
    let headers: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    request.uri().path_and_query().map_or(0, |address| address.as_str().len()) + headers
}

/// Reads a body to its end, or to where reading on helps nobody, and returns how many bytes came.
async fn drop_body(body: &mut Body) -> Result<usize, axum::Error> {
    let mut received = 0;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
        received += frame?.data_ref().map_or(0, |bytes| bytes.len());
        if received > DROPPED_BYTES_MAX {
            break;
        }
    }
    Ok(received)
}

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
