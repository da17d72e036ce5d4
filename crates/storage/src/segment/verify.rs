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
use crate::staging::unstaged;
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
    let (files, is_list_lost, is_installing) = match list {
        List::Absent => (&[][..], false, false),
        List::Lost => (&[][..], true, false),
        List::There { files, is_installing } => (files.list(), false, is_installing),
    };
    let listed: BTreeMap<FileIdentity, &CheckpointFile> =
        files.iter().filter_map(|file| Some((FileIdentity::of_relative_path(&file.path)?, file))).collect();
    let is_to_be_installed = |identity: &FileIdentity| is_installing && listed.contains_key(identity);
    let mut identities = find(disk, data_dir, &is_to_be_installed, report)?;
    identities.extend(listed.keys());
    for identity in &identities {
        let extent = Extent::Whole { listed: listed.get(identity).copied(), is_list_lost, is_installing };
        let listed = listed.get(&identity.of_kind(Kind::Index)).copied();
        let index = Extent::Whole { listed, is_list_lost, is_installing };
        match Walk::open(disk, data_dir, *identity, extent, Some(index), report) {
            Ok(None) => {}
            Ok(Some(mut walk)) => while walk.step(report).is_some() {},
            Err(missing) => missing.tell(report),
        }
    }
    Ok(!identities.is_empty())
}

/// The files of all partitions, listed or not. What waits beside the place of one that is to be installed is read in its stead.
fn find(
    disk: &dyn Disk,
    data_dir: &Path,
    is_to_be_installed: &dyn Fn(&FileIdentity) -> bool,
    report: &mut Report<'_>,
) -> Result<BTreeSet<FileIdentity>, VerifyError> {
    let mut found = BTreeSet::new();
    let topics = data_dir.join(TOPICS_DIR);
    for topic in list_names(disk, &topics)? {
        for partition in list_names(disk, &topics.join(&topic))? {
            let folder = topics.join(&topic).join(&partition);
            for name in list_names(disk, &folder)? {
                let identity =
                    |name: &str| FileIdentity::of_relative_path(&format!("{TOPICS_DIR}/{topic}/{partition}/{name}"));
                match (identity(&name), unstaged(&name).and_then(identity)) {
                    (Some(identity), _) => _ = found.insert(identity),
                    (None, Some(identity)) if is_to_be_installed(&identity) => {}
                    (None, Some(_)) => report.note(&folder.join(name), 0, FETCHED),
                    (None, None) => report.note(&folder.join(name), 0, "no file of this version; it was not read"),
                }
            }
        }
    }
    Ok(found)
}

const FETCHED: &str =
    "fetched from another node, in whole or in part; it counts for nothing before it is installed, and was not read";
