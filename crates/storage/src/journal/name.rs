//! The names of journal files.
//!
//! A file is called by its number, `NNNNNNNN.journal`. While a start cuts a torn batch off the newest, that one is called
//! `NNNNNNNN.cut-OFFSET`: nothing counts that stands from there on (`cut.rs` says why).

use std::path::{Path, PathBuf};

use crate::disk::Disk;

/// What the name of a journal file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileName {
    number: u64,
    cut_at: Option<u64>,
}

/// A journal file that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedFile {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    /// Where a start began to cut it and did not say that it was done.
    pub(super) cut_at: Option<u64>,
    /// No file follows.
    pub(super) is_last: bool,
}

/// The journal files among these names, by number. Two of one number are there only if somebody made one of them.
pub(super) fn listed(dir: &Path, names: &[String]) -> Vec<ListedFile> {
    let mut found: Vec<FileName> = names.iter().filter_map(|name| FileName::parse(name)).collect();
    found.sort_unstable();
    let last = found.last().map(|file| file.number);
    let file = |FileName { number, cut_at }| ListedFile {
        number,
        path: cut_at.map_or_else(|| file_path(dir, number), |offset| cut_path(dir, number, offset)),
        cut_at,
        is_last: Some(number) == last,
    };
    found.into_iter().map(file).collect()
}

/// Whether any journal file is in a directory.
pub(super) fn is_any(disk: &dyn Disk, dir: &Path) -> std::io::Result<bool> {
    Ok(disk.list(dir)?.iter().any(|name| FileName::parse(name).is_some()))
}

/// Whether a file of this name is one of the journal.
pub(crate) fn is_journal_file(name: &str) -> bool {
    FileName::parse(name).is_some()
}

/// The name of a journal file.
pub(super) fn file_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}{SUFFIX}"))
}

/// The name of a journal file while it is cut.
pub(super) fn cut_path(dir: &Path, number: u64, offset: u64) -> PathBuf {
    dir.join(format!("{number:08}{CUT}{offset}"))
}

impl FileName {
    /// Nothing for what is no journal file's name.
    fn parse(name: &str) -> Option<Self> {
        let (digits, cut_at) = match name.strip_suffix(SUFFIX) {
            Some(digits) => (digits, None),
            None => name.split_once(CUT).map(|(digits, offset)| (digits, Some(offset)))?,
        };
        let number = canonical(digits, |number| format!("{number:08}"))?;
        let cut_at = match cut_at {
            Some(offset) => Some(canonical(offset, |offset| offset.to_string())?),
            None => None,
        };
        Some(Self { number, cut_at })
    }
}

/// A number that is written as this and in no other way.
fn canonical(digits: &str, written: impl Fn(u64) -> String) -> Option<u64> {
    digits.parse().ok().filter(|number| written(*number) == digits)
}

const SUFFIX: &str = ".journal";
const CUT: &str = ".cut-";

#[cfg(test)]
mod tests {
    use super::{ListedFile, cut_path, file_path, listed};
    use std::path::Path;

    fn names(names: &[&str]) -> Vec<ListedFile> {
        listed(Path::new("j"), &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn only_names_that_the_journal_gives_are_journal_files() {
        let dir = Path::new("j");
        let file = |number, path, cut_at, is_last| ListedFile { number, path, cut_at, is_last };
        let found = names(&["00000002.cut-4096", "00000001.journal", "spare-0001", "lost+found"]);
        let first = file(1, file_path(dir, 1), None, false);
        assert_eq!(found, [first, file(2, cut_path(dir, 2, 4096), Some(4096), true)]);
        let found = names(&["123456789.journal"]);
        assert_eq!(found, [file(123_456_789, file_path(dir, 123_456_789), None, true)]);
        let others =
            ["1.journal", "000000001.journal", "+0000001.journal", ".journal", "00000001.journal.bak", "00000001.cut-"];
        assert_eq!(names(&others), []);
        let others = ["00000001.cut-04096", "00000001.cut-+1", "00000001.cut-4096.bak", "1.cut-4096", "00000001.cut"];
        assert_eq!(names(&others), []);
    }
}
