//! A small client of the operator routes. It blocks: a command that asks one question has nothing else to do.

use std::time::Duration;

use mortarmq_transport::TlsFault;
use mortarmq_wire::{ErrorCode, Outcome};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::contexts::ContextArg;
use crate::errors::Failure;
use crate::output::note;
use crate::tls::TlsArgs;

/// Where the operator routes are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AdminArgs {
    /// Where the broker answers operators; https:// where --tls-ca is given
    #[arg(long, env = "MORTARMQ_ADMIN", default_value = "127.0.0.1:7190", value_name = "URL", value_parser = url)]
    pub(crate) admin: String,
    /// Token, where the broker asks for one
    #[arg(long, env = "MORTARMQ_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) context: ContextArg,
}

impl AdminArgs {
    /// Whether the address is one of this machine's own.
    pub(crate) fn is_loopback(&self) -> bool {
        let address = self.admin.split_once("://").map_or(self.admin.as_str(), |(_, rest)| rest);
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    }

    /// The address with its scheme.
    fn base(&self) -> Result<String, Failure> {
        if self.admin.starts_with("https://") && !self.tls.is_given() {
            let what = format!("{} needs to know whom to trust", self.admin);
            return Err(Failure::arguments(what, "give the CA of the broker: --tls-ca FILE      (or --tls-ca system)"));
        }
        let scheme = match self.admin.contains("://") {
            true => "",
            false if self.tls.is_given() => "https://",
            false => "http://",
        };
        Ok(format!("{scheme}{}", self.admin))
    }
}

/// Asks the operator routes of one broker.
#[derive(Debug)]
pub(crate) struct Admin {
    agent: ureq::Agent,
    base: String,
    token: Option<String>,
}

/// A route: its path segments, encoded when it is asked, and its query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route<'a> {
    /// The segments behind the address.
    pub(crate) path: &'a [&'a str],
    /// Names and values.
    pub(crate) query: &'a [(&'a str, &'a str)],
}

