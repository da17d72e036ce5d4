//! Tests of checkpoints: what they list comes back, damage is named, crashes lose nothing.

mod crash;
mod damage;
mod every_subset;
mod faults;

mod model;
mod restore;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::{CommitIndex, Epoch, KeyHash, Partition, Seq, ShardId, TopicIncarnation, WallTime};

use super::{CheckpointMeta, LoadedCheckpoint, load_checkpoint};
use crate::disk::{Disk, MemoryDisk};
use crate::journal::{Journal, JournalOptions};
use crate::ledger::LedgerRecord;
use crate::segment::{SegmentOptions, SegmentRecord, SegmentWriter};

const DATA_DIR: &str = "data";
const SHARD: ShardId = ShardId::new(7);

fn open_writer(disk: &MemoryDisk) -> SegmentWriter {
    let options = SegmentOptions { segment_bytes: 1500, push_bytes: 700 };
    SegmentWriter::open(Arc::new(disk.clone()), Path::new(DATA_DIR), options).expect("opened")
}

fn make_journal(disk: &MemoryDisk) {
    let options = JournalOptions { file_bytes: 8 << 10, ..JournalOptions::new(SHARD) };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Journal::recover(disk, Path::new(DATA_DIR), options, Bytes::new(), None, &mut |_| Ok(())).expect("a journal");
}

fn record(topic: u64, partition: u16, seq: u64, bytes: usize) -> SegmentRecord {
    let mut record: Vec<u8> = (0..bytes).map(|byte| (byte as u64 * 7 + seq + topic) as u8).collect();
    record.extend(crc32c::crc32c(&record).to_le_bytes());
    SegmentRecord {
        topic: TopicIncarnation::new(topic),
        partition: Partition::new(partition),
        seq: Seq::new(seq),
        commit_index: CommitIndex::new(seq * 10),
        epoch: Epoch::new(1),
        published_at: WallTime::new(1_700_000_000_000 + seq),
        key_hash: KeyHash::new(seq % 4),
        payload_bytes: bytes as u32,
        expires_at_ms: 0,
        record: record.into(),
    }
}

fn event(topic: u64, partition: u16, seq: u64, bytes: usize) -> LedgerRecord {
    LedgerRecord {
        topic: TopicIncarnation::new(topic),
        partition: Partition::new(partition),
        first_seq: Seq::new(seq),
        count: 2,
        payload: vec![seq as u8; bytes].into(),
    }
}

fn meta(log_index: u64) -> CheckpointMeta {
    CheckpointMeta {
        shard: SHARD,
        log_index,
        term: 3,
        commit_index: CommitIndex::new(log_index * 2),
        membership: Bytes::from_static(b"nodes 1, 2 and 3"),
        last_stamp_ms: 1000 + log_index,
    }
}

fn load(disk: &MemoryDisk) -> LoadedCheckpoint {
    load_checkpoint(disk, Path::new(DATA_DIR)).expect("loaded").expect("a checkpoint")
}

fn checkpoint_file(log_index: u64) -> PathBuf {
    Path::new(DATA_DIR).join("checkpoints").join(format!("{log_index:020}.checkpoint"))
}

fn read(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

/// Every file below a directory, with its bytes, in the order of the names.
fn files_below(disk: &MemoryDisk, dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for name in disk.list(dir).unwrap_or_default() {
        let path = dir.join(name);
        if disk.list(&path).is_ok() {
            found.extend(files_below(disk, &path));
        } else {
            let bytes = read(disk, &path);
            found.push((path, bytes));
        }
    }
    found
}

fn topics() -> PathBuf {
    Path::new(DATA_DIR).join("topics")
}

/// Two topics with three partitions, several segments each, and a checkpoint of them at log index 30.
fn with_checkpoint() -> (MemoryDisk, SegmentWriter) {
    let disk = MemoryDisk::new();
    make_journal(&disk);
    let mut writer = open_writer(&disk);
    for seq in 1..=12 {
        writer.append(&[record(1, 0, seq, 300), record(1, 2, seq, 80), record(2, 0, seq, 10)]).expect("appended");
        writer.append_ledger(&[event(1, 0, seq, 200), event(2, 0, seq, 9)]).expect("appended");
    }
    let written = writer.checkpoint(&meta(30), b"the state").expect("a checkpoint");
    assert_eq!((written.files, written.removed), (files_below(&disk, &topics()).len() as u64, 0));
    assert!(written.files > 12, "several segments: {}", written.files);
    assert_eq!(written.bytes, read(&disk, &checkpoint_file(30)).len() as u64);
    (disk, writer)
}
