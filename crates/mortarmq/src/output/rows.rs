//! Rows under fixed columns, as TSV, table or JSON.

use std::io::{IsTerminal, Write};

use super::Cell;
use crate::errors::Failure;

/// How rows are printed.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct RowArgs {
    /// Print one JSON object per row
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a heading above the TSV rows
    #[arg(long)]
    pub(crate) header: bool,
}

/// Prints rows on stdout, or wherever a test wants them.
///
/// # Invariants
/// 1. Every row has as many cells as there are columns.
/// 2. A row of TSV or JSON, and of a streamed table, is flushed before `push` returns.
pub(crate) struct Rows<W: Write = std::io::Stdout> {
    out: W,
    columns: &'static [&'static str],
    form: Form,
    widths: Vec<usize>,
    held: Vec<Vec<Cell>>,
    has_heading: bool,
}

enum Form {
    Tsv {
        heading: bool,
    },
    Json,
    /// Rows that come all at once: held until the end, so that columns are exactly as wide as they must be.
    Table,
    /// Rows that come one by one: columns widen as they must.
    StreamedTable,
    /// A table of a page that is written in Markdown.
    Markdown,
}

impl Rows {
    /// Rows that come all at once.
    pub(crate) fn listed(columns: &'static [&'static str], args: RowArgs) -> Self {
        Self::on_stdout(columns, args, Form::Table)
    }

    /// Rows that come one by one.
    pub(crate) fn streamed(columns: &'static [&'static str], args: RowArgs) -> Self {
        Self::on_stdout(columns, args, Form::StreamedTable)
    }

    /// Rows for a page that is written in Markdown, on whatever stdout is.
    pub(crate) fn markdown(columns: &'static [&'static str]) -> Self {
        Self::new(std::io::stdout(), columns, Form::Markdown)
    }

    fn on_stdout(columns: &'static [&'static str], args: RowArgs, table: Form) -> Self {
        let out = std::io::stdout();
        let form = if args.json {
            Form::Json
        } else if out.is_terminal() {
            table
        } else {
            Form::Tsv { heading: args.header }
        };
        Self::new(out, columns, form)
    }
}

