//! Checking the checkpoint without taking anything up from it.

use std::path::Path;

use super::walk::CheckpointWalk;
use super::{
    CHECKPOINTS_DIR, CheckpointError, CheckpointFiles, checkpoint_numbers, checkpoint_path, install_path,
    is_unfinished, newest_install,
};
use crate::disk::Disk;
use crate::staging::unstaged;
use crate::verify::{Report, VerifyError, chain, list};

/// The newest checkpoint of a data directory.
pub(crate) struct Newest {
    /// What its name says.
    pub(crate) log_index: u64,
    /// What it lists; nothing if it is damaged.
    pub(crate) files: Option<CheckpointFiles>,
    /// Whether it is another node's and its install was interrupted, so that files may still wait beside their places.
    pub(crate) is_installing: bool,
}

/// Checks every byte of the newest checkpoint; none if there never was one.
pub(crate) fn verify(disk: &dyn Disk, data_dir: &Path, report: &mut Report<'_>) -> Result<Option<Newest>, VerifyError> {
    let dir = data_dir.join(CHECKPOINTS_DIR);
    let names = list(disk, &dir)?;
    let numbers = checkpoint_numbers(&names);
    for name in names.iter().filter(|name| is_unfinished(name)) {
        report.note(&dir.join(name), 0, "a checkpoint that was begun and not finished; the next start removes it");
    }
    for name in names.iter().filter(|name| unstaged(name).is_some()) {
        let what = "of another node's checkpoint, in whole or in part; it counts for nothing before it is installed, and was not read";
        report.note(&dir.join(name), 0, what);
    }
    let mut older = numbers;
    let (log_index, path, is_installing) = match (newest_install(&names), older.last().copied()) {
        (Some((installing, true)), _) => {
            let path = install_path(&dir, installing);
            report.note(
                &path,
                0,
                "the install of another node's checkpoint was interrupted; the next start finishes it",
            );
            (installing, path, true)
        }
        (_, None) => return Ok(None),
        (left, Some(newest)) => {
            older.pop();
            if let Some((left, _)) = left {
                report.note(&install_path(&dir, left), 0, "left of an install that is over; the next start removes it");
            }
            (newest, checkpoint_path(&dir, newest), false)
        }
    };
    for log_index in older {
        let what = "an older checkpoint, which is never used again; it was not read";
        report.note(&checkpoint_path(&dir, log_index), 0, what);
    }
    let files = match check(disk, &path, log_index) {
        Ok((files, bytes)) => {
            report.read(bytes);
            files
        }
        Err(error) => {
            tell(disk, &path, error, report);
            None
        }
    };
    Ok(Some(Newest { log_index, files, is_installing }))
}

/// The files that a sound checkpoint lists, and its own length.
fn check(disk: &dyn Disk, path: &Path, log_index: u64) -> Result<(Option<CheckpointFiles>, u64), CheckpointError> {
    let mut walk = CheckpointWalk::open_at(disk, path.to_path_buf(), log_index)?;
    while walk.step()?.is_some() {}
    Ok((walk.take_files(), walk.file_bytes()))
}

/// Tells why a checkpoint was refused at once.
pub(crate) fn tell(disk: &dyn Disk, path: &Path, error: CheckpointError, report: &mut Report<'_>) {
    // What cannot even be opened was not read, and the finding says so.
    report.read(disk.open(path).and_then(|file| file.len()).unwrap_or(0));
    tell_damage(path, error, report);
}

/// Tells what is wrong with a checkpoint that was counted before.
pub(crate) fn tell_damage(path: &Path, error: CheckpointError, report: &mut Report<'_>) {
    match error {
        CheckpointError::Damaged { path, offset, what } => report.damage(&path, offset, what),
        CheckpointError::Unreadable { path, offset, source } => {
            report.damage(&path, offset, format!("it cannot be read: {source}"));
        }
        error => report.damage(path, 0, chain(&error)),
    }
}
