//! The lines of an index, as the walk through its segment needs them.

use std::path::{Path, PathBuf};

use mortarmq_types::Seq;

use super::checked::{Extent, at};
use crate::disk::{Disk, Window};
use crate::segment::layout::{FILE_HEADER_BYTES, FileIdentity, INDEX_ENTRY_BYTES, IndexLine, TOPICS_DIR};
use crate::verify::Report;

/// An index that is read along with its segment. Damage in it is found by the walk through the index itself.
pub(super) struct Lines {
    identity: FileIdentity,
    path: PathBuf,
    window: Window,
    listed_bytes: u64,
}

impl Lines {
    /// Opens an index; nothing if that cannot be.
    pub(super) fn open(disk: &dyn Disk, data_dir: &Path, identity: FileIdentity, extent: Extent<'_>) -> Option<Self> {
        let path = extent.place(disk, identity.path(&data_dir.join(TOPICS_DIR)));
        let window = extent.open(disk, &path).ok()?;
        Some(Self { identity, path, window, listed_bytes: extent.listed().map_or(0, |file| file.bytes) })
    }

    /// Where in the index the line of a sequence stands; nothing if it has none.
    pub(super) fn place(&self, seq: Seq) -> Option<u64> {
        let above = seq.get().checked_sub(self.identity.number)?.checked_mul(INDEX_ENTRY_BYTES as u64)?;
        let place = above.checked_add(FILE_HEADER_BYTES as u64)?;
        (place.checked_add(INDEX_ENTRY_BYTES as u64)? <= self.window.file_bytes()).then_some(place)
    }

    /// Where a record begins, by its line; nothing if the line is not sound.
    pub(super) fn offset(&mut self, seq: Seq) -> Option<u64> {
        let place = self.place(seq)?;
        let line = self.window.read(place, INDEX_ENTRY_BYTES).ok()?;
        IndexLine::parse(line, seq, self.identity.topic, self.identity.partition).map(|line| u64::from(line.offset))
    }

    /// Tells a sound line that leads elsewhere than to its record.
    pub(super) fn compare(&mut self, seq: Seq, offset: u64, report: &mut Report<'_>) {
        let (Some(place), Some(begin)) = (self.place(seq), self.offset(seq)) else { return };
        if begin != offset && place < self.listed_bytes {
            let what = format!("the line of record {seq} says {begin}, but the record begins at {offset}");
            report.damage_at(&self.path, place, Some(at(&self.identity, None)), what);
        }
    }
}
