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

/// A path as one word of a command that is printed to be copied.
pub(crate) fn shell_word(path: &std::path::Path) -> String {
    let text = path.display().to_string();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._-+,:@".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn a_printed_path_is_one_word_for_the_shell() {
        for (path, word) in [("/a/b-1.pem", "/a/b-1.pem"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("$x", "'$x'")] {
            assert_eq!(shell_word(path.as_ref()), word);
        }
    }
}
