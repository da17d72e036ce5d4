//! The journal as a driver uses it: batches in order, with room from the reserve when the disk is full.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_storage::{Journal, JournalBatch, JournalError, Released};

use super::room::{Room, Use};

/// The journal and the room it may take.
pub struct JournalKeeper {
    journal: Journal,
    room: Arc<Room>,
}

impl JournalKeeper {
    /// A journal that was recovered.
    #[must_use]
    pub fn new(journal: Journal, room: Arc<Room>) -> Self {
        Self { journal, room }
    }

    /// The file that batches go to, and where in it the next one goes.
    #[must_use]
    pub fn end(&self) -> (&Path, u64) {
        self.journal.end()
    }

    /// The members have changed: files that are begun from now on say so.
    pub fn set_membership(&mut self, membership: Bytes) {
        self.journal.set_membership(membership);
    }

    /// Writes a batch. Gives back what the journal said when there was no room, the reserve used up: that is no failed
    /// write, the same batch may be given again when there is some (failure rule 8).
    ///
    /// # Durability
    /// With nothing given back, the batch.
    /// # Errors
    /// The disk's: the process says why and ends (failure rule 2).
    pub fn append(&mut self, batch: &JournalBatch) -> Result<Option<JournalError>, JournalError> {
        loop {
            match self.journal.append(batch) {
                Ok(()) => return Ok(None),
                Err(JournalError::DiskFull { .. }) if self.room.make(Use::Journal, 0) => {}
                Err(full @ JournalError::DiskFull { .. }) => return Ok(Some(full)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets files go that a checkpoint covers; spares too, but for one, when `frees_spares`.
    ///
    /// # Errors
    /// The disk's: the process says why and ends (failure rule 2).
    pub fn release(&mut self, log_index: u64, keep_bytes: u64, frees_spares: bool) -> Result<Released, JournalError> {
        let released = self.journal.release(log_index, keep_bytes)?;
        if frees_spares {
            self.journal.drop_spares(SPARES_KEPT)?;
        }
        Ok(released)
    }
}

/// With one at hand, the next journal file needs no room.
const SPARES_KEPT: usize = 1;
