//! Removing files: a topic that was deleted, and everything at the start of recovery.

use std::io;
use std::path::Path;

use mortarmq_types::TopicIncarnation;

use super::layout::FileIdentity;
use super::{FolderError, SegmentWriter};
use crate::disk::Disk;
use crate::journal::Journal;

impl SegmentWriter {
    /// Removes all files of a topic, and what waits for them. Fine if there are none. The caller sees to it that the
    /// command that deleted the topic can no longer be undone.
    ///
    /// # Durability
    /// None: after a power loss files may be back, and are removed by the next [`SegmentWriter::reset`].
    /// # Errors
    /// The disk's; call again.
    pub fn drop_topic(&mut self, topic: TopicIncarnation) -> Result<(), FolderError> {
        self.partitions.retain(|(of, _), _| *of != topic);
        self.waiting.retain(|(of, _)| *of != topic);
        self.shared.forget_views(|of| of == topic);
        let removed = remove_topic(&*self.shared.disk, &self.shared.topics.join(topic.to_hex()));
        // Last, so that no reader that still knew the topic has opened a file again meanwhile.
        self.shared.close_files(|of| of == topic);
        removed
    }

    /// Removes all files of all topics, for the replay of the journal to write them anew.
    ///
    /// # Errors
    /// [`FolderError::JournalMissing`] if there are files and no journal to rebuild them from: nothing was removed.
    /// # Source
    /// Failure rule 4: absence of metadata is never permission to delete data.
    pub fn reset(&mut self) -> Result<(), FolderError> {
        let (disk, topics) = (&*self.shared.disk, &self.shared.topics);
        let names = disk.list(topics).map_err(folder_error("list", topics))?;
        let found: Vec<_> =
            names.into_iter().filter(|name| is_topic_name(name)).map(|name| topics.join(name)).collect();
        if !found.is_empty() {
            let data_dir = topics.parent().expect("the topics lie in the data directory");
            if !Journal::exists(disk, data_dir).map_err(folder_error("list", data_dir))? {
                return Err(FolderError::JournalMissing { topics: topics.clone() });
            }
        }
        self.partitions.clear();
        self.waiting.clear();
        self.shared.forget_views(|_| true);
        let removed = found.iter().try_for_each(|topic| remove_topic(disk, topic));
        self.shared.close_files(|_| true);
        removed
    }
}

/// Removes a topic's folder with the files this crate makes; whatever else lies there stays, with its folder.
fn remove_topic(disk: &dyn Disk, topic: &Path) -> Result<(), FolderError> {
    for partition in list_if_there(disk, topic)? {
        let partition = topic.join(partition);
        for name in list_if_there(disk, &partition)? {
            if FileIdentity::is_file_name(&name) {
                let path = partition.join(name);
                disk.remove(&path).map_err(folder_error("remove", &path))?;
            }
        }
        remove_if_empty(disk, &partition)?;
    }
    remove_if_empty(disk, topic)
}

fn list_if_there(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>, FolderError> {
    match disk.list(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        listed => listed.map_err(folder_error("list", dir)),
    }
}

fn remove_if_empty(disk: &dyn Disk, dir: &Path) -> Result<(), FolderError> {
    use io::ErrorKind::{DirectoryNotEmpty, NotADirectory, NotFound};
    match disk.remove_dir(dir) {
        Err(error) if matches!(error.kind(), NotFound | DirectoryNotEmpty | NotADirectory) => Ok(()),
        removed => removed.map_err(folder_error("remove", dir)),
    }
}

fn is_topic_name(name: &str) -> bool {
    u64::from_str_radix(name, 16).is_ok_and(|topic| TopicIncarnation::new(topic).to_hex() == name)
}

pub(super) fn folder_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_path_buf();
    move |source| FolderError::Io { doing, path, source }
}
