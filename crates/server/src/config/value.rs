//! Values: typed once, when they are read.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use mortarmq_http::Token;
use mortarmq_http::access::{User, read_tokens, read_users};

use super::keys::{Key, Kind};
use super::peers::{self, PeerAddress};
use super::{ConfigError, Source};
use crate::peers::Secret;
use crate::web_socket::Origins;

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A whole number, or bytes.
    Number(u64),
    /// An address.
    Address(SocketAddr),
    /// An address, or none.
    OptionalAddress(Option<SocketAddr>),
    /// Origins of pages.
    Origins(Origins),
    /// A folder.
    Path(PathBuf),
    /// A file, or none.
    File(Option<PathBuf>),
    /// Yes or no.
    Flag(bool),
    /// One of the key's words.
    Word(&'static str),
    /// Tokens.
    Tokens(Vec<Token>),
    /// Users.
    Users(Vec<User>),
    /// Nodes of a cluster.
    Peers(Vec<PeerAddress>),
    /// A secret, or none.
    Secret(Option<Secret>),
}

/// A value as it was written.
pub(super) enum Given {
    /// In a file.
    Json(serde_json::Value),
    /// In the environment or as a flag.
    Text(String),
}

impl Given {
    /// As JSON; a text that is none is a word.
    pub(super) fn json(self) -> serde_json::Value {
        match self {
            Self::Json(value) => value,
            Self::Text(text) => serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text)),
        }
    }

    /// Makes it a value of the key.
    pub(super) fn parse(self, key: &Key, source: &Source) -> Result<Value, ConfigError> {
        let text = match self {
            Self::Text(text) => text,
            Self::Json(serde_json::Value::String(text)) => text,
            Self::Json(other) => other.to_string(),
        };
        let secret = match key.kind {
            Kind::Tokens => Some(read_tokens(&text).map(Value::Tokens)),
            Kind::Users => Some(read_users(&text).map(Value::Users)),
            Kind::Secret => Some(read_secret(&text).ok_or_else(|| key.kind.expected()).map(Value::Secret)),
            _ => None,
        };
        if let Some(read) = secret {
            // The text has secrets or digests, and an error must not show them.
            return read.map_err(|expected| ConfigError::Value {
                key: key.name,
                found: "[...]".to_owned(),
                source_place: source.clone(),
                expected,
            });
        }
        if key.kind == Kind::Peers {
            let refused = |expected| ConfigError::Value {
                key: key.name,
                found: text.clone(),
                source_place: source.clone(),
                expected,
            };
            return peers::read(&text).map(Value::Peers).map_err(refused);
        }
        Value::from_text(key.kind, &text).ok_or_else(|| ConfigError::Value {
            key: key.name,
            found: text,
            source_place: source.clone(),
            expected: key.kind.expected(),
        })
    }
}

impl Value {
    /// Reads a value of a kind; `None` if it is none.
    pub(super) fn from_text(kind: Kind, text: &str) -> Option<Self> {
        let within = |number: u64, least, most| (least..=most).contains(&number).then_some(Self::Number(number));
        match kind {
            Kind::Number(least, most) => within(text.parse().ok()?, least, most),
            Kind::Bytes(least, most) => within(bytes(text)?, least, most),
            Kind::Address => address(text).map(Self::Address),
            Kind::AddressOrOff if text == OFF => Some(Self::OptionalAddress(None)),
            Kind::AddressOrOff => address(text).map(|found| Self::OptionalAddress(Some(found))),
            Kind::Origins => Origins::read(text).map(Self::Origins),
            Kind::Path => (!text.is_empty()).then(|| Self::Path(PathBuf::from(text))),
            Kind::File if text == NO_FILE => Some(Self::File(None)),
            Kind::File => (!text.is_empty()).then(|| Self::File(Some(PathBuf::from(text)))),
            Kind::Flag => text.parse().ok().map(Self::Flag),
            Kind::Tokens => read_tokens(text).ok().map(Self::Tokens),
            Kind::Users => read_users(text).ok().map(Self::Users),
            Kind::Peers => peers::read(text).ok().map(Self::Peers),
            Kind::Secret => read_secret(text).map(Self::Secret),
            Kind::Word(words) => words.iter().find(|word| **word == text).map(|word| Self::Word(word)),
        }
    }

    pub(super) fn number(&self) -> u64 {
        let Self::Number(number) = self else { panic!("{self:?} is asked for as a number") };
        *number
    }

    pub(super) fn address(&self) -> SocketAddr {
        let Self::Address(address) = self else { panic!("{self:?} is asked for as an address") };
        *address
    }

    pub(super) fn optional_address(&self) -> Option<SocketAddr> {
        let Self::OptionalAddress(address) = self else { panic!("{self:?} is asked for as an address or none") };
        *address
    }

    pub(super) fn origins(&self) -> Origins {
        let Self::Origins(origins) = self else { panic!("{self:?} is asked for as origins") };
        origins.clone()
    }

