//! Reading everything in a data directory and naming what is damaged, without changing anything.
//!
//! What each kind of file needs is in its module: `checkpoint/verify.rs`, `journal/verify.rs`, `segment/verify.rs`,
//! `ledger/verify.rs` and `identity/verify.rs`. They share the parsers of those who read in earnest, and the scan of the
//! journal with its recovery; all of them are given a disk that cannot be written to. [`crate::Scrub`] walks through
//! files by the same code, while a node uses them.
//!
//! Damage is what a node would miss: it stops the start, or is held back as unreadable (failure rule 3). A note is what
//! a crash leaves and the next start puts right: a torn last batch, a file that was begun, an install of another node's
//! checkpoint that was interrupted (what waits beside its place is read there), bytes behind the checkpoint
//! that were not synced and are written anew from the journal.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use mortarmq_types::{Partition, Seq, TopicIncarnation};

use crate::checkpoint::{CheckpointFiles, Newest};
use crate::disk::{Disk, ReadOnly};
use crate::repairing::Repairing;
use crate::{checkpoint, identity, journal, segment};

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    ///
    /// # Units
    /// Bytes.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// Whether it is damage, or else a note.
    pub is_damage: bool,
    /// The partition that is hurt; none if the file belongs to none, and for a note.
    pub at: Option<FindingAt>,
}

/// Whose bytes are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindingAt {
    /// The topic's incarnation.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// The record whose own bytes are damaged, so that it cannot be served. None if it is the index or the history that
    /// is damaged, and if it is a file as a whole: then reading tells which of its records are there.
    pub seq: Option<Seq>,
}

/// What was read and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many files were read.
    pub files: u64,
    /// How many bytes they hold.
    pub bytes: u64,
    /// How many findings are damage.
    pub damages: u64,
    /// How many findings are notes.
    pub notes: u64,
}

/// Why a data directory could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A directory cannot be listed.
    #[error("cannot list {}", .path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No node ever kept its data there.
    #[error("{} holds no node's data", .data_dir.display())]
    NoData {
        /// The directory asked for.
        data_dir: PathBuf,
    },
}

/// Reads every file of a data directory and calls `on_finding` for everything that is not as it was written, in the
/// order checkpoint, journal, topics, identity. Nothing is changed. Memory is bounded by the checkpoint's list of files
/// and by the largest batch or record.
///
/// No node may use the directory meanwhile: hold [`crate::DirectoryLock::acquire_existing`].
///
/// # Errors
/// [`VerifyError`] when there is nothing to read. A file that cannot be read is a finding.
/// # Source
/// P11; failure rules 3 and 4.
pub fn verify(disk: &dyn Disk, data_dir: &Path, on_finding: &mut dyn FnMut(Finding)) -> Result<Summary, VerifyError> {
    let disk = &ReadOnly(disk);
    let mut report = Report::new(on_finding);
    let newest = checkpoint::verify(disk, data_dir, &mut report)?;
    let has_journal = journal::verify(disk, data_dir, newest.as_ref().map(|newest| newest.log_index), &mut report)?;
    let list = match &newest {
        None => List::Absent,
        Some(Newest { files: None, .. }) => List::Lost,
        Some(Newest { files: Some(files), is_installing, .. }) => List::There { files, is_installing: *is_installing },
    };
    let has_topics = segment::verify(disk, data_dir, list, &mut report)?;
    let is_begun = Repairing::is_begun(disk, data_dir).unwrap_or(false);
    if is_begun {
        let what = "the node's journal or checkpoint has rotted, and the other nodes bring it up; its next start goes on with that";
        report.note(&data_dir.join("repairing"), 0, what);
    }
    if newest.is_none() && !has_journal && has_topics && !is_begun {
        report.damage(data_dir, 0, "there are topics, but the journal that they come from is missing");
    }
    let has_data = newest.is_some() || has_journal || has_topics;
    identity::verify(disk, data_dir, has_data, &mut report)?;
    if report.summary == Summary::default() && !has_journal {
        return Err(VerifyError::NoData { data_dir: data_dir.to_path_buf() });
    }
    Ok(report.summary)
}

/// What a checkpoint says of the files of topics.
#[derive(Clone, Copy)]
pub(crate) enum List<'a> {
    /// There is no checkpoint: the next start writes all of them anew.
    Absent,
    /// The checkpoint is damaged, so nothing is known to be written anew.
    Lost,
    /// It lists these.
    There {
        /// The list.
        files: &'a CheckpointFiles,
        /// Whether some may still wait beside their places.
        is_installing: bool,
    },
}

/// Takes what is found.
pub(crate) struct Report<'a> {
    on_finding: &'a mut dyn FnMut(Finding),
    summary: Summary,
}

impl<'a> Report<'a> {
    pub(crate) fn new(on_finding: &'a mut dyn FnMut(Finding)) -> Self {
        Self { on_finding, summary: Summary::default() }
    }

    /// What was read and found so far.
    pub(crate) fn summary(&self) -> Summary {
        self.summary
    }

    /// A file of this length was read.
    pub(crate) fn read(&mut self, bytes: u64) {
        self.summary.files += 1;
        self.summary.bytes += bytes;
    }

    pub(crate) fn damage(&mut self, path: &Path, offset: u64, what: impl Into<String>) {
        self.damage_at(path, offset, None, what);
    }

    /// Damage of a partition's file.
    pub(crate) fn damage_at(&mut self, path: &Path, offset: u64, at: Option<FindingAt>, what: impl Into<String>) {
        self.summary.damages += 1;
        self.tell(Finding { path: path.to_path_buf(), offset, what: what.into(), is_damage: true, at });
    }

    pub(crate) fn note(&mut self, path: &Path, offset: u64, what: impl Into<String>) {
        self.summary.notes += 1;
        self.tell(Finding { path: path.to_path_buf(), offset, what: what.into(), is_damage: false, at: None });
    }

    /// The file was read as a whole and is damaged.
    pub(crate) fn damaged_file(&mut self, disk: &dyn Disk, path: &Path, offset: u64, what: impl Into<String>) {
        // What cannot even be opened was not read, and the finding says so.
        self.read(disk.open(path).and_then(|file| file.len()).unwrap_or(0));
        self.damage(path, offset, what);
    }

    fn tell(&mut self, finding: Finding) {
        (self.on_finding)(finding);
    }
}

/// The names in a directory; none if it is not there.
pub(crate) fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, VerifyError> {
    checkpoint::list_if_there(disk, dir).map_err(|source| VerifyError::Io { path: dir.to_path_buf(), source })
}

/// An error and all its causes, as one text: a finding is where the chain ends.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
pub(crate) mod rig;
#[cfg(test)]
mod tests;
