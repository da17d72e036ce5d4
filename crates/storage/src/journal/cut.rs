//! Cutting a torn batch off the newest file, so that a start that is cut itself leaves what the next one understands.
//!
//! A batch is cut by zeros from its first byte to the file's end. They may arrive in part, and a write call may end at any
//! byte. What lies there then is no batch and not zero, and **no bytes can tell it from damage**: zeros over a sector may
//! leave a single bit of it, as a flipped bit in an unused sector does. So what is being done is said by the file's name,
//! which is one or the other, whatever a crash hits, and needs no room on a full disk:
//!
//! 1. The last valid batch is written again and synced: all before the cut is durable.
//! 2. The file is renamed to `NNNNNNNN.cut-OFFSET`, and the directory synced. From here on nothing counts that stands
//!    there: a start does not judge it and goes on with step 3.
//! 3. The zeros are written and synced.
//! 4. The file gets its name back, and the directory is synced. Only then a batch may go to it.
//!
//! # Invariants
//! 1. A file is written to where its batches end only if all there is zero, or the file has the other name. (In a file that
//!    is used again a start leaves older batches behind the last where they are: zeros over them could end within a sector
//!    as well.)
//! 2. The other name is given to the newest file only, and only for a batch that was found torn: it was never acknowledged.
//! 3. A valid batch where the name says the cut is was written after it: then the cut was done, and that it was has been
//!    forgotten (a sync of the directory that failed). The name means nothing any more.
//! 4. No batch before the cut may be missing: the name is given once they are durable.
//!
//! # Source
//! P1, P11, P12; failure rule 3; `docs/decisions/014-a-cut-is-said-by-the-name.md`.

use std::path::{Path, PathBuf};

use super::JournalError;
use super::layout::{BLOCK_BYTES, Mark, Place};
use super::name::{ListedFile, cut_path};
use super::roll::JournalFile;
use super::torn_tail::Tail;
use crate::disk::{Disk, SECTOR_BYTES, Window};

/// Whether a start began to cut this file at this place, where no valid batch was found.
///
/// # Errors
/// [`JournalError::Rotten`] if it began to cut it further behind: a batch that was durable is not there.
pub(super) fn is_under_way(file: &ListedFile, place: &Place) -> Result<bool, JournalError> {
    let Some(cut_at) = file.cut_at.filter(|cut_at| *cut_at >= place.offset) else { return Ok(false) };
    if cut_at > place.offset {
        let what =
            format!("batch {} is missing or damaged, yet it was there when a start cut what is behind", place.batch);
        return Err(JournalError::rotten(&file.path, place.offset, what));
    }
    Ok(file.is_last)
}

/// How far what is being cut at a place still reaches.
///
/// # Errors
/// [`JournalError::Unreadable`].
pub(super) fn remains(window: &mut Window, path: &Path, place: &Place) -> Result<Tail, JournalError> {
    let mut end = place.offset + BLOCK_BYTES as u64;
    let mut offset = place.offset;
    while offset < window.sectors_end() {
        let sector = window.read(offset, SECTOR_BYTES).map_err(JournalError::unreadable(path, offset))?;
        offset += SECTOR_BYTES as u64;
        match Mark::of(sector, place.generations, offset - SECTOR_BYTES as u64) {
            Mark::Zero | Mark::Older => {}
            Mark::Batch(_) | Mark::Foreign => end = end.max(offset.next_multiple_of(BLOCK_BYTES as u64)),
        }
    }
    Ok(Tail::Torn { end })
}

impl JournalFile {
    /// Cuts what stands from `offset` on; all before is synced. The file's position is where the next batch goes.
    ///
    /// # Durability
    /// The zeros. The file has its other name still.
    pub(super) fn cut(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        offset: u64,
        file_bytes: u64,
    ) -> Result<(), JournalError> {
        self.rename(disk, cut_path(dir, self.number, offset))?;
        // Also if it had that name before: who gave it may have ended before this.
        disk.sync_dir(dir).map_err(JournalError::io("sync", dir))?;
        self.zero(self.position, file_bytes)?;
        self.file.sync_data().map_err(JournalError::io("sync", &self.path))
    }

    /// Gives the file another name, if it has not got it.
    pub(super) fn rename(&mut self, disk: &dyn Disk, path: PathBuf) -> Result<(), JournalError> {
        if path != self.path {
            disk.rename(&self.path, &path).map_err(JournalError::io_or_full("rename", &self.path))?;
            self.path = path;
        }
        Ok(())
    }
}
