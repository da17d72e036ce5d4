//! What is appended is read back as it was, after a flush and not before; what is damaged is never served.

mod faults;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::{CommitIndex, Epoch, KeyHash, Partition, Seq, ShardId, TopicIncarnation, WallTime};
use proptest::prelude::*;

use super::{
    AppendError, FlushError, FolderError, ReadError, SegmentOptions, SegmentReader, SegmentRecord, SegmentWriter,
    StoredRecord,
};
use crate::checkpoint::CheckpointMeta;
use crate::disk::{Disk, MemoryDisk, RealDisk};
use crate::journal::{Journal, JournalOptions};
use crate::ledger::LedgerRecord;

const DATA_DIR: &str = "data";
const TOPIC: TopicIncarnation = TopicIncarnation::new(0xA1);
const PARTITION: Partition = Partition::new(3);

fn options() -> SegmentOptions {
    SegmentOptions { segment_bytes: 4096, push_bytes: 2048 }
}

fn open(disk: &MemoryDisk) -> SegmentWriter {
    SegmentWriter::open(Arc::new(disk.clone()), Path::new(DATA_DIR), options()).expect("opened")
}

fn record_in(topic: TopicIncarnation, partition: Partition, seq: u64, bytes: usize) -> SegmentRecord {
    let mut record: Vec<u8> = (0..bytes).map(|byte| (byte as u64 * 7 + seq) as u8).collect();
    record.extend(crc32c::crc32c(&record).to_le_bytes());
    SegmentRecord {
        topic,
        partition,
        seq: Seq::new(seq),
        commit_index: CommitIndex::new(seq * 10),
        epoch: Epoch::new(seq / 3),
        published_at: WallTime::new(1_700_000_000_000 + seq),
        key_hash: KeyHash::new(seq % 4 * 0x1_0000_0001),
        payload_bytes: bytes as u32,
        expires_at_ms: seq % 2 * (1_800_000_000_000 + seq),
        record: record.into(),
    }
}

fn record(seq: u64, bytes: usize) -> SegmentRecord {
    record_in(TOPIC, PARTITION, seq, bytes)
}

fn stored(record: &SegmentRecord) -> StoredRecord {
    StoredRecord {
        seq: record.seq,
        commit_index: record.commit_index,
        epoch: record.epoch,
        published_at: record.published_at,
        record: record.record.clone(),
    }
}

fn read(reader: &SegmentReader, from: u64, to: u64, max_bytes: usize) -> Result<Vec<StoredRecord>, ReadError> {
    reader.read_records(TOPIC, PARTITION, Seq::new(from), Seq::new(to), max_bytes)
}

fn seqs(records: &[StoredRecord]) -> Vec<u64> {
    records.iter().map(|record| record.seq.get()).collect()
}

/// Records 1 to 40 of 10 to 400 bytes, flushed: several segments.
fn forty(disk: &MemoryDisk) -> (SegmentWriter, Vec<SegmentRecord>) {
    let records: Vec<_> = (1..=40).map(|seq| record(seq, seq as usize * 10)).collect();
    let mut writer = open(disk);
    writer.append(&records).expect("appended");
    writer.flush().expect("flushed");
    (writer, records)
}

fn partition_files(disk: &dyn Disk, data_dir: &Path) -> Vec<String> {
    disk.list(&data_dir.join("topics/00000000000000a1/3")).expect("listed")
}

fn segment_path(first_seq: u64, kind: &str) -> PathBuf {
    Path::new(DATA_DIR).join("topics/00000000000000a1/3").join(format!("{first_seq:020}.{kind}"))
}

fn flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    let file = disk.open(path).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("written");
}

