//! What a checkpoint lists comes back as it was, and only that.

use std::path::Path;

use bytes::Bytes;
use mortarmq_types::{Partition, Seq, TopicIncarnation};

use super::{
    CheckpointMeta, DATA_DIR, checkpoint_file, event, files_below, load, load_checkpoint, make_journal, meta,
    open_writer, read, record, topics, with_checkpoint,
};
use crate::checkpoint::CheckpointError;
use crate::disk::{Disk, MemoryDisk};
use crate::segment::{AppendError, FolderError, SegmentWriter};

fn end_seq(writer: &SegmentWriter, topic: u64) -> u64 {
    writer.reader().end_seq(TopicIncarnation::new(topic), Partition::ZERO).get()
}

#[test]
fn a_checkpoint_says_what_it_was_given_and_lists_every_file_with_its_checksum() {
    let none = load_checkpoint(&MemoryDisk::new(), Path::new(DATA_DIR)).expect("looked");
    assert_eq!(none, None);
    let (disk, _) = with_checkpoint();
    let loaded = load(&disk);
    assert_eq!((loaded.meta, loaded.image), (meta(30), Bytes::from_static(b"the state")));
    let on_disk = files_below(&disk, &topics());
    assert_eq!(loaded.files.list().len(), on_disk.len());
    for file in loaded.files.list() {
        let bytes = read(&disk, &Path::new(DATA_DIR).join(&file.path));
        assert_eq!((bytes.len() as u64, crc32c::crc32c(&bytes)), (file.bytes, file.crc), "{}", file.path);
    }
}

#[test]
fn what_was_written_behind_a_checkpoint_is_cut_and_written_anew() {
    let (disk, mut writer) = with_checkpoint();
    let before = files_below(&disk, &topics());
    for seq in 13..=20 {
        writer.append(&[record(1, 0, seq, 300), record(2, 0, seq, 10), record(3, 0, seq - 12, 30)]).expect("appended");
        writer.append_ledger(&[event(1, 0, seq, 200), event(2, 0, seq, 9)]).expect("appended");
    }
    writer.flush().expect("flushed");
    let after = files_below(&disk, &topics());
    assert_ne!(after, before);
    let mut writer = open_writer(&disk);
    let loaded = load(&disk);
    writer.restore(&loaded.files).expect("restored");
    assert_eq!(files_below(&disk, &topics()), before);
    assert_eq!((end_seq(&writer, 1), end_seq(&writer, 2), end_seq(&writer, 3)), (13, 13, 1));
    let topic = TopicIncarnation::new(1);
    let records = writer.reader().read_records(topic, Partition::ZERO, Seq::FIRST, Seq::MAX, usize::MAX);
    assert_eq!(records.expect("read").len(), 12);
    assert_eq!(writer.reader().read_ledger(topic, Partition::ZERO, Seq::new(12)).expect("read").len(), 2);
    let skipped = writer.append(&[record(1, 0, 14, 5)]).expect_err("13 is next");
    assert!(matches!(skipped, AppendError::OutOfOrder { .. }), "{skipped}");
    // The replay writes the same bytes, and checksums go on over the cut.
    for seq in 13..=20 {
        writer.append(&[record(1, 0, seq, 300), record(2, 0, seq, 10), record(3, 0, seq - 12, 30)]).expect("appended");
        writer.append_ledger(&[event(1, 0, seq, 200), event(2, 0, seq, 9)]).expect("appended");
    }
    writer.checkpoint(&meta(40), b"later").expect("a checkpoint");
    assert_eq!(files_below(&disk, &topics()), after);
    for file in load(&disk).files.list() {
        let bytes = read(&disk, &Path::new(DATA_DIR).join(&file.path));
        assert_eq!((bytes.len() as u64, crc32c::crc32c(&bytes)), (file.bytes, file.crc), "{}", file.path);
    }
}

#[test]
fn only_the_newest_checkpoint_stays_and_what_was_left_aside_goes() {
    let (disk, mut writer) = with_checkpoint();
    let dir = Path::new(DATA_DIR).join("checkpoints");
    let aside = dir.join("00000000000000000031.checkpoint.new");
    disk.create_new(&aside).expect("created").write_all_at(b"half", 0).expect("written");
    assert_eq!(load(&disk).meta.log_index, 30);
    assert!(!disk.exists(&aside).expect("looked"), "removed at a start");
    disk.create_new(&aside).expect("created");
    let written = writer.checkpoint(&meta(31), b"").expect("a checkpoint");
    assert_eq!(written.removed, 1);
    assert_eq!(disk.list(&dir).expect("listed"), ["00000000000000000031.checkpoint"]);
    // The same place again replaces it; an earlier one would be a step back.
    writer.checkpoint(&meta(31), b"again").expect("a checkpoint");
    assert_eq!(load(&disk).image, Bytes::from_static(b"again"));
    let refused = writer.checkpoint(&meta(30), b"").expect_err("older");
    assert!(matches!(refused, CheckpointError::NotNewest { asked: 30, newest: 31 }), "{refused}");
    assert_eq!(disk.list(&dir).expect("listed"), ["00000000000000000031.checkpoint"]);
    writer.checkpoint(&meta(32), b"").expect("the writer goes on");
}

