//! Reads a file from front to back in large pieces.

use std::io;
use std::sync::Arc;

use super::{DiskFile, SECTOR_BYTES};

/// A moving window over a file. What lies beyond the file's end reads as zero, as a file that was never extended there.
pub(crate) struct Window {
    file: Arc<dyn DiskFile>,
    file_bytes: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl Window {
    /// A window over the whole file.
    pub(crate) fn open(file: Arc<dyn DiskFile>) -> io::Result<Self> {
        let file_bytes = file.len()?;
        Ok(Self::over(file, file_bytes))
    }

    /// A window over the first `file_bytes` of a file that may still grow.
    pub(crate) fn over(file: Arc<dyn DiskFile>, file_bytes: u64) -> Self {
        Self { file, file_bytes, start: 0, buffer: Vec::new() }
    }

    /// The file that is read.
    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// The file's length, in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The file's length in whole sectors, the last one filled up.
    pub(crate) fn sectors_end(&self) -> u64 {
        self.file_bytes.next_multiple_of(SECTOR_BYTES as u64)
    }

    /// The bytes at an offset. The caller has checked that `bytes` is no more than the file can hold.
    pub(crate) fn read(&mut self, offset: u64, bytes: usize) -> io::Result<&[u8]> {
        let covered = offset >= self.start && offset + bytes as u64 <= self.start + self.buffer.len() as u64;
        if !covered {
            self.buffer.clear();
            self.start = offset;
            let left = self.file_bytes.saturating_sub(offset);
            // Whole sectors, so that only the file's end is filled up.
            let wanted = bytes.max(WINDOW_BYTES).next_multiple_of(SECTOR_BYTES) as u64;
            // At most the file's length or `bytes`, and both fit in memory.
            let there = left.min(wanted) as usize;
            self.buffer = match self.read_from_file(offset, there) {
                // What was read ahead may be what fails, and is no reason to hold back what was asked for.
                Err(_) if there > bytes => self.read_from_file(offset, bytes)?,
                read => read?,
            };
            if offset + self.buffer.len() as u64 >= self.file_bytes {
                let padded = self.buffer.len().next_multiple_of(SECTOR_BYTES).max(bytes);
                self.buffer.resize(padded, 0);
            }
        }
        let from = (offset - self.start) as usize;
        Ok(&self.buffer[from..from + bytes])
    }

    fn read_from_file(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        if bytes > 0 {
            self.file.read_exact_at(&mut buffer, offset)?;
        }
        Ok(buffer)
    }
}

/// Large enough that small pieces cost no system call each, small enough to forget.
const WINDOW_BYTES: usize = 1 << 20;
