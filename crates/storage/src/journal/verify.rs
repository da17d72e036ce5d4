//! Checking the journal without opening it: the scan of recovery, which goes on behind what is damaged.

use std::io;
use std::path::Path;

use mortarmq_types::ShardId;

use super::layout::{BLOCK_BYTES, BatchHeader, FileHeader, Mark, Parsed};
use super::name::{ListedFile, file_path, listed};
use super::recover::{Replay, SECOND_OF_A_NUMBER};
use super::roll::filled_bytes;
use super::torn_tail::Tail;
use super::{JOURNAL_DIR, JournalBatch, JournalError, JournalOptions};
use crate::disk::{Disk, SECTOR_BYTES, Window};
use crate::verify::{Report, VerifyError, chain, list};

/// Checks every file, and says whether there is any. `covered` is the log index of the checkpoint, if there is one.
pub(crate) fn verify(
    disk: &dyn Disk,
    data_dir: &Path,
    covered: Option<u64>,
    report: &mut Report<'_>,
) -> Result<bool, VerifyError> {
    let dir = data_dir.join(JOURNAL_DIR);
    let files = listed(&dir, &list(disk, &dir)?);
    let Some(first) = files.first().map(|file| file.number) else {
        if covered.is_some() {
            report.damage(&dir, 0, "there is a checkpoint, but the journal that goes on from it is missing");
        }
        return Ok(false);
    };
    let mut lowest_index = None;
    let mut on_batch = |batch: JournalBatch| {
        let index = batch.entries.iter().map(|entry| entry.index).min();
        lowest_index = lowest_index.or(index);
        Ok(())
    };
    // One node has one shard so far, and its number is zero.
    let options = JournalOptions::new(ShardId::ZERO);
    let mut replay = Replay::new(disk, options, covered.is_some(), &mut on_batch);
    let mut expected = if covered.is_some() { first } else { 1 };
    for file in &files {
        if file.number < expected {
            report.damaged_file(disk, &file.path, 0, SECOND_OF_A_NUMBER);
            continue;
        }
        for missing in expected..file.number {
            report.damage(&file_path(&dir, missing), 0, "the file is missing");
            replay.resume_at(1, 0);
        }
        expected = file.number + 1;
        verify_file(&mut replay, disk, file, report);
    }
    if let Some(path) = &replay.recovered.unfinished_file {
        report.note(path, 0, "a file that was begun and not finished; the next start removes it");
    }
    if let (Some(covered), Some(lowest)) = (covered, lowest_index)
        && lowest > covered.saturating_add(1)
    {
        let what = format!("the journal begins with entry {lowest}, but the checkpoint ends with entry {covered}");
        report.damage(&file_path(&dir, first), 0, what);
    }
    Ok(true)
}

/// Checks one file to its end, past whatever is damaged in it.
fn verify_file(replay: &mut Replay<'_>, disk: &dyn Disk, file: &ListedFile, report: &mut Report<'_>) {
    let path = &*file.path;
    report.read(disk.open(path).and_then(|file| file.len()).unwrap_or(0));
    let mut replayed = replay.file(file);
    while let Err(error) = replayed {
        let (damaged, offset, what) = match error {
            JournalError::Rotten { path, offset, what } => (path, offset, what),
            JournalError::Unreadable { path, offset, source } => (path, offset, format!("it cannot be read: {source}")),
            error => {
                let offset = if let JournalError::UnknownVersion { offset, .. } = &error { *offset } else { 0 };
                report.damage(path, offset, chain(&error));
                replay.resume_at(1, 0);
                return;
            }
        };
        report.damage(&damaged, offset, what);
        // A file that is damaged at its header may hold any batch.
        let missing = if offset == 0 { 0 } else { replay.next_batch };
        // What follows is told by what it says of itself: this file's header, or the next batch header in it.
        replay.resume_at(1, 0);
        if damaged != path {
            replayed = replay.file(file);
            continue;
        }
        replayed = match next_batch(disk, path, offset, missing) {
            Ok(None) => return,
            Ok(Some(next)) => {
                replay.resume_at(next.batch, next.previous_hash);
                replay.batches(next.window, file, next.header, next.offset)
            }
            Err(source) => return report.damage(path, offset, format!("what follows cannot be read: {source}")),
        };
    }
    let tail = replay.current.as_ref().filter(|current| current.path == path);
    if let Some((Tail::Torn { end }, begin)) = tail.map(|current| (current.tail, current.end)) {
        let bytes = end - begin;
        let what = format!("a crash left the last batch half-written ({bytes} bytes); the next start cuts it");
        report.note(path, begin, what);
    }
}

/// Goes on behind a damaged place of a file; nothing if no batch follows it there.
pub(super) fn go_on_behind(
    replay: &mut Replay<'_>,
    disk: &dyn Disk,
    file: &ListedFile,
    damaged: u64,
) -> Option<Result<(), JournalError>> {
    let missing = if damaged == 0 { 0 } else { replay.next_batch };
    let next = next_batch(disk, &file.path, damaged, missing).ok()??;
    replay.resume_at(next.batch, next.previous_hash);
    Some(replay.batches(next.window, file, next.header, next.offset))
}

/// Where a scan can go on.
struct Next {
    window: Window,
    header: FileHeader,
    offset: u64,
    batch: u64,
    previous_hash: u64,
}

/// The first batch behind a damaged place whose header is sound; none without a sound file header.
fn next_batch(disk: &dyn Disk, path: &Path, damaged: u64, missing: u64) -> io::Result<Option<Next>> {
    let mut window = Window::open(disk.open(path)?)?;
    let Parsed::Good(header) = FileHeader::parse(window.read(0, BLOCK_BYTES)?) else { return Ok(None) };
    let end = filled_bytes(&header, window.file_bytes());
    let block_bytes = BLOCK_BYTES as u64;
    let mut offset = damaged - damaged % block_bytes + block_bytes;
    while offset + block_bytes <= end {
        // What cannot be read here is part of the damage that was found.
        if let Ok(sector) = window.read(offset, SECTOR_BYTES)
            && let Mark::Batch(batch) = Mark::of(sector, header.generations(), offset)
            && batch > missing
            && let Parsed::Good(found) = BatchHeader::parse(sector, header.generations())
            && (found.place().file, found.place().offset, found.place().batch) == (header.file, offset, batch)
        {
            let previous_hash = found.place().previous_hash;
            return Ok(Some(Next { window, header, offset, batch, previous_hash }));
        }
        offset += block_bytes;
    }
    Ok(None)
}
