//! `dlq purge TOPIC`.

use super::settle::SettleArgs;
use crate::errors::Failure;

/// Drop dead letters for good
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    letters: SettleArgs,
}

/// Prints how many were meant, how many are dropped, and how many stay.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    args.letters.run("purge")
}
