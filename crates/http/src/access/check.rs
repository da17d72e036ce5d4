//! Who sends a request, and whether they may: in front of every route.

use axum::extract::{FromRequestParts as _, MatchedPath, Query, RawPathParams, Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mortarmq_node::ErrorCode;

use super::{Access, Action, Denied, Rights, WRONG_TOKEN_DELAY};
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
    let mut request = request;
    if access.is_open() {
        request.extensions_mut().insert(Rights::all());
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
    let mut request = Request::from_parts(parts, body);
    if need == Need::Nothing {
        return next.run(request).await;
    }
    let rights = match rights_of(access, request.headers()).await {
        Ok(rights) => rights,
        Err(Denied::Wrong) => {
            tokio::time::sleep(WRONG_TOKEN_DELAY).await;
            let mut response = Refusal::new(ErrorCode::NotAuthenticated, "authentication required").into_response();
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
            return response;
        }
        Err(Denied::TooOften) => {
            let text = "too many failed authentication attempts: one more try every 12 s";
            return Refusal::new(ErrorCode::RateLimited, text).into_response();
        }
        Err(Denied::Busy) => {
            let text = "too many logins at once: repeat in a moment";
            return Refusal::new(ErrorCode::RateLimited, text).into_response();
        }
    };
    match refusal(&rights, &need) {
        Some(text) => Refusal::new(ErrorCode::Forbidden, text).into_response(),
        None => {
            // Lists show what their reader may see.
            request.extensions_mut().insert(rights);
            next.run(request).await
        }
    }
}

/// What a route asks for. A route that is not listed asks for everything.
fn need_of(method: &Method, path: &str, topic: &str, uri: &Uri) -> Need {
    let is_question = matches!(*method, Method::GET | Method::HEAD);
    match path {
        "/healthz" | "/readyz" => Need::Nothing,
        "/v1/topics" if is_question => Need::Token,
        "/metrics" | "/v1/broker" | "/v1/cluster/leader" | "/v1/cluster/members" if is_question => Need::Token,
        "/stats" | "/v1/balance" if is_question => topic_asked_for(uri).map_or(Need::Token, Need::See),
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

/// The rights of the token in `Authorization: Bearer TOKEN`; in `Basic`, of the user or the token of that name.
async fn rights_of(access: &Access, headers: &HeaderMap) -> Result<Rights, Denied> {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
    let (scheme, credentials) = shown.ok_or(Denied::Wrong)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return access.rights_of(credentials.trim().as_bytes()).ok_or(Denied::Wrong);
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(Denied::Wrong);
    }
    let decoded = STANDARD.decode(credentials.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.ok_or(Denied::Wrong)?;
    let (name, secret) = decoded.split_once(':').ok_or(Denied::Wrong)?;
    match access.rights_of(secret.as_bytes()).filter(|rights| rights.name() == Some(name)) {
        Some(rights) => Ok(rights),
        None => access.rights_of_user(name, secret.as_bytes()).await,
    }
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
    use super::{Action, Need, STANDARD, need_of, rights_of};
    use crate::access::{Access, Grant, Token, User, digest_of, hash_password};
    use axum::http::header::AUTHORIZATION;
    use axum::http::{HeaderMap, HeaderValue, Method, Uri};
    use base64::Engine as _;

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
        assert_eq!(need(Method::POST, "/v1/topics", ""), Need::Admin);
        assert_eq!(need(Method::GET, "/to/come", ""), Need::Admin);
    }

    #[test]
    fn a_question_about_one_topic_asks_for_a_grant_on_it_and_lists_for_any_token() {
        assert_eq!(need(Method::GET, "/stats", "topic=orders"), Need::See("orders".to_owned()));
        // What they show of several topics is what the reader may see of them.
        for query in ["", "topic=", "topic=orders&topic=other", "topic=orders&%74opic=other", "other=orders"] {
            assert_eq!(need(Method::GET, "/stats", query), Need::Token, "{query:?}");
            assert_eq!(need(Method::GET, "/v1/balance", query), Need::Token, "{query:?}");
        }
        assert_eq!(need(Method::GET, "/v1/topics", ""), Need::Token);
    }

    #[tokio::test]
    async fn a_token_is_taken_as_bearer_and_as_the_password_of_its_name_and_a_user_with_a_password() {
        let grants = vec![Grant { action: Action::Admin, patterns: Vec::new() }];
        let token = Token { name: "ops".to_owned(), digest: digest_of(b"two"), grants: grants.clone() };
        let user = User { name: "ada".to_owned(), hash: hash_password(b"horse").expect("hashed"), grants };
        let access = Access::new(vec![token], vec![user]);
        let asked = async |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).expect("a header"));
            rights_of(&access, &headers).await.is_ok()
        };
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for right in ["Bearer two", "bearer two", &basic("ops:two"), &basic("ada:horse")] {
            assert!(asked(right).await, "{right:?}");
        }
        // A password is no token, and nobody's name opens what is another's.
        let wrong = [basic("ada:two"), basic("ops:horse"), basic("other:two"), basic("ada"), basic("ada:")];
        for wrong in ["Bearer", "Bearer ", "Bearer three", "Bearer horse", "Token two", "two", "Basic two"] {
            assert!(!asked(wrong).await, "{wrong:?}");
        }
        for wrong in wrong {
            assert!(!asked(&wrong).await, "{wrong:?}");
        }
        assert!(rights_of(&access, &HeaderMap::new()).await.is_err());
    }
}
