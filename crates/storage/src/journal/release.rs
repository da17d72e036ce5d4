//! Freeing the files that a checkpoint covers.

use super::spare::Spare;
use super::{Journal, JournalError, OlderFile};
use crate::disk::is_full;

/// What [`Journal::release`] freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// How many files.
    pub files: u64,
    /// How much room they took; what is kept to be used again counts too.
    pub bytes: u64,
}

impl Journal {
    /// Frees the oldest files that hold no entry above `log_index`, as long as `keep_bytes` of newer ones are left. The
    /// file with the newest batch always stays. The caller holds a durable checkpoint at `log_index` or above.
    ///
    /// # Durability
    /// One file after the other: each is gone for good before the next, so that a crash leaves no gap.
    /// # Errors
    /// The disk's, which poison the journal (failure rule 2).
    /// # Source
    /// DESIGN "Checkpoint": journal files older than the checkpoint less `journal_keep_bytes` go only after it.
    pub fn release(&mut self, log_index: u64, keep_bytes: u64) -> Result<Released, JournalError> {
        if self.poisoned {
            return Err(JournalError::Poisoned);
        }
        self.poisoned = true;
        let mut released = Released::default();
        while let Some(file) = self.releasable(log_index, keep_bytes) {
            released.files += 1;
            released.bytes += file.bytes;
            self.free(&file)?;
        }
        self.poisoned = false;
        Ok(released)
    }

    /// Takes the oldest file off the list if it may go.
    fn releasable(&mut self, log_index: u64, keep_bytes: u64) -> Option<OlderFile> {
        let oldest = self.older.front()?;
        let newer = || self.older.iter().skip(1);
        let newest_batch_stays = self.file.holds_batches() || newer().any(|file| file.holds_batches);
        let left_bytes = self.bytes() - oldest.bytes;
        let may_go = oldest.newest_index <= log_index && left_bytes >= keep_bytes && newest_batch_stays;
        if may_go { self.older.pop_front() } else { None }
    }

    /// Makes a spare of a file, or removes it if there are enough or it is of another size.
    fn free(&mut self, file: &OlderFile) -> Result<(), JournalError> {
        let renamed = match self.free_spare_path().filter(|_| file.bytes == self.options.file_bytes) {
            Some(path) => match self.disk.rename(&file.path, &path) {
                Ok(()) => Some(Spare { path, generation: file.generation }),
                // Not even for a name: it goes like those that are not needed.
                Err(error) if is_full(&error) => None,
                Err(error) => return Err(JournalError::io("rename", &file.path)(error)),
            },
            None => None,
        };
        match renamed {
            Some(spare) => self.spares.push(spare),
            None => self.disk.remove(&file.path).map_err(JournalError::io("remove", &file.path))?,
        }
        self.disk.sync_dir(&self.dir).map_err(JournalError::io("sync", &self.dir))
    }
}
