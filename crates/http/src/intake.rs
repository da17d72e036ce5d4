//! What every request passes through before its route: limits on headers and body, and the guard against foreign pages.
//!
//! A body is read before its route, up to a limit beyond which it is dropped, so that its client sees the answer and not a
//! broken connection. It is kept only where a route could want it.
//!
//! A web page must not be able to make a browser change something. A browser sends no JSON to a foreign site without asking
//! that site first, and nobody here says yes: so a POST, PUT or PATCH with a body has to say that it is JSON or bytes, or
//! carry a header that no page can add by itself. One without a body is let through unless it shows a browser.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_TYPE, ORIGIN, REFERER};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use mortarmq_node::ErrorCode;
use serde::de::DeserializeOwned;

use crate::answer::text;
use crate::refusal::Refusal;

/// Names and values of the headers and the address together. The server below refuses more than 100 headers.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a body, counted as they come: what a client declares proves nothing.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Read and dropped of a body above the limit, so that its client sees the answer.
const DROPPED_BYTES_MAX: usize = 2 * BODY_BYTES_MAX;
/// Kept of a body for its route. Those that take one take a few names and numbers.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// How long a body may take.
const BODY_WAIT: Duration = Duration::from_secs(10);

/// Refuses what is too large, and gives the rest to its route.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    if header_bytes(&request) > HEADER_BYTES_MAX {
        let message = format!("headers are limited to {HEADER_BYTES_MAX} bytes\n");
        return text(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, PLAIN_TEXT, message);
    }
    let (mut parts, mut body) = request.into_parts();
    let mut kept = Vec::new();
    match tokio::time::timeout(BODY_WAIT, take_body(&mut body, &mut kept)).await {
        Ok(Ok(received)) if received <= BODY_BYTES_MAX => {
            let can_change = matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
            let has_body = received > 0;
            if can_change && (has_body || shows_a_browser(&parts.headers)) && !is_own_doing(&parts.headers) {
                return Refusal::cross_site().into_response();
            }
            if received > KEPT_BYTES_MAX {
                parts.extensions.insert(Unkept);
            }
            next.run(Request::from_parts(parts, Body::from(kept))).await
        }
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

/// Whether the request says what no page can make a browser say.
fn is_own_doing(headers: &HeaderMap) -> bool {
    let is_named = headers.get("x-narad-client").is_some_and(|name| !name.is_empty());
    is_named || matches!(media_type(headers).as_str(), "application/json" | "application/octet-stream")
}

fn shows_a_browser(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").is_some_and(|site| site != "none");
    let kind = media_type(headers);
    let is_form =
        kind.starts_with("text/") || kind == "application/x-www-form-urlencoded" || kind == "multipart/form-data";
    site || is_form || headers.contains_key(ORIGIN) || headers.contains_key(REFERER)
}

/// The content type without its parameters, in lower case.
fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Reads a body to its end, or to where reading on helps nobody, and returns how many bytes came. The first of them are kept.
async fn take_body(body: &mut Body, kept: &mut Vec<u8>) -> Result<usize, axum::Error> {
    let mut received = 0;
    while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
        let frame = frame?;
        let Some(bytes) = frame.data_ref() else { continue };
        received += bytes.len();
        if received <= KEPT_BYTES_MAX {
            kept.extend_from_slice(bytes);
        }
        if received > DROPPED_BYTES_MAX {
            break;
        }
    }
    Ok(received)
}

/// Marks a request whose body is longer than any route here takes, and was not kept.
#[derive(Clone, Copy, Debug)]
struct Unkept;

/// A body of JSON; nothing stands for `{}`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refusal> {
        if request.extensions().get::<Unkept>().is_some() {
            let message = format!("the body is larger than {KEPT_BYTES_MAX} bytes: send less");
            return Err(Refusal::new(ErrorCode::TooLarge, message));
        }
        let bytes = axum::body::to_bytes(request.into_body(), KEPT_BYTES_MAX).await;
        let bytes = bytes.map_err(|error| Refusal::internal(&error.to_string()))?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err(Refusal::parameter("the body is not what this route takes: a JSON object"));
        }
        serde_json::from_slice(text)
            .map(Self)
            .map_err(|error| Refusal::parameter(format!("the body is not what this route takes: {error}")))
    }
}

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
