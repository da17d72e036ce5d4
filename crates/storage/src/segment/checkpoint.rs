//! Making a checkpoint: everything it lists is durable before it has a name, and nothing goes before that.

use std::path::Path;

use mortarmq_types::Seq;

use super::layout::{FileIdentity, Kind};
use super::remove::remove_topic;
use super::{FlushError, SegmentWriter};
use crate::checkpoint::{
    CHECKPOINTS_DIR, CheckpointError, CheckpointFile, CheckpointMeta, CheckpointWritten, checkpoint_numbers,
    checkpoint_path, encode_head, is_unfinished, unfinished_path,
};
use crate::disk::{Disk, create_dir_durable};

impl SegmentWriter {
    /// Makes a checkpoint of everything that was appended so far. `image` is the state once the entries up to
    /// `meta.log_index`, and no later one, were applied; what they appended is what this writer has taken.
    ///
    /// Writes what waits, syncs every file and directory that changed since the last checkpoint, then writes meta, list
    /// and image as one file aside, syncs it and gives it its name. Only then trimmed files, those of dropped topics and older
    /// checkpoints go.
    ///
    /// # Durability
    /// All of it. After a crash in between, the checkpoint before is found, with all files that it lists.
    /// # Errors
    /// After [`CheckpointError::DiskFull`] the checkpoint before is still good and the writer goes on: call again when
    /// there is room. [`CheckpointError::NotNewest`] and [`CheckpointError::TooLarge`] change nothing. Any other error
    /// poisons the writer: the process must end (failure rule 2).
    /// # Source
    /// DESIGN "Checkpoint"; failure rules 2, 5 and 8.
    pub fn checkpoint(&mut self, meta: &CheckpointMeta, image: &[u8]) -> Result<CheckpointWritten, CheckpointError> {
        if self.poisoned {
            return Err(CheckpointError::Poisoned);
        }
        let written = self.write_checkpoint(meta, image);
        self.poisoned = match &written {
            Ok(_) => false,
            Err(error) => !matches!(
                error,
                CheckpointError::DiskFull { .. } | CheckpointError::NotNewest { .. } | CheckpointError::TooLarge { .. }
            ),
        };
        written
    }

    fn write_checkpoint(&mut self, meta: &CheckpointMeta, image: &[u8]) -> Result<CheckpointWritten, CheckpointError> {
        let disk = self.shared.disk.clone();
        let data_dir = self.shared.topics.parent().expect("the topics lie in the data directory");
        let dir = data_dir.join(CHECKPOINTS_DIR);
        create_dir_durable(&*disk, &dir).map_err(CheckpointError::io_or_full("create", &dir))?;
        let names = disk.list(&dir).map_err(CheckpointError::io("list", &dir))?;
        let older = checkpoint_numbers(&names);
        if let Some(newest) = older.last().copied().filter(|newest| *newest > meta.log_index) {
            return Err(CheckpointError::NotNewest { asked: meta.log_index, newest });
        }
        self.flush().map_err(|error| match error {
            FlushError::DiskFull { path } => CheckpointError::DiskFull { path },
            other => CheckpointError::Flush(other),
        })?;
        self.sync_written()?;
        let files = self.list_files();
        let head = encode_head(meta, &files, image)?;
        // An earlier call left it when the disk was full.
        for name in names.iter().filter(|name| is_unfinished(name)) {
            remove(&*disk, &dir.join(name))?;
        }
        write_file(&*disk, &dir, meta.log_index, &head, image)?;
        let mut removed = 0;
        let held = self.held.filter(|held| older.contains(held));
        if held.is_none() {
            for identity in std::mem::take(&mut self.trimmed) {
                remove(&*disk, &self.shared.path(&identity))?;
                removed += 1;
            }
            for topic in std::mem::take(&mut self.dropped) {
                removed += remove_topic(&*disk, &self.shared.topics.join(topic.to_hex()), &|_| false)?;
            }
        }
        for log_index in older.into_iter().filter(|log_index| *log_index < meta.log_index && Some(*log_index) != held) {
            remove(&*disk, &checkpoint_path(&dir, log_index))?;
            removed += 1;
        }
        let bytes = (head.len() + image.len()) as u64;
        Ok(CheckpointWritten { bytes, files: files.len() as u64, removed })
    }

    /// Syncs what was written since the last checkpoint, and the names of what was made.
    fn sync_written(&mut self) -> Result<(), CheckpointError> {
        for identity in self.written.unsynced() {
            let path = self.shared.path(&identity);
            let file = self.shared.open(identity).map_err(CheckpointError::Reopen)?;
            file.sync_data().map_err(CheckpointError::io("sync", &path))?;
            self.written.synced(identity);
        }
        for folder in self.written.unnamed_folders(&self.shared.topics) {
            self.shared.disk.sync_dir(&folder).map_err(CheckpointError::io("sync", &folder))?;
        }
        self.written.named();
        Ok(())
    }

    /// Every file that is visible: after a flush that is all there are, but for those of dropped topics.
    fn list_files(&self) -> Vec<CheckpointFile> {
        let mut list = Vec::new();
        for ((topic, partition), view) in self.shared.views() {
            let mut add = |kind, number, bytes: u64, first_seq: Seq, end_seq: Seq| {
                let identity = FileIdentity { topic, partition, kind, number };
                let written = self.written.get(&identity).unwrap_or_default();
                assert_eq!(written.bytes, bytes, "the length of {identity:?} is the one that readers see");
                let (path, crc) = (identity.relative_path(), written.crc);
                list.push(CheckpointFile { path, bytes, crc, first_seq, end_seq });
            };
            for extent in &view.segments {
                add(Kind::Segment, extent.first_seq.get(), extent.bytes, extent.first_seq, extent.end_seq);
            }
            for extent in &view.segments {
                add(Kind::Index, extent.first_seq.get(), extent.index_bytes(), extent.first_seq, extent.end_seq);
            }
            for extent in &view.ledgers {
                add(Kind::Ledger, extent.number, extent.bytes, extent.lowest_seq, extent.end_seq);
            }
        }
        list
    }
}

/// Writes a checkpoint aside and gives it its name.
fn write_file(disk: &dyn Disk, dir: &Path, log_index: u64, head: &[u8], image: &[u8]) -> Result<(), CheckpointError> {
    let (aside, path) = (unfinished_path(dir, log_index), checkpoint_path(dir, log_index));
    let file = disk.create_new(&aside).map_err(CheckpointError::io_or_full("create", &aside))?;
    let written = file.write_all_at(head, 0).and_then(|()| file.write_all_at(image, head.len() as u64));
    if let Err(error) = written {
        let error = CheckpointError::io_or_full("write", &aside)(error);
        if matches!(error, CheckpointError::DiskFull { .. }) {
            // What is there takes room that others need now.
            remove(disk, &aside)?;
        }
        return Err(error);
    }
    file.sync_data().map_err(CheckpointError::io("sync", &aside))?;
    disk.rename(&aside, &path).map_err(CheckpointError::io("rename", &aside))?;
    disk.sync_dir(dir).map_err(CheckpointError::io("sync", dir))
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<(), CheckpointError> {
    disk.remove(path).map_err(CheckpointError::io("remove", path))
}
