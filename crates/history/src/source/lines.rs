//! The lines of one file, one at a time, in a buffer that is used again.
//!
//! # Invariants
//! 1. `start <= scanned <= end <= buffer.len()`; `start..end` is read and not yet handed out, `start..scanned` holds no
//!    newline.
//! 2. The buffer never grows past the longest line and one read.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;

use super::Source;

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A line, without its newline. `ended` = it had one.
    Line { range: Range<usize>, ended: bool },
    /// A line that is too long; it was skipped.
    TooLong,
    /// The packed file ends in the middle of something.
    Torn,
    /// The packed file is damaged; it ends here.
    Damaged(String),
}

/// The lines of one file.
pub(crate) struct Lines {
    source: Source,
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    end: usize,
    at_end: bool,
    limit: usize,
    /// The number of the line that was handed out last, from 1.
    line: u64,
}

impl Lines {
    pub(crate) fn new(source: Source, limit: usize) -> Self {
        Self { source, buffer: vec![0; READ_BYTES], start: 0, scanned: 0, end: 0, at_end: false, limit, line: 0 }
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The next line that is not blank.
    pub(crate) fn next(&mut self) -> io::Result<Option<Next>> {
        let mut is_too_long = false;
        loop {
            assert!(self.start <= self.scanned && self.scanned <= self.end, "lines: invariant 1");
            if let Some(offset) = memchr::memchr(b'\n', &self.buffer[self.scanned..self.end]) {
                let range = self.start..self.scanned + offset;
                self.start = range.end + 1;
                self.scanned = self.start;
                self.line += 1;
                if is_too_long || range.len() > self.limit {
                    return Ok(Some(Next::TooLong));
                }
                let range = self.trimmed(range);
                if !range.is_empty() {
                    return Ok(Some(Next::Line { range, ended: true }));
                }
                continue;
            }
            self.scanned = self.end;
            if self.end - self.start > self.limit {
                // What the line begins with is of no use; its end is still looked for.
                is_too_long = true;
                self.start = self.end;
            }
            if self.at_end {
                return Ok(self.last_line(is_too_long));
            }
            if let Some(broken) = self.fill()? {
                return Ok(Some(broken));
            }
        }
    }

    /// What stands behind the last newline.
    fn last_line(&mut self, is_too_long: bool) -> Option<Next> {
        let range = self.start..self.end;
        self.start = self.end;
        let range = self.trimmed(range);
        if range.is_empty() && !is_too_long {
            return None;
        }
        self.line += 1;
        Some(if is_too_long { Next::TooLong } else { Next::Line { range, ended: false } })
    }

    /// Without blanks at both ends, and without the mark that some editors put at the start of a file.
    fn trimmed(&self, range: Range<usize>) -> Range<usize> {
        let line = &self.buffer[range.clone()];
        let unmarked = if self.line <= 1 { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
        let start = range.end - unmarked.trim_ascii_start().len();
        start..start + unmarked.trim_ascii().len()
    }

    /// Reads on. What a broken packed file still gave stays; after it the file is at its end.
    fn fill(&mut self) -> io::Result<Option<Next>> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < READ_BYTES / 2 {
            self.buffer.resize(self.buffer.len() + READ_BYTES.max(self.buffer.len() / 2), 0);
        }
        loop {
            match self.source.bytes.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.at_end = true;
                    return Ok(None);
                }
                Ok(count) => {
                    self.end += count;
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if self.source.tally.has_failed() => return Err(error),
                Err(error) => {
                    self.at_end = true;
                    self.end = self.start;
                    self.scanned = self.start;
                    self.line += 1;
                    return Ok(Some(match error.kind() {
                        ErrorKind::UnexpectedEof => Next::Torn,
                        _ => Next::Damaged(error.to_string()),
                    }));
                }
            }
        }
    }
}

/// What is read at once.
const READ_BYTES: usize = 256 << 10;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
