//! `groups`: list, describe, seek, set and delete.

mod delete;
mod describe;
mod list;
mod seek;
mod set;

use serde::Deserialize;

use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, note};

/// List, describe, move, set and delete consumer groups
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Describe(describe::Args),
    Seek(seek::Args),
    Set(set::Args),
    Delete(delete::Args),
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args),
        Command::Describe(args) => describe::run(args),
        Command::Seek(args) => seek::run(args),
        Command::Set(args) => set::run(args),
        Command::Delete(args) => delete::run(args),
    }
}

/// A path as it is typed: `TOPIC/GROUP`. Names are judged by the server.
#[derive(Clone, Debug)]
struct PathName {
    topic: String,
    group: String,
}

/// Reads `TOPIC/GROUP`.
fn path_name(text: &str) -> Result<PathName, String> {
    match text.split_once('/') {
        Some((topic, group)) if !topic.is_empty() && !group.is_empty() => {
            Ok(PathName { topic: topic.to_owned(), group: group.to_owned() })
        }
        _ => Err("a group is written TOPIC/GROUP".to_owned()),
    }
}

/// What a seek or a deletion did.
#[derive(Deserialize)]
struct Moved {
    #[serde(default)]
    replayed: u64,
    dropped: u64,
    #[serde(default)]
    partial: bool,
}

impl Moved {
    fn print(&self, args: RowArgs) -> Result<(), Failure> {
        let mut rows = Rows::listed(&["replayed", "dropped"], args);
        rows.push(vec![Cell::Number(self.replayed), Cell::Number(self.dropped)])?;
        rows.finish()?;
        if self.partial {
            note("the move goes on, and will concern more messages than these: see mortarmq balance");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::path_name;

    #[test]
    fn a_path_has_two_names() {
        let path = path_name("orders/billing").expect("two names");
        assert_eq!((path.topic.as_str(), path.group.as_str()), ("orders", "billing"));
        for text in ["", "orders", "/billing", "orders/", "/"] {
            assert!(path_name(text).is_err(), "{text}");
        }
    }
}
