//! What a program may choose. Every default is the one that loses nothing.

use std::time::Duration;

use mortarmq_transport::Roots;
use mortarmq_wire::ops::StartPolicy;
use serde_json::Value;

use crate::recording::Observed;

/// How a client reaches the broker.
#[derive(Clone)]
pub struct ClientOptions {
    /// Addresses (`host:port`) that are tried in turn. Any node takes any request.
    pub servers: Vec<String>,
    /// The token; empty where the broker asks for none.
    pub token: Vec<u8>,
    /// TLS, where the broker speaks it; `None` speaks it never.
    pub tls: Option<TlsOptions>,
    /// What the client calls itself in the broker's logs; cut to 255 bytes.
    pub name: String,
    /// How long one attempt to connect may take, its CONNECT included.
    pub connect_timeout: Duration,
    /// How long the broker may be silent while it owes an answer. Then the connection is taken for dead, though nobody closed it
    /// (a cut cable, a node that hangs), and another is opened. More than what a broker takes to say that it has no majority
    /// (`publish_timeout_ms`, 5 s), less than a session (10 s), so that a consumer resumes in time.
    pub answer_timeout: Duration,
    /// How a lost connection is opened again, and how long a request is repeated.
    pub reconnect: ReconnectOptions,
    /// Where a history of all that the client does and sees is written; `None` writes none.
    #[cfg(feature = "history")]
    pub recording: Option<crate::history::Recording>,
}

impl ClientOptions {
    /// The defaults, for one address or several with commas: `"127.0.0.1"`, `"a:7188,b:7188,c:7188"`. The port is 7188 where
    /// none is given.
    #[must_use]
    pub fn to(servers: &str) -> Self {
        let servers = servers.split(',').map(str::trim).filter(|server| !server.is_empty());
        let has_port = |server: &str| {
            server.rsplit_once(':').is_some_and(|(host, _)| !host.starts_with('[') || host.ends_with(']'))
        };
        let with_port =
            |server: &str| if has_port(server) { server.to_owned() } else { format!("{server}:{DEFAULT_PORT}") };
        Self { servers: servers.map(with_port).collect(), ..Self::default() }
    }

    /// Who is told what the client does.
    #[cfg(feature = "history")]
    pub(crate) fn observed(&self) -> Option<Observed> {
        self.recording.as_ref().map(|recording| recording.observed(&self.name))
    }

    /// Nobody: the feature `history` is off.
    #[cfg(not(feature = "history"))]
    pub(crate) const fn observed(&self) -> Option<Observed> {
        None
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            servers: vec![format!("127.0.0.1:{DEFAULT_PORT}")],
            token: Vec::new(),
            tls: None,
            name: "mortarmq-client".to_owned(),
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(8),
            reconnect: ReconnectOptions::default(),
            #[cfg(feature = "history")]
            recording: None,
        }
    }
}

/// Leaves the token out: what is printed ends up in logs.
impl std::fmt::Debug for ClientOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ClientOptions")
            .field("servers", &self.servers)
            .field("token_bytes", &self.token.len())
            .field("tls", &self.tls)
            .field("name", &self.name)
            .field("connect_timeout", &self.connect_timeout)
            .field("answer_timeout", &self.answer_timeout)
            .field("reconnect", &self.reconnect)
            .finish()
    }
}

/// How TLS is spoken. The certificate of a server has to name the host of its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The CAs of which one has to have issued the certificate of the broker.
    pub roots: Roots,
}

/// Waiting between attempts, with jitter, so that the clients of a restarted broker do not come all at once.
#[derive(Clone, Debug)]
pub struct ReconnectOptions {
    /// The first wait. Each one after it is twice as long.
    ///
    /// # Units
    /// Milliseconds.
    pub initial_ms: u64,
    /// The longest wait.
    ///
    /// # Units
    /// Milliseconds.
    pub max_ms: u64,
    /// How long the client goes on without success, at connecting and at any request that the broker refuses for now.
    /// `None`: for ever, apart from the first connect, which then tries each server once.
    pub give_up_after: Option<Duration>,
}

impl Default for ReconnectOptions {
    fn default() -> Self {
        Self { initial_ms: 50, max_ms: 2_000, give_up_after: None }
    }
}

