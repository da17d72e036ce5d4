//! Removing files: those of topics that were dropped, and everything at a start without a checkpoint.

use std::io;
use std::path::{Path, PathBuf};

use mortarmq_types::TopicIncarnation;

use super::layout::FileIdentity;
use super::{FolderError, SegmentWriter};
use crate::checkpoint::{CHECKPOINTS_DIR, CheckpointError, checkpoint_numbers, list_if_there};
use crate::disk::Disk;
use crate::journal::Journal;

impl SegmentWriter {
    /// Ends a topic: from now on it reads as one that never was, what waits for its files is forgotten, and what still
    /// comes for it is not kept. Fine if it is not there, or was dropped before.
    ///
    /// Its files go with the next [`SegmentWriter::checkpoint`]: until then a replay may still begin before the command
    /// that deleted the topic, and needs them, also for copies of their records.
    ///
    /// # Durability
    /// None. After a crash, the replay of that command drops the topic again.
    pub fn drop_topic(&mut self, topic: TopicIncarnation) {
        self.partitions.retain(|(of, _), _| *of != topic);
        self.waiting.retain(|(of, _)| *of != topic);
        self.written.forget(|of| of == topic);
        self.shared.forget_views(|of| of == topic);
        self.dropped.insert(topic);
        // Last, so that no reader that still knew the topic has opened a file again meanwhile.
        self.shared.close_files(|of| of == topic);
    }

    /// Removes all files of all topics, for the replay of the whole journal to write them anew.
    ///
    /// # Errors
    /// [`FolderError::JournalMissing`] if there are files and no journal to rebuild them from, and
    /// [`FolderError::CheckpointThere`] if there is a checkpoint to restore them from: nothing was removed.
    /// # Source
    /// Failure rule 4: absence of metadata is never permission to delete data.
    pub fn reset(&mut self) -> Result<(), FolderError> {
        let shared = self.shared.clone();
        let (disk, topics) = (&*shared.disk, &shared.topics);
        let names = disk.list(topics).map_err(failed("list", topics))?;
        let data_dir = topics.parent().expect("the topics lie in the data directory");
        let checkpoints = data_dir.join(CHECKPOINTS_DIR);
        let saved = list_if_there(disk, &checkpoints).map_err(failed("list", &checkpoints))?;
        if !checkpoint_numbers(&saved).is_empty() {
            return Err(FolderError::CheckpointThere { checkpoints });
        }
        if names.iter().any(|name| is_topic_name(name))
            && !Journal::exists(disk, data_dir).map_err(failed("list", data_dir))?
        {
            return Err(FolderError::JournalMissing { topics: topics.clone() });
        }
        self.forget_all();
        let removed = remove_unlisted(disk, topics, &|_| false);
        self.shared.close_files(|_| true);
        Ok(removed.map(drop)?)
    }

    /// As if nothing had ever been written.
    pub(super) fn forget_all(&mut self) {
        self.partitions.clear();
        self.waiting.clear();
        self.written.forget(|_| true);
        self.dropped.clear();
        self.trimmed.clear();
        self.shared.forget_views(|_| true);
        self.shared.close_files(|_| true);
    }
}

/// Removes the files of all topics but those that are `listed`, and says how many.
pub(super) fn remove_unlisted(
    disk: &dyn Disk,
    topics: &Path,
    listed: &dyn Fn(&Path) -> bool,
) -> Result<u64, RemoveError> {
    let names = disk.list(topics).map_err(failed("list", topics))?;
    let mut removed = 0;
    for name in names.into_iter().filter(|name| is_topic_name(name)) {
        removed += remove_topic(disk, &topics.join(name), listed)?;
    }
    Ok(removed)
}

/// Removes a topic's files and its folder, and says how many files went. What this crate does not make, and what is
/// `listed`, stays with its folder.
pub(super) fn remove_topic(disk: &dyn Disk, topic: &Path, listed: &dyn Fn(&Path) -> bool) -> Result<u64, RemoveError> {
    let mut removed = 0;
    for partition in list_if_there(disk, topic).map_err(failed("list", topic))? {
        let partition = topic.join(partition);
        for name in list_if_there(disk, &partition).map_err(failed("list", &partition))? {
            let path = partition.join(&name);
            if FileIdentity::is_file_name(&name) && !listed(&path) {
                disk.remove(&path).map_err(failed("remove", &path))?;
                removed += 1;
            }
        }
        remove_if_empty(disk, &partition)?;
    }
    remove_if_empty(disk, topic)?;
    Ok(removed)
}

fn remove_if_empty(disk: &dyn Disk, dir: &Path) -> Result<(), RemoveError> {
    use io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound};
    match disk.remove_dir(dir) {
        Err(error) if matches!(error.kind(), NotFound | DirectoryNotEmpty | NotADirectory) => Ok(()),
        removed => removed.map_err(failed("remove", dir)),
    }
}

fn is_topic_name(name: &str) -> bool {
    u64::from_str_radix(name, 16).is_ok_and(|topic| TopicIncarnation::new(topic).to_hex() == name)
}

/// What the disk refused while files were removed.
pub(super) struct RemoveError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl From<RemoveError> for FolderError {
    fn from(RemoveError { doing, path, source }: RemoveError) -> Self {
        Self::Io { doing, path, source }
    }
}

impl From<RemoveError> for CheckpointError {
    fn from(RemoveError { doing, path, source }: RemoveError) -> Self {
        Self::Io { doing, path, source }
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RemoveError {
    let path = path.to_path_buf();
    move |source| RemoveError { doing, path, source }
}

pub(super) fn folder_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_path_buf();
    move |source| FolderError::Io { doing, path, source }
}
