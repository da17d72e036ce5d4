//! Files to begin next: a journal file that is no longer needed, or one that was filled with zeros ahead of time.
//!
//! They are named `spare-NNNN`, from 1, and are exactly as long as a journal file may become. Nothing in them counts:
//! one that is not as it should be is removed at the next start. A spare becomes a journal file in this order: its new
//! header, with the new generation, is written over block 0 and synced; it is renamed; the directory is synced; only
//! then a batch goes to it. So a journal file that was a spare has a sound header from the moment it has its name, and a
//! crash before leaves a spare. (Renamed first, a file of an older number and generation could be the last of the
//! journal, and would have to be told from one that is there by mistake.)

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mortarmq_types::Mutant;

use super::layout::{BLOCK_BYTES, FileHeader, Parsed};
use super::name::file_path;
use super::roll::{JournalFile, filled_bytes};
use super::{Journal, JournalError, JournalOptions};
use crate::disk::{Disk, DiskFile, is_full};

/// A file that may be used next.
pub(super) struct Spare {
    pub(super) path: PathBuf,
    /// The newest generation of any of its sectors; 0 if it was never used.
    pub(super) generation: u64,
}

/// A spare that is being filled with zeros.
pub(super) struct Unfilled {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    filled_bytes: u64,
}

impl Journal {
    /// Prepares a file to begin next, one zero-fill step a call, and says whether it did any work: call it when there is
    /// nothing to append, until it says no. With a spare at hand, beginning the next file costs its header only.
    ///
    /// A full disk is no error: what was prepared goes, and the answer is no.
    ///
    /// # Durability
    /// None that anything relies on.
    /// # Errors
    /// The disk's, which poison the journal (failure rule 2).
    pub fn prepare_spare(&mut self) -> Result<bool, JournalError> {
        if self.poisoned {
            return Err(JournalError::Poisoned);
        }
        if !self.spares.is_empty() || self.options.spare_files == 0 {
            return Ok(false);
        }
        self.poisoned = true;
        let prepared = match self.fill_spare() {
            Err(JournalError::Io { source, .. }) if is_full(&source) => self.drop_unfilled().map(|()| false),
            other => other,
        };
        self.poisoned = prepared.is_err();
        prepared
    }

    fn fill_spare(&mut self) -> Result<bool, JournalError> {
        let (file, path, from) = match &self.unfilled {
            Some(spare) => (spare.file.clone(), spare.path.clone(), spare.filled_bytes),
            None => {
                let Some(path) = self.free_spare_path() else { return Ok(false) };
                let file = self.disk.create_new(&path).map_err(JournalError::io("create", &path))?;
                (file, path, 0)
            }
        };
        let to = (from + self.options.zero_step_bytes).min(self.options.file_bytes);
        self.unfilled = Some(Unfilled { file: file.clone(), path: path.clone(), filled_bytes: to });
        file.write_all_at(&vec![0; (to - from) as usize], from).map_err(JournalError::io("write", &path))?;
        file.sync_data().map_err(JournalError::io("sync", &path))?;
        if to == self.options.file_bytes {
            self.unfilled = None;
            self.spares.push(Spare { path, generation: NEVER_USED });
        }
        Ok(true)
    }

    /// Removes spares until `keep` are left, the one that is being filled first, because the room is needed.
    ///
    /// # Durability
    /// None that anything relies on: a spare that comes back after a crash is a spare.
    /// # Errors
    /// The disk's, which poison the journal (failure rule 2).
    pub fn drop_spares(&mut self, keep: usize) -> Result<(), JournalError> {
        if self.poisoned {
            return Err(JournalError::Poisoned);
        }
        self.poisoned = true;
        self.drop_unfilled()?;
        while self.spares.len() > keep
            && let Some(spare) = self.spares.pop()
        {
            self.disk.remove(&spare.path).map_err(JournalError::io("remove", &spare.path))?;
        }
        self.poisoned = false;
        Ok(())
    }