#[test]
fn records_and_index_come_back_as_they_were_over_many_segments() {
    let disk = MemoryDisk::new();
    let (writer, records) = forty(&disk);
    let reader = writer.reader();
    let all: Vec<_> = records.iter().map(stored).collect();
    assert_eq!(read(&reader, 1, 41, usize::MAX).expect("read"), all);
    assert_eq!(read(&reader, 7, 30, usize::MAX).expect("read"), all[6..29]);
    assert_eq!(read(&reader, 39, u64::MAX, usize::MAX).expect("read"), all[38..]);
    assert_eq!(reader.end_seq(TOPIC, PARTITION), Seq::new(41));
    for (from, max) in [(1, 100), (5, 3), (17, 24), (40, 1)] {
        let entries = reader.read_index(TOPIC, PARTITION, Seq::new(from), max).expect("read");
        assert_eq!(entries.len(), max.min(41 - from as usize));
        for (entry, record) in entries.iter().zip(&records[from as usize - 1..]) {
            assert_eq!((entry.seq, entry.key_hash), (record.seq, record.key_hash));
            assert_eq!((entry.payload_bytes, entry.expires_at_ms), (record.payload_bytes, record.expires_at_ms));
        }
    }
    let names = partition_files(&disk, Path::new(DATA_DIR));
    assert!(names.len() > 4 && names.len().is_multiple_of(2), "segments come with their indexes: {names:?}");
    assert_eq!(names[..2], ["00000000000000000001.index", "00000000000000000001.segment"]);
    let on_disk: u64 =
        names.iter().map(|name| disk.open(&segment_path(1, "x").with_file_name(name)).unwrap().len().unwrap()).sum();
    assert_eq!(reader.partition_bytes(TOPIC, PARTITION), on_disk);
}

#[test]
fn a_read_is_limited_by_bytes_and_always_gives_one_record() {
    let disk = MemoryDisk::new();
    let (writer, _) = forty(&disk);
    let reader = writer.reader();
    // Record 10 takes 44 bytes of position, 100 of content and 4 of checksum.
    assert_eq!(seqs(&read(&reader, 10, 41, 0).expect("read")), [10]);
    assert_eq!(seqs(&read(&reader, 10, 41, 148 + 157).expect("read")), [10]);
    assert_eq!(seqs(&read(&reader, 10, 41, 148 + 158).expect("read")), [10, 11]);
    assert_eq!(seqs(&read(&reader, 10, 10, 1000).expect("read")), [0; 0]);
    assert_eq!(seqs(&read(&reader, 41, 50, 1000).expect("read")), [0; 0]);
    let unknown = reader.read_records(TOPIC, Partition::new(4), Seq::FIRST, Seq::new(9), 1000).expect("read");
    assert!(unknown.is_empty());
}

#[test]
fn nothing_is_visible_or_on_disk_before_the_flush() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    let reader = writer.reader();
    let operations = disk.operations();
    writer.append(&[record(1, 10), record(2, 10)]).expect("appended");
    assert!(read(&reader, 1, 9, 1000).expect("read").is_empty());
    assert_eq!((disk.operations(), reader.end_seq(TOPIC, PARTITION)), (operations, Seq::FIRST));
    assert!(writer.buffered_bytes() > 0);
    writer.flush().expect("flushed");
    assert_eq!(writer.buffered_bytes(), 0);
    assert_eq!(seqs(&read(&reader, 1, 9, 1000).expect("read")), [1, 2]);
    let operations = disk.operations();
    writer.append(&(3..=20).map(|seq| record(seq, 10)).collect::<Vec<_>>()).expect("appended");
    writer.flush().expect("flushed");
    assert_eq!(disk.operations() - operations, 2, "one write for the segment, one for the index");
    assert_eq!(read(&reader, 1, 99, usize::MAX).expect("read").len(), 20);
}

#[test]
fn p10_a_sequence_that_is_not_the_next_is_refused() {
    let mut writer = open(&MemoryDisk::new());
    for (seq, expected) in [(2, 1), (0, 1)] {
        let refused = writer.append(&[record(seq, 1)]).expect_err("not the first");
        assert!(matches!(refused, AppendError::OutOfOrder { expected: next, .. } if next == Seq::new(expected)));
    }
    writer.append(&[record(1, 1), record(2, 1)]).expect("appended");
    writer.append(&[record_in(TOPIC, Partition::new(4), 1, 1)]).expect("another partition");
    for seq in [1, 2, 4] {
        let refused = writer.append(&[record(seq, 1)]).expect_err("not the next");
        assert!(matches!(refused, AppendError::OutOfOrder { expected, .. } if expected == Seq::new(3)), "{refused}");
    }
    writer.append(&[record(3, 1)]).expect("the next");
}

