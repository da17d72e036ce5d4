//! The install: what was fetched takes its place, in an order that leaves one state or the other after a crash anywhere.
//!
//! 1. Listed files and their folders are synced.
//! 2. `N.checkpoint.staged` becomes `N.checkpoint.install`, and the folder is synced. **Before this a start finds the former state,
//!    and after it the new one**: it does what is left of the rest ([`resume_install`]).
//! 3. Staged files get their names; the segment writer goes on from the list.
//! 4. The caller writes to its journal that the log begins anew behind N.
//! 5. [`finish_install`]: `N.checkpoint.install` becomes `N.checkpoint`, older checkpoints and what else was staged go.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use mortarmq_types::Mutant;

use super::{STAGED_SUFFIX, Staging, StagingError, StagingStep, failed, open_if_there, read_whole, staged};
use crate::checkpoint::{
    CHECKPOINTS_DIR, CheckpointFile, LoadedCheckpoint, checkpoint_name, checkpoint_numbers, checkpoint_path,
    install_path, list_if_there, newest_install, parse_checkpoint,
};
use crate::disk::Disk;
use crate::segment::{SegmentWriter, TOPICS_DIR};

impl Staging {
    /// Installs the checkpoint that is whole, up to step 3, and gives back nothing; or says what has come in between. Nothing
    /// may be in the writer's memory.
    ///
    /// # Durability
    /// With `None`, the new state, once the journal has its entry; a start before that writes it.
    /// # Errors
    /// The disk's: the process ends, and the next start decides (failure rule 2).
    /// # Source
    /// Failure rules 2 and 5.
    pub fn install(&mut self, writer: &mut SegmentWriter) -> Result<Option<StagingStep>, StagingError> {
        let Some(loaded) = self.open.take().and_then(|open| open.loaded) else { return Ok(Some(StagingStep::Lost)) };
        let (disk, data_dir) = (&*self.disk, &self.data_dir);
        let list = loaded.files.list();
        if !Mutant::InstallBeforeFiles.is_on() && !sync(disk, data_dir, list)? {
            return Ok(Some(StagingStep::Lost));
        }
        begin(disk, data_dir, loaded.meta.log_index)?;
        put_in_place(disk, data_dir, list)?;
        writer.restore(&loaded.files).map_err(StagingError::Checkpoint)?;
        Ok(None)
    }
}

/// Goes on with an install that a crash interrupted behind its durable step; nothing if there is none.
///
/// # Durability
/// The names of all listed files.
/// # Errors
/// The disk's, and the checkpoint's if it is damaged.
pub fn resume_install(disk: &dyn Disk, data_dir: &Path) -> Result<Option<LoadedCheckpoint>, StagingError> {
    let dir = data_dir.join(CHECKPOINTS_DIR);
    let names = list_if_there(disk, &dir).map_err(failed("list", &dir))?;
    let Some((log_index, is_under_way)) = newest_install(&names) else { return Ok(None) };
    let path = install_path(&dir, log_index);
    if !is_under_way {
        // It has its name under which it counts; the other one is what the crash kept.
        disk.remove(&path).map_err(failed("remove", &path))?;
        return Ok(None);
    }
    let file = disk.open(&path).map_err(failed("open", &path))?;
    let bytes = file.len().map_err(failed("read", &path))?;
    let whole = read_whole(&*file, &path, bytes)?;
    let loaded = parse_checkpoint(&path, log_index, &whole).map_err(StagingError::Checkpoint)?;
    disk.sync_dir(&dir).map_err(failed("sync", &dir))?;
    put_in_place(disk, data_dir, loaded.files.list())?;
    Ok(Some(loaded))
}

/// The journal says that the log begins anew behind the checkpoint: it gets its name.
///
/// # Durability
/// The checkpoint under its name.
/// # Errors
/// The disk's.
pub fn finish_install(disk: &dyn Disk, data_dir: &Path, log_index: u64) -> Result<(), StagingError> {
    let dir = data_dir.join(CHECKPOINTS_DIR);
    let aside = install_path(&dir, log_index);
    disk.rename(&aside, &checkpoint_path(&dir, log_index)).map_err(failed("rename", &aside))?;
    disk.sync_dir(&dir).map_err(failed("sync", &dir))?;
    let names = disk.list(&dir).map_err(failed("list", &dir))?;
    for older in checkpoint_numbers(&names).into_iter().filter(|number| *number < log_index) {
        let path = checkpoint_path(&dir, older);
        disk.remove(&path).map_err(failed("remove", &path))?;
    }
    sweep(disk, data_dir)
}

