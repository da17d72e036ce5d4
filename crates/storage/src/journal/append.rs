//! Appending a batch: one write and one fdatasync.

use std::io;

use mortarmq_types::Mutant;

use super::layout::{Place, batch_disk_bytes, encode_batch};
use super::{Journal, JournalBatch, JournalError, MAX_FILE_BYTES};
use crate::disk::{DiskFile, SECTOR_BYTES};

impl Journal {
    /// Appends a batch and waits until it is durable. The batch's own `number` is ignored.
    ///
    /// # Durability
    /// The whole batch, when it returns `Ok`. After an error the batch may or may not be found by recovery.
    /// # Errors
    /// After [`JournalError::DiskFull`] nothing of the batch was written and the journal is as it was: call again when
    /// there is room. Any other error poisons the journal: every later call fails, and the process must end (failure
    /// rule 2). So does a full disk that shows only when the batch itself is written, or in a sync.
    /// # Source
    /// P1; failure rules 1, 2 and 8.
    pub fn append(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        if self.poisoned {
            return Err(JournalError::Poisoned);
        }
        // Poisoned until proven durable, so that no early return can forget it.
        self.poisoned = true;
        let appended = self.write_and_sync(batch);
        self.poisoned = match &appended {
            Ok(()) | Err(JournalError::DiskFull { .. }) => false,
            Err(_) => true,
        };
        appended
    }

    fn write_and_sync(&mut self, batch: &JournalBatch) -> Result<(), JournalError> {
        let bytes = checked_disk_bytes(batch)?;
        if !self.file.has_room(bytes) {
            self.roll_over(bytes)?;
        }
        self.file.fill_ahead(bytes)?;
        let place = Place {
            shard: self.options.shard.get(),
            file: self.file.number,
            generations: self.file.generations,
            offset: self.file.position,
            batch: self.next_batch,
            previous_hash: self.previous_hash,
        };
        let hash = encode_batch(&mut self.buffer, &place, batch);
        assert_eq!(self.buffer.len() as u64, bytes, "a batch takes the room that was made for it");
        let file = &self.file;
        file.file.write_all_at(&self.buffer, place.offset).map_err(JournalError::io("write", &file.path))?;
        sync(&*file.file).map_err(JournalError::io("sync", &file.path))?;
        self.file.position += bytes;
        self.file.newest_index = self.file.newest_index.max(batch.newest_index());
        self.next_batch += 1;
        self.previous_hash = hash;
        self.hard_state = batch.hard_state;
        // One huge batch must not cost its memory for ever.
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER_BYTES);
        Ok(())
    }
}

/// Makes a batch durable.
fn sync(file: &dyn DiskFile) -> io::Result<()> {
    if Mutant::AckBeforeFsync.is_on() {
        return Ok(());
    }
    let synced = file.sync_data();
    if synced.is_err() && Mutant::FsyncErrorRetried.is_on() {
        return file.sync_data();
    }
    synced
}

/// The room a batch takes, after every number in it was found to fit the layout.
fn checked_disk_bytes(batch: &JournalBatch) -> Result<u64, JournalError> {
    let within = |what, bytes: usize, limit: u64| {
        let bytes = bytes as u64;
        if bytes <= limit { Ok(()) } else { Err(JournalError::TooLarge { what, bytes, limit }) }
    };
    within("a batch's entry count", batch.entries.len(), u64::from(u32::MAX))?;
    for entry in &batch.entries {
        within("an entry", entry.data.len(), u64::from(u32::MAX))?;
    }
    let bytes = batch_disk_bytes(batch).unwrap_or(u64::MAX);
    let limit = MAX_FILE_BYTES / 2;
    if bytes > limit { Err(JournalError::TooLarge { what: "a batch", bytes, limit }) } else { Ok(bytes) }
}

/// A few of the largest ordinary batches (an entry is at most 4 MiB, or one message).
const KEPT_BUFFER_BYTES: usize = 16 << 20;

const _: () = assert!(MAX_FILE_BYTES / (SECTOR_BYTES as u64) <= u32::MAX as u64);