#[test]
fn p11_a_flipped_bit_in_any_byte_of_a_segment_is_never_served_and_one_of_an_index_hides_nothing() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    let records: Vec<_> = (1..=4).map(|seq| record(seq, 30)).collect();
    writer.append(&records).expect("appended");
    writer.flush().expect("flushed");
    let all: Vec<_> = records.iter().map(stored).collect();
    let reader_with_no_file_open = || {
        writer.shared.close_files(|_| true);
        writer.reader()
    };
    for kind in ["segment", "index"] {
        let path = segment_path(1, kind);
        let bytes = disk.open(&path).expect("opened").len().expect("length");
        for offset in 0..bytes {
            flip(&disk, &path, offset);
            let reader = reader_with_no_file_open();
            // The header of a segment stands for all its records.
            let damaged = (kind == "segment").then(|| offset.checked_sub(32).map_or(0, |offset| offset / 78 + 1));
            for seq in 1..=4 {
                match read(&reader, seq, 5, usize::MAX) {
                    Ok(found) => {
                        assert!(!found.is_empty(), "{kind} byte {offset}: an empty answer hides the damage");
                        assert_eq!(found, all[seq as usize - 1..][..found.len()], "{kind} byte {offset}");
                        let last = seq + found.len() as u64 - 1;
                        assert!(damaged.is_none_or(|damaged| !(seq..=last).contains(&damaged)), "{offset} is served");
                    }
                    Err(ReadError::Corrupt { path: found, offset: at, .. }) => {
                        let damaged = damaged.expect("a record whose index is damaged is found by those before it");
                        assert!(damaged == 0 || damaged == seq, "{kind} byte {offset}, record {seq}");
                        assert_eq!((found, at), (path.clone(), if damaged == 0 { 0 } else { 32 + (seq - 1) * 78 }));
                    }
                    Err(other) => panic!("{kind} byte {offset}: {other}"),
                }
            }
            flip(&disk, &path, offset);
        }
    }
    assert_eq!(read(&reader_with_no_file_open(), 1, 5, usize::MAX).expect("read"), all);
}

#[test]
fn p11_valid_bytes_in_the_wrong_place_are_never_served() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    let other = TopicIncarnation::new(0xA2);
    writer.append(&[record(1, 30), record(2, 30), record_in(other, PARTITION, 1, 30)]).expect("appended");
    writer.flush().expect("flushed");
    let reader = writer.reader();
    let segment = disk.open(&segment_path(1, "segment")).expect("opened");
    let elsewhere =
        disk.open(Path::new("data/topics/00000000000000a2/3/00000000000000000001.segment")).expect("opened");
    let mut bytes = [0; 78];
    // Record 1 where record 2 belongs, then the same record of another topic.
    segment.read_exact_at(&mut bytes, 32).expect("read");
    segment.write_all_at(&bytes, 32 + 78).expect("written");
    let error = read(&reader, 2, 3, 1000).expect_err("another sequence");
    assert!(matches!(&error, ReadError::Corrupt { offset: 110, .. }), "{error}");
    elsewhere.read_exact_at(&mut bytes, 32).expect("read");
    segment.write_all_at(&bytes, 32).expect("written");
    let error = read(&reader, 1, 2, 1000).expect_err("another topic");
    assert!(matches!(&error, ReadError::Corrupt { offset: 32, .. }), "{error}");
    // A whole file of another topic.
    writer.shared.close_files(|_| true);
    let mut file = vec![0; 110];
    elsewhere.read_exact_at(&mut file, 0).expect("read");
    segment.write_all_at(&file, 0).expect("written");
    let error = read(&reader, 1, 2, 1000).expect_err("another topic");
    assert!(error.to_string().ends_with("damaged at offset 0: the file belongs to another place"), "{error}");
}

#[test]
fn the_ledger_finds_a_sequence_s_history_in_order() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    let entry = |number: u64| LedgerRecord {
        topic: TOPIC,
        partition: PARTITION,
        first_seq: Seq::new(number % 50 + 1),
        count: (number % 7) as u32,
        payload: Bytes::from(vec![number as u8; number as usize]),
    };
    let entries: Vec<_> = (0..200).map(entry).collect();
    for part in entries.chunks(33) {
        writer.append_ledger(part).expect("appended");
        writer.flush().expect("flushed");
    }
    let reader = writer.reader();
    assert!(partition_files(&disk, Path::new(DATA_DIR)).len() > 3, "several files");
    for seq in 1..60 {
        let holds = |entry: &&LedgerRecord| {
            (entry.first_seq.get()..entry.first_seq.get() + u64::from(entry.count)).contains(&seq)
        };
        let expected: Vec<_> = entries.iter().filter(holds).map(|entry| entry.payload.clone()).collect();
        assert_eq!(reader.read_ledger(TOPIC, PARTITION, Seq::new(seq)).expect("read"), expected, "sequence {seq}");
    }
    assert!(reader.read_ledger(TOPIC, Partition::new(9), Seq::FIRST).expect("read").is_empty());
}