/// How a producer publishes.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// The partition of all its messages. `None`: by key, else round-robin.
    pub partition: Option<u16>,
    /// The producer's identity, for a caller who keeps one; never 0 and never shared. `None` (advised): drawn at
    /// random, and drawn anew when the broker has forgotten it. A given one ends with the first number that cannot be
    /// used again.
    pub producer_id: Option<u64>,
    /// How many messages may be unanswered; further sends wait. Taken as 1 to 1024: the broker remembers 1024 numbers
    /// of a producer, and a repeat must still be among them.
    pub max_outstanding: usize,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self { partition: None, producer_id: None, max_outstanding: 512 }
    }
}

/// How a consumer subscribes.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// How many messages the broker may push ahead of their settling; 0 pushes nothing (then [`pull`]), `None` is the
    /// group's own window.
    ///
    /// [`pull`]: crate::Consumer::pull
    pub credit_messages: Option<u16>,
    /// How many bytes of them; `None` is the group's own window.
    pub credit_bytes: Option<u32>,
    /// A JSON object of group settings; empty is `{}`.
    pub options_json: String,
    /// Where the group begins if this subscription creates it. [`StartPolicy::FromSequence`] takes `start` in the
    /// options.
    pub start: StartPolicy,
    /// Whether leases are renewed until their messages are settled. Without it a lease just runs out.
    pub renew: bool,
}

impl ConsumerOptions {
    /// Adds a setting of the group, as in `.set("lease_ms", 60_000)` or `.set("order", "none")`. The keys are those of
    /// `groups set` (docs/reference/operations.md). A group that exists must have the same values.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.options_json = with_setting(&self.options_json, key, value.into());
        self
    }
}

/// How a topic is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicOptions {
    /// How many partitions it has; 0 is the cluster's default.
    pub partitions: u16,
    /// A JSON object of topic settings; empty is `{}`.
    pub options_json: String,
}

impl TopicOptions {
    /// So many partitions, and the defaults.
    #[must_use]
    pub fn partitions(partitions: u16) -> Self {
        Self { partitions, ..Self::default() }
    }

    /// Adds a setting of the topic, as in `.set("retention_ms", 86_400_000)`. The keys are those of `topics set`
    /// (docs/reference/operations.md). A topic that exists must have the same values.
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.options_json = with_setting(&self.options_json, key, value.into());
        self
    }
}

/// A JSON object with one entry more. What is no object stays none, for the broker to refuse.
fn with_setting(object: &str, key: &str, value: Value) -> String {
    let before = object.trim();
    let before = before.strip_suffix('}').unwrap_or(if before.is_empty() { "{" } else { before }).trim_end();
    let comma = if before.ends_with('{') { "" } else { "," };
    format!("{before}{comma}{}:{value}}}", Value::from(key))
}

/// What a pull asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullOptions {
    /// How many messages at most.
    pub max_messages: u16,
    /// How many bytes of key, headers and value; 0 is no limit.
    pub max_bytes: u32,
    /// How long to wait if there is none.
    ///
    /// # Units
    /// Milliseconds.
    pub wait_ms: u16,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self { max_messages: 1, max_bytes: 0, wait_ms: 5_000 }
    }
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            credit_messages: None,
            credit_bytes: None,
            options_json: String::new(),
            start: StartPolicy::Earliest,
            renew: true,
        }
    }
}

/// Where a broker takes clients, unless it is told otherwise.
const DEFAULT_PORT: u16 = 7188;

#[cfg(test)]
mod tests {
    use super::{ClientOptions, ConsumerOptions};

    #[test]
    fn settings_of_the_group_are_added_to_those_that_are_there() {
        let options = ConsumerOptions::default().set("lease_ms", 60_000).set("order", "none").set("start", "latest");
        assert_eq!(options.options_json, r#"{"lease_ms":60000,"order":"none","start":"latest"}"#);
        for (before, after) in [("", r#"{"a":1}"#), (" { } ", r#"{"a":1}"#), (r#"{"b":{}}"#, r#"{"b":{},"a":1}"#)] {
            let options = ConsumerOptions { options_json: before.to_owned(), ..ConsumerOptions::default() };
            assert_eq!(options.set("a", 1).options_json, after, "{before}");
        }
    }

    #[test]
    fn several_addresses_are_written_with_commas() {
        assert_eq!(ClientOptions::to("a:1, b:2,").servers, ["a:1", "b:2"]);
        assert_eq!(ClientOptions::to("a,[::1],[::1]:9").servers, ["a:7188", "[::1]:7188", "[::1]:9"]);
    }
}
