//! Beginning a journal file and filling it with zeros ahead of its batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mortarmq_types::Mutant;

use super::layout::{BLOCK_BYTES, FileHeader, Generations};
use super::name::file_path;
use super::{Journal, JournalError};
use crate::disk::{Disk, DiskFile};

/// The file that batches go to.
pub(super) struct JournalFile {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) path: PathBuf,
    pub(super) number: u64,
    pub(super) generations: Generations,
    /// How long it may become.
    pub(super) file_bytes: u64,
    pub(super) zero_step_bytes: u64,
    /// Up to here zeros were written and synced (or an older generation stands); batches stay below.
    pub(super) filled_bytes: u64,
    /// Where the next batch goes.
    pub(super) position: u64,
    /// The highest index of any entry in it; 0 without one.
    pub(super) newest_index: u64,
}

/// A file that is complete.
pub(super) struct OlderFile {
    pub(super) path: PathBuf,
    pub(super) generation: u64,
    pub(super) bytes: u64,
    /// As of the file that batches go to.
    pub(super) newest_index: u64,
    pub(super) holds_batches: bool,
}

impl JournalFile {
    /// Makes a file: its first zeros, then its header.
    ///
    /// # Durability
    /// Zeros, header and name. A crash before leaves no file, or one without a valid header and without batches. The
    /// zeros are synced first, so that a file with a header and without them is known to have been cut short.
    /// # Source
    /// Failure rule 3 (a new generation is fsynced before its file is used), failure rules 5 and 8.
    pub(super) fn create(disk: &dyn Disk, dir: &Path, header: &FileHeader) -> Result<Self, JournalError> {
        let path = file_path(dir, header.file);
        let file = disk.create_new(&path).map_err(JournalError::io_or_full("create", &path))?;
        let begun = Self::begin(disk, dir, header, file, path.clone());
        if matches!(begun, Err(JournalError::DiskFull { .. })) {
            // What was filled takes room that others need now, and the name must be free for the next try.
            disk.remove(&path).map_err(JournalError::io("remove", &path))?;
        }
        begun
    }

    fn begin(
        disk: &dyn Disk,
        dir: &Path,
        header: &FileHeader,
        file: Arc<dyn DiskFile>,
        path: PathBuf,
    ) -> Result<Self, JournalError> {
        let mut created = Self::with_header(header, file, path);
        created.fill_ahead(1)?;
        created.file.write_all_at(&header.encode(), 0).map_err(JournalError::io("write", &created.path))?;
        created.file.sync_data().map_err(JournalError::io("sync", &created.path))?;
        if !Mutant::DirectoryNotSynced.is_on() {
            disk.sync_dir(dir).map_err(JournalError::io("sync", dir))?;
        }
        created.position = BLOCK_BYTES as u64;
        Ok(created)
    }

    /// A file with this header, of which nothing is known to be filled.
    pub(super) fn with_header(header: &FileHeader, file: Arc<dyn DiskFile>, path: PathBuf) -> Self {
        Self {
            file,
            path,
            number: header.file,
            generations: header.generations(),
            file_bytes: header.file_bytes,
            zero_step_bytes: header.zero_step_bytes,
            filled_bytes: 0,
            position: 0,
            newest_index: 0,
        }
    }

    /// Whether it holds a batch.
    pub(super) fn holds_batches(&self) -> bool {
        self.position > BLOCK_BYTES as u64
    }

    /// The file once no batch goes to it any more.
    fn complete(&self) -> OlderFile {
        OlderFile {
            path: self.path.clone(),
            generation: self.generations.present,
            bytes: self.filled_bytes,
            newest_index: self.newest_index,
            holds_batches: self.holds_batches(),
        }
    }

    /// Whether a batch of this size fits.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.position.checked_add(bytes).is_some_and(|end| end <= self.file_bytes)
    }

    /// Fills the file with zeros, in whole steps, so that a batch of this size can be written over them.
    ///
    /// # Durability
    /// The zeros and the length: the batch's own sync has no metadata left to write.
    /// # Errors
    /// After [`JournalError::DiskFull`] as much counts as filled as before: zeros that were not synced count for nothing,
    /// and the next call writes them again.
    pub(super) fn fill_ahead(&mut self, bytes: u64) -> Result<(), JournalError> {
        let end = self.position + bytes;
        let mut filled_bytes = self.filled_bytes;
        if end <= filled_bytes {
            return Ok(());
        }
        while filled_bytes < end {
            let to = (filled_bytes + self.zero_step_bytes).min(self.file_bytes);
            self.zero(filled_bytes, to)?;
            filled_bytes = to;
        }
        self.file.sync_data().map_err(JournalError::io("sync", &self.path))?;
        self.filled_bytes = filled_bytes;
        Ok(())
    }

    /// Writes zeros, a step at a time; not synced.
    pub(super) fn zero(&self, mut from: u64, to: u64) -> Result<(), JournalError> {
        let zeros = vec![0; to.saturating_sub(from).min(self.zero_step_bytes) as usize];
        while from < to {
            let now = (to - from).min(self.zero_step_bytes);
            self.file
                .write_all_at(&zeros[..now as usize], from)
                .map_err(JournalError::io_or_full("write", &self.path))?;
            from += now;
        }
        Ok(())
    }
}

impl Journal {
    /// Begins the next file, which will open with a batch of this size: in a spare if there is one and it is enough.
    pub(super) fn roll_over(&mut self, first_batch_bytes: u64) -> Result<(), JournalError> {
        let file_bytes = self.options.file_bytes.max(BLOCK_BYTES as u64 + first_batch_bytes);
        let spare = if file_bytes == self.options.file_bytes { self.spares.pop() } else { None };
        let header = FileHeader {
            shard: self.options.shard.get(),
            file: self.file.number + 1,
            generation: self.file.generations.present + 1,
            file_bytes,
            zero_step_bytes: self.options.zero_step_bytes,
            term: self.hard_state.term,
            vote: self.hard_state.vote,
            previous_batch: self.next_batch - 1,
            previous_hash: self.previous_hash,
            reused_generation: spare.as_ref().map_or(0, |spare| spare.generation),
            membership: self.membership.clone(),
        };
        let begun = match &spare {
            Some(spare) => JournalFile::recycle(&*self.disk, &self.dir, &header, spare),
            None => JournalFile::create(&*self.disk, &self.dir, &header),
        };
        match begun {
            Ok(next) => {
                self.older.push_back(self.file.complete());
                self.file = next;
                Ok(())
            }
            Err(error) => {
                // Without room for its new name it is a spare still; its new header is written again with the next try.
                self.spares.extend(spare.filter(|_| matches!(error, JournalError::DiskFull { .. })));
                Err(error)
            }
        }
    }
}

/// How far a file of this length was filled in whole steps: a crash may have left a part of a step behind.
pub(super) fn filled_bytes(header: &FileHeader, length: u64) -> u64 {
    if length >= header.file_bytes {
        header.file_bytes
    } else {
        length / header.zero_step_bytes * header.zero_step_bytes
    }
}
