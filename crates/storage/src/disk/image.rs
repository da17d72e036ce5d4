//! One file of the disk in memory: what is durable, what a reader sees, and the changes between the two.

use super::SECTOR_BYTES;
use super::random::Random;

/// A file's bytes, with what a power loss may do to them.
#[derive(Clone, Default)]
pub(super) struct Image {
    /// What a power loss leaves for certain.
    synced: Vec<u8>,
    /// What a reader sees.
    current: Vec<u8>,
    /// What lies between the two, oldest first.
    pending: Vec<Change>,
}

/// A change that no sync has covered yet.
#[derive(Clone)]
pub(super) enum Change {
    /// Bytes written at an offset.
    Write { offset: usize, bytes: Vec<u8> },
    /// The file cut or grown to a length.
    Length(usize),
}

impl Image {
    /// Makes a change that only readers see yet.
    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    /// The bytes as a reader sees them.
    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    /// Forgets the pending changes: they still read back, and nothing makes them durable any more.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Makes every pending change durable.
    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.synced);
        }
    }

    /// What a power loss leaves of the file.
    pub(super) fn survivor(&self, random: &mut Random) -> Self {
        let mut bytes = self.synced.clone();
        for change in &self.pending {
            change.apply_partly(&mut bytes, random);
        }
        Self { synced: bytes.clone(), current: bytes, pending: Vec::new() }
    }
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => put(image, *offset, bytes),
            Self::Length(length) => image.resize(*length, 0),
        }
    }

    /// Keeps the change, drops it, or (a write) keeps some of its sectors and the length it gave the file.
    fn apply_partly(&self, image: &mut Vec<u8>, random: &mut Random) {
        let kept = random.below(3);
        match self {
            Self::Write { offset, bytes } if kept == 1 => {
                let mut start = *offset;
                let end = offset + bytes.len();
                image.resize(image.len().max(end), 0);
                while start < end {
                    let stop = end.min((start / SECTOR_BYTES + 1) * SECTOR_BYTES);
                    if random.coin() {
                        put(image, start, &bytes[start - offset..stop - offset]);
                    }
                    start = stop;
                }
            }
            Self::Write { .. } | Self::Length(_) => {
                if kept == 0 {
                    self.apply(image);
                }
            }
        }
    }
}

fn put(image: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = offset + bytes.len();
    image.resize(image.len().max(end), 0);
    image[offset..end].copy_from_slice(bytes);
}
