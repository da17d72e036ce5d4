//! Checking the checkpoint without taking anything up from it.

use std::path::Path;

use super::load::read_checkpoint;
use super::{CHECKPOINTS_DIR, CheckpointError, LoadedCheckpoint, checkpoint_numbers, checkpoint_path, is_unfinished};
use crate::disk::Disk;
use crate::verify::{Report, VerifyError, list};

/// The newest checkpoint of a data directory.
pub(crate) struct Newest {
    /// What its name says.
    pub(crate) log_index: u64,
    /// What it holds; nothing if it is damaged.
    pub(crate) loaded: Option<LoadedCheckpoint>,
}

/// Checks every byte of the newest checkpoint; none if there never was one. It is in memory as a whole meanwhile, as at
/// every start.
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
    let path = checkpoint_path(&dir, *newest);
    let loaded = match read_checkpoint(disk, &dir, *newest) {
        Ok((loaded, bytes)) => {
            report.read(bytes);
            Some(loaded)
        }
        Err(CheckpointError::Damaged { path, offset, what }) => {
            report.damaged_file(disk, &path, offset, what);
            None
        }
        Err(error) => {
            report.damaged_file(disk, &path, 0, crate::verify::chain(&error));
            None
        }
    };
    Ok(Some(Newest { log_index: *newest, loaded }))
}
