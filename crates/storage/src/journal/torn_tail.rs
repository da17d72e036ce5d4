//! Torn or rotten: what a place in the journal means that holds no valid batch.
//!
//! # Source
//! Failure rule 3. A batch is *torn*, and may be cut, only if it is the last, starts where the last valid batch ends,
//! nothing valid of this generation follows, and at least one of its sectors shows an older generation or zero: then a
//! write never arrived, so the batch was never acknowledged. Anything else is *rotten* and is never cut.
//!
//! A device writes a sector whole or not at all, but a write call may end within one, and the process then ends. So a
//! first sector that begins as it should and makes no sense is torn too if no other sector of the batch arrived. A batch
//! that was acknowledged has at least seven more, so damage to one sector is never taken for that. A write that ends within
//! the last sector of a batch leaves none that shows an older generation: that cannot be told from damage, and is refused
//! (`docs/decisions/011-a-write-that-ends-within-a-sector.md`). What a start leaves that is hit while it cuts is not judged
//! here: the file's name says what it is (`cut.rs`).

use std::path::Path;

use mortarmq_types::Mutant;

use super::JournalError;
use super::layout::{BLOCK_BYTES, BatchHeader, Mark, Parsed, Place, VERSION, is_begun};
use crate::disk::{SECTOR_BYTES, Window};

/// How a file's batches end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    /// Nothing was written behind the last valid batch, or nothing of it arrived.
    Clean,
    /// A batch that was never acknowledged reaches up to `end`.
    Torn { end: u64 },
}

/// Judges what stands at `place`, where no valid batch was found.
///
/// `batches_end` is how far the file was zero-filled and synced, hence how far a batch can reach; `is_last_file` says
/// that no file follows, not even an unfinished one: a file is begun only after the batch before it was synced.
///
/// # Errors
/// [`JournalError::Rotten`] with the reason; [`JournalError::UnknownVersion`] for a sound batch of another version.
pub(super) fn judge(
    window: &mut Window,
    path: &Path,
    place: &Place,
    batches_end: u64,
    is_last_file: bool,
) -> Result<Tail, JournalError> {
    let judged = judge_strictly(window, path, place, batches_end, is_last_file);
    if Mutant::RottenCutAsTorn.is_on() && is_last_file && matches!(judged, Err(JournalError::Rotten { .. })) {
        return Ok(Tail::Torn { end: place.offset + BLOCK_BYTES as u64 });
    }
    judged
}

fn judge_strictly(
    window: &mut Window,
    path: &Path,
    place: &Place,
    batches_end: u64,
    is_last_file: bool,
) -> Result<Tail, JournalError> {
    let rotten = |offset, what: String| Err(JournalError::rotten(path, offset, what));
    let claimed_end = match first_sector(window, path, place)? {
        First::Damaged(_) if is_last_file && is_only_begun(window, path, place)? => {
            return Ok(Tail::Torn { end: place.offset + BLOCK_BYTES as u64 });
        }
        First::Damaged(what) => return rotten(place.offset, what),
        First::Whole { end } if end > batches_end => {
            return rotten(place.offset, format!("the file ends inside batch {}", place.batch));
        }
        First::Whole { end } => Some(end),
        First::Unwritten => None,
    };
    let mut own_end = place.offset;
    let mut last_foreign = None;
    let mut unwritten_sector = claimed_end.is_none();
    let mut offset = place.offset;
    while offset < window.sectors_end() {
        let inside = claimed_end.is_none_or(|end| offset < end);
        let sector = window.read(offset, SECTOR_BYTES).map_err(JournalError::unreadable(path, offset))?;
        match Mark::of(sector, place.generations, offset) {
            Mark::Zero | Mark::Older => unwritten_sector |= inside,
            Mark::Batch(batch) if batch == place.batch && inside => own_end = offset + SECTOR_BYTES as u64,
            Mark::Batch(batch) => {
                let what =
                    format!("batch {} is missing or damaged, yet batch {batch} was written behind it", place.batch);
                return rotten(place.offset, what);
            }
            // The write ended here, and what it wrote before did not arrive.
            Mark::Foreign if claimed_end.is_none() && is_begun(sector, place, offset) => {
                own_end = offset + SECTOR_BYTES as u64;
            }
            Mark::Foreign => last_foreign = Some(offset),
        }
        offset += SECTOR_BYTES as u64;
    }
    let end = claimed_end.unwrap_or(own_end.next_multiple_of(BLOCK_BYTES as u64));
    if let Some(offset) = last_foreign.filter(|offset| *offset >= end) {
        return rotten(offset, "bytes that the journal did not write".to_owned());
    }
    if end == place.offset {
        return Ok(Tail::Clean);
    }
    if !unwritten_sector {
        return rotten(place.offset, format!("batch {} was written whole and fails its checksum", place.batch));
    }
    if !is_last_file {
        return rotten(place.offset, format!("batch {} is incomplete, yet another file follows", place.batch));
    }
    Ok(Tail::Torn { end })
}

