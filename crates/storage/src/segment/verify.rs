//! Checking the files of every partition: the listed bytes against the checkpoint, every entry by its own checksums, and
//! the index against its segment.

mod checked;
mod lines;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::layout::{FileIdentity, Kind, TOPICS_DIR};
use crate::checkpoint::CheckpointFile;
use crate::disk::Disk;
use crate::verify::{List, Report, VerifyError, list as list_names};
pub(crate) use checked::{Checked, Extent, Missing};
pub(crate) use walk::Walk;

/// Checks the files that a checkpoint lists, and those that are there without; says whether there is any.
pub(crate) fn verify(
    disk: &dyn Disk,
    data_dir: &Path,
    list: List<'_>,
    report: &mut Report<'_>,
) -> Result<bool, VerifyError> {
    let (files, is_list_lost) = match list {
        List::Absent => (&[][..], false),
        List::Lost => (&[][..], true),
        List::There(files) => (files.list(), false),
    };
    let listed: BTreeMap<FileIdentity, &CheckpointFile> =
        files.iter().filter_map(|file| Some((FileIdentity::of_relative_path(&file.path)?, file))).collect();
    let mut identities = find(disk, data_dir, report)?;
    identities.extend(listed.keys());
    for identity in &identities {
        let extent = Extent::Whole { listed: listed.get(identity).copied(), is_list_lost };
        let index = Extent::Whole { listed: listed.get(&identity.of_kind(Kind::Index)).copied(), is_list_lost };
        match Walk::open(disk, data_dir, *identity, extent, Some(index), report) {
            Ok(None) => {}
            Ok(Some(mut walk)) => while walk.step(report).is_some() {},
            Err(missing) => missing.tell(report),
        }
    }
    Ok(!identities.is_empty())
}

/// The files of all partitions, listed or not.
fn find(disk: &dyn Disk, data_dir: &Path, report: &mut Report<'_>) -> Result<BTreeSet<FileIdentity>, VerifyError> {
    let mut found = BTreeSet::new();
    let topics = data_dir.join(TOPICS_DIR);
    for topic in list_names(disk, &topics)? {
        for partition in list_names(disk, &topics.join(&topic))? {
            let folder = topics.join(&topic).join(&partition);
            for name in list_names(disk, &folder)? {
                match FileIdentity::of_relative_path(&format!("{TOPICS_DIR}/{topic}/{partition}/{name}")) {
                    Some(identity) => _ = found.insert(identity),
                    None => report.note(&folder.join(name), 0, "no file of this version; it was not read"),
                }
            }
        }
    }
    Ok(found)
}
