//! `topics`: make, delete, list, describe, purge and set.

mod create;
mod delete;
mod describe;
mod list;
mod purge;
mod set;

use crate::errors::Failure;

/// Make, delete, list, describe, purge and set topics
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(create::Args),
    Delete(delete::Args),
    List(list::Args),
    Describe(describe::Args),
    Purge(purge::Args),
    Set(set::Args),
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create::run(args),
        Command::Delete(args) => delete::run(args),
        Command::List(args) => list::run(args),
        Command::Describe(args) => describe::run(args),
        Command::Purge(args) => purge::run(args),
        Command::Set(args) => set::run(args),
    }
}
