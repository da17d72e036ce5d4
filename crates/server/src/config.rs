//! The node's configuration: one file, then environment, then flags; later wins.
//!
//! Every key of docs/reference/operations.md is known. A key of something that this version does not have is refused by
//! its name when it is set, an unknown key with the nearest valid one: a setting that does nothing would be a lie.

mod addresses;
mod file;
mod keys;
mod peers;
mod tls;
mod value;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use mortarmq_http::Token;
use mortarmq_http::access::User;
use mortarmq_shard::{DefaultKey, Defaults};
use mortarmq_types::NodeId;

use crate::web_socket::Origins;

pub use crate::connection::deadlines::Timeouts;
pub use keys::{KEYS, Key, Kind, Status};
pub(crate) use peers::host_of;
pub use peers::{Cluster, PeerAddress};
pub use tls::TlsFiles;
pub use value::Value;

/// What a node is told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The node's id.
    pub node_id: NodeId,
    /// The cluster that it belongs to, if it is not alone.
    pub cluster: Option<Cluster>,
    /// Where it takes clients of the wire protocol. Port 0 takes a free one.
    pub listen_client: SocketAddr,
    /// Where it takes clients over WebSocket, if it does. Port 0 takes a free one.
    pub listen_ws: Option<SocketAddr>,
    /// The pages that may open a WebSocket.
    pub ws_origins: Origins,
    /// Where it serves metrics, health and the operator routes. Port 0 takes a free one.
    pub listen_admin: SocketAddr,
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// The size at which a new journal file is begun.
    ///
    /// # Units
    /// Bytes.
    pub journal_file_bytes: u64,
    /// Bytes of journal that are kept behind a checkpoint.
    pub journal_keep_bytes: u64,
    /// A checkpoint is taken after so many bytes of journal.
    pub snapshot_journal_bytes: u64,
    /// Room that is held for the time when the disk is full; 0 for none.
    ///
    /// # Units
    /// Bytes.
    pub disk_reserve_bytes: u64,
    /// The initial values of the cluster. Only its first start reads them; from then on the catalog has them.
    pub initial: Defaults,
    /// Those of them that were set: it is said where the catalog has others.
    pub initial_set: Vec<DefaultKey>,
    /// How fast the scrub reads everything again, per second; 0 turns it off.
    pub scrub_bytes_per_s: u64,
    /// The longest that a PULL waits, whatever it asks for.
    ///
    /// # Units
    /// Milliseconds.
    pub poll_max_wait_ms: u64,
    /// A publish that waits longer for its commit is answered `unknown`.
    ///
    /// # Units
    /// Milliseconds.
    pub publish_timeout_ms: u64,
    /// Requests that may wait for their batch; beyond, BACKPRESSURE.
    ///
    /// # Units
    /// Bytes.
    pub max_pending_bytes: u64,
    /// Most connections of the client listener.
    pub max_connections: u32,
    /// What all frames above 64 KiB that are being received may take together.
    ///
    /// # Units
    /// Bytes.
    pub receive_budget_bytes: u64,
    /// What may wait in memory for consumers that take it slowly, of all connections together; beyond, SLOW_CONSUMER.
    /// No key sets it: it lies far above every default window.
    ///
    /// # Units
    /// Bytes.
    pub send_budget_bytes: u64,
    /// When a client's connection is given up. No key sets it either.
    pub timeouts: Timeouts,
    /// Who may do what; none: everybody everything, on this machine only.
    pub tokens: Vec<Token>,
    /// Who may do what with a password, over HTTP.
    pub users: Vec<User>,
    /// With it every listener speaks TLS and nothing else.
    pub tls: Option<TlsFiles>,
    /// Whether `/metrics` is served.
    pub metrics_enabled: bool,
    /// Whether they have a row per partition.
    pub metrics_per_partition: bool,
    /// The least severe log lines that are written.
    pub log_level: &'static str,
    /// How log lines look: `text` or `json`.
    pub log_format: &'static str,
}

/// Where the value of a key came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The key.
    pub key: &'static str,
    /// Its effective value, as text.
    pub value: String,
    /// Where it was set.
    pub source: Source,
}

/// The places a value can be set in; a later one wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag(String),
}