/// Removes everything that was staged.
pub(super) fn sweep(disk: &dyn Disk, data_dir: &Path) -> Result<(), StagingError> {
    let topics = data_dir.join(TOPICS_DIR);
    let inside = |dir: &Path| -> Result<Vec<PathBuf>, StagingError> {
        let names = list_if_there(disk, dir).map_err(failed("list", dir))?;
        Ok(names.into_iter().map(|name| dir.join(name)).collect())
    };
    let mut folders = vec![data_dir.join(CHECKPOINTS_DIR)];
    let mut made = Vec::new();
    for topic in inside(&topics)? {
        made.extend(inside(&topic)?);
        made.push(topic);
    }
    folders.extend(made.iter().cloned());
    for path in folders.iter().map(|folder| inside(folder)).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
        if path.to_str().is_some_and(|path| path.ends_with(STAGED_SUFFIX)) {
            disk.remove(&path).map_err(failed("remove", &path))?;
        }
    }
    for folder in made {
        use io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound};
        match disk.remove_dir(&folder) {
            Err(error) if matches!(error.kind(), NotFound | DirectoryNotEmpty | NotADirectory) => {}
            removed => removed.map_err(failed("remove", &folder))?,
        }
    }
    Ok(())
}

/// Step 1; says whether all files are still there. Which of them are in place and which beside it was found before.
fn sync(disk: &dyn Disk, data_dir: &Path, list: &[CheckpointFile]) -> Result<bool, StagingError> {
    for file in list {
        let path = data_dir.join(&file.path);
        let beside = open_if_there(disk, &staged(&path))?;
        let (handle, is_staged) = match beside {
            Some(handle) if handle.len().map_err(failed("read", &path))? == file.bytes => (handle, true),
            _ => match open_if_there(disk, &path)? {
                Some(handle) => (handle, false),
                None => return Ok(false),
            },
        };
        if !is_staged && handle.len().map_err(failed("read", &path))? < file.bytes {
            return Ok(false);
        }
        handle.sync_data().map_err(failed("sync", &path))?;
    }
    sync_folders(disk, data_dir, list)?;
    Ok(true)
}

fn sync_folders(disk: &dyn Disk, data_dir: &Path, list: &[CheckpointFile]) -> Result<(), StagingError> {
    let mut folders = BTreeSet::from([data_dir.join(TOPICS_DIR)]);
    for file in list {
        let path = data_dir.join(&file.path);
        folders.extend(path.ancestors().skip(1).take(2).map(Path::to_path_buf));
    }
    // The deepest first: a folder counts when its name is durable.
    folders.iter().rev().try_for_each(|folder| disk.sync_dir(folder).map_err(failed("sync", folder)))
}

/// Step 2: the durable one.
fn begin(disk: &dyn Disk, data_dir: &Path, log_index: u64) -> Result<(), StagingError> {
    let dir = data_dir.join(CHECKPOINTS_DIR);
    let aside = staged(&dir.join(checkpoint_name(log_index)));
    let file = disk.open(&aside).map_err(failed("open", &aside))?;
    file.sync_data().map_err(failed("sync", &aside))?;
    disk.sync_dir(data_dir).map_err(failed("sync", data_dir))?;
    disk.rename(&aside, &install_path(&dir, log_index)).map_err(failed("rename", &aside))?;
    disk.sync_dir(&dir).map_err(failed("sync", &dir))
}

/// Step 3, as far as it is not done.
fn put_in_place(disk: &dyn Disk, data_dir: &Path, list: &[CheckpointFile]) -> Result<(), StagingError> {
    for file in list {
        let path = data_dir.join(&file.path);
        let beside = staged(&path);
        let Some(handle) = open_if_there(disk, &beside)? else { continue };
        // A part of one that is in place in whole: it is swept away later.
        if handle.len().map_err(failed("read", &beside))? == file.bytes {
            disk.rename(&beside, &path).map_err(failed("rename", &beside))?;
        }
    }
    sync_folders(disk, data_dir, list)
}
