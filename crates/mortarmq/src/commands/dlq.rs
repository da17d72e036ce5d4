//! `dlq`: what became of the messages of a topic that died.

mod letters;
mod list;
mod peek;
mod purge;
mod redrive;
mod settle;

use crate::errors::Failure;

/// List and read the dead letters of a topic, bring them back or drop them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    List(list::Args),
    Peek(peek::Args),
    Redrive(redrive::Args),
    Purge(purge::Args),
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args),
        Command::Peek(args) => peek::run(args),
        Command::Redrive(args) => redrive::run(args),
        Command::Purge(args) => purge::run(args),
    }
}