/// Why a configuration is refused. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no JSON or TOML of key = value.
    #[error("{} is not a configuration: {reason}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// No such key.
    #[error("unknown key {key:?} in {place}{hint}", place = .source_place, hint = nearest_hint(.nearest))]
    UnknownKey {
        /// The key given.
        key: String,
        /// Where it was given.
        source_place: Source,
        /// The nearest valid key, if one is near.
        nearest: Option<&'static str>,
    },
    /// A key of something that this version does not have.
    #[error("{key} in {source_place}: {reason}; leave it out")]
    NotYet {
        /// The key.
        key: &'static str,
        /// Where it was given.
        source_place: Source,
        /// What is missing.
        reason: &'static str,
    },
    /// A value that the key does not take.
    #[error("{key} = {found} in {source_place}: {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value given.
        found: String,
        /// Where it was given.
        source_place: Source,
        /// What the key takes.
        expected: String,
    },
    /// A certificate without a key, or a key without a certificate.
    #[error("{set} is set and {missing} is not: give both for TLS, or neither")]
    HalfTls {
        /// The key of the configuration that is set.
        set: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// Some of the files of TLS between nodes, and not all.
    #[error(
        "{set} is set and {missing} is not: give peer_tls_cert, peer_tls_key and peer_tls_ca for TLS between nodes, or none"
    )]
    PartOfPeerTls {
        /// A key of the configuration that is set.
        set: &'static str,
        /// One that is not.
        missing: &'static str,
    },
    /// An address that others can reach, while nobody has to show who they are.
    #[error(
        "{key} {address} without credentials: anybody who reaches it could read and change everything; run mortarmq init, \
         or use 127.0.0.1:{port}", port = .address.port()
    )]
    NotLoopback {
        /// The key.
        key: &'static str,
        /// The address given.
        address: SocketAddr,
    },
}

impl Config {
    /// Reads the configuration: the file, then `MORTARMQ_KEY` of the environment, then the flags.
    ///
    /// Variables of the environment that begin with `MORTARMQ_` and name no key of a node are left alone if the command
    /// line has them (`MORTARMQ_SERVER`, `MORTARMQ_ADMIN`, `MORTARMQ_TOKEN`, `MORTARMQ_TLS_CA`,
    /// `MORTARMQ_CONTEXT`), else they are unknown keys.
    ///
    /// # Errors
    /// The first key or value that is refused, with its place.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(Self, Vec<Origin>), ConfigError> {
        let mut settings = Settings::default();
        if let Some(path) = file {
            for (key, value) in file::read(path)? {
                settings.set(&key, value::Given::Json(value), Source::File(path.to_path_buf()))?;
            }
        }
        for (name, text) in environment {
            let Some(key) = name.strip_prefix(ENVIRONMENT_PREFIX).map(str::to_ascii_lowercase) else { continue };
            if CLIENT_VARIABLES.contains(&key.as_str()) {
                continue;
            }
            settings.set(&key, value::Given::Text(text), Source::Environment(name))?;
        }
        for (name, text) in flags {
            let key = name.trim_start_matches("--").replace('-', "_");
            let shown = format!("--{}", key.replace('_', "-"));
            settings.set(&key, value::Given::Text(text), Source::Flag(shown))?;
        }
        settings.finish()
    }
}

/// The values that were set so far, in the order of [`KEYS`].
#[derive(Default)]
struct Settings {
    set: Vec<(&'static Key, Value, Source)>,
    /// Settings of topics and groups that the cluster is to begin with.
    of_topics: Vec<(DefaultKey, u64)>,
}

impl Settings {
    fn set(&mut self, name: &str, given: value::Given, source: Source) -> Result<(), ConfigError> {
        let Some(key) = KEYS.iter().find(|key| key.name == name) else {
            if let Some(key) = DefaultKey::named(name) {
                return self.set_of_topics(key, given, source);
            }
            return Err(ConfigError::UnknownKey {
                key: name.to_owned(),
                source_place: source,
                nearest: keys::nearest(name),
            });
        };
        if let Status::NotYet(reason) = key.status {
            return Err(ConfigError::NotYet { key: key.name, source_place: source, reason });
        }
        let value = given.parse(key, &source)?;
        self.set.retain(|(other, _, _)| other.name != key.name);
        self.set.push((key, value, source));
        Ok(())
    }

    fn set_of_topics(&mut self, key: DefaultKey, given: value::Given, source: Source) -> Result<(), ConfigError> {
        let value = given.json();
        let number = key.read(&value).map_err(|_| ConfigError::Value {
            key: key.key(),
            found: value.to_string(),
            source_place: source,
            expected: format!("give {}", key.range().accepted()),
        })?;
        self.of_topics.retain(|(other, _)| *other != key);
        self.of_topics.push((key, number));
        Ok(())
    }

    fn initial(&self) -> Defaults {
        let mut initial = Defaults::BUILD;
        for (key, value, _) in &self.set {
            if let Some(key) = DefaultKey::named(key.name) {
                initial.set(key, value.number());
            }
        }
        self.of_topics.iter().for_each(|(key, number)| initial.set(*key, *number));
        initial
    }

