//! One process per data directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The right to use a data directory, held until it is dropped or the process ends, however it ends.
///
/// # Source
/// Failure rule 10. The lock is the operating system's (`flock`) on the file `lock`; it is not the file's presence, so
/// a killed process leaves nothing to clean up.
#[derive(Debug)]
pub struct DirectoryLock {
    /// Held open: closing it ends the lock.
    _file: File,
}

/// Why a data directory could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process, or another part of this one, uses the directory.
    #[error("data directory {} is in use by another process", .data_dir.display())]
    InUse {
        /// The directory asked for.
        data_dir: PathBuf,
    },
    /// The lock file could not be made or locked.
    #[error("cannot lock {}", .path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl DirectoryLock {
    /// Makes the directory if needed and locks it.
    ///
    /// # Errors
    /// [`LockError::InUse`] if another holds it; nothing in the directory was touched then.
    pub fn acquire(data_dir: &Path) -> Result<Self, LockError> {
        let path = data_dir.join("lock");
        let failed = |source| LockError::Io { path: path.clone(), source };
        std::fs::create_dir_all(data_dir).map_err(failed)?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(LockError::InUse { data_dir: data_dir.to_path_buf() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Locks a directory that must stay as it is: nothing is made. Without the lock file there is nothing to lock, as
    /// every node makes it before anything else.
    ///
    /// # Errors
    /// As [`Self::acquire`].
    pub fn acquire_existing(data_dir: &Path) -> Result<Option<Self>, LockError> {
        let path = data_dir.join("lock");
        let failed = |source| LockError::Io { path: path.clone(), source };
        let file = match File::open(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            opened => opened.map_err(failed)?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Err(LockError::InUse { data_dir: data_dir.to_path_buf() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DirectoryLock, LockError};

    #[test]
    fn rule_10_a_data_directory_has_one_holder_at_a_time() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let data_dir = folder.path().join("data");
        let first = DirectoryLock::acquire(&data_dir).expect("the first holder");
        let second = DirectoryLock::acquire(&data_dir).expect_err("a second holder");
        assert!(matches!(&second, LockError::InUse { data_dir: found } if *found == data_dir), "{second}");
        assert!(second.to_string().contains("in use by another process"));
        let reader = DirectoryLock::acquire_existing(&data_dir).expect_err("a holder that only reads");
        assert!(matches!(reader, LockError::InUse { .. }), "{reader}");
        drop(first);
        let reader = DirectoryLock::acquire_existing(&data_dir).expect("free").expect("it is there");
        DirectoryLock::acquire(&data_dir).expect_err("held by one that only reads");
        drop(reader);
        DirectoryLock::acquire(&data_dir).expect("free again");
        let other = folder.path().join("other");
        assert!(DirectoryLock::acquire_existing(&other).expect("nothing to lock").is_none());
        assert!(!other.exists(), "and nothing made");
    }
}
