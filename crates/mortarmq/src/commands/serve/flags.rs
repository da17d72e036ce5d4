//! One flag for each key of the configuration: the key with dashes. The table of keys is the server's.

use clap::{Arg, ArgMatches, Command};
use mortarmq_server::config::{KEYS, Key, Kind, Status};

/// The flags that were given, as key and value.
#[derive(Clone, Debug, Default)]
pub(super) struct Flags {
    /// In the order of the table.
    pub(super) given: Vec<(String, String)>,
}

impl Flags {
    /// Sets a key, unless it was given.
    pub(super) fn set_default(&mut self, key: &str, value: &str) {
        if !self.given.iter().any(|(given, _)| given == key) {
            self.given.push((key.to_owned(), value.to_owned()));
        }
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let value = |key: &Key| Some((key.name.to_owned(), matches.get_one::<String>(key.name)?.clone()));
        self.given = KEYS.iter().filter_map(value).collect();
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        KEYS.iter().fold(command, |command, key| command.arg(flag(key)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn flag(key: &Key) -> Arg {
    let (is_hidden, help) = match key.status {
        Status::Ready => (false, format!("{} [default: {}]", takes(key.kind), key.default)),
        // Known, so that it is refused with the reason and not as a typing mistake.
        Status::NotYet(reason) => (true, reason.to_owned()),
    };
    Arg::new(key.name)
        .long(key.name.replace('_', "-"))
        .value_name(value_name(key.kind))
        .help(help)
        .hide(is_hidden)
        .help_heading("Configuration")
}

fn takes(kind: Kind) -> String {
    match kind {
        Kind::Number(low, high) => format!("A number, {low} to {high}"),
        Kind::Bytes(..) => "Bytes, or as 64MiB".to_owned(),
        Kind::Address => "Where to listen".to_owned(),
        Kind::AddressOrOff => "Where to listen; off: nowhere".to_owned(),
        Kind::Origins => {
            "JSON: origins of pages that may connect, such as [\"https://shop.example\", \"loopback\"]".to_owned()
        }
        Kind::Path => "A folder".to_owned(),
        Kind::File => "A file; none: without".to_owned(),
        Kind::Flag => "true or false".to_owned(),
        Kind::Word(words) => words.join(", "),
        Kind::Tokens => "JSON: [{name, sha256, grants}], as hash-token prints them".to_owned(),
        Kind::Users => "JSON: [{name, argon2, grants}], as hash-password prints them".to_owned(),
        Kind::Peers => "JSON: [{id, peer, client, http}], all nodes of the cluster; the same on every node".to_owned(),
        Kind::Secret => "At least 16 characters, the same on every node; none: without".to_owned(),
    }
}

const fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Number(..) => "N",
        Kind::Bytes(..) => "BYTES",
        Kind::Address | Kind::AddressOrOff => "HOST:PORT",
        Kind::Path => "DIR",
        Kind::File => "FILE",
        Kind::Flag => "BOOL",
        Kind::Word(..) => "WORD",
        Kind::Secret => "SECRET",
        Kind::Tokens | Kind::Users | Kind::Origins | Kind::Peers => "JSON",
    }
}