/// What the first sector of a batch turned out to be.
enum First {
    Unwritten,
    /// It says where the batch ends.
    Whole {
        end: u64,
    },
    /// Not what was written.
    Damaged(String),
}

/// Whether a write may have ended within the first sector of the batch at `place`: none behind it was ever written.
fn is_only_begun(window: &mut Window, path: &Path, place: &Place) -> Result<bool, JournalError> {
    let first = window.read(place.offset, SECTOR_BYTES).map_err(JournalError::unreadable(path, place.offset))?;
    if !is_begun(first, place, place.offset) {
        return Ok(false);
    }
    let mut offset = place.offset + SECTOR_BYTES as u64;
    while offset < window.sectors_end() {
        let sector = window.read(offset, SECTOR_BYTES).map_err(JournalError::unreadable(path, offset))?;
        match Mark::of(sector, place.generations, offset) {
            Mark::Zero | Mark::Older => offset += SECTOR_BYTES as u64,
            Mark::Batch(_) | Mark::Foreign => return Ok(false),
        }
    }
    Ok(true)
}

/// What the batch at `place` says of itself.
fn first_sector(window: &mut Window, path: &Path, place: &Place) -> Result<First, JournalError> {
    let sector = window.read(place.offset, SECTOR_BYTES).map_err(JournalError::unreadable(path, place.offset))?;
    let rotten = |what: String| Err(JournalError::rotten(path, place.offset, what));
    match Mark::of(sector, place.generations, place.offset) {
        Mark::Zero | Mark::Older => return Ok(First::Unwritten),
        Mark::Batch(batch) if batch == place.batch => {}
        Mark::Batch(batch) => return rotten(format!("batch {batch} stands where batch {} belongs", place.batch)),
        Mark::Foreign => return Ok(First::Damaged(format!("the first sector of batch {} is damaged", place.batch))),
    }
    let header = match BatchHeader::parse(sector, place.generations) {
        Parsed::Good(header) => header,
        Parsed::UnknownVersion(found) => {
            let (path, offset) = (path.to_path_buf(), place.offset);
            return Err(JournalError::UnknownVersion { path, offset, found, supported: VERSION });
        }
        Parsed::Damaged => {
            return Ok(First::Damaged(format!("the header of batch {} fails its checksum", place.batch)));
        }
    };
    if header.is_of_earlier_use(place) {
        // The mark is new, what follows is not.
        return Ok(First::Damaged(format!("the header of batch {} is that of an older one", place.batch)));
    }
    if let Some(what) = header.misplaced(place) {
        return rotten(what.to_owned());
    }
    let end = header.disk_bytes().and_then(|bytes| place.offset.checked_add(bytes));
    end.map_or_else(
        || rotten(format!("batch {} has an impossible length", place.batch)),
        |end| Ok(First::Whole { end }),
    )
}