    /// Gives up the spare that is being filled, because there is no room for it.
    fn drop_unfilled(&mut self) -> Result<(), JournalError> {
        let Some(spare) = self.unfilled.take() else { return Ok(()) };
        self.disk.remove(&spare.path).map_err(JournalError::io("remove", &spare.path))
    }

    /// A name for one more spare; none if there are enough.
    pub(super) fn free_spare_path(&self) -> Option<PathBuf> {
        let taken = |path: &PathBuf| {
            self.spares.iter().any(|spare| spare.path == *path)
                || self.unfilled.as_ref().is_some_and(|spare| spare.path == *path)
        };
        (1..=self.options.spare_files).map(|slot| spare_path(&self.dir, slot)).find(|path| !taken(path))
    }
}

impl JournalFile {
    /// Begins a file in a spare, in the order that the module describes.
    ///
    /// # Durability
    /// The header, the file's length and its name.
    pub(super) fn recycle(
        disk: &dyn Disk,
        dir: &Path,
        header: &FileHeader,
        spare: &Spare,
    ) -> Result<Self, JournalError> {
        let file = disk.open(&spare.path).map_err(JournalError::io("open", &spare.path))?;
        let length = file.len().map_err(JournalError::io("read", &spare.path))?;
        file.write_all_at(&header.encode(), 0).map_err(JournalError::io("write", &spare.path))?;
        file.sync_data().map_err(JournalError::io("sync", &spare.path))?;
        let path = file_path(dir, header.file);
        disk.rename(&spare.path, &path).map_err(JournalError::io_or_full("rename", &spare.path))?;
        if !Mutant::DirectoryNotSynced.is_on() {
            disk.sync_dir(dir).map_err(JournalError::io("sync", dir))?;
        }
        let mut recycled = Self::with_header(header, file, path);
        recycled.filled_bytes = filled_bytes(header, length);
        recycled.position = BLOCK_BYTES as u64;
        Ok(recycled)
    }
}

/// The spares of a journal whose newest file is of this generation. What else has such a name is removed: it was being
/// filled or begun when the process ended, or is of another size.
pub(super) fn find_spares(
    disk: &dyn Disk,
    dir: &Path,
    options: &JournalOptions,
    present: u64,
) -> Result<Vec<Spare>, JournalError> {
    let mut spares = Vec::new();
    for name in disk.list(dir).map_err(JournalError::io("list", dir))? {
        if !name.starts_with(PREFIX) {
            continue;
        }
        let path = dir.join(&name);
        let in_use = (1..=options.spare_files).any(|slot| spare_path(dir, slot) == path);
        let generation = if in_use { usable_generation(disk, &path, options, present)? } else { None };
        match generation {
            Some(generation) => spares.push(Spare { path, generation }),
            None => disk.remove(&path).map_err(JournalError::io("remove", &path))?,
        }
    }
    Ok(spares)
}

/// The newest generation in a spare; none if it must not be used. One that is newer than the journal's newest file was
/// to become the next file, or is from elsewhere: what it holds could pass for batches that are still to come.
fn usable_generation(
    disk: &dyn Disk,
    path: &Path,
    options: &JournalOptions,
    present: u64,
) -> Result<Option<u64>, JournalError> {
    let file = disk.open(path).map_err(JournalError::io("open", path))?;
    if file.len().map_err(JournalError::io("read", path))? != options.file_bytes {
        return Ok(None);
    }
    let mut block = vec![0; BLOCK_BYTES];
    file.read_exact_at(&mut block, 0).map_err(JournalError::unreadable(path, 0))?;
    if block.iter().all(|byte| *byte == 0) {
        return Ok(Some(NEVER_USED));
    }
    Ok(match FileHeader::parse(&block) {
        Parsed::Good(header) if header.shard == options.shard.get() && header.generation <= present => {
            Some(header.generation)
        }
        Parsed::Good(_) | Parsed::UnknownVersion(_) | Parsed::Damaged => None,
    })
}

fn spare_path(dir: &Path, slot: u32) -> PathBuf {
    dir.join(format!("{PREFIX}{slot:04}"))
}

const PREFIX: &str = "spare-";
/// Generations begin with 1.
const NEVER_USED: u64 = 0;
