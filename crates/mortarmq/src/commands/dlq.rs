//! `dlq`: what became of the messages of a topic that died.

mod letters;
mod list;
mod peek;

use crate::errors::Failure;

/// List and read the dead letters of a topic
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Peek(peek::Args),
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args),
        Command::Peek(args) => peek::run(args),
    }
}
