//! A data directory with something of everything, for the tests of those who read it as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::{CommitIndex, Epoch, KeyHash, NodeId, Partition, Seq, ShardId, TopicIncarnation, WallTime};

use crate::disk::{Disk, MemoryDisk};
use crate::{
    CheckpointMeta, Covered, Identity, IdentityState, Journal, JournalBatch, JournalEntry, JournalOptions,
    LedgerRecord, SegmentOptions, SegmentRecord, SegmentWriter, load_checkpoint,
};

pub(crate) const DATA_DIR: &str = "data";
pub(crate) const TOPIC: TopicIncarnation = TopicIncarnation::new(0xA1);
pub(crate) const PARTITION: Partition = Partition::new(3);
pub(crate) const FOLDER: &str = "data/topics/00000000000000a1/3";

pub(crate) fn open_journal(disk: &MemoryDisk, covered: Option<Covered>) -> Journal {
    let options =
        JournalOptions { file_bytes: 16 << 10, zero_step_bytes: 16 << 10, ..JournalOptions::new(ShardId::ZERO) };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let members = Bytes::from_static(b"node 0");
    Journal::recover(disk, Path::new(DATA_DIR), options, members, covered, &mut |_| Ok(())).expect("a journal").0
}

pub(crate) fn batch(index: u64, bytes: usize) -> JournalBatch {
    let entry = JournalEntry { index, term: 1, kind: 1, data: vec![index as u8; bytes].into() };
    JournalBatch { entries: vec![entry], ..JournalBatch::default() }
}

pub(crate) fn record(seq: u64) -> SegmentRecord {
    let mut record: Vec<u8> = (0..100).map(|byte| (byte * 7 + seq) as u8).collect();
    record.extend(crc32c::crc32c(&record).to_le_bytes());
    SegmentRecord {
        topic: TOPIC,
        partition: PARTITION,
        seq: Seq::new(seq),
        commit_index: CommitIndex::new(seq),
        epoch: Epoch::new(1),
        published_at: WallTime::new(1_700_000_000_000 + seq),
        key_hash: KeyHash::new(seq % 4),
        payload_bytes: 100,
        expires_at_ms: 0,
        record: record.into(),
    }
}

pub(crate) fn event(seq: u64) -> LedgerRecord {
    let payload = vec![seq as u8; 30].into();
    LedgerRecord { topic: TOPIC, partition: PARTITION, first_seq: Seq::new(seq), count: 1, payload }
}

pub(crate) fn write_identity(disk: &MemoryDisk) {
    let (node_id, incarnation) = (NodeId::new(1), Identity::FIRST_INCARNATION);
    let identity =
        Identity { cluster_id: [7; 16], node_id, incarnation, peers: vec![node_id], state: IdentityState::Made };
    identity.write(disk, Path::new(DATA_DIR)).expect("an identity");
}

pub(crate) fn append(segments: &mut SegmentWriter, seqs: std::ops::Range<u64>) {
    segments.append(&seqs.clone().map(record).collect::<Vec<_>>()).expect("appended");
    segments.append_ledger(&seqs.map(event).collect::<Vec<_>>()).expect("appended");
    segments.flush().expect("flushed");
}

/// A data directory with all kinds of files: four journal files, three segments, a checkpoint, and bytes behind it.
pub(crate) fn folder() -> MemoryDisk {
    folder_with_writer().0
}

/// The same, with the writer that goes on.
pub(crate) fn folder_with_writer() -> (MemoryDisk, SegmentWriter) {
    let disk = MemoryDisk::new();
    write_identity(&disk);
    let mut journal = open_journal(&disk, None);
    for index in 1..=5 {
        journal.append(&batch(index, 3_000 + index as usize * 300)).expect("appended");
    }
    let options = SegmentOptions { segment_bytes: 1_000, push_bytes: 700 };
    let mut segments = SegmentWriter::open(Arc::new(disk.clone()), Path::new(DATA_DIR), options).expect("opened");
    append(&mut segments, 1..16);
    checkpoint(&mut segments, 3);
    append(&mut segments, 16..19);
    (disk, segments)
}

pub(crate) fn checkpoint(segments: &mut SegmentWriter, log_index: u64) {
    let commit_index = CommitIndex::new(log_index);
    let meta = CheckpointMeta { log_index, term: 1, commit_index, ..CheckpointMeta::default() };
    segments.checkpoint(&meta, b"the state").expect("a checkpoint");
}

pub(crate) fn read(disk: &MemoryDisk, path: &Path) -> Option<Vec<u8>> {
    let file = disk.open(path).ok()?;
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    Some(bytes)
}

pub(crate) fn files(disk: &MemoryDisk, dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for path in disk.list(dir).expect("listed").into_iter().map(|name| dir.join(name)) {
        match read(disk, &path) {
            Some(bytes) => found.push((path, bytes)),
            None => found.extend(files(disk, &path)),
        }
    }
    found
}

pub(crate) fn write(disk: &MemoryDisk, path: &Path, offset: u64, bytes: &[u8]) {
    disk.open(path).and_then(|file| file.write_all_at(bytes, offset)).expect("written");
}

pub(crate) fn flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    let byte = read(disk, path).expect("there")[offset as usize];
    write(disk, path, offset, &[byte ^ (1 << (offset % 8))]);
}

pub(crate) fn length(disk: &MemoryDisk, path: &Path) -> u64 {
    disk.open(path).and_then(|file| file.len()).expect("there")
}

pub(crate) fn listed_bytes(disk: &MemoryDisk, path: &Path) -> u64 {
    let loaded = load_checkpoint(disk, Path::new(DATA_DIR)).expect("loaded").expect("a checkpoint");
    let listed = loaded.files.list().iter().find(|file| Path::new(DATA_DIR).join(&file.path) == *path);
    listed.map_or(0, |file| file.bytes)
}
