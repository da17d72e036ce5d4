//! Checking the checkpoint without taking anything up from it.

use std::path::Path;

use super::walk::CheckpointWalk;
use super::{CHECKPOINTS_DIR, CheckpointError, CheckpointFiles, checkpoint_numbers, checkpoint_path, is_unfinished};
use crate::disk::Disk;
use crate::verify::{Report, VerifyError, chain, list};

/// The newest checkpoint of a data directory.
pub(crate) struct Newest {
    /// What its name says.
    pub(crate) log_index: u64,
    /// What it lists; nothing if it is damaged.
    pub(crate) files: Option<CheckpointFiles>,
}

/// Checks every byte of the newest checkpoint; none if there never was one.
pub(crate) fn verify(disk: &dyn Disk, data_dir: &Path, report: &mut Report<'_>) -> Result<Option<Newest>, VerifyError> {
    let dir = data_dir.join(CHECKPOINTS_DIR);
    let names = list(disk, &dir)?;
    let numbers = checkpoint_numbers(&names);
    for name in names.iter().filter(|name| is_unfinished(name)) {
        report.note(&dir.join(name), 0, "a checkpoint that was begun and not finished; the next start removes it");
    }
    let Some((newest, older)) = numbers.split_last() else { return Ok(None) };
    for log_index in older {
        let what = "an older checkpoint, which is never used again; it was not read";
        report.note(&checkpoint_path(&dir, *log_index), 0, what);
    }
    let files = match check(disk, &dir, *newest) {
        Ok((files, bytes)) => {
            report.read(bytes);
            files
        }
        Err(error) => {
            tell(disk, &checkpoint_path(&dir, *newest), error, report);
            None
        }
    };
    Ok(Some(Newest { log_index: *newest, files }))
}

/// The files that a sound checkpoint lists, and its own length.
fn check(disk: &dyn Disk, dir: &Path, log_index: u64) -> Result<(Option<CheckpointFiles>, u64), CheckpointError> {
    let mut walk = CheckpointWalk::open(disk, dir, log_index)?;
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
