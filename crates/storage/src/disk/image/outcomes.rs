//! All that a power loss may leave of one file.
//!
//! Sectors are independent of one another: what may stand in one follows from the writes that touch it, each kept or
//! dropped. So the outcomes are counted, and made one by one, without going through all subsets of all writes.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{Change, Image, put, sectors};
use crate::disk::SECTOR_BYTES;

/// What may be left of a file.
pub(in super::super) struct ImageOutcomes {
    synced: std::sync::Arc<Vec<u8>>,
    unreadable: Range<usize>,
    shapes: Vec<Shape>,
}

/// What may be left, given the file's length.
struct Shape {
    length: usize,
    /// Where each sector that may have changed begins, and what may stand in it.
    sectors: Vec<(usize, Vec<Vec<u8>>)>,
    count: usize,
}

impl Image {
    /// All that a power loss may leave; none if that is more than `limit`.
    pub(in super::super) fn outcomes(&self, limit: usize) -> Option<ImageOutcomes> {
        let changes: Vec<&Change> = self.unsynced().collect();
        let cuts = changes.iter().filter(|change| matches!(change, Change::Length(_))).count();
        if cuts > MAX_CUTS {
            return None;
        }
        let mut shapes = Vec::new();
        for kept_cuts in 0..1_usize << cuts {
            let mut cut = 0;
            let is_kept = |change: &&&Change| {
                let is_cut = matches!(change, Change::Length(_));
                cut += usize::from(is_cut);
                !is_cut || kept_cuts >> (cut - 1) & 1 == 1
            };
            let kept: Vec<&Change> = changes.iter().filter(is_kept).copied().collect();
            shapes.extend(self.shapes(&kept, limit)?);
        }
        let total = shapes.iter().try_fold(0_usize, |total, shape| total.checked_add(shape.count))?;
        let (synced, unreadable) = (self.synced.clone(), self.unreadable.clone());
        (total <= limit).then_some(ImageOutcomes { synced, unreadable, shapes })
    }

    /// The outcomes of these changes, of which no cut is dropped.
    fn shapes(&self, changes: &[&Change], limit: usize) -> Option<Vec<Shape>> {
        let lengths = lengths(self.synced.len(), changes);
        let longest = lengths.last().copied().unwrap_or(0);
        let mut touched = Vec::new();
        for start in (0..longest).step_by(SECTOR_BYTES) {
            let sector = start..longest.min(start + SECTOR_BYTES);
            if changes.iter().any(|change| change.touches(&sector)) {
                touched.push((start, self.contents(&sector, changes, limit)?));
            }
        }
        let mut shapes = Vec::new();
        for length in lengths {
            let mut shape = Shape { length, sectors: Vec::new(), count: 1 };
            for (start, contents) in touched.iter().filter(|(start, _)| *start < length) {
                let cut = |content: &Vec<u8>| content[..content.len().min(length - start)].to_vec();
                let contents: Vec<Vec<u8>> = contents.iter().map(cut).collect::<BTreeSet<_>>().into_iter().collect();
                shape.count = shape.count.checked_mul(contents.len()).filter(|count| *count <= limit)?;
                shape.sectors.push((*start, contents));
            }
            shapes.push(shape);
        }
        Some(shapes)
    }

    /// What may stand in a sector; none if that is more than `limit`.
    fn contents(&self, sector: &Range<usize>, changes: &[&Change], limit: usize) -> Option<BTreeSet<Vec<u8>>> {
        let mut content = vec![0; sector.len()];
        if let Some(synced) = self.synced.get(sector.start..) {
            let bytes = synced.len().min(sector.len());
            content[..bytes].copy_from_slice(&synced[..bytes]);
        }
        let mut contents = BTreeSet::from([content]);
        for change in changes.iter().filter(|change| change.touches(sector)) {
            match change {
                Change::Write { offset, bytes } => {
                    let (from, to) = (sector.start.max(*offset), sector.end.min(offset + bytes.len()));
                    let piece = &bytes[from - offset..to - offset];
                    let written = contents.iter().map(|content| {
                        let mut content = content.clone();
                        put(&mut content, from - sector.start, piece);
                        content
                    });
                    let written: Vec<_> = written.collect();
                    contents.extend(written);
                }
                Change::Length(length) => {
                    let end = length.saturating_sub(sector.start).min(sector.len());
                    let cut = |mut content: Vec<u8>| {
                        content[end..].fill(0);
                        content
                    };
                    contents = contents.into_iter().map(cut).collect();
                }
            }
            if contents.len() > limit {
                return None;
            }
        }
        Some(contents)
    }
}

impl ImageOutcomes {
    /// How many there are; at least one.
    pub(in super::super) fn count(&self) -> usize {
        self.shapes.iter().map(|shape| shape.count).sum()
    }

    /// One of them, by its number from 0 on.
    pub(in super::super) fn nth(&self, number: usize) -> Image {
        let mut choice = number;
        let mut shapes = self.shapes.iter();
        let shape = loop {
            let shape = shapes.next().expect("the number is below the count");
            if choice < shape.count {
                break shape;
            }
            choice -= shape.count;
        };
        let mut bytes = self.synced.to_vec();
        bytes.resize(shape.length, 0);
        for (start, contents) in &shape.sectors {
            put(&mut bytes, *start, &contents[choice % contents.len()]);
            choice /= contents.len();
        }
        Image::durable(bytes, self.unreadable.clone())
    }
}

impl Change {
    /// Whether it may change a byte of this range.
    fn touches(&self, range: &Range<usize>) -> bool {
        match self {
            Self::Write { offset, bytes } => *offset < range.end && range.start < offset + bytes.len(),
            Self::Length(length) => *length < range.end,
        }
    }
}

/// The lengths that the file may have, rising. One that grew by a write may have grown to the end of any of its sectors.
fn lengths(synced: usize, changes: &[&Change]) -> Vec<usize> {
    let mut lengths = BTreeSet::from([synced]);
    for change in changes {
        match change {
            Change::Write { offset, bytes } => {
                for end in sectors(*offset..offset + bytes.len()).into_iter().map(|sector| sector.end) {
                    let grown: Vec<_> = lengths.iter().map(|length| *length.max(&end)).collect();
                    lengths.extend(grown);
                }
            }
            Change::Length(length) => lengths = BTreeSet::from([*length]),
        }
    }
    lengths.into_iter().collect()
}

/// Each doubles the work; nobody cuts a file more often between two syncs.
const MAX_CUTS: usize = 4;