#[test]
fn rule_4_nothing_is_cut_or_emptied_without_what_rebuilds_it() {
    let (disk, mut writer) = with_checkpoint();
    writer.append(&[record(1, 0, 13, 300)]).expect("appended");
    writer.flush().expect("flushed");
    let files = load(&disk).files;
    let before = files_below(&disk, Path::new(DATA_DIR));
    let refused = open_writer(&disk).reset().expect_err("there is a checkpoint");
    assert!(matches!(refused, FolderError::CheckpointThere { .. }), "{refused}");
    assert_eq!(files_below(&disk, Path::new(DATA_DIR)), before);
    let journal = Path::new(DATA_DIR).join("journal");
    for name in disk.list(&journal).expect("listed") {
        disk.remove(&journal.join(name)).expect("removed");
    }
    let before = files_below(&disk, Path::new(DATA_DIR));
    let refused = open_writer(&disk).restore(&files).expect_err("no journal");
    assert!(matches!(refused, CheckpointError::JournalMissing { .. }), "{refused}");
    assert_eq!(files_below(&disk, Path::new(DATA_DIR)), before);
}

#[test]
fn rule_8_a_full_disk_leaves_the_checkpoint_before_and_the_writer_goes_on() {
    let (disk, mut writer) = with_checkpoint();
    writer.append(&[record(1, 0, 13, 300)]).expect("appended");
    disk.set_full(true);
    let full = writer.checkpoint(&meta(31), b"more").expect_err("no room for the record");
    assert!(matches!(full, CheckpointError::DiskFull { .. }), "{full}");
    disk.set_full(false);
    writer.flush().expect("flushed");
    disk.set_full(true);
    let full = writer.checkpoint(&meta(31), b"more").expect_err("no room for the checkpoint");
    assert!(matches!(full, CheckpointError::DiskFull { .. }), "{full}");
    assert_eq!(load(&disk).meta.log_index, 30);
    disk.set_full(false);
    writer.checkpoint(&meta(31), b"more").expect("a checkpoint");
    assert_eq!(load(&disk).meta.log_index, 31);
}

#[test]
fn rule_2_after_a_failed_operation_no_checkpoint_is_made_and_the_next_start_finds_one() {
    let prepare = || {
        let (disk, mut writer) = with_checkpoint();
        writer.append(&[record(1, 0, 13, 300), record(4, 1, 1, 20)]).expect("appended");
        writer.drop_topic(TopicIncarnation::new(2));
        (disk, writer)
    };
    let operations = {
        let (disk, mut writer) = prepare();
        let before = disk.operations();
        writer.checkpoint(&meta(31), b"more").expect("a checkpoint");
        before + 1..=disk.operations()
    };
    assert!(operations.clone().count() > 20, "writes, syncs, renames and removals");
    for operation in operations {
        let (disk, mut writer) = prepare();
        disk.fail_at(operation);
        writer.checkpoint(&meta(31), b"more").expect_err("operation failed");
        let refused = writer.checkpoint(&meta(31), b"more").expect_err("poisoned");
        assert!(matches!(refused, CheckpointError::Poisoned), "operation {operation}: {refused}");
        // The process starts again on the same machine, then power goes.
        let restarted = disk.after_process_kill();
        let found = load(&restarted);
        for (seed, disk) in (0..4).map(|seed| (seed, restarted.after_power_loss(seed))) {
            assert_eq!(load(&disk).meta, found.meta, "operation {operation}, seed {seed}: what was found is durable");
            open_writer(&disk)
                .restore(&found.files)
                .unwrap_or_else(|error| panic!("operation {operation}, seed {seed}: {error}"));
        }
    }
}

#[test]
fn the_bytes_of_version_1_do_not_change() {
    let disk = MemoryDisk::new();
    make_journal(&disk);
    let mut writer = open_writer(&disk);
    writer.append(&[record(0xA1, 3, 1, 5)]).expect("appended");
    writer.append_ledger(&[event(0xA1, 3, 1, 6)]).expect("appended");
    writer.checkpoint(&meta(42), b"the state").expect("a checkpoint");
    let bytes = read(&disk, &checkpoint_file(42));
    let (header, rest) = bytes.split_at(super::super::layout::HEADER_BYTES);
    let (membership, rest) = rest.split_at(16);
    let (list, image) = rest.split_at(rest.len() - 9);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(header), HEADER);
    assert_eq!(membership, b"nodes 1, 2 and 3");
    assert_eq!(hex(list), LIST);
    assert_eq!(image, b"the state");
}

const HEADER: &str = "4d4d51430100580007000000100000002a000000000000000300000000000000540000000000000012040000000000000300000000000000e9000000000000000900000000000000afb6b5b6874d12c7b4e89d52a4e6f8a2";
const LIST: &str = "5500000000000000a089ec52360001000000000000000200000000000000746f706963732f303030303030303030303030303061312f332f30303030303030303030303030303030303030312e7365676d656e74380000000000000053389e6c340001000000000000000200000000000000746f706963732f303030303030303030303030303061312f332f30303030303030303030303030303030303030312e696e6465783e00000000000000245b9261250001000000000000000300000000000000746f706963732f303030303030303030303030303061312f332f303030312e6c6564676572";

#[test]
fn a_checkpoint_of_nothing_is_one() {
    let disk = MemoryDisk::new();
    make_journal(&disk);
    let mut writer = open_writer(&disk);
    writer.checkpoint(&CheckpointMeta::default(), b"").expect("a checkpoint");
    let loaded = load(&disk);
    assert_eq!((loaded.meta.clone(), loaded.files.list().len()), (CheckpointMeta::default(), 0));
    writer.append(&[record(1, 0, 1, 10)]).expect("appended");
    writer.flush().expect("flushed");
    writer.restore(&loaded.files).expect("restored");
    assert!(files_below(&disk, &topics()).is_empty());
    writer.append(&[record(1, 0, 1, 10)]).expect("from the start again");
}