impl<W: Write> Rows<W> {
    fn new(out: W, columns: &'static [&'static str], form: Form) -> Self {
        let widths = columns.iter().map(|column| column.len()).collect();
        Self { out, columns, form, widths, held: Vec::new(), has_heading: false }
    }

    /// Prints a row.
    ///
    /// # Errors
    /// [`Failure::PipeClosed`] when nobody reads stdout any more.
    /// # Panics
    /// When the row has another number of cells than there are columns.
    pub(crate) fn push(&mut self, row: Vec<Cell>) -> Result<(), Failure> {
        assert_eq!(row.len(), self.columns.len(), "a row of {:?} has other cells", self.columns);
        match self.form {
            Form::Json => {
                let fields: Vec<_> = row.iter().zip(self.columns).map(|(cell, name)| cell.json_field(name)).collect();
                self.write(&format!("{{{}}}\n", fields.join(",")))
            }
            Form::Tsv { heading } => {
                self.write_tsv_heading(heading)?;
                let fields: Vec<_> = row.iter().map(Cell::tsv).collect();
                self.write(&format!("{}\n", fields.join("\t")))
            }
            Form::StreamedTable => self.write_aligned(&[row]),
            Form::Markdown => {
                let fields: Vec<_> = row.iter().map(|cell| cell.shown().replace('|', "\\|")).collect();
                let heading = self.take_markdown_heading();
                self.write(&format!("{heading}| {} |\n", fields.join(" | ")))
            }
            Form::Table => {
                self.held.push(row);
                Ok(())
            }
        }
    }

    /// Prints what is held back, and the heading if no row has come.
    ///
    /// # Errors
    /// [`Failure::PipeClosed`] when nobody reads stdout any more.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        match self.form {
            Form::Json => Ok(()),
            Form::Tsv { heading } => self.write_tsv_heading(heading),
            Form::Markdown => {
                let heading = self.take_markdown_heading();
                self.write(&heading)
            }
            Form::Table | Form::StreamedTable => {
                let rows = std::mem::take(&mut self.held);
                self.write_aligned(&rows)
            }
        }
    }

    /// Whether a person reads the rows.
    pub(crate) const fn is_table(&self) -> bool {
        matches!(self.form, Form::Table | Form::StreamedTable)
    }

    fn write_tsv_heading(&mut self, wanted: bool) -> Result<(), Failure> {
        if !wanted || std::mem::replace(&mut self.has_heading, true) {
            return Ok(());
        }
        let columns = self.columns.join("\t");
        self.write(&format!("{columns}\n"))
    }

    /// The heading, the first time.
    fn take_markdown_heading(&mut self) -> String {
        if std::mem::replace(&mut self.has_heading, true) {
            return String::new();
        }
        format!("| {} |\n|{}\n", self.columns.join(" | "), "---|".repeat(self.columns.len()))
    }

    fn write_aligned(&mut self, rows: &[Vec<Cell>]) -> Result<(), Failure> {
        let shown: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(Cell::shown).collect()).collect();
        for row in &shown {
            for (width, text) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(text.chars().count());
            }
        }
        let mut text = String::new();
        if !std::mem::replace(&mut self.has_heading, true) {
            let is_right = |column: usize| rows.first().is_some_and(|row| row[column].is_number());
            text.push_str(&self.line(self.columns, is_right));
        }
        for (row, cells) in shown.iter().zip(rows) {
            text.push_str(&self.line(row, |column| cells[column].is_number()));
        }
        self.write(&text)
    }

    fn line<T: AsRef<str>>(&self, texts: &[T], is_right: impl Fn(usize) -> bool) -> String {
        let mut line = String::new();
        for (column, (text, width)) in texts.iter().zip(&self.widths).enumerate() {
            let text = text.as_ref();
            let padding = " ".repeat(width.saturating_sub(text.chars().count()));
            let gap = if column == 0 { "" } else { "  " };
            line.push_str(gap);
            if is_right(column) {
                line.push_str(&padding);
                line.push_str(text);
            } else {
                line.push_str(text);
                line.push_str(&padding);
            }
        }
        format!("{}\n", line.trim_end())
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).map_err(Failure::from_stdout)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;

    use super::{Form, Rows};
    use crate::errors::Failure;
    use crate::output::Cell;

    const COLUMNS: &[&str] = &["partition", "key", "value"];

    fn printed(form: Form) -> String {
        let mut out = Vec::new();
        let mut rows = Rows::new(&mut out, COLUMNS, form);
        let bytes = |bytes: &'static [u8]| Cell::Bytes(Bytes::from_static(bytes));
        rows.push(vec![Cell::Number(7), bytes(b"k1"), bytes(b"tab\there")]).expect("a vector takes all");
        rows.push(vec![Cell::Number(12), bytes(b""), bytes(b"\xff")]).expect("a vector takes all");
        rows.finish().expect("a vector takes all");
        String::from_utf8(out).expect("rows are text")
    }

    #[test]
    fn tsv_has_one_line_per_row_and_a_heading_only_when_asked() {
        assert_eq!(printed(Form::Tsv { heading: false }), "7\tk1\ttab\\there\n12\t\t\\xff\n");
        assert_eq!(printed(Form::Tsv { heading: true }), "partition\tkey\tvalue\n7\tk1\ttab\\there\n12\t\t\\xff\n");
    }

    #[test]
    fn json_has_one_object_per_line_with_the_columns_as_keys() {
        assert_eq!(
            printed(Form::Json),
            "{\"partition\":7,\"key\":\"k1\",\"value\":\"tab\\there\"}\n{\"partition\":12,\"key\":\"\",\"value_base64\":\"/w==\"}\n"
        );
    }

    #[test]
    fn table_is_aligned_with_numbers_to_the_right() {
        let expected = "partition  key  value\n        7  k1   tab\\there\n       12       \\xff\n";
        assert_eq!(printed(Form::Table), expected);
        assert_eq!(printed(Form::StreamedTable), expected);
    }

    #[test]
    fn markdown_is_a_table_whose_cells_cannot_end_it() {
        let mut out = Vec::new();
        let mut rows = Rows::new(&mut out, &["n", "text"], Form::Markdown);
        rows.push(vec![Cell::Number(7), Cell::Text("a|b".to_owned())]).expect("a vector takes all");
        rows.push(vec![Cell::Number(8), Cell::Absent]).expect("a vector takes all");
        rows.finish().expect("a vector takes all");
        assert_eq!(String::from_utf8(out).expect("text"), "| n | text |\n|---|---|\n| 7 | a\\|b |\n| 8 | - |\n");
    }

    #[test]
    fn streamed_rows_are_out_before_the_next_comes() {
        /// Counts flushes.
        struct Flushes(u32);
        impl Write for Flushes {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                self.0 += 1;
                Ok(())
            }
        }
        for form in [Form::Tsv { heading: false }, Form::Json, Form::StreamedTable] {
            let mut flushes = Flushes(0);
            let mut rows = Rows::new(&mut flushes, &["n"], form);
            rows.push(vec![Cell::Number(1)]).expect("nothing fails");
            rows.push(vec![Cell::Number(2)]).expect("nothing fails");
            assert_eq!(flushes.0, 2);
        }
    }

    #[test]
    fn closed_pipe_is_told_apart_from_other_failures() {
        /// Fails as a pipe does whose reader has gone.
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let failure = Rows::new(Closed, &["n"], Form::Json).push(vec![Cell::Absent]);
        assert!(matches!(failure, Err(Failure::PipeClosed)));
    }
}
