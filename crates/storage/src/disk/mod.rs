//! What the rest of the crate may ask of a disk, and nothing more.
//!
//! [`RealDisk`] is the operating system's; [`MemoryDisk`] keeps everything in memory, numbers its operations and can
//! lose power at any of them. One contract suite (`disk/tests.rs`) runs against both.
//!
//! What a caller may rely on after a power loss, and no more: bytes of a file that were covered by a
//! [`DiskFile::sync_data`] which returned `Ok`, and names that were covered by a [`Disk::sync_dir`] of their directory
//! which returned `Ok`. A sector of 512 bytes is written whole or not at all; all else may be old, new or a mixture.

mod freeing;
mod image;
mod lock;
mod memory;
mod random;
mod read_only;
mod real;
mod window;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use lock::{DirectoryLock, LockError};
pub use memory::{MemoryDisk, PowerLossOutcomes};
pub(crate) use read_only::ReadOnly;
pub use real::RealDisk;
pub(crate) use window::Window;

/// The unit that a device writes whole or not at all.
///
/// # Units
/// Bytes.
pub const SECTOR_BYTES: usize = 512;

/// A file system, as little of it as the broker needs.
///
/// # Durability
/// No method but [`Disk::sync_dir`] makes a name durable: creating, renaming and removing may all be undone by a power
/// loss until the directory that holds the name is synced (failure rule 5).
pub trait Disk: Send + Sync {
    /// Makes a directory and every missing one above it; fine if it is there.
    ///
    /// # Errors
    /// The file system's.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable as they are now.
    ///
    /// # Errors
    /// The file system's. After one, nothing is known about the names (failure rule 2).
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names of the files and directories in a directory, sorted.
    ///
    /// # Errors
    /// `NotFound` without the directory; `InvalidData` for a name that is not UTF-8.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Makes an empty file, open for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken, `NotFound` without its directory.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` without the file.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that is only read; where the system can tell the two apart, a write fails.
    ///
    /// # Errors
    /// As [`Disk::open`].
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path)
    }

    /// Removes a file's name. Handles that are open stay usable.
    ///
    /// # Errors
    /// `NotFound` without the file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `DirectoryNotEmpty` if it holds a name, `NotFound` if it is not there.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;

    /// Gives a file another name in the same directory, at once, replacing a file of that name.
    ///
    /// # Errors
    /// `InvalidInput` if the directories differ: then no single `sync_dir` could make it durable.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Whether a file or directory of this name is there.
    ///
    /// # Errors
    /// The file system's.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// How much more can be written to the file system that holds a directory.
    ///
    /// # Units
    /// Bytes.
    /// # Errors
    /// The file system's.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// An open file. Reads and writes name their offset, so that one handle serves many threads.
pub trait DiskFile: Send + Sync {
    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`, growing the file if needed; a gap before it reads as zero.
    ///
    /// # Durability
    /// None until [`DiskFile::sync_data`].
    /// # Errors
    /// The file system's; any part may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes all bytes written so far, and the length, durable.
    ///
    /// # Errors
    /// The file system's. After one the bytes may be gone although they still read back, and a second sync may say
    /// `Ok` without having written them: never retry (failure rule 2).
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or grows the file; what is new reads as zero.
    ///
    /// # Errors
    /// The file system's.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Makes the file at least this long and takes the room for all of it now; what is new reads as zero.
    ///
    /// # Units
    /// Bytes.
    /// # Errors
    /// `StorageFull` without room for it: then the file may have grown in part. Else the file system's.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// The file's length.
    ///
    /// # Units
    /// Bytes.
    /// # Errors
    /// The file system's.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file holds no byte.
    ///
    /// # Errors
    /// As [`DiskFile::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Makes a directory that lies in the data directory, and makes both names durable.
///
/// # Durability
/// The name of `dir`, that of the directory it lies in, and every directory made on the way. The first two are synced
/// even if they were there: an earlier process may have died between making and syncing them.
/// # Errors
/// The file system's.
/// # Source
/// Failure rule 5.
pub fn create_dir_durable(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    const ALWAYS_SYNCED: usize = 2;
    let holders: Vec<(&Path, bool)> = dir
        .ancestors()
        .zip(dir.ancestors().skip(1))
        .map(|(child, holder)| disk.exists(child).map(|there| (holder, there)))
        .collect::<io::Result<_>>()?;
    disk.create_dir_all(dir)?;
    for (depth, (holder, was_there)) in holders.into_iter().enumerate() {
        if depth < ALWAYS_SYNCED || !was_there {
            disk.sync_dir(holder)?;
        }
    }
    Ok(())
}

/// Whether the disk refused because it has no room, or none for this user: that is no failed write (failure rule 8).
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests;