/// What is asked of a route.
#[derive(Clone, Copy, Debug)]
enum Method<'a> {
    Get,
    Post(&'a serde_json::Value),
    Patch(&'a serde_json::Value),
    Delete,
}

impl Admin {
    /// A client of the routes at this address.
    ///
    /// # Errors
    /// Bad arguments, when TLS is asked for and cannot be had with them.
    pub(crate) fn new(args: &AdminArgs) -> Result<Self, Failure> {
        Self::waiting(args, Some(ANSWER_LIMIT))
    }

    /// As [`Admin::new`], for a change that takes as long as it takes.
    ///
    /// # Errors
    /// As [`Admin::new`].
    pub(crate) fn patient(args: &AdminArgs) -> Result<Self, Failure> {
        Self::waiting(args, None)
    }

    fn waiting(args: &AdminArgs, limit: Option<Duration>) -> Result<Self, Failure> {
        let base = args.base()?;
        let agent = ureq::Agent::config_builder()
            .tls_config(args.tls.config()?.unwrap_or_default())
            .http_status_as_error(false)
            .timeout_global(limit)
            .timeout_connect(Some(ANSWER_LIMIT))
            // The address is given by the user: a proxy of the environment is meant for other hosts.
            .proxy(None)
            .build()
            .new_agent();
        Ok(Self { agent, base, token: args.token.clone() })
    }

    /// Asks for a JSON answer.
    ///
    /// # Errors
    /// Unreachable when no answer comes or it is not understood; refused when the broker says so.
    pub(crate) fn get<T: DeserializeOwned>(&self, route: Route<'_>) -> Result<T, Failure> {
        match self.ask(route, Method::Get)? {
            Ok(text) => self.parse(&text),
            Err(refusal) => Err(self.failure(refusal)),
        }
    }

    /// Asks for an answer of any kind: its status and its text.
    ///
    /// # Errors
    /// Unreachable when no answer comes.
    pub(crate) fn text(&self, route: Route<'_>) -> Result<(u16, String), Failure> {
        self.exchange(route, Method::Get)
    }

    /// Changes something, with a body of JSON.
    ///
    /// # Errors
    /// As [`Admin::get`]; unreachable too when an answer is missing that would say whether it was changed.
    pub(crate) fn patch<T: DeserializeOwned>(&self, route: Route<'_>, body: &serde_json::Value) -> Result<T, Failure> {
        match self.ask(route, Method::Patch(body))? {
            Ok(text) => self.parse(&text),
            Err(refusal) => Err(self.failure(refusal)),
        }
    }

    /// Asks for something to be done, with a body of JSON. What the broker says against it is told with another second line
    /// than the registry has for its code.
    ///
    /// # Errors
    /// As [`Admin::patch`].
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        route: Route<'_>,
        body: &serde_json::Value,
        remedy: &str,
    ) -> Result<T, Failure> {
        match self.ask(route, Method::Post(body))? {
            Ok(text) => self.parse(&text),
            Err(refusal) if refusal.code().is_some_and(|code| code != ErrorCode::NotAuthenticated) => {
                Err(self.failure(refusal).with_remedy(remedy.to_owned()))
            }
            Err(refusal) => Err(self.failure(refusal)),
        }
    }

    /// Asks something about one topic. When it does not exist, the failure names the nearest that does.
    ///
    /// # Errors
    /// As [`Admin::get`].
    pub(crate) fn get_of_topic<T: DeserializeOwned>(&self, topic: &str, route: Route<'_>) -> Result<T, Failure> {
        self.ask_of_topic(topic, route, Method::Get)
    }

    /// Changes something of one topic, with a body of JSON.
    ///
    /// # Errors
    /// As [`Admin::get_of_topic`]; unreachable too when an answer is missing that would say whether it was changed.
    pub(crate) fn post_of_topic<T: DeserializeOwned>(
        &self,
        topic: &str,
        route: Route<'_>,
        body: &serde_json::Value,
    ) -> Result<T, Failure> {
        self.ask_of_topic(topic, route, Method::Post(body))
    }

    /// Changes settings of one topic, with a body of JSON.
    ///
    /// # Errors
    /// As [`Admin::post_of_topic`].
    pub(crate) fn patch_of_topic<T: DeserializeOwned>(
        &self,
        topic: &str,
        route: Route<'_>,
        body: &serde_json::Value,
    ) -> Result<T, Failure> {
        self.ask_of_topic(topic, route, Method::Patch(body))
    }

    /// Deletes something of one topic.
    ///
    /// # Errors
    /// As [`Admin::post_of_topic`].
    pub(crate) fn delete_of_topic<T: DeserializeOwned>(&self, topic: &str, route: Route<'_>) -> Result<T, Failure> {
        self.ask_of_topic(topic, route, Method::Delete)
    }

    fn ask_of_topic<T: DeserializeOwned>(
        &self,
        topic: &str,
        route: Route<'_>,
        method: Method<'_>,
    ) -> Result<T, Failure> {
        if route.path.iter().any(|segment| segment.is_empty()) {
            // As a path segment it would ask another route.
            return Err(Failure::unknown_topic(topic, &[]));
        }
        match self.ask(route, method)? {
            Ok(text) => self.parse(&text),
            Err(refusal) if refusal.code() == Some(ErrorCode::UnknownTopic) => {
                // The list only improves the text: without it the failure is told all the same.
                let known = self.topic_names().unwrap_or_default();
                Err(Failure::unknown_topic(topic, &known))
            }
            Err(refusal) if refusal.code() == Some(ErrorCode::UnknownPartition) => {
                // The registry speaks to whoever writes a client; here somebody has typed a number.
                let remedy = format!("see what it has: mortarmq topics describe {topic}");
                Err(self.failure(refusal).with_remedy(remedy))
            }
            Err(refusal) if refusal.code() == Some(ErrorCode::UnknownGroup) => {
                let remedy = format!("see which there are: mortarmq groups list {topic}");
                Err(self.failure(refusal).with_remedy(remedy))
            }
            Err(refusal) => Err(self.failure(refusal)),
        }
    }

    fn topic_names(&self) -> Result<Vec<String>, Failure> {
        let topics: Topics = self.get(Route { path: &["v1", "topics"], query: &[] })?;
        Ok(topics.topics.into_iter().map(|topic| topic.name).collect())
    }

    fn ask(&self, route: Route<'_>, method: Method<'_>) -> Result<Result<String, Refusal>, Failure> {
        let (status, text) = self.exchange(route, method)?;
        if is_stale(&text) {
            note("stale: this node hears no majority, and what follows may be older than what is committed");
        }
        if (200..300).contains(&status) {
            return Ok(Ok(text));
        }
        let mut refusal = Refusal::read(&text);
        refusal.status = status;
        Ok(Err(refusal))
    }

    fn exchange(&self, route: Route<'_>, method: Method<'_>) -> Result<(u16, String), Failure> {
        let path: Vec<_> = route.path.iter().map(|segment| encoded(segment)).collect();
        let url = format!("{}/{}", self.base, path.join("/"));
        let answered = match method {
            Method::Get => self.prepared(self.agent.get(url), route).call(),
            Method::Delete => self.prepared(self.agent.delete(url), route).call(),
            Method::Post(body) => self.prepared(self.agent.post(url), route).send_json(body),
            Method::Patch(body) => self.prepared(self.agent.patch(url), route).send_json(body),
        };
        let mut response = answered.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        let text = body.map_err(|error| self.unreachable(&error))?;
        Ok((status.as_u16(), text))
    }

    fn prepared<B>(&self, request: ureq::RequestBuilder<B>, route: Route<'_>) -> ureq::RequestBuilder<B> {
        let request = route.query.iter().fold(request, |request, (name, value)| request.query(*name, *value));
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, Failure> {
        serde_json::from_str(text).map_err(|error| {
            let what = format!("the answer of {} is not understood: {error}", self.base);
            Failure::unreachable(what, "check that --admin names the operator routes of a broker of this version")
        })
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let fault = if let ureq::Error::Io(error) = error { TlsFault::of(error) } else { None };
        match fault {
            Some(TlsFault::NotTls) => {
                let what = format!("{} does not speak TLS", self.base);
                return Failure::unreachable(
                    what,
                    "ask it with http://, or give the broker a certificate (tls_cert, tls_key)",
                );
            }
            Some(fault @ TlsFault::Certificate { .. }) => {
                let what = format!("no answer from {}: {fault}", self.base);
                return Failure::unreachable(
                    what,
                    "give the CA that issued it: --tls-ca FILE, and ask the broker by a name that it has",
                );
            }
            Some(TlsFault::Broken { .. }) | None => {}
        }
        let what = format!("no answer from {}: {error}", self.base);
        Failure::unreachable(what, "start a broker: mortarmq serve --dev      (or say where it is: --admin URL)")
    }

    fn failure(&self, refusal: Refusal) -> Failure {
        let outcome = refusal.outcome();
        if let Some(code) = refusal.code() {
            return Failure::answered(code, outcome, &refusal.error);
        }
        let text = if refusal.error.is_empty() { "no reason given" } else { &refusal.error };
        let what = format!("{} answered {}: {text}", self.base, refusal.status);
        let remedy = "check that --admin names the operator routes of a broker of this version";
        match outcome {
            Outcome::Refused => Failure::refused(what, remedy),
            Outcome::Unknown => Failure::unreachable(what, remedy),
        }
    }
}

/// An error answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: String,
    code: String,
    outcome: String,
    #[serde(skip)]
    status: u16,
}

