//! `dlq redrive TOPIC`.

use super::settle::SettleArgs;
use crate::errors::Failure;

/// Bring dead letters back to the groups that they died on
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    letters: SettleArgs,
}

/// Prints how many were meant, how many are brought back, and how many stay.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    args.letters.run("redrive")
}
