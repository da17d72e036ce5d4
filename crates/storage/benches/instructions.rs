//! How many instructions a journal batch and segment records cost, in this process: what the kernel does is not counted. A
//! count over its limit fails.
//!
//! `cargo bench --profile instructions -p mortarmq-storage --bench instructions`; docs/performance.md says what is needed, and
//! how a limit is set anew.

#![allow(missing_docs, reason = "the macros make public items")]

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use mortarmq_storage::{
    Disk, Journal, JournalBatch, JournalEntry, JournalOptions, RealDisk, SegmentOptions, SegmentRecord, SegmentWriter,
};
use mortarmq_types::{CommitIndex, Epoch, KeyHash, Partition, Seq, ShardId, TopicIncarnation, WallTime};
use tempfile::TempDir;

const RECORDS: u64 = 64;

/// What was measured, and 3 % more.
fn limit(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions + instructions * 3 / 100)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// A journal that has written before, so that what the next batch needs is filled with zeros.
fn journal(entry_bytes: usize) -> (TempDir, Journal, JournalBatch) {
    let folder = tempfile::tempdir().expect("a folder");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let options = JournalOptions::new(ShardId::ZERO);
    let (mut journal, _) =
        Journal::recover(disk, folder.path(), options, Bytes::new(), None, &mut |_| Ok(())).expect("a new journal");
    let batch = |index| JournalBatch {
        entries: vec![JournalEntry { index, term: 1, kind: 1, data: vec![7; entry_bytes].into() }],
        ..JournalBatch::default()
    };
    (1..4).for_each(|index| journal.append(&batch(index)).expect("written"));
    (folder, journal, batch(4))
}

/// A writer of four partitions that has written before, and the records that come next.
fn segments() -> (TempDir, SegmentWriter, Vec<SegmentRecord>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer =
        SegmentWriter::open(Arc::new(RealDisk), folder.path(), SegmentOptions::default()).expect("a new folder");
    for round in 0..3 {
        writer.append(&records(round)).expect("in order");
        writer.flush().expect("written");
    }
    (folder, writer, records(3))
}

fn records(round: u64) -> Vec<SegmentRecord> {
    let record = |place: u64| {
        let mut record = vec![b'm'; 290];
        record.extend(crc32c::crc32c(&record).to_le_bytes());
        SegmentRecord {
            topic: TopicIncarnation::new(1),
            partition: Partition::new(u16::try_from(place % 4).expect("below 4")),
            seq: Seq::new(1 + (round * RECORDS + place) / 4),
            commit_index: CommitIndex::new(1 + round * RECORDS + place),
            epoch: Epoch::new(1),
            published_at: WallTime::new(1_700_000_000_000),
            key_hash: KeyHash::new(0),
            payload_bytes: 264,
            expires_at_ms: 0,
            record: record.into(),
        }
    };
    (0..RECORDS).map(record).collect()
}

#[library_benchmark]
#[bench::one_message(args = (journal(350)), config = limit(5_897))]
#[bench::of_64_messages(args = (journal(64 * 350)), config = limit(25_362))]
fn append_journal_batch(
    (folder, mut journal, batch): (TempDir, Journal, JournalBatch),
) -> (TempDir, Journal, JournalBatch) {
    journal.append(black_box(&batch)).expect("written");
    black_box((folder, journal, batch))
}

#[library_benchmark]
#[bench::four_partitions(args = (segments()), config = limit(126_213))]
fn append_64_segment_records(
    (folder, mut writer, records): (TempDir, SegmentWriter, Vec<SegmentRecord>),
) -> (TempDir, SegmentWriter, Vec<SegmentRecord>) {
    writer.append(black_box(&records)).expect("in order");
    writer.flush().expect("written");
    black_box((folder, writer, records))
}

library_benchmark_group!(name = append; benchmarks = append_journal_batch, append_64_segment_records);
main!(library_benchmark_groups = append);
