//! The end of a file that is being written: what is on disk, and what still waits in memory.

use std::io;
use std::sync::Arc;

use mortarmq_types::Mutant;

use super::FlushError;
use super::files::Shared;
use super::layout::FileIdentity;
use super::written::Sink;
use crate::disk::{DiskFile, is_full};

/// A growing file.
pub(crate) struct Tail {
    pub(crate) identity: FileIdentity,
    /// The file from its creation to its first write: until then it has no header by which it could be opened.
    fresh: Option<Arc<dyn DiskFile>>,
    written_bytes: u64,
    buffer: Vec<u8>,
}

impl Tail {
    /// A file that does not exist yet; its header is the first that waits.
    pub(crate) fn new(identity: FileIdentity) -> Self {
        let buffer = identity.header().to_vec();
        Self { identity, fresh: None, written_bytes: 0, buffer }
    }

    /// A file that a checkpoint lists and that goes on behind the listed bytes.
    pub(crate) fn restored(identity: FileIdentity, written_bytes: u64) -> Self {
        Self { identity, fresh: None, written_bytes, buffer: Vec::new() }
    }

    /// The file's length once everything is written.
    pub(crate) fn bytes(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    /// How many bytes wait.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Adds bytes in memory.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Writes what waits, in one write, and syncs the file if enough has gathered or it is `complete`.
    pub(crate) fn write(&mut self, sink: &mut Sink<'_>, complete: bool) -> Result<(), FlushError> {
        let shared = sink.shared;
        if !self.buffer.is_empty() {
            let file = self.file(shared)?;
            let offset = if Mutant::SegmentNotTruncated.is_on() {
                file.len().map_err(failed_write("read", shared, self.identity))?
            } else {
                self.written_bytes
            };
            // Only a write that names its offset may be repeated after a full disk: it writes the same bytes there.
            file.write_all_at(&self.buffer, offset).map_err(failed_write("write", shared, self.identity))?;
            self.fresh = None;
            self.written_bytes += self.buffer.len() as u64;
            sink.written.wrote(self.identity, &self.buffer);
            self.buffer.clear();
            self.buffer.shrink_to(KEPT_BUFFER_BYTES);
        }
        let unsynced_bytes = sink.written.unsynced_bytes(self.identity);
        if unsynced_bytes >= sink.options.push_bytes || (complete && unsynced_bytes > 0) {
            let failed = |source| FlushError::Io { doing: "sync", path: shared.path(&self.identity), source };
            shared.open(self.identity).map_err(FlushError::Reopen)?.sync_data().map_err(failed)?;
            sink.written.synced(self.identity);
        }
        Ok(())
    }

    fn file(&mut self, shared: &Shared) -> Result<Arc<dyn DiskFile>, FlushError> {
        if self.written_bytes > 0 {
            return shared.open(self.identity).map_err(FlushError::Reopen);
        }
        if let Some(file) = &self.fresh {
            return Ok(file.clone());
        }
        let file = shared.create(self.identity).map_err(failed_write("create", shared, self.identity))?;
        self.fresh = Some(file.clone());
        Ok(file)
    }
}

/// Makes the error of a write. The name is made only then: it costs more than the rest of a small write.
fn failed_write(doing: &'static str, shared: &Shared, identity: FileIdentity) -> impl FnOnce(io::Error) -> FlushError {
    move |source| {
        let path = shared.path(&identity);
        if is_full(&source) { FlushError::DiskFull { path } } else { FlushError::Io { doing, path, source } }
    }
}

/// With thousands of partitions, what each keeps between flushes must be small.
const KEPT_BUFFER_BYTES: usize = 16 << 10;
