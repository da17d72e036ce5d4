//! `dlq peek TOPIC`: as `dlq list`, with key and value.

use super::letters::{self, LetterArgs};
use crate::errors::Failure;
use crate::output::Rows;

/// Read the dead letters of a topic that are not settled, with key and value
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    letters: LetterArgs,
}

/// Prints one row per dead letter, partition by partition.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut rows = Rows::streamed(&letters::COLUMNS_WITH_BYTES, args.letters.rows);
    args.letters.each(|letter| {
        let mut cells = letter.cells();
        cells.extend(letter.message.cells()?);
        rows.push(cells)
    })?;
    rows.finish()
}