    pub(super) fn path(&self) -> PathBuf {
        let Self::Path(path) = self else { panic!("{self:?} is asked for as a folder") };
        path.clone()
    }

    pub(super) fn file(&self) -> Option<PathBuf> {
        let Self::File(file) = self else { panic!("{self:?} is asked for as a file") };
        file.clone()
    }

    pub(super) fn flag(&self) -> bool {
        let Self::Flag(flag) = self else { panic!("{self:?} is asked for as a flag") };
        *flag
    }

    pub(super) fn tokens(&self) -> Vec<Token> {
        let Self::Tokens(tokens) = self else { panic!("{self:?} is asked for as tokens") };
        tokens.clone()
    }

    pub(super) fn users(&self) -> Vec<User> {
        let Self::Users(users) = self else { panic!("{self:?} is asked for as users") };
        users.clone()
    }

    pub(super) fn peers(&self) -> Vec<PeerAddress> {
        let Self::Peers(peers) = self else { panic!("{self:?} is asked for as nodes") };
        peers.clone()
    }

    pub(super) fn secret(&self) -> Option<Secret> {
        let Self::Secret(secret) = self else { panic!("{self:?} is asked for as a secret") };
        secret.clone()
    }

    pub(super) fn word(&self) -> &'static str {
        let Self::Word(word) = self else { panic!("{self:?} is asked for as a word") };
        word
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(formatter),
            Self::Address(address) => address.fmt(formatter),
            Self::OptionalAddress(Some(address)) => address.fmt(formatter),
            Self::OptionalAddress(None) => formatter.write_str(OFF),
            Self::Origins(origins) => origins.fmt(formatter),
            Self::Path(path) => path.display().fmt(formatter),
            Self::File(Some(path)) => path.display().fmt(formatter),
            Self::File(None) => formatter.write_str(NO_FILE),
            Self::Flag(flag) => flag.fmt(formatter),
            Self::Word(word) => word.fmt(formatter),
            // Their names only.
            Self::Tokens(tokens) => {
                let names: Vec<&str> = tokens.iter().map(|token| token.name.as_str()).collect();
                write!(formatter, "[{}]", names.join(", "))
            }
            Self::Users(users) => {
                let names: Vec<&str> = users.iter().map(|user| user.name.as_str()).collect();
                write!(formatter, "[{}]", names.join(", "))
            }
            Self::Peers(peers) => {
                let nodes: Vec<String> = peers.iter().map(|peer| format!("{} at {}", peer.id, peer.peer)).collect();
                write!(formatter, "[{}]", nodes.join(", "))
            }
            Self::Secret(Some(_)) => formatter.write_str("[...]"),
            Self::Secret(None) => formatter.write_str(NO_FILE),
        }
    }
}

impl Kind {
    /// What it takes, for an error's text.
    fn expected(self) -> String {
        match self {
            Self::Number(least, most) => format!("give a whole number from {least} to {most}"),
            Self::Bytes(least, most) => format!("give bytes, plain or as 64MiB, from {least} to {most}"),
            Self::Address => "give an IP address and a port, such as 127.0.0.1:7188".to_owned(),
            Self::AddressOrOff => format!("give an IP address and a port, such as 127.0.0.1:7192, or {OFF}"),
            Self::Origins => "give a list of origins such as [\"https://shop.example\", \"loopback\"]".to_owned(),
            Self::Path => "give a folder".to_owned(),
            Self::File => format!("give a file, or {NO_FILE}"),
            Self::Flag => "give true or false".to_owned(),
            Self::Word(words) => format!("give one of {}", words.join(", ")),
            Self::Tokens => "give the lines that `mortarmq hash-token` prints".to_owned(),
            Self::Users => "give the lines that `mortarmq hash-password` prints".to_owned(),
            Self::Peers => peers::EXPECTED.to_owned(),
            Self::Secret => "give at least 16 characters that nobody can guess, or none".to_owned(),
        }
    }
}

/// No address.
const OFF: &str = "off";
/// A file of this name is written `./none`.
const NO_FILE: &str = "none";

fn read_secret(text: &str) -> Option<Option<Secret>> {
    if text == NO_FILE { Some(None) } else { Secret::new(text).map(Some) }
}

/// A plain number, or one with a unit of 1024s.
fn bytes(text: &str) -> Option<u64> {
    let digits_end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?));
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{address, bytes};

    #[test]
    fn sizes_are_bytes_or_multiples_of_1024() {
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("64MiB"), Some(64 << 20));
        assert_eq!(bytes("1 GiB"), Some(1 << 30));
        for bad in ["", "MiB", "64MB", "-1", "1.5GiB", "99999999999TiB"] {
            assert_eq!(bytes(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn addresses_are_numbers_or_localhost() {
        assert_eq!(address("localhost:7188"), "127.0.0.1:7188".parse().ok());
        assert_eq!(address("[::1]:0"), "[::1]:0".parse().ok());
        assert_eq!(address("broker.example:7188"), None);
        assert_eq!(address("127.0.0.1"), None);
    }
}
