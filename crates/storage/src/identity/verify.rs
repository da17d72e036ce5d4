//! Checking the identity file.

use std::path::Path;

use super::{IDENTITY_FILE, Identity, IdentityError, UNFINISHED_FILE};
use crate::disk::Disk;
use crate::verify::{Report, VerifyError, chain, list};

/// Checks the identity file, and what an interrupted start left beside it.
pub(crate) fn verify(
    disk: &dyn Disk,
    data_dir: &Path,
    has_data: bool,
    report: &mut Report<'_>,
) -> Result<(), VerifyError> {
    if list(disk, data_dir)?.iter().any(|name| name == UNFINISHED_FILE) {
        let what = "an identity that was begun and not finished; the next start removes it";
        report.note(&data_dir.join(UNFINISHED_FILE), 0, what);
    }
    if check(disk, data_dir, has_data, report) && !has_data {
        let what = "an identity without a journal: the node's first start was interrupted, or its data is gone";
        report.note(&data_dir.join(IDENTITY_FILE), 0, what);
    }
    Ok(())
}

/// Checks the identity file, and says whether it is there and sound. With `has_data` it must be there: a folder that
/// does not say whose data it holds is none that a node may vote or acknowledge with.
pub(crate) fn check(disk: &dyn Disk, data_dir: &Path, has_data: bool, report: &mut Report<'_>) -> bool {
    match Identity::read(disk, data_dir) {
        Ok(Some(identity)) => {
            report.read(identity.encode().len() as u64);
            return true;
        }
        Ok(None) if has_data => {
            let what = "the identity file is missing: whose data this is cannot be told";
            report.damage(&data_dir.join(IDENTITY_FILE), 0, what);
        }
        Ok(None) => {}
        Err(IdentityError::Rotten { path, offset, what }) => report.damaged_file(disk, &path, offset, what),
        Err(IdentityError::Io { path, source, .. }) => {
            report.damaged_file(disk, &path, 0, format!("it cannot be read: {source}"));
        }
        Err(error) => report.damaged_file(disk, &data_dir.join(IDENTITY_FILE), 0, chain(&error)),
    }
    false
}
