//! `dlq list TOPIC`.

use super::letters::{self, LetterArgs};
use crate::errors::Failure;
use crate::output::Rows;

/// List the dead letters of a topic that are not settled
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    letters: LetterArgs,
}

/// Prints one row per dead letter, partition by partition.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut rows = Rows::streamed(&letters::COLUMNS, args.letters.rows);
    args.letters.each(|letter| rows.push(letter.cells()))?;
    rows.finish()
}
