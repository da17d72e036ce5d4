//! What writer and readers share: which bytes are written, and a bounded number of open files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use mortarmq_types::{Partition, Seq, TopicIncarnation};

use super::ReadError;
use super::layout::{FILE_HEADER_BYTES, FileIdentity, HeaderCheck, INDEX_ENTRY_BYTES, VERSION};
use crate::disk::{Disk, DiskFile};
use crate::ledger::LedgerExtent;

/// A partition of one incarnation of a topic.
pub(crate) type Key = (TopicIncarnation, Partition);

/// Shared by the writer and all readers.
pub(crate) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    /// `data_dir/topics`.
    pub(super) topics: PathBuf,
    views: RwLock<BTreeMap<Key, View>>,
    open_files: Mutex<OpenFiles>,
}

/// What of a partition is written, hence visible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// In order, without gaps.
    pub(super) segments: Vec<SegmentExtent>,
    /// In order of their numbers.
    pub(crate) ledgers: Vec<LedgerExtent>,
}

/// What of a segment is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentExtent {
    pub(super) first_seq: Seq,
    pub(super) end_seq: Seq,
    pub(super) bytes: u64,
}

impl SegmentExtent {
    /// The length of the segment's index.
    pub(super) fn index_bytes(&self) -> u64 {
        FILE_HEADER_BYTES as u64 + self.end_seq.above(self.first_seq) * INDEX_ENTRY_BYTES as u64
    }
}

impl View {
    /// The segment that holds `seq`, or else the first one behind it.
    pub(super) fn segment_at(&self, seq: Seq) -> Option<SegmentExtent> {
        self.segments.get(self.segments.partition_point(|segment| segment.end_seq <= seq)).copied()
    }

    /// What a flush has written of a segment.
    pub(super) fn put_segment(&mut self, extent: SegmentExtent) {
        match self.segments.last_mut() {
            Some(last) if last.first_seq == extent.first_seq => *last = extent,
            _ => self.segments.push(extent),
        }
    }

    /// What a flush has written of a ledger file.
    pub(crate) fn put_ledger(&mut self, extent: LedgerExtent) {
        match self.ledgers.last_mut() {
            Some(last) if last.number == extent.number => *last = extent,
            _ => self.ledgers.push(extent),
        }
    }

    /// All that is written of the partition, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|extent| extent.bytes + extent.index_bytes()).sum();
        segments + self.ledgers.iter().map(|extent| extent.bytes).sum::<u64>()
    }
}

/// The files used last.
#[derive(Default)]
struct OpenFiles {
    files: BTreeMap<FileIdentity, (Arc<dyn DiskFile>, u64)>,
    uses: u64,
}

/// Far below the usual limit of 1,024 open files a process, which connections need too.
const MAX_OPEN_FILES: usize = 256;

impl Shared {
    pub(super) fn new(disk: Arc<dyn Disk>, topics: PathBuf) -> Self {
        Self { disk, topics, views: RwLock::default(), open_files: Mutex::default() }
    }

    /// Looks at what is written of a partition; nothing is, if it is unknown.
    pub(crate) fn view<T>(&self, key: Key, look: impl FnOnce(&View) -> T) -> Option<T> {
        // A panic elsewhere cannot leave a view half-changed: each change is a single push or assignment.
        self.views.read().unwrap_or_else(PoisonError::into_inner).get(&key).map(look)
    }

    /// Makes written bytes visible.
    pub(crate) fn publish(&self, key: Key, change: impl FnOnce(&mut View)) {
        change(self.views.write().unwrap_or_else(PoisonError::into_inner).entry(key).or_default());
    }

    /// What is written of every partition.
    pub(super) fn views(&self) -> BTreeMap<Key, View> {
        self.views.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets the partitions of topics for which `gone` says so.
    pub(super) fn forget_views(&self, gone: impl Fn(TopicIncarnation) -> bool) {
        let mut views = self.views.write().unwrap_or_else(PoisonError::into_inner);
        views.retain(|(topic, _), _| !gone(*topic));
    }

    /// Closes the files of topics for which `gone` says so.
    pub(super) fn close_files(&self, gone: impl Fn(TopicIncarnation) -> bool) {
        self.open_files().files.retain(|identity, _| !gone(identity.topic));
    }

    /// Closes one file.
    pub(super) fn close_file(&self, identity: FileIdentity) {
        self.open_files().files.remove(&identity);
    }

    /// The file's path.
    pub(crate) fn path(&self, identity: &FileIdentity) -> PathBuf {
        identity.path(&self.topics)
    }

    /// Makes a file, and its folder if it is the first there. Its header is the writer's to write.
    pub(super) fn create(&self, identity: FileIdentity) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create_dir_all(&identity.folder(&self.topics))?;
        let file = self.disk.create_new(&self.path(&identity))?;
        self.open_files().keep(identity, file.clone());
        Ok(file)
    }

    /// Opens a file and checks its header, or takes it from those that are open.
    pub(crate) fn open(&self, identity: FileIdentity) -> Result<Arc<dyn DiskFile>, ReadError> {
        if let Some(file) = self.open_files().take(&identity) {
            return Ok(file);
        }
        // Opened without the lock, so that a slow disk does not hold up reads of open files.
        let path = self.path(&identity);
        let failed = |source| ReadError::Io { path: path.clone(), offset: 0, source };
        let file = self.disk.open(&path).map_err(failed)?;
        let mut header = [0; FILE_HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(|source| read_error(&path, 0, source))?;
        match identity.check(&header) {
            HeaderCheck::Good => {}
            HeaderCheck::UnknownVersion(found) => {
                return Err(ReadError::UnknownVersion { path, found, supported: VERSION });
            }
            HeaderCheck::Damaged(what) => return Err(ReadError::Corrupt { path, offset: 0, what }),
        }
        self.open_files().keep(identity, file.clone());
        Ok(file)
    }

    fn open_files(&self) -> MutexGuard<'_, OpenFiles> {
        self.open_files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenFiles {
    fn take(&mut self, identity: &FileIdentity) -> Option<Arc<dyn DiskFile>> {
        self.uses += 1;
        let (file, last_use) = self.files.get_mut(identity)?;
        *last_use = self.uses;
        Some(file.clone())
    }

    fn keep(&mut self, identity: FileIdentity, file: Arc<dyn DiskFile>) {
        self.uses += 1;
        self.files.insert(identity, (file, self.uses));
        if self.files.len() > MAX_OPEN_FILES {
            let oldest = self.files.iter().min_by_key(|(_, (_, last_use))| *last_use).map(|(identity, _)| *identity);
            self.files.remove(&oldest.expect("there are more than MAX_OPEN_FILES"));
        }
    }
}

/// A file that ends where written bytes should be is damaged; all else is the disk's failure.
pub(crate) fn read_error(path: &Path, offset: u64, source: io::Error) -> ReadError {
    let path = path.to_path_buf();
    if source.kind() == io::ErrorKind::UnexpectedEof {
        return ReadError::Corrupt { path, offset, what: "the file was cut short" };
    }
    ReadError::Io { path, offset, source }
}