    fn initial_set(&self) -> Vec<DefaultKey> {
        let of_the_shard = self.set.iter().filter_map(|(key, ..)| DefaultKey::named(key.name));
        of_the_shard.chain(self.of_topics.iter().map(|(key, _)| *key)).collect()
    }

    fn finish(self) -> Result<(Config, Vec<Origin>), ConfigError> {
        let find = |name: &str| self.set.iter().find(|(key, _, _)| key.name == name);
        let value =
            |name: &'static str| find(name).map_or_else(|| keys::default_of(name), |(_, value, _)| value.clone());
        let (tokens, users) = (value("tokens").tokens(), value("users").users());
        let has_credentials = !tokens.is_empty() || !users.is_empty();
        let address =
            |name: &'static str| addresses::check(name, value(name).address(), find(name).is_some(), has_credentials);
        let listen_ws = value("listen_ws").optional_address();
        let listen_ws = listen_ws.map(|at| addresses::check("listen_ws", at, true, has_credentials)).transpose()?;
        let node_id = NodeId::new(u16::try_from(value("node_id").number()).expect("its range ends at 16 bits"));
        let source = |name| find(name).map_or(Source::Default, |(_, _, source)| source.clone());
        let peers = (value("peers").peers(), source("peers"));
        let peer_tls = ["peer_tls_cert", "peer_tls_key", "peer_tls_ca"].map(|name| value(name).file());
        let (peer_tls, secret) = (tls::check_peers(peer_tls)?, value("peer_secret").secret());
        let config = Config {
            node_id,
            cluster: peers::check(node_id, peers, value("listen_peer").address(), secret, peer_tls)?,
            listen_client: address("listen_client")?,
            listen_ws,
            ws_origins: value("ws_origins").origins(),
            listen_admin: address("listen_admin")?,
            data_dir: value("data_dir").path(),
            journal_file_bytes: value("journal_file_bytes").number(),
            journal_keep_bytes: value("journal_keep_bytes").number(),
            snapshot_journal_bytes: value("snapshot_journal_bytes").number(),
            disk_reserve_bytes: value("disk_reserve_bytes").number(),
            initial: self.initial(),
            initial_set: self.initial_set(),
            scrub_bytes_per_s: value("scrub_bytes_per_s").number(),
            poll_max_wait_ms: value("poll_max_wait_ms").number(),
            publish_timeout_ms: value("publish_timeout_ms").number(),
            max_pending_bytes: value("max_pending_bytes").number(),
            max_connections: u32::try_from(value("max_connections").number()).expect("its range ends at 32 bits"),
            receive_budget_bytes: value("receive_budget_bytes").number(),
            send_budget_bytes: SEND_BUDGET_BYTES,
            timeouts: Timeouts::PROTOCOL,
            tokens,
            users,
            tls: tls::check(value("tls_cert").file(), value("tls_key").file())?,
            metrics_enabled: value("metrics_enabled").flag(),
            metrics_per_partition: value("metrics_per_partition").flag(),
            log_level: value("log_level").word(),
            log_format: value("log_format").word(),
        };
        let origins = KEYS.iter().filter(|key| matches!(key.status, Status::Ready)).map(|key| {
            let source = find(key.name).map_or(Source::Default, |(_, _, source)| source.clone());
            Origin { key: key.name, value: config.shown(key.name, &value(key.name)), source }
        });
        let origins = origins.collect();
        Ok((config, origins))
    }
}

impl Config {
    /// Whether whoever connects is asked who they are.
    #[must_use]
    pub fn asks_for_credentials(&self) -> bool {
        !self.tokens.is_empty() || !self.users.is_empty()
    }

    /// The effective value as text: an address is shown as it is bound.
    fn shown(&self, key: &str, value: &Value) -> String {
        match key {
            "listen_client" => self.listen_client.to_string(),
            "listen_admin" => self.listen_admin.to_string(),
            _ => value.to_string(),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => formatter.write_str("the defaults"),
            Self::File(path) => write!(formatter, "{}", path.display()),
            Self::Environment(name) => write!(formatter, "the environment ({name})"),
            Self::Flag(name) => write!(formatter, "the flags ({name})"),
        }
    }
}

fn nearest_hint(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean {name:?}?)"))
}

const SEND_BUDGET_BYTES: u64 = 256 << 20;
const ENVIRONMENT_PREFIX: &str = "MORTARMQ_";
/// Variables that the command line reads for its own requests.
const CLIENT_VARIABLES: &[&str] = &["server", "admin", "token", "tls_ca", "context", "config"];

#[cfg(test)]
mod tests;
