//! What was written of every file that is kept: what a checkpoint lists, and what it still has to sync.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mortarmq_types::TopicIncarnation;

use super::SegmentOptions;
use super::files::Shared;
use super::layout::FileIdentity;

/// Every file with its length, its running checksum, and how much of it is durable.
///
/// # Invariants
/// 1. `bytes` and `crc` are those of the file from its first byte on, as the writer gave them to the disk.
/// 2. A file that is not `named` has a name that no checkpoint has synced.
#[derive(Default)]
pub(crate) struct WrittenFiles {
    files: BTreeMap<FileIdentity, WrittenFile>,
}

/// What was written of one file.
#[derive(Clone, Copy, Default)]
pub(super) struct WrittenFile {
    pub(super) bytes: u64,
    /// CRC32C of all these bytes.
    pub(super) crc: u32,
    unsynced_bytes: u64,
    is_named: bool,
}

/// Where a flush writes to, and what it notes of it.
pub(crate) struct Sink<'a> {
    pub(crate) shared: &'a Shared,
    pub(super) options: &'a SegmentOptions,
    pub(super) written: &'a mut WrittenFiles,
}

impl WrittenFiles {
    /// Notes bytes that were written at a file's end.
    pub(super) fn wrote(&mut self, identity: FileIdentity, bytes: &[u8]) {
        let file = self.files.entry(identity).or_default();
        file.bytes += bytes.len() as u64;
        file.crc = crc32c::crc32c_append(file.crc, bytes);
        file.unsynced_bytes += bytes.len() as u64;
    }

    /// Notes that all bytes of a file were synced.
    pub(super) fn synced(&mut self, identity: FileIdentity) {
        self.files.entry(identity).or_default().unsynced_bytes = 0;
    }

    /// Takes a file over from a checkpoint, which synced its name and these bytes.
    pub(super) fn restored(&mut self, identity: FileIdentity, bytes: u64, crc: u32) {
        self.files.insert(identity, WrittenFile { bytes, crc, unsynced_bytes: 0, is_named: true });
    }

    /// How many bytes of a file were written since it was synced.
    pub(super) fn unsynced_bytes(&self, identity: FileIdentity) -> u64 {
        self.files.get(&identity).map_or(0, |file| file.unsynced_bytes)
    }

    pub(super) fn get(&self, identity: &FileIdentity) -> Option<WrittenFile> {
        self.files.get(identity).copied()
    }

    /// The files that must be synced before a checkpoint may list them.
    pub(super) fn unsynced(&self) -> Vec<FileIdentity> {
        let unsynced = self.files.iter().filter(|(_, file)| file.unsynced_bytes > 0);
        unsynced.map(|(identity, _)| *identity).collect()
    }

    /// The directories that must be synced, those that lie deepest first.
    pub(super) fn unnamed_folders(&self, topics: &Path) -> Vec<PathBuf> {
        let unnamed = self.files.iter().filter(|(_, file)| !file.is_named).map(|(identity, _)| identity.folder(topics));
        let partitions: BTreeSet<PathBuf> = unnamed.collect();
        let of_topics: BTreeSet<PathBuf> =
            partitions.iter().filter_map(|folder| folder.parent()).map(Path::to_path_buf).collect();
        let root = (!partitions.is_empty()).then(|| topics.to_path_buf());
        partitions.into_iter().chain(of_topics).chain(root).collect()
    }

    /// Notes that the directories of all files were synced.
    pub(super) fn named(&mut self) {
        self.files.values_mut().for_each(|file| file.is_named = true);
    }

    /// Forgets one file.
    pub(super) fn forget_file(&mut self, identity: FileIdentity) {
        self.files.remove(&identity);
    }

    /// Forgets the files of topics for which `gone` says so.
    pub(super) fn forget(&mut self, gone: impl Fn(TopicIncarnation) -> bool) {
        self.files.retain(|identity, _| !gone(identity.topic));
    }
}
