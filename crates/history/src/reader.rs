//! Reads histories: several files as one stream of records.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memchr::memmem;
use thiserror::Error;

use crate::parse::{Dialect, Unreadable, parse_line};
use crate::record::Record;
use crate::source::{Lines, Next, Source};

/// What bounds a reading.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest line, in bytes. The `run` and `end` of a run with many paths are the long ones.
    pub line_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes: 16 << 20 }
    }
}

/// A file that cannot be opened or read. Bad content never is an error: see [`Unreadable`].
#[derive(Debug, Error)]
#[error("cannot read {}", path.display())]
pub struct ReadError {
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    #[source]
    pub source: io::Error,
}

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineAt {
    /// Which file, by its place among the files given, from 0.
    pub file: u32,
    /// Which line of it, from 1; of a damaged packed file, the line at which it stops.
    pub line: u64,
}

/// One line that is not blank.
#[derive(Debug)]
pub struct ReadLine<'a> {
    /// Where it stands.
    pub at: LineAt,
    /// The record, or why it is none.
    pub content: Result<Record<'a>, Unreadable>,
    /// The line itself, without its newline; empty where it could not be read.
    pub text: &'a [u8],
}

/// What was read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that are records.
    pub records: u64,
    /// Lines that are none, whatever the reason.
    pub unreadable: u64,
    /// Files that end in the middle of a record, because whoever wrote them was killed; each counts as unreadable once.
    pub torn: u64,
    /// Packed files whose rest could not be unpacked; each counts as unreadable once, and hides nobody knows how much.
    pub damaged: u64,
}

/// Reads one or more files as one stream of records, in constant memory.
///
/// Of several files, the one whose next line was called first comes first.
pub struct Reader {
    files: Vec<OneFile>,
    /// Files that have a line, by when it was called and then by their place. Empty for a single file, which needs none.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    /// The file whose line was handed out last; its next line is looked for only now, since the one before was lent.
    lent: Option<usize>,
    counts: Counts,
}

struct OneFile {
    lines: Lines,
    head: Option<Next>,
    dialect: Dialect,
}

impl Reader {
    /// Opens files.
    ///
    /// # Errors
    /// When one cannot be opened or its first bytes cannot be read.
    pub fn open(paths: &[PathBuf], limits: Limits) -> Result<Self, ReadError> {
        let open = |path: &PathBuf| Source::open(path).map_err(|source| ReadError { path: path.clone(), source });
        Ok(Self::new(paths.iter().map(open).collect::<Result<_, _>>()?, limits))
    }

    /// Reads what is already open.
    #[must_use]
    pub fn new(sources: Vec<Source>, limits: Limits) -> Self {
        let file =
            |source| OneFile { lines: Lines::new(source, limits.line_bytes), head: None, dialect: Dialect::Ours };
        let files: Vec<OneFile> = sources.into_iter().map(file).collect();
        // Every file is looked into before the first line: as if each had just lent one, called at 0.
        let order = (0..files.len()).map(|file| Reverse((0, file))).collect();
        Self { files, order, lent: None, counts: Counts::default() }
    }

    /// The next line that is not blank; none at the end.
    ///
    /// # Errors
    /// When a file cannot be read. The reading cannot go on.
    pub fn next_line(&mut self) -> Result<Option<ReadLine<'_>>, ReadError> {
        let Some(file) = self.next_file()? else { return Ok(None) };
        self.lent = Some(file);
        let one = &mut self.files[file];
        let head = one.head.take().expect("next_file gives a file that has a line");
        let at = LineAt { file: u32::try_from(file).unwrap_or(u32::MAX), line: one.lines.line() };
        let (content, text): (Result<Record<'_>, Unreadable>, &[u8]) = match head {
            Next::Line { range, ended } => {
                let line = one.lines.bytes(range);
                let parsed = parse_line(line, &mut one.dialect);
                // A torn line is bad JSON that nothing follows; one that only lacks its newline is a record.
                let is_torn = !ended && matches!(parsed, Err(Unreadable::Json { .. }));
                (if is_torn { Err(Unreadable::Torn) } else { parsed }, line)
            }
            Next::TooLong => (Err(Unreadable::TooLong { limit: one.lines.limit() }), &[]),
            Next::Torn => (Err(Unreadable::Torn), &[]),
            Next::Damaged(reason) => (Err(Unreadable::Damaged { reason }), &[]),
        };
        self.counts.count(content.as_ref().err());
        Ok(Some(ReadLine { at, content, text }))
    }

    /// What was read so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The files, in the order of [`LineAt::file`].
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| &*file.lines.source().path)
    }

    /// How a line is named in a report: `FILE:LINE`.
    #[must_use]
    pub fn name(&self, at: LineAt) -> String {
        let path = self
            .files
            .get(at.file as usize)
            .map_or(Cow::Borrowed("?"), |file| file.lines.source().path.to_string_lossy());
        format!("{path}:{}", at.line)
    }

    /// The bytes taken from all files so far, as they lie on the disk. For showing progress.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.files.iter().map(|file| file.lines.source().tally.bytes()).sum()
    }

    /// The bytes of all files, as they lie on the disk; none if one is a pipe.
    #[must_use]
    pub fn bytes_total(&self) -> Option<u64> {
        self.files.iter().map(|file| file.lines.source().total_bytes).sum()
    }

    /// The file whose line comes next.
    fn next_file(&mut self) -> Result<Option<usize>, ReadError> {
        if let [only] = &mut *self.files {
            only.head = only.advance()?;
            return Ok(only.head.is_some().then_some(0));
        }
        if let Some(lent) = self.lent.take() {
            self.order.push(Reverse((0, lent)));
        }
        loop {
            let Some(Reverse((_, file))) = self.order.pop() else { return Ok(None) };
            let one = &mut self.files[file];
            if one.head.is_some() {
                return Ok(Some(file));
            }
            one.head = one.advance()?;
            if let Some(head) = &one.head {
                self.order.push(Reverse((one.called_at(head), file)));
            }
        }
    }
}

impl OneFile {
    fn advance(&mut self) -> Result<Option<Next>, ReadError> {
        self.lines.next().map_err(|source| ReadError { path: self.lines.source().path.clone(), source })
    }

    /// When the line was called, found without parsing it: this decides the order of files only, and of that nothing is
    /// promised. A line that does not say comes at once.
    fn called_at(&self, head: &Next) -> u64 {
        let Next::Line { range, .. } = head else { return 0 };
        let line = self.lines.bytes(Range::clone(range));
        let Some(start) = CALLED_WORDS.iter().find_map(|word| Some(memmem::find(line, word)? + word.len())) else {
            return 0;
        };
        let number = line[start..].trim_ascii_start().iter().take_while(|byte| byte.is_ascii_digit());
        number.fold(0, |sum: u64, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    }
}

impl Counts {
    fn count(&mut self, unreadable: Option<&Unreadable>) {
        let Some(unreadable) = unreadable else {
            self.records += 1;
            return;
        };
        self.unreadable += 1;
        self.torn += u64::from(matches!(unreadable, Unreadable::Torn));
        self.damaged += u64::from(matches!(unreadable, Unreadable::Damaged { .. }));
    }
}

/// What stands before the time of a line.
const CALLED_WORDS: [&[u8]; 2] = [b"\"call\":", b"\"at\":"];

#[cfg(test)]
mod tests;
