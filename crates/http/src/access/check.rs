//! Who sends a request, and whether they may: in front of every route.

use axum::extract::{FromRequestParts as _, MatchedPath, Query, RawPathParams, Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortarmq_node::ErrorCode;

use super::{Access, Action, Rights, WRONG_TOKEN_DELAY};
use crate::handle::NodeHandle;
use crate::refusal::Refusal;

/// What a route asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Need {
    /// Nothing: whoever watches whether the node lives has no token.
    Nothing,
    /// Any token.
    Token,
    /// Any grant on a topic.
    See(String),
    /// A grant on a topic.
    May(Action, String),
    /// Everything.
    Admin,
}

/// Asks for a token where there are any, and looks whether its grants are enough for the route.
pub(crate) async fn check<H: NodeHandle>(State(handle): State<H>, request: Request, next: Next) -> Response {
    let access = handle.access();
    if access.is_open() {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let need = match MatchedPath::from_request_parts(&mut parts, &()).await {
        Ok(path) => {
            let parameters = RawPathParams::from_request_parts(&mut parts, &()).await.ok();
            let topic = parameters.iter().flatten().find(|(name, _)| *name == "topic").map(|(_, value)| value);
            need_of(&parts.method, path.as_str(), topic.unwrap_or_default(), &parts.uri)
        }
        // No route: who has no token does not learn that.
        Err(_) => Need::Token,
    };
    let request = Request::from_parts(parts, body);
    if need == Need::Nothing {
        return next.run(request).await;
    }
    let Some(rights) = rights_of(access, request.headers()) else {
        tokio::time::sleep(WRONG_TOKEN_DELAY).await;
        let mut response = Refusal::new(ErrorCode::NotAuthenticated, "authentication required").into_response();
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        return response;
    };
    match refusal(&rights, &need) {
        Some(text) => Refusal::new(ErrorCode::Forbidden, text).into_response(),
        None => next.run(request).await,
    }
}

/// What a route asks for. A route that is not listed asks for everything.
fn need_of(method: &Method, path: &str, topic: &str, uri: &Uri) -> Need {
    let is_question = matches!(*method, Method::GET | Method::HEAD);
    match path {
        "/healthz" | "/readyz" => Need::Nothing,
        "/metrics" | "/v1/broker" | "/v1/cluster/leader" | "/v1/cluster/members" if is_question => Need::Token,
        "/stats" | "/v1/balance" if is_question => topic_asked_for(uri).map_or(Need::Admin, Need::See),
        "/v1/topics/{topic}"
        | "/v1/topics/{topic}/groups"
        | "/v1/topics/{topic}/groups/{group}"
        | "/v1/topics/{topic}/trace"
            if is_question =>
        {
            Need::See(topic.to_owned())
        }
        "/v1/topics/{topic}/peek" | "/v1/topics/{topic}/dlq" if is_question => {
            Need::May(Action::Consume, topic.to_owned())
        }
        _ => Need::Admin,
    }
}

/// The topic that a question is limited to; none if it is not, or names several.
fn topic_asked_for(uri: &Uri) -> Option<String> {
    let Query(parameters) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    let mut topics = parameters.into_iter().filter(|(name, _)| name == "topic").map(|(_, value)| value);
    let first = topics.next();
    first.filter(|topic| !topic.is_empty() && topics.next().is_none())
}

/// The rights of the token in `Authorization: Bearer TOKEN`, or in `Basic`, with the token's name and the token.
fn rights_of(access: &Access, headers: &HeaderMap) -> Option<Rights> {
    let (scheme, credentials) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return access.rights_of(credentials.trim().as_bytes());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (name, token) = decoded.split_once(':')?;
    access.rights_of(token.as_bytes()).filter(|rights| rights.name() == Some(name))
}

/// Why these rights are not enough.
fn refusal(rights: &Rights, need: &Need) -> Option<String> {
    match need {
        Need::Nothing | Need::Token => None,
        Need::See(topic) => (!rights.may_see(topic)).then(|| "no grant on this topic".to_owned()),
        Need::May(action, topic) => {
            (!rights.may(*action, topic)).then(|| format!("{} not allowed on this topic", action.word()))
        }
        Need::Admin => (!rights.is_admin()).then(|| "admin privileges required".to_owned()),
    }
}

const CHALLENGE: &str = r#"Basic realm="narad""#;

#[cfg(test)]
mod tests {
    use super::{Action, Need, need_of, rights_of};
    use crate::access::{Access, Grant, Token, digest_of};
    use axum::http::header::AUTHORIZATION;
    use axum::http::{HeaderMap, HeaderValue, Method, Uri};

    fn need(method: Method, path: &str, query: &str) -> Need {
        let uri: Uri = format!("/x?{query}").parse().expect("an address");
        need_of(&method, path, "orders", &uri)
    }

    #[test]
    fn what_is_not_said_to_be_less_asks_for_everything() {
        let see = |topic: &str| Need::See(topic.to_owned());
        assert_eq!(need(Method::GET, "/healthz", ""), Need::Nothing);
        assert_eq!(need(Method::GET, "/metrics", ""), Need::Token);
        assert_eq!(need(Method::GET, "/v1/topics/{topic}", ""), see("orders"));
        assert_eq!(need(Method::DELETE, "/v1/topics/{topic}", ""), Need::Admin);
        assert_eq!(need(Method::GET, "/v1/topics/{topic}/peek", ""), Need::May(Action::Consume, "orders".to_owned()));
        assert_eq!(need(Method::POST, "/v1/topics/{topic}/dlq", ""), Need::Admin);
        assert_eq!(need(Method::POST, "/v1/topics/{topic}/purge", ""), Need::Admin);
        assert_eq!(need(Method::GET, "/v1/topics", ""), Need::Admin);
        assert_eq!(need(Method::GET, "/to/come", ""), Need::Admin);
    }

    #[test]
    fn a_question_about_all_topics_asks_for_everything_and_so_does_one_that_hides_a_second_topic() {
        assert_eq!(need(Method::GET, "/stats", "topic=orders"), Need::See("orders".to_owned()));
        for query in ["", "topic=", "topic=orders&topic=other", "topic=orders&%74opic=other", "other=orders"] {
            assert_eq!(need(Method::GET, "/stats", query), Need::Admin, "{query:?}");
            assert_eq!(need(Method::GET, "/v1/balance", query), Need::Admin, "{query:?}");
        }
    }

    #[test]
    fn a_token_is_taken_as_bearer_and_as_the_password_of_its_name() {
        let grants = vec![Grant { action: Action::Admin, patterns: Vec::new() }];
        let access = Access::new(vec![Token { name: "ops".to_owned(), digest: digest_of(b"two"), grants }]);
        let asked = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).expect("a header"));
            rights_of(&access, &headers).is_some()
        };
        assert!(asked("Bearer two") && asked("bearer two") && asked("Basic b3BzOnR3bw=="));
        for wrong in ["Bearer", "Bearer ", "Bearer three", "Token two", "two", "Basic two", "Basic b3RoZXI6dHdv"] {
            assert!(!asked(wrong), "{wrong:?}");
        }
        assert!(rights_of(&access, &HeaderMap::new()).is_none());
    }
}
