//! What commands print: rows on stdout, everything else on stderr.
//!
//! A row is a list of [`Cell`]s under fixed columns. [`Rows`] prints it as TSV on a pipe, as an aligned table on a
//! terminal, or as one JSON object per line. Column order never changes; the tests of `rows.rs` hold the forms.

mod cell;
mod numbers;
mod rows;

pub(crate) use cell::{Cell, one_line};
pub(crate) use numbers::{grouped, utc};
pub(crate) use rows::{RowArgs, Rows};

/// Prints one line on stderr. When nobody reads stderr there is nobody to tell, so a failed write is no failure.
pub(crate) fn note(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
