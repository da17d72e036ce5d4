//! One pass of a scrub: what was read, and what comes next.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use super::PassDone;
use crate::checkpoint::{self, CheckpointFile, CheckpointFiles, CheckpointWalk, open_newest};
use crate::disk::Disk;
use crate::identity;
use crate::journal::Journal;
use crate::segment::{Extent, FileIdentity, Kind, Missing, Walk};
use crate::verify::{Report, Summary, VerifyError};

/// A pass that goes on turn by turn.
#[derive(Default)]
pub(super) struct Pass {
    done: PassDone,
    /// What is still to be read, by the newest list that was read.
    listed: BTreeMap<FileIdentity, CheckpointFile>,
    next: Next,
}

/// What the next turn does.
#[derive(Default)]
enum Next {
    /// Checks the identity.
    #[default]
    Identity,
    /// Opens the newest checkpoint.
    Checkpoint,
    /// Goes on with it.
    InCheckpoint(CheckpointWalk),
    /// Opens the file behind this one.
    FileBehind(Option<FileIdentity>),
    /// Goes on with a file.
    InFile(FileIdentity, Walk),
    /// This file is gone: opens the newest checkpoint to see whether it is still listed.
    Gone(FileIdentity, Missing),
    /// Reads that checkpoint as far as its list.
    InList(FileIdentity, Missing, CheckpointWalk),
    /// Nothing more.
    End,
}

impl Pass {
    /// Does a small piece of work and says what it takes from the budget; none once the pass is complete.
    pub(super) fn turn(
        &mut self,
        disk: &dyn Disk,
        data_dir: &Path,
        report: &mut Report<'_>,
    ) -> Result<Option<u64>, VerifyError> {
        let (next, bytes) = match std::mem::take(&mut self.next) {
            Next::Identity => {
                let source = |source| VerifyError::Io { path: data_dir.to_path_buf(), source };
                let has_data = Journal::exists(disk, data_dir).map_err(source)?;
                identity::check(disk, data_dir, has_data, report);
                (Next::Checkpoint, OPEN_BYTES)
            }
            Next::Checkpoint => match open_newest(disk, data_dir)? {
                None => (Next::End, OPEN_BYTES),
                Some(Ok(walk)) => {
                    report.read(walk.file_bytes());
                    (Next::InCheckpoint(walk), OPEN_BYTES)
                }
                Some(Err((path, error))) => {
                    checkpoint::tell(disk, &path, error, report);
                    (Next::End, OPEN_BYTES)
                }
            },
            Next::InCheckpoint(walk) => self.in_checkpoint(walk, report),
            Next::FileBehind(last) => self.open_behind(last, disk, data_dir, report),
            Next::InFile(identity, mut walk) => match walk.step(report) {
                Some(bytes) => (Next::InFile(identity, walk), bytes),
                None => (Next::FileBehind(Some(identity)), 0),
            },
            Next::Gone(identity, missing) => match open_newest(disk, data_dir)? {
                Some(Ok(walk)) => (Next::InList(identity, missing, walk), OPEN_BYTES),
                // The next pass begins with that checkpoint, and tells it.
                Some(Err(_)) | None => (Next::End, OPEN_BYTES),
            },
            Next::InList(identity, missing, walk) => self.in_list(identity, missing, walk, report),
            Next::End => return Ok(None),
        };
        self.next = next;
        Ok(Some(bytes))
    }

    /// Adds what was read and found in a step.
    pub(super) fn add(&mut self, read: Summary) -> PassDone {
        self.done.files += read.files;
        self.done.bytes += read.bytes;
        self.done.damaged += read.damages;
        self.done
    }

    fn in_checkpoint(&mut self, mut walk: CheckpointWalk, report: &mut Report<'_>) -> (Next, u64) {
        let stepped = walk.step();
        // An image that is damaged does not keep the files from being read: their list was found sound before it.
        if let Some(files) = walk.take_files() {
            self.listed = by_identity(&files);
        }
        match stepped {
            Ok(Some(bytes)) => (Next::InCheckpoint(walk), bytes),
            Ok(None) => (Next::FileBehind(None), 0),
            Err(error) => {
                checkpoint::tell_damage(walk.path(), error, report);
                (Next::FileBehind(None), 0)
            }
        }
    }

    fn open_behind(
        &mut self,
        last: Option<FileIdentity>,
        disk: &dyn Disk,
        data_dir: &Path,
        report: &mut Report<'_>,
    ) -> (Next, u64) {
        let behind = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let Some((identity, file)) = self.listed.range(behind).next() else { return (Next::End, 0) };
        let index = self.listed.get(&identity.of_kind(Kind::Index)).map(Extent::Listed);
        let next = match Walk::open(disk, data_dir, *identity, Extent::Listed(file), index, report) {
            Ok(Some(walk)) => Next::InFile(*identity, walk),
            Ok(None) => Next::FileBehind(Some(*identity)),
            Err(missing) => Next::Gone(*identity, missing),
        };
        (next, OPEN_BYTES)
    }

    fn in_list(
        &mut self,
        identity: FileIdentity,
        missing: Missing,
        mut walk: CheckpointWalk,
        report: &mut Report<'_>,
    ) -> (Next, u64) {
        let stepped = walk.step();
        if let Some(files) = walk.take_files() {
            // The rest of the pass goes by this list, so that it does not come here for every file of a dropped topic.
            self.listed = by_identity(&files);
            if self.listed.contains_key(&identity) {
                missing.tell(report);
            }
            return (Next::FileBehind(Some(identity)), OPEN_BYTES);
        }
        match stepped {
            Ok(Some(bytes)) => (Next::InList(identity, missing, walk), bytes),
            // As above: the next pass tells it.
            Ok(None) | Err(_) => (Next::End, OPEN_BYTES),
        }
    }
}

fn by_identity(files: &CheckpointFiles) -> BTreeMap<FileIdentity, CheckpointFile> {
    let identity = |file: &CheckpointFile| FileIdentity::of_relative_path(&file.path);
    files.list().iter().filter_map(|file| Some((identity(file)?, file.clone()))).collect()
}

/// What is taken from the budget for opening a file: a device reads a page at least.
const OPEN_BYTES: u64 = 4096;