#[test]
fn p11_a_damaged_ledger_entry_is_named_and_not_served() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    let payload = Bytes::from_static(b"delivered, then acked");
    let entry =
        |seq| LedgerRecord { topic: TOPIC, partition: PARTITION, first_seq: seq, count: 1, payload: payload.clone() };
    writer.append_ledger(&[entry(Seq::new(1)), entry(Seq::new(2))]).expect("appended");
    writer.flush().expect("flushed");
    let path = segment_path(1, "x").with_file_name("0001.ledger");
    let bytes = disk.open(&path).expect("opened").len().expect("length");
    assert_eq!(bytes, 32 + 2 * 45);
    for offset in 0..bytes {
        flip(&disk, &path, offset);
        writer.shared.close_files(|_| true);
        let error = match writer.reader().read_ledger(TOPIC, PARTITION, Seq::new(2)) {
            Ok(found) => {
                assert!(
                    (32 + 24..32 + 45).contains(&offset),
                    "byte {offset}: only a payload not asked for is not looked at"
                );
                assert_eq!(found.first(), Some(&payload));
                writer.reader().read_ledger(TOPIC, PARTITION, Seq::new(1)).expect_err("the damaged payload")
            }
            Err(error) => error,
        };
        let begin = offset.checked_sub(32).map_or(0, |offset| 32 + offset / 45 * 45);
        assert!(
            matches!(&error, ReadError::Corrupt { path: found, offset, .. } if *found == path && *offset == begin),
            "{error}"
        );
        flip(&disk, &path, offset);
    }
}

#[test]
fn the_bytes_of_version_1_do_not_change() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    writer.append(&[record(1, 5)]).expect("appended");
    let (first_seq, payload) = (Seq::new(1), Bytes::from_static(b"acked"));
    writer
        .append_ledger(&[LedgerRecord { topic: TOPIC, partition: PARTITION, first_seq, count: 2, payload }])
        .expect("appended");
    writer.flush().expect("flushed");
    for (name, expected) in [
        ("00000000000000000001.segment", SEGMENT_FILE),
        ("00000000000000000001.index", INDEX_FILE),
        ("0001.ledger", LEDGER_FILE),
    ] {
        let file = disk.open(&segment_path(1, "x").with_file_name(name)).expect("opened");
        let mut bytes = vec![0; file.len().expect("length") as usize];
        file.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected, "{name}");
    }
}

const SEGMENT_FILE: &str = "4d4d515301002000a1000000000000000100000000000000030000000287c30509000000eee4644801000000000000000a0000000000000000000000000000000168e5cf8b010000dc0bfa3e01080f161ddc0bfa3e";
const INDEX_FILE: &str =
    "4d4d514901002000a100000000000000010000000000000003000000136e74c50100000001000000050000002000000001505c18a3018a99";
const LEDGER_FILE: &str = "4d4d4c5101002000a100000000000000010000000000000003000000907f167b050000000200000001000000000000009e598dc024f28b3d61636b6564";

/// Goal: a sound record is served under its own position only. Method: two records of one length change their bodies.
#[test]
fn p11_a_sound_record_under_another_position_is_not_served() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    let records: Vec<_> = (1..=3).map(|seq| record(seq, 100)).collect();
    writer.append(&records).expect("appended");
    writer.flush().expect("flushed");
    let file = disk.open(&segment_path(1, "segment")).expect("opened");
    let begin = |seq: u64| 32 + (seq - 1) * (44 + records[0].record.len() as u64) + 44;
    file.write_all_at(&records[1].record, begin(1)).expect("written");
    file.write_all_at(&records[0].record, begin(2)).expect("written");
    let reader = writer.reader();
    for seq in [1, 2] {
        match read(&reader, seq, 4, usize::MAX).expect_err("swapped") {
            ReadError::Corrupt { what, .. } => assert_eq!(what, "another record stands under its position"),
            other => panic!("not corrupt but: {other}"),
        }
    }
    assert_eq!(read(&reader, 3, 4, usize::MAX).expect("read"), [stored(&records[2])]);
}

