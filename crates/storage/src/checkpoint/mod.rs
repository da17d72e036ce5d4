//! Checkpoints: the state at one place of the log and the files that belong to it, as one atomic unit.
//!
//! They lie in `data_dir/checkpoints`, each in a file `LOG_INDEX.checkpoint` with 20 digits; the bytes are described in
//! `layout.rs`. [`crate::SegmentWriter::checkpoint`] writes one, [`load_checkpoint`] reads the newest, and
//! [`crate::SegmentWriter::restore`] brings the files back to where they were then. The journal from there on does the
//! rest.
//!
//! # Invariants
//! 1. A checkpoint has its name only when every byte it lists, every directory on the way to it and the checkpoint
//!    itself are synced.
//! 2. Nothing that a checkpoint lists is removed, and no journal file that it needs, before a newer one has its name
//!    and that name is synced.
//! 3. What a checkpoint lists of a file never changes: files only grow behind it.

mod layout;
mod load;
mod verify;
mod walk;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use mortarmq_types::{CommitIndex, Seq, ShardId};

use crate::disk::is_full;
use crate::segment::{FlushError, Key, ReadError, View, views_of};
pub(crate) use layout::encode_head;
pub(crate) use layout::parse as parse_checkpoint;
pub use load::load_checkpoint;
pub(crate) use load::{
    checkpoint_name, checkpoint_numbers, checkpoint_path, install_path, is_unfinished, list_if_there, newest_install,
    unfinished_path,
};
pub(crate) use verify::{Newest, tell, tell_damage, verify};
pub(crate) use walk::{CheckpointWalk, open_newest};

/// What a checkpoint says of the state it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointMeta {
    /// The shard whose state it is.
    pub shard: ShardId,
    /// The last log entry that was applied.
    pub log_index: u64,
    /// That entry's term.
    pub term: u64,
    /// The number of the last command that was applied.
    pub commit_index: CommitIndex,
    /// The members of the shard then, as the replica encodes them.
    pub membership: Bytes,
    /// The highest cluster time of any applied entry, in milliseconds: cluster time never goes back behind it (P10).
    pub last_stamp_ms: u64,
}

/// A file as a checkpoint lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointFile {
    /// Its path in the data directory, with `/` between the parts.
    pub path: String,
    /// How long it was; it may have grown since.
    pub bytes: u64,
    /// CRC32C of these bytes.
    pub crc: u32,
    /// The first sequence that it holds or, a ledger file, speaks of.
    pub first_seq: Seq,
    /// The sequence after the last.
    pub end_seq: Seq,
}

/// The files that belong to a checkpoint: complete, and found to fit together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointFiles {
    list: Vec<CheckpointFile>,
    views: BTreeMap<Key, View>,
}

impl CheckpointFiles {
    /// Takes a list, or says which of its files does not fit, by its place in the list, and why.
    pub(crate) fn new(list: Vec<CheckpointFile>) -> Result<Self, (usize, &'static str)> {
        let views = views_of(&list)?;
        Ok(Self { list, views })
    }

    /// The files, in the order of the checkpoint.
    #[must_use]
    pub fn list(&self) -> &[CheckpointFile] {
        &self.list
    }

    /// The files as a reader sees them.
    pub(crate) fn views(&self) -> &BTreeMap<Key, View> {
        &self.views
    }
}

/// A checkpoint as it was read, all of it checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedCheckpoint {
    /// What it says of the state.
    pub meta: CheckpointMeta,
    /// For [`crate::SegmentWriter::restore`].
    pub files: CheckpointFiles,
    /// The state, as the caller encoded it.
    pub image: Bytes,
    /// How long its file is.
    ///
    /// # Units
    /// Bytes.
    pub bytes: u64,
}

/// What [`crate::SegmentWriter::checkpoint`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointWritten {
    /// The size of the checkpoint's file.
    pub bytes: u64,
    /// How many files it lists.
    pub files: u64,
    /// How many files went: those of dropped topics, and older checkpoints.
    pub removed: u64,
}

/// Why a checkpoint could not be written, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The disk failed. The process must end; recovery decides (failure rule 2).
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk does not give back what the checkpoint holds. Nothing was changed.
    #[error("cannot read {} at offset {offset}", .path.display())]
    Unreadable {
        /// The checkpoint.
        path: PathBuf,
        /// Where the piece begins that was asked for.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// No room. The checkpoint before is still good; call again when there is room (failure rule 8).
    #[error("no room on disk for {}", .path.display())]
    DiskFull {
        /// The file that could not be made or grow.
        path: PathBuf,
    },
    /// A checkpoint whose bytes are not what was written. Nothing was changed (failure rule 3, P11).
    #[error("{} is damaged at offset {offset}: {what}", .path.display())]
    Damaged {
        /// The checkpoint.
        path: PathBuf,
        /// Where the damaged piece begins.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A sound checkpoint in a format this build does not know (P11).
    #[error("{} has version {found}; this build reads version {supported}", .path.display())]
    UnknownVersion {
        /// The checkpoint.
        path: PathBuf,
        /// The version found.
        found: u16,
        /// The version this build reads and writes.
        supported: u16,
    },
    /// A file that the checkpoint lists is shorter than it was then, or gone. Nothing was changed (failure rule 3).
    #[error("{} has lost bytes: {} where the checkpoint lists {expected_bytes}", .path.display(), found(.found_bytes))]
    Rotten {
        /// The file.
        path: PathBuf,
        /// How long it is; none if it is missing.
        found_bytes: Option<u64>,
        /// How long it was.
        expected_bytes: u64,
    },
    /// There is a checkpoint and no journal that goes on from it, so nothing was touched (failure rule 4).
    #[error("{} belongs to a checkpoint, but the journal that goes on from it is missing", .topics.display())]
    JournalMissing {
        /// The directory that would have been cut back.
        topics: PathBuf,
    },
    /// A newer checkpoint is there: the caller is wrong (P10).
    #[error("a checkpoint at log index {asked} was asked for, but there is one at {newest}")]
    NotNewest {
        /// The log index asked for.
        asked: u64,
        /// The log index of the newest checkpoint.
        newest: u64,
    },
    /// What waited could not be written to its segment, index or ledger file.
    #[error("a checkpoint begins with what waits to be written")]
    Flush(#[source] FlushError),
    /// A file that it lists is not what it was, and was left as it is.
    #[error("a file of the checkpoint cannot be opened again")]
    Reopen(#[source] ReadError),
    /// More bytes than the layout can hold.
    #[error("{what} of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An earlier write failed.
    #[error("a write failed before, so no checkpoint is made or restored")]
    Poisoned,
}

fn found(bytes: &Option<u64>) -> String {
    bytes.map_or_else(|| "it is missing".to_owned(), |bytes| format!("it has {bytes}"))
}

impl CheckpointError {
    /// For `map_err` after a call to the disk that asked for no room.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { doing, path, source }
    }

    /// For `map_err` after a call to the disk that asked for room.
    pub(crate) fn io_or_full(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| {
            if is_full(&source) { Self::DiskFull { path } } else { Self::Io { doing, path, source } }
        }
    }
}

/// The checkpoints' directory in the data directory.
pub(crate) const CHECKPOINTS_DIR: &str = "checkpoints";

#[cfg(test)]
mod tests;
