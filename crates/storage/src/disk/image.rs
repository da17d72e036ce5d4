//! One file of the disk in memory: what is durable, what a reader sees, and the changes between the two.

mod outcomes;

use std::ops::Range;
use std::sync::Arc;

use super::SECTOR_BYTES;
use super::random::Random;
pub(super) use outcomes::ImageOutcomes;

/// A file's bytes, with what a power loss may do to them.
#[derive(Clone, Default)]
pub(super) struct Image {
    /// What a power loss leaves for certain. Shared with copies of the disk until it changes.
    synced: Arc<Vec<u8>>,
    /// What a reader sees.
    current: Arc<Vec<u8>>,
    /// What lies between the two, oldest first.
    pending: Vec<Change>,
    /// The change during which the power went: any of it may survive although no reader saw it.
    caught: Option<Change>,
    /// Bytes whose read fails.
    unreadable: Range<usize>,
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
    /// A file of which all is durable.
    fn durable(bytes: Vec<u8>, unreadable: Range<usize>) -> Self {
        let bytes = Arc::new(bytes);
        Self { synced: bytes.clone(), current: bytes, pending: Vec::new(), caught: None, unreadable }
    }

    /// Makes a change that only readers see yet.
    pub(super) fn change(&mut self, change: Change) {
        change.apply(Arc::make_mut(&mut self.current));
        self.pending.push(change);
    }

    /// Notes a change during which the power went.
    pub(super) fn catch(&mut self, change: Change) {
        self.caught = Some(change);
    }

    /// The bytes as a reader sees them.
    pub(super) fn current(&self) -> &[u8] {
        &self.current
    }

    /// The file as another process sees it that is there without a power loss.
    pub(super) fn as_seen(&self) -> Self {
        Self { caught: None, ..self.clone() }
    }

    /// Forgets the pending changes: they still read back, and nothing makes them durable any more.
    pub(super) fn forget_pending(&mut self) {
        self.pending.clear();
    }

    /// Makes every pending change durable.
    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(Arc::make_mut(&mut self.synced));
        }
    }

    /// What a power loss leaves of the file, as the generator decides.
    pub(super) fn survivor(&self, random: &mut Random) -> Self {
        let mut bytes = self.synced.to_vec();
        for change in self.unsynced() {
            change.apply_partly(&mut bytes, random);
        }
        Self::durable(bytes, self.unreadable.clone())
    }

    /// Makes reads of these bytes fail, and no others.
    pub(super) fn set_unreadable(&mut self, bytes: Range<usize>) {
        self.unreadable = bytes;
    }

    /// Whether a read of these bytes fails.
    pub(super) fn is_unreadable(&self, bytes: &Range<usize>) -> bool {
        bytes.start.max(self.unreadable.start) < bytes.end.min(self.unreadable.end)
    }

    /// Flips bits of a byte, synced or not, and says whether the file has it.
    pub(super) fn flip(&mut self, offset: usize, bits: u8) -> bool {
        for change in &mut self.pending {
            if let Change::Write { offset: first, bytes } = change
                && let Some(byte) = offset.checked_sub(*first).and_then(|place| bytes.get_mut(place))
            {
                *byte ^= bits;
            }
        }
        for bytes in [&mut self.synced, &mut self.current] {
            if offset < bytes.len() {
                Arc::make_mut(bytes)[offset] ^= bits;
            }
        }
        offset < self.current.len()
    }

    /// Makes the file another.
    pub(super) fn replace(&mut self, bytes: Vec<u8>) {
        *self = Self::durable(bytes, self.unreadable.clone());
    }

    /// The changes that may be lost.
    fn unsynced(&self) -> impl Iterator<Item = &Change> {
        self.pending.iter().chain(&self.caught)
    }
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => put(image, *offset, bytes),
            Self::Length(length) => image.resize(*length, 0),
        }
    }

    /// Keeps the change, drops it, or (a write) keeps some of its sectors and a part of the length it gave the file.
    fn apply_partly(&self, image: &mut Vec<u8>, random: &mut Random) {
        let kept = random.below(3);
        match self {
            Self::Write { offset, bytes } if kept == 1 && !bytes.is_empty() => {
                let sectors = sectors(*offset..offset + bytes.len());
                let grown = sectors[random.below(sectors.len() as u64) as usize].end;
                image.resize(image.len().max(grown), 0);
                for sector in sectors {
                    if random.coin() && sector.end <= image.len() {
                        put(image, sector.start, &bytes[sector.start - offset..sector.end - offset]);
                    }
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

/// A range cut at the sectors' ends.
fn sectors(range: Range<usize>) -> Vec<Range<usize>> {
    let mut sectors = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min((start / SECTOR_BYTES + 1) * SECTOR_BYTES);
        sectors.push(start..end);
        start = end;
    }
    sectors
}

fn put(image: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = offset + bytes.len();
    image.resize(image.len().max(end), 0);
    image[offset..end].copy_from_slice(bytes);
}
