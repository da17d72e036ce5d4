//! Tests of the journal: what goes in comes out, crashes lose nothing acknowledged, rot is never taken for a tear.

mod crash;
mod cut;
mod every_subset;
mod faults;
mod full;
mod release;
mod rot;
mod round_trip;
mod torn;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::ShardId;

use super::{Clock, HardState, Journal, JournalBatch, JournalEntry, JournalError, JournalOptions, Recovered};
use crate::disk::{Disk, MemoryDisk};

const DATA_DIR: &str = "data";

fn options() -> JournalOptions {
    JournalOptions { shard: ShardId::new(7), file_bytes: 32 << 10, zero_step_bytes: 8 << 10, spare_files: 2 }
}

fn membership() -> Bytes {
    Bytes::from_static(b"nodes 1, 2 and 3")
}

type Opened = Result<(Journal, Recovered, Vec<JournalBatch>), JournalError>;

fn recover_with(disk: &MemoryDisk, options: JournalOptions) -> Opened {
    let mut batches = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (journal, recovered) =
        Journal::recover(disk, Path::new(DATA_DIR), options, membership(), None, &mut |batch| {
            batches.push(batch);
            Ok(())
        })?;
    Ok((journal, recovered, batches))
}

fn recover(disk: &MemoryDisk) -> Opened {
    recover_with(disk, options())
}

fn path(number: u64) -> PathBuf {
    Path::new(DATA_DIR).join("journal").join(format!("{number:08}.journal"))
}

/// A batch with one entry for each size, no two alike.
fn batch(number: u64, sizes: &[usize]) -> JournalBatch {
    let entry = |(position, size): (usize, &usize)| JournalEntry {
        index: number * 100 + position as u64,
        term: number / 2,
        kind: (position % 3) as u8,
        data: (0..*size).map(|byte| (byte as u64 * 31 + number * 7 + position as u64) as u8).collect(),
    };
    JournalBatch {
        number,
        hard_state: HardState { term: number / 2, vote: number % 3, commit: number * 100 },
        clock: Clock { boot_id: [number as u8; 16], boot_ms: number * 11 },
        entries: sizes.iter().enumerate().map(entry).collect(),
    }
}

/// A journal with these batches, all acknowledged.
fn written(batches: &[JournalBatch]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let (mut journal, ..) = recover(&disk).expect("a new journal");
    for batch in batches {
        journal.append(batch).expect("appended");
    }
    disk
}

fn read(disk: &MemoryDisk, number: u64) -> Vec<u8> {
    let file = disk.open(&path(number)).expect("opened");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

fn overwrite(disk: &MemoryDisk, number: u64, offset: usize, bytes: &[u8]) {
    let file = disk.open(&path(number)).expect("opened");
    file.write_all_at(bytes, offset as u64).expect("written");
    file.sync_data().expect("synced");
}

/// The file and offset of a journal that was found rotten.
fn rotten(opened: Opened) -> (PathBuf, u64, String) {
    match opened {
        Err(JournalError::Rotten { path, offset, what }) => (path, offset, what),
        Err(other) => panic!("not rotten but: {other}"),
        Ok((_, recovered, batches)) => panic!("recovered {} batches: {recovered:?}", batches.len()),
    }
}