impl Refusal {
    /// What is no answer of an operator route may still say in its first line what is wrong.
    fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| {
            let line = text.lines().next().unwrap_or_default();
            let is_text = line.len() <= MAX_LINE_BYTES && !line.starts_with('<');
            Self { error: if is_text { line.to_owned() } else { String::new() }, ..Self::default() }
        })
    }

    fn code(&self) -> Option<ErrorCode> {
        ErrorCode::from_name(&self.code)
    }

    fn outcome(&self) -> Outcome {
        match self.outcome.as_str() {
            "refused" => Outcome::Refused,
            "unknown" => Outcome::Unknown,
            // Not our broker, or an answer that never reached it: a fault of the server leaves the outcome open.
            _ if self.status >= 500 => Outcome::Unknown,
            _ => Outcome::Refused,
        }
    }
}

#[derive(Deserialize)]
struct Topics {
    topics: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Reads the address of operator routes. Its scheme may be left out: it follows from whether TLS is asked for.
///
/// # Errors
/// A text for the user when nothing can be asked there.
pub(crate) fn url(text: &str) -> Result<String, String> {
    let base = text.trim_end_matches('/');
    let full = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
    let uri: ureq::http::Uri = full.parse().map_err(|error| format!("is no URL ({error})"))?;
    match uri.scheme_str() {
        Some("http" | "https") => Ok(base.to_owned()),
        _ => Err("only http:// and https:// can be asked".to_owned()),
    }
}

/// One path segment with everything but unreserved characters as `%XX`.
/// Whether an answer says that it may be old.
fn is_stale(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Marked {
        #[serde(default)]
        stale: bool,
    }
    // Few answers say anything of it, and some are long.
    text.contains("\"stale\":true") && serde_json::from_str(text).is_ok_and(|Marked { stale }| stale)
}

fn encoded(segment: &str) -> String {
    let mut text = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~$".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Longer than any answer takes that a broker still means to give.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// A page of somebody else is not shown.
const MAX_LINE_BYTES: usize = 200;
/// A peek of large messages is the largest answer.
const MAX_ANSWER_BYTES: u64 = 256 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use mortarmq_wire::Outcome;

    use clap::Parser;

    use super::{AdminArgs, Refusal, encoded};

    #[test]
    fn url_is_completed_or_refused() {
        let base = |text: &str, ca: &[&str]| {
            let args = [&["mortarmq", "--admin", text][..], ca].concat();
            let args = Asked::try_parse_from(args).map_err(|error| error.to_string())?;
            args.admin.base().map_err(|_| "arguments".to_owned())
        };
        for text in ["127.0.0.1:7190", "http://127.0.0.1:7190", "http://127.0.0.1:7190/"] {
            assert_eq!(base(text, &[]).as_deref(), Ok("http://127.0.0.1:7190"));
        }
        for text in ["127.0.0.1:7190", "https://127.0.0.1:7190", "https://127.0.0.1:7190/"] {
            assert_eq!(base(text, &["--tls-ca", "ca.pem"]).as_deref(), Ok("https://127.0.0.1:7190"));
        }
        // Whoever writes the scheme means it.
        assert_eq!(base("http://a:1", &["--tls-ca", "ca.pem"]).as_deref(), Ok("http://a:1"));
        for text in ["", "a b", "https://127.0.0.1:7190", "ftp://host"] {
            assert!(base(text, &[]).is_err(), "{text}");
        }
    }

    #[derive(clap::Parser)]
    struct Asked {
        #[command(flatten)]
        admin: AdminArgs,
    }

    #[test]
    fn what_is_no_json_is_told_by_its_first_line() {
        assert_eq!(Refusal::read("this speaks TLS only\n").error, "this speaks TLS only");
        assert_eq!(Refusal::read("<html>\n").error, "");
        assert_eq!(Refusal::read("{\"error\":\"no\"}").error, "no");
    }

    #[test]
    fn path_segment_cannot_become_two() {
        assert_eq!(encoded("orders-1.x_y"), "orders-1.x_y");
        assert_eq!(encoded("$dlq.orders"), "$dlq.orders");
        assert_eq!(encoded("a/b?c=é %"), "a%2Fb%3Fc%3D%C3%A9%20%25");
    }

    #[test]
    fn p2_answer_that_says_no_outcome_is_unknown_when_the_server_failed() {
        let refusal = |outcome: &str, status| Refusal { outcome: outcome.to_owned(), status, ..Refusal::default() };
        assert_eq!(refusal("", 502).outcome(), Outcome::Unknown);
        assert_eq!(refusal("", 404).outcome(), Outcome::Refused);
        assert_eq!(refusal("refused", 503).outcome(), Outcome::Refused);
        assert_eq!(refusal("unknown", 404).outcome(), Outcome::Unknown);
    }
}
