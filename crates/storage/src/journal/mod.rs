//! The journal: the replicated log of every shard on this node, and the only thing that is fsynced on the hot path.
//!
//! It lies in `data_dir/journal`, in files `NNNNNNNN.journal` numbered from 1. Those that a checkpoint covers are freed
//! from the oldest on (`release.rs`) and used again (`spare.rs`). The bytes are described in `layout.rs`,
//! how a bad batch is judged in `torn_tail.rs`, how a torn one is cut in `cut.rs`.
//!
//! # Invariants
//! 1. At most one batch is ever unsynced: [`Journal::append`] returns only after its fsync, and after any error but a
//!    full disk the journal takes nothing more until it was recovered (failure rule 2). A full disk is met before
//!    anything of the batch is written (failure rule 8).
//! 2. A batch is written only where a synced file header and synced zeros (or an older generation) already are.
//! 3. Batch numbers rise by one from 1, over all files; each batch names the hash of the one before it (P10).
//! 4. A batch lies in one file, whole.
//! 5. The files are numbered without a gap, and the one with the newest batch is among them.

mod append;
mod cut;
mod layout;
mod name;
mod recover;
mod release;
mod roll;
mod salvage;
mod spare;
mod torn_tail;
mod verify;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::ShardId;

use crate::disk::{Disk, is_full};
use layout::BLOCK_BYTES;
pub(crate) use name::is_journal_file;
pub use release::Released;
use roll::{JournalFile, OlderFile};
use spare::{Spare, Unfilled};
pub(crate) use verify::verify;

/// How a journal is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// The shard whose log this is; a journal of another shard is refused.
    pub shard: ShardId,
    /// The size at which a new file is begun. A batch that is larger gets a file of its own.
    pub file_bytes: u64,
    /// How far a file is filled with zeros ahead of its batches.
    pub zero_step_bytes: u64,
    /// How many files that are no longer needed are kept to be used again; 0 removes them all.
    pub spare_files: u32,
}

impl JournalOptions {
    /// The defaults for a shard: files of 64 MiB, zero-filled in steps of 4 MiB, two of them kept
    /// for later use.
    #[must_use]
    pub const fn new(shard: ShardId) -> Self {
        Self { shard, file_bytes: 64 << 20, zero_step_bytes: 4 << 20, spare_files: 2 }
    }

    /// Whole blocks, and room for a header and one batch.
    fn normalised(self) -> Self {
        let blocks = |bytes: u64| bytes.clamp(1, MAX_FILE_BYTES).next_multiple_of(BLOCK_BYTES as u64);
        let file_bytes = blocks(self.file_bytes).max(2 * BLOCK_BYTES as u64);
        let zero_step_bytes = blocks(self.zero_step_bytes).min(file_bytes);
        let spare_files = self.spare_files.min(MAX_SPARE_FILES);
        Self { shard: self.shard, file_bytes, zero_step_bytes, spare_files }
    }
}

/// What Raft must not forget besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The leader's term.
    pub term: u64,
    /// Whom this node voted for in that term; 0 for nobody.
    pub vote: u64,
    /// The log index known to be committed. Never ahead of the entries, as both go in one batch.
    pub commit: u64,
}

/// One entry of the replicated log; the journal does not look into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its place in the log. An entry replaces every earlier one of the same or a higher index.
    pub index: u64,
    /// The term it was proposed in.
    pub term: u64,
    /// The entry's type, as the replica numbers it.
    pub kind: u8,
    /// The command bytes.
    pub data: Bytes,
}

/// When a batch was written, by the machine's boot clock.
///
/// # Source
/// DESIGN "Time": a process that restarts within one boot goes on with the boot clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Which boot of which machine.
    pub boot_id: [u8; 16],
    /// Milliseconds since that boot.
    pub boot_ms: u64,
}

/// What one fsync makes durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalBatch {
    /// The batch's number, from 1, rising by one. The journal sets it; [`Journal::append`] ignores what stands here.
    pub number: u64,
    /// The hard state once this batch is durable.
    pub hard_state: HardState,
    /// When the batch was written.
    pub clock: Clock,
    /// The entries, in the order in which they take effect.
    pub entries: Vec<JournalEntry>,
}

impl JournalBatch {
    /// The highest index of its entries; 0 without one.
    fn newest_index(&self) -> u64 {
        self.entries.iter().map(|entry| entry.index).max().unwrap_or(0)
    }
}

/// What a checkpoint holds of the log: the journal need not reach back to its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    /// The last entry whose effect is in the checkpoint.
    pub log_index: u64,
}

/// The open journal of one data directory. One thread owns it.
pub struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: JournalOptions,
    /// Goes into the header of every file begun from now on.
    membership: Bytes,
    hard_state: HardState,
    /// The files before `file`, without a gap.
    older: VecDeque<OlderFile>,
    file: JournalFile,
    /// Files that may be used next.
    spares: Vec<Spare>,
    unfilled: Option<Unfilled>,
    next_batch: u64,
    /// Of the last batch; 0 before the first.
    previous_hash: u64,
    /// The batch as it goes to disk; kept to spare the hot path an allocation.
    buffer: Vec<u8>,
    poisoned: bool,
}

