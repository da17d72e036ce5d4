//! One file: what is durable, what a reader sees, and the changes between the two.
//!
//! # Invariants
//! 1. `pending_bytes` is the sum of the bytes of all pending writes.

use std::collections::VecDeque;
use std::ops::Range;

use fuser::Errno;

use crate::blocks::Blocks;
use crate::power::Loss;
use crate::random::Random;

/// The unit that a device writes whole or not at all.
///
/// # Units
/// Bytes.
pub(crate) const SECTOR_BYTES: usize = 512;

/// The longest file: a stray `truncate` must not take the machine's memory.
///
/// # Units
/// Bytes.
pub(crate) const MAX_FILE_BYTES: u64 = 4 << 30;

/// Bytes of pending writes above which the oldest become durable unasked, as a kernel writes back old pages. Bounds
/// memory.
const MAX_PENDING_BYTES: usize = 256 << 20;

/// A file's bytes, with what a power loss may do to them.
#[derive(Default)]
pub(crate) struct File {
    synced: Vec<u8>,
    current: Vec<u8>,
    pending: VecDeque<Change>,
    pending_bytes: usize,
    blocks: Blocks,
    unreadable: Vec<Range<u64>>,
}

/// A change that no sync has covered yet.
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl File {
    /// The length as a reader sees it.
    pub(crate) fn len(&self) -> usize {
        self.current.len()
    }

    /// The blocks that occupy space.
    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Bytes from `offset`, fewer than `size` at the end of the file.
    pub(crate) fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let end = offset.saturating_add(size as u64);
        if self.unreadable.iter().any(|range| range.start < end && offset < range.end) {
            return Err(Errno::EIO);
        }
        let start = usize::try_from(offset).map_or(self.current.len(), |offset| offset.min(self.current.len()));
        let end = start.saturating_add(size).min(self.current.len());
        Ok(self.current[start..end].to_vec())
    }

    /// Writes bytes that only readers see yet.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.blocks.occupy(offset, bytes.len());
        self.pending_bytes += bytes.len();
        self.change(Change::Write { offset, bytes: bytes.to_vec() });
        while self.pending_bytes > MAX_PENDING_BYTES {
            self.settle_oldest();
        }
    }

    /// Cuts or grows the file, for readers only yet; what is new reads as zero and occupies no space.
    pub(crate) fn set_len(&mut self, length: usize) {
        self.blocks.cut(length);
        self.change(Change::Length(length));
    }

    /// Occupies the blocks of a range without changing what is read.
    pub(crate) fn reserve(&mut self, offset: usize, size: usize) {
        self.blocks.occupy(offset, size);
    }

    /// Makes every change durable.
    pub(crate) fn sync(&mut self) {
        while self.settle_oldest() {}
    }

    /// Forgets the pending changes: they still read back, and nothing makes them durable any more.
    pub(crate) fn forget_pending(&mut self) {
        self.pending.clear();
        self.pending_bytes = 0;
    }

    /// Flips a bit of the durable bytes, and of what a reader sees unless a write there is pending.
    pub(crate) fn flip_bit(&mut self, offset: usize, mask: u8) -> Option<()> {
        let durable = self.synced.get_mut(offset)?;
        if let Some(seen) = self.current.get_mut(offset)
            && *seen == *durable
        {
            *seen ^= mask;
        }
        *durable ^= mask;
        Some(())
    }

    /// Makes every read that touches a range fail.
    pub(crate) fn fail_reads(&mut self, range: Range<u64>) {
        self.unreadable.push(range);
    }

    /// Makes every range readable again.
    pub(crate) fn heal_reads(&mut self) {
        self.unreadable.clear();
    }

    /// What a power loss leaves of the file.
    pub(crate) fn survivor(self, random: &mut Random, loss: &mut Loss) -> Self {
        let mut bytes = self.synced;
        for change in &self.pending {
            change.apply_partly(&mut bytes, random, loss);
        }
        let mut blocks = self.blocks;
        blocks.cut(bytes.len());
        blocks.occupy_filled(&bytes);
        Self { current: bytes.clone(), synced: bytes, blocks, unreadable: self.unreadable, ..Self::default() }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push_back(change);
    }

    /// Makes the oldest change durable; whether there was one.
    fn settle_oldest(&mut self) -> bool {
        let Some(change) = self.pending.pop_front() else { return false };
        if let Change::Write { bytes, .. } = &change {
            self.pending_bytes -= bytes.len();
        }
        change.apply(&mut self.synced);
        true
    }
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => put(image, *offset, bytes),
            Self::Length(length) => set_len(image, *length),
        }
    }

    /// Keeps the change, drops it, or (a write) keeps some of its sectors.
    fn apply_partly(&self, image: &mut Vec<u8>, random: &mut Random, loss: &mut Loss) {
        match self {
            Self::Write { offset, bytes } => write_partly(image, *offset, bytes, random, loss),
            Self::Length(length) if random.coin() => {
                loss.lengths_kept += 1;
                set_len(image, *length);
            }
            Self::Length(_) => loss.lengths_dropped += 1,
        }
    }
}

fn write_partly(image: &mut Vec<u8>, offset: usize, bytes: &[u8], random: &mut Random, loss: &mut Loss) {
    let fate = random.below(3);
    let (mut kept, mut dropped) = (0, 0);
    let end = offset + bytes.len();
    let mut start = offset;
    while start < end {
        let stop = end.min((start / SECTOR_BYTES + 1) * SECTOR_BYTES);
        let keeps = match fate {
            0 => true,
            1 => false,
            _ => random.coin(),
        };
        if keeps {
            put(image, start, &bytes[start - offset..stop - offset]);
            kept += 1;
        } else {
            dropped += 1;
        }
        start = stop;
    }
    // A length may reach the disk ahead of the bytes: then the file ends in zeros.
    if kept > 0 && dropped > 0 && image.len() < end && random.coin() {
        set_len(image, end);
    }
    loss.count_write(kept, dropped);
}

fn put(image: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if image.len() < offset {
        set_len(image, offset);
    }
    let overwritten = bytes.len().min(image.len() - offset);
    image[offset..offset + overwritten].copy_from_slice(&bytes[..overwritten]);
    image.extend_from_slice(&bytes[overwritten..]);
}

/// `Vec::resize` writes byte by byte in a build without optimisation; this stays fast there.
fn set_len(image: &mut Vec<u8>, length: usize) {
    if image.is_empty() {
        *image = vec![0; length];
    } else if length > image.len() {
        image.append(&mut vec![0; length - image.len()]);
    } else {
        image.truncate(length);
    }
}

#[cfg(test)]
mod tests;