#[test]
fn a_dropped_topic_is_gone_at_once_its_files_with_the_next_checkpoint_and_the_others_stay() {
    let disk = MemoryDisk::new();
    let (mut writer, records) = forty(&disk);
    let other = TopicIncarnation::new(0xA2);
    writer.append(&[record_in(other, PARTITION, 1, 10), record(41, 10)]).expect("appended");
    let reader = writer.reader();
    let files = partition_files(&disk, Path::new(DATA_DIR));
    writer.drop_topic(TOPIC);
    writer.drop_topic(TOPIC);
    writer.flush().expect("flushed");
    assert!(read(&reader, 1, 50, usize::MAX).expect("read").is_empty());
    assert_eq!((reader.partition_bytes(TOPIC, PARTITION), reader.end_seq(TOPIC, PARTITION)), (0, Seq::FIRST));
    assert!(reader.read_ledger(TOPIC, PARTITION, Seq::FIRST).expect("read").is_empty());
    writer.append(&[record(41, 10)]).expect("what comes late is not kept, and no error");
    assert_eq!(writer.buffered_bytes(), 0);
    assert_eq!(partition_files(&disk, Path::new(DATA_DIR)), files, "a replay may still need them");
    let written = writer.checkpoint(&CheckpointMeta::default(), b"").expect("a checkpoint");
    assert_eq!((written.files, written.removed), (2, files.len() as u64));
    assert_eq!(disk.list(Path::new("data/topics")).expect("listed"), ["00000000000000a2"]);
    assert_eq!(reader.read_records(other, PARTITION, Seq::FIRST, Seq::new(2), 99).expect("read").len(), 1);
    // A replay that begins before the topic was made writes it once more, from the start.
    writer.append(&records[..3]).expect("appended");
    writer.flush().expect("flushed");
    assert_eq!(seqs(&read(&reader, 1, 50, usize::MAX).expect("read")), [1, 2, 3]);
}

#[test]
fn rule_4_a_reset_empties_the_topics_only_if_there_is_a_journal_to_rebuild_them_from() {
    let disk = MemoryDisk::new();
    open(&disk).reset().expect("nothing to remove");
    drop(forty(&disk));
    let before = partition_files(&disk, Path::new(DATA_DIR));
    let mut writer = open(&disk);
    let refused = writer.reset().expect_err("no journal");
    assert!(matches!(refused, FolderError::JournalMissing { .. }), "{refused}");
    assert_eq!(partition_files(&disk, Path::new(DATA_DIR)), before);
    let journal_options = JournalOptions::new(ShardId::ZERO);
    let journal_disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Journal::recover(journal_disk, Path::new(DATA_DIR), journal_options, Bytes::new(), None, &mut |_| Ok(()))
        .expect("made");
    writer.reset().expect("emptied");
    assert!(disk.list(Path::new("data/topics")).expect("listed").is_empty());
    writer.append(&[record(1, 10)]).expect("appended");
    writer.flush().expect("flushed");
    writer.reset().expect("emptied, although files are open and known");
    assert!(read(&writer.reader(), 1, 9, 99).expect("read").is_empty());
    writer.append(&[record(1, 20)]).expect("from the start again");
    writer.flush().expect("flushed");
    assert_eq!(read(&writer.reader(), 1, 9, 99).expect("read"), [stored(&record(1, 20))]);
}

#[test]
fn rule_8_a_full_disk_pauses_the_writer_and_loses_nothing() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    writer.append(&[record(1, 50)]).expect("appended");
    disk.set_full(true);
    assert!(matches!(writer.flush(), Err(FlushError::DiskFull { .. })));
    writer.append(&[record(2, 50)]).expect("still taken");
    assert!(matches!(writer.flush(), Err(FlushError::DiskFull { .. })));
    assert!(read(&writer.reader(), 1, 9, 1000).expect("read").is_empty());
    disk.set_full(false);
    writer.flush().expect("flushed");
    disk.set_full(true);
    writer.append(&[record(3, 5000)]).expect("appended");
    assert!(matches!(writer.flush(), Err(FlushError::DiskFull { .. })));
    disk.set_full(false);
    writer.flush().expect("flushed");
    assert_eq!(seqs(&read(&writer.reader(), 1, 9, usize::MAX).expect("read")), [1, 2, 3]);
}

