//! Faults of the disk in memory besides power loss: short writes, places that cannot be read, flipped bits, slow syncs.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::image::Image;
use super::{MemoryDisk, Node, State, lock, normal};

impl MemoryDisk {
    /// Makes the write of this number write only so many of its bytes and then fail, as a device does that gives up in
    /// the midst. Another operation of this number fails as by [`MemoryDisk::fail_at`].
    pub fn short_write_at(&self, operation: u64, bytes: usize) {
        self.lock().short_at.insert(operation, bytes);
    }

    /// Makes every read of a file fail that touches one of these bytes, until the next call for the file; an empty range
    /// heals it. A power loss changes nothing about it.
    ///
    /// # Errors
    /// `NotFound` without the file.
    pub fn fail_reads(&self, path: &Path, bytes: Range<u64>) -> io::Result<()> {
        let image = self.image(path)?;
        let position = |byte| usize::try_from(byte).unwrap_or(usize::MAX);
        lock(&image).set_unreadable(position(bytes.start)..position(bytes.end));
        Ok(())
    }

    /// Flips one bit of a file, 0 to 7 from the lowest, also of what is durable. Nothing notices before it is read.
    ///
    /// # Errors
    /// `NotFound` without the file, `UnexpectedEof` if it ends before.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let image = self.image(path)?;
        let flipped = usize::try_from(offset).is_ok_and(|offset| lock(&image).flip(offset, 1 << (bit % 8)));
        if flipped { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// What a file holds, as a reader sees it.
    ///
    /// # Errors
    /// `NotFound` without the file.
    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(lock(&*self.image(path)?).current().to_vec())
    }

    /// Makes a file hold other bytes, as if it had always held them: durable, and nothing waits for a sync.
    ///
    /// # Errors
    /// `NotFound` without the file.
    pub fn replace(&self, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
        lock(&*self.image(path)?).replace(bytes);
        Ok(())
    }

    /// Makes every sync, of files and directories, take so long; other operations go on meanwhile.
    pub fn set_sync_latency(&self, latency: Duration) {
        self.lock().sync_latency = latency;
    }

    fn image(&self, path: &Path) -> io::Result<Arc<Mutex<Image>>> {
        match self.lock().node(&normal(path)?)? {
            Some(Node::File(image)) => Ok(image),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// What a sync takes. The disk is not locked meanwhile.
pub(super) fn wait(state: &Mutex<State>) {
    let latency = lock(state).sync_latency;
    if !latency.is_zero() {
        std::thread::sleep(latency);
    }
}