impl Journal {
    /// The number the next batch will get.
    #[must_use]
    pub fn next_batch(&self) -> u64 {
        self.next_batch
    }

    /// The file that batches go to, and where in it the next one goes.
    #[must_use]
    pub fn end(&self) -> (&Path, u64) {
        (&self.file.path, self.file.position)
    }

    /// The members have changed: files that are begun from now on say so. What is in the file is for a start that asks whose it is; who votes
    /// is said by the checkpoint and by what the journal holds behind it.
    pub fn set_membership(&mut self, membership: Bytes) {
        assert!(membership.len() <= layout::MAX_MEMBERSHIP_BYTES, "a membership of {} bytes", membership.len());
        self.membership = membership;
    }

    /// How much room its files take, spares not counted.
    ///
    /// # Units
    /// Bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.older.iter().map(|file| file.bytes).sum::<u64>() + self.file.filled_bytes
    }

    /// Whether a data directory holds journal files; what they hold is not looked at.
    ///
    /// # Errors
    /// The disk's.
    pub fn exists(disk: &dyn Disk, data_dir: &Path) -> io::Result<bool> {
        let dir = data_dir.join(JOURNAL_DIR);
        Ok(disk.exists(&dir)? && name::is_any(disk, &dir)?)
    }
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// How many batches were replayed.
    pub batches: u64,
    /// How many entries they held.
    pub entries: u64,
    /// How many bytes they take on disk.
    pub bytes: u64,
    /// The batch that was cut, if one was torn: log and count it.
    pub torn: Option<TornTail>,
    /// A file that a roll-over had begun and not finished, and that was removed.
    pub unfinished_file: Option<PathBuf>,
    /// The hard state of the last batch, or of the file header before the first.
    pub hard_state: HardState,
    /// When the last batch was written; none without a batch.
    pub last_clock: Option<Clock>,
    /// The membership that the journal goes on with: the last file header's, or what a new journal was given.
    pub membership: Bytes,
}

/// A batch that a crash left half-written and that recovery cut. It was never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file it stood in.
    pub file: PathBuf,
    /// Where it began.
    pub offset: u64,
    /// How many bytes it reached.
    pub bytes: u64,
}

/// The reason for which the caller of [`Journal::recover`] ends the replay.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct RecoverStop {
    /// What is wrong with the batch, in the caller's words.
    pub reason: String,
}

/// Why the journal could not be recovered or appended to.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
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
    /// No room to begin a file or to fill one ahead. Nothing of the batch was written; call again when there is room
    /// (failure rule 8).
    #[error("no room on disk for {}", .path.display())]
    DiskFull {
        /// The file that could not be made or grow.
        path: PathBuf,
    },
    /// The disk does not give back what it holds. Nothing was changed.
    #[error("cannot read {} at offset {offset}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Where what was asked for begins.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that were durable have changed or are gone. Nothing was cut (failure rule 3, P11).
    #[error("{} is damaged at offset {offset}: {what}", .path.display())]
    Rotten {
        /// The damaged file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Sound bytes in a format this build does not know (P11).
    #[error("{} has version {found} at offset {offset}; this build reads version {supported}", .path.display())]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// Where in it the header begins.
        offset: u64,
        /// The version found.
        found: u16,
        /// The version this build reads and writes.
        supported: u16,
    },
    /// A file between others is not there, or the first and no checkpoint covers it.
    #[error("{} is missing", .path.display())]
    Missing {
        /// The file that must be there.
        path: PathBuf,
    },
    /// An earlier call failed; the journal must be recovered first.
    #[error("the journal failed before and takes nothing more")]
    Poisoned,
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
    /// The caller ended the replay at a batch.
    #[error("replay stopped at {} offset {offset}", .path.display())]
    Stopped {
        /// The file being replayed.
        path: PathBuf,
        /// Where its batch begins.
        offset: u64,
        /// Why.
        source: RecoverStop,
    },
}

impl JournalError {
    /// For `map_err` after a call to the disk.
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_path_buf(), source }
    }

    /// For `map_err` after a call to the disk that asked for room, and that concerned nothing durable.
    fn io_or_full(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let path = path.to_path_buf();
            if is_full(&source) { Self::DiskFull { path } } else { Self::Io { doing, path, source } }
        }
    }

    /// For `map_err` after a read at an offset.
    fn unreadable(path: &Path, offset: u64) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Unreadable { path: path.to_path_buf(), offset, source }
    }

    fn rotten(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Rotten { path: path.to_path_buf(), offset, what: what.into() }
    }
}

/// The journal's directory in the data directory.
pub(crate) const JOURNAL_DIR: &str = "journal";

/// Sectors are numbered in 32 bits within a file.
const MAX_FILE_BYTES: u64 = 1 << 40;

/// Spares have four digits, and more than a few only take room.
const MAX_SPARE_FILES: u32 = 99;

#[cfg(test)]
mod tests;