#[test]
fn rule_2_after_a_failed_write_or_sync_the_writer_takes_nothing_more() {
    let records: Vec<_> = (1..=40).map(|seq| record(seq, 200)).collect();
    let operations = {
        let disk = MemoryDisk::new();
        let mut writer = open(&disk);
        let before = disk.operations();
        writer.append(&records).expect("appended");
        writer.flush().expect("flushed");
        before + 1..=disk.operations()
    };
    assert!(operations.clone().count() > 12, "writes and syncs of several files");
    for operation in operations {
        let disk = MemoryDisk::new();
        let mut writer = open(&disk);
        disk.fail_at(operation);
        writer.append(&records).expect("appended");
        assert!(matches!(writer.flush(), Err(FlushError::Io { .. })), "operation {operation}");
        assert!(matches!(writer.flush(), Err(FlushError::Poisoned)));
        assert!(matches!(writer.append(&[record(41, 1)]), Err(AppendError::Poisoned)));
    }
}

#[test]
fn bytes_are_pushed_to_disk_every_so_often() {
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    let syncs = disk.syncs();
    writer.append(&[record(1, 500)]).expect("appended");
    writer.flush().expect("flushed");
    assert_eq!(disk.syncs(), syncs, "too little to push");
    writer.append(&[record(2, 1500)]).expect("appended");
    writer.flush().expect("flushed");
    assert_eq!(disk.syncs(), syncs + 1, "push_bytes were written");
    writer.append(&[record(3, 3000)]).expect("appended");
    writer.flush().expect("flushed");
    assert_eq!(disk.syncs(), syncs + 3, "the index of the complete segment, and the new segment");
}

#[test]
fn many_partitions_share_few_open_files_on_a_real_disk() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut writer = SegmentWriter::open(Arc::new(RealDisk), folder.path(), options()).expect("opened");
    for seq in 1..=3 {
        for partition in 0..200 {
            writer.append(&[record_in(TOPIC, Partition::new(partition), seq, 100)]).expect("appended");
        }
        writer.flush().expect("flushed");
    }
    let reader = writer.reader();
    for partition in 0..200 {
        let partition = Partition::new(partition);
        let found = reader.read_records(TOPIC, partition, Seq::FIRST, Seq::new(9), 9999).expect("read");
        let expected: Vec<_> = (1..=3).map(|seq| stored(&record_in(TOPIC, partition, seq, 100))).collect();
        assert_eq!(found, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_records_flushed_at_any_time_read_back_in_any_range(
        sizes in prop::collection::vec(0usize..3000, 1..60),
        flush_every in 1usize..10,
        from in 1u64..70,
        length in 0u64..70,
        max_bytes in 0usize..20_000,
    ) {
        let disk = MemoryDisk::new();
        let mut writer = open(&disk);
        let records: Vec<_> = sizes.iter().zip(1..).map(|(size, seq)| record(seq, *size)).collect();
        for part in records.chunks(flush_every) {
            writer.append(part).expect("appended");
            writer.flush().expect("flushed");
        }
        let found = read(&writer.reader(), from, from + length, max_bytes).expect("read");
        let (mut expected, mut bytes) = (Vec::new(), 0);
        for record in records.iter().skip(from as usize - 1).take(length as usize) {
            bytes += 44 + record.record.len();
            if !expected.is_empty() && bytes > max_bytes {
                break;
            }
            expected.push(stored(record));
        }
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn the_first_message_of_a_time_is_found_in_few_reads_and_damage_on_the_way_is_an_error() {
    // Message n was published at n ms after the base, over many small segments.
    let disk = MemoryDisk::new();
    let mut writer = open(&disk);
    let records: Vec<SegmentRecord> = (1..=200).map(|seq| record(seq, 100)).collect();
    writer.append(&records).expect("appended");
    writer.flush().expect("flushed");
    let reader = writer.reader();
    let base = 1_700_000_000_000;
    let since = |time: u64, to: u64| {
        reader.first_since(TOPIC, PARTITION, Seq::FIRST, Seq::new(to), WallTime::new(time)).expect("sound").get()
    };
    for (time, seq) in [(0, 1), (base, 1), (base + 1, 1), (base + 2, 2), (base + 117, 117), (base + 200, 200)] {
        assert_eq!(since(time, 201), seq, "{time}");
    }
    assert_eq!(since(base + 201, 201), 201, "none is that young");
    assert_eq!(since(base + 117, 50), 50, "none of those that are asked for");
    assert_eq!(since(0, 1), 1, "an empty partition");
    assert_eq!(since(base + 999, 300), 201, "what is not written is not older than anything");
    let unknown = reader.first_since(TOPIC, Partition::new(4), Seq::FIRST, Seq::FIRST, WallTime::new(base));
    assert_eq!(unknown.expect("nothing to read"), Seq::FIRST);
}
