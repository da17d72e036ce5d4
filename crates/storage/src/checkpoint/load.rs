//! Finding and reading the newest checkpoint.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::layout::parse;
use super::{CHECKPOINTS_DIR, CheckpointError, LoadedCheckpoint};
use crate::disk::Disk;

/// Reads the newest checkpoint of a data directory; none if there never was one. What an interrupted
/// [`crate::SegmentWriter::checkpoint`] left aside is removed.
///
/// # Durability
/// The checkpoint's name, when it returns: the process that gave it that name may have died before it synced the
/// directory, and what follows relies on this checkpoint (files it does not list are removed).
/// # Errors
/// [`CheckpointError::Damaged`], [`CheckpointError::Unreadable`] and [`CheckpointError::UnknownVersion`] for the newest
/// one: an older one is never taken in its place, as files and journal no longer go back so far. Nothing was changed then.
/// # Source
/// Failure rules 3 and 5; P11.
pub fn load_checkpoint(disk: &dyn Disk, data_dir: &Path) -> Result<Option<LoadedCheckpoint>, CheckpointError> {
    let dir = data_dir.join(CHECKPOINTS_DIR);
    let names = list_if_there(disk, &dir).map_err(CheckpointError::io("list", &dir))?;
    let newest = match checkpoint_numbers(&names).last().copied() {
        None => None,
        Some(log_index) => Some(read_checkpoint(disk, &dir, log_index)?),
    };
    if newest.is_some() {
        for dir in [&dir, data_dir] {
            disk.sync_dir(dir).map_err(CheckpointError::io("sync", dir))?;
        }
    }
    for name in names.iter().filter(|name| is_unfinished(name)) {
        let path = dir.join(name);
        disk.remove(&path).map_err(CheckpointError::io("remove", &path))?;
    }
    Ok(newest)
}

fn read_checkpoint(disk: &dyn Disk, dir: &Path, log_index: u64) -> Result<LoadedCheckpoint, CheckpointError> {
    let path = checkpoint_path(dir, log_index);
    let bytes = read_whole(disk, &path)?;
    parse(&path, log_index, &bytes)
}

/// The log indexes of the checkpoints among these names, rising.
pub(crate) fn checkpoint_numbers(names: &[String]) -> Vec<u64> {
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| checkpoint_number(name)).collect();
    numbers.sort_unstable();
    numbers
}

/// Whether a checkpoint under this name was begun and not finished.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(UNFINISHED_SUFFIX).is_some_and(|name| checkpoint_number(name).is_some())
}

/// The name of a checkpoint.
pub(crate) fn checkpoint_name(log_index: u64) -> String {
    format!("{log_index:020}{SUFFIX}")
}

/// The path of a checkpoint.
pub(crate) fn checkpoint_path(dir: &Path, log_index: u64) -> PathBuf {
    dir.join(checkpoint_name(log_index))
}

/// The path of a checkpoint that is being written.
pub(crate) fn unfinished_path(dir: &Path, log_index: u64) -> PathBuf {
    dir.join(format!("{log_index:020}{SUFFIX}{UNFINISHED_SUFFIX}"))
}

/// The path of another node's checkpoint whose install is under way.
pub(crate) fn install_path(dir: &Path, log_index: u64) -> PathBuf {
    dir.join(format!("{log_index:020}{SUFFIX}{INSTALL_SUFFIX}"))
}

/// The newest checkpoint among these names whose install began, and whether that is under way: it is over once the checkpoint has
/// the name under which it counts.
pub(crate) fn newest_install(names: &[String]) -> Option<(u64, bool)> {
    let installed = |name: &String| checkpoint_number(name.strip_suffix(INSTALL_SUFFIX)?);
    let log_index = names.iter().filter_map(installed).max()?;
    let newest = names.iter().filter_map(|name| checkpoint_number(name)).max();
    Some((log_index, newest.is_none_or(|newest| newest < log_index)))
}

/// The names in a directory; none if it is not there.
pub(crate) fn list_if_there(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<String>> {
    match disk.list(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        listed => listed,
    }
}

fn checkpoint_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let number = digits.parse().ok()?;
    (format!("{number:020}") == digits).then_some(number)
}

/// Reads a file in pieces, so that a place that cannot be read is named.
fn read_whole(disk: &dyn Disk, path: &Path) -> Result<Bytes, CheckpointError> {
    let failed = || CheckpointError::io("read", path);
    let file = disk.open(path).map_err(failed())?;
    let length = file.len().and_then(|length| usize::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge.into()));
    let mut bytes = vec![0; length.map_err(failed())?];
    let mut offset = 0;
    for piece in bytes.chunks_mut(PIECE_BYTES) {
        file.read_exact_at(piece, offset).map_err(|source| {
            let path = path.to_path_buf();
            CheckpointError::Unreadable { path, offset, source }
        })?;
        offset += piece.len() as u64;
    }
    Ok(Bytes::from(bytes))
}

/// Few calls for a large checkpoint, and near enough to find a bad place.
const PIECE_BYTES: usize = 64 << 10;

const SUFFIX: &str = ".checkpoint";
const UNFINISHED_SUFFIX: &str = ".new";
const INSTALL_SUFFIX: &str = ".install";
