//! Goal: whatever of a partition's files is damaged, another node's bytes make it what it was, and nothing else is ever written.
//! Method: two data directories that were written alike; bytes of one are changed at every place, and repaired from the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::{CommitIndex, Epoch, KeyHash, Partition, Seq, TopicIncarnation, WallTime};

use crate::disk::{Disk, MemoryDisk};
use crate::ledger::LedgerRecord;
use crate::segment::{RepairOutcome, SegmentOptions, SegmentRecord, SegmentWriter};
use crate::stretch::Stretch;

const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
const RECORDS: u64 = 12;

fn record(seq: u64, fill: u8) -> SegmentRecord {
    let mut record = vec![fill; 20 + seq as usize % 7];
    record.extend(crc32c::crc32c(&record).to_le_bytes());
    SegmentRecord {
        topic: TOPIC,
        partition: Partition::ZERO,
        seq: Seq::new(seq),
        commit_index: CommitIndex::new(seq),
        epoch: Epoch::new(1),
        published_at: WallTime::ZERO,
        key_hash: KeyHash::new(seq),
        payload_bytes: 20,
        expires_at_ms: 0,
        record: record.into(),
    }
}

/// A data directory with records and history, in two segments.
fn written(fill: impl Fn(u64) -> u8) -> (MemoryDisk, SegmentWriter) {
    let disk = MemoryDisk::new();
    let options = SegmentOptions { segment_bytes: 600, push_bytes: 700 };
    let mut writer = SegmentWriter::open(Arc::new(disk.clone()), Path::new("data"), options).expect("opened");
    for seq in 1..=RECORDS {
        writer.append(&[record(seq, fill(seq))]).expect("appended");
        let (partition, first_seq, payload) = (Partition::ZERO, Seq::new(seq), vec![fill(seq); 9].into());
        writer
            .append_ledger(&[LedgerRecord { topic: TOPIC, partition, first_seq, count: 1, payload }])
            .expect("appended");
    }
    writer.flush().expect("flushed");
    (disk, writer)
}

fn names(disk: &MemoryDisk) -> Vec<PathBuf> {
    let folder = Path::new("data/topics").join(TOPIC.to_hex()).join("0");
    disk.list(&folder).expect("a folder").into_iter().map(|name| folder.join(name)).collect()
}

fn content(disk: &MemoryDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path).expect("it is there");
    let mut bytes = vec![0; file.len().expect("it is there") as usize];
    file.read_exact_at(&mut bytes, 0).expect("it is there");
    bytes
}

fn all(disk: &MemoryDisk) -> Vec<Vec<u8>> {
    names(disk).iter().map(|path| content(disk, path)).collect()
}

fn of_record(seq: u64) -> Stretch {
    Stretch::Records { topic: TOPIC, partition: Partition::ZERO, seq: Seq::new(seq) }
}

fn of_ledger(number: u64, offset: u64) -> Stretch {
    Stretch::Ledger { topic: TOPIC, partition: Partition::ZERO, number, offset }
}

/// Everything that may be asked for: the header of the ledger's entries is 24 bytes.
fn stretches(ledgers: usize) -> Vec<Stretch> {
    let entries = (0..RECORDS).flat_map(|entry| (1..=ledgers as u64).map(move |number| (number, 32 + entry * 33)));
    (1..=RECORDS).map(of_record).chain(entries.map(|(number, offset)| of_ledger(number, offset))).collect()
}

fn repair(writer: &mut SegmentWriter, from: &SegmentWriter, stretch: Stretch) -> RepairOutcome {
    match from.reader().read_stretch_for_repair(&stretch).expect("sound") {
        Some(data) => writer.repair(&stretch, &data).expect("no crash"),
        None => RepairOutcome::Refused { what: "not there" },
    }
}

#[test]
fn rule_3_a_change_at_any_place_is_repaired_from_another_node_and_nothing_else_is_touched() {
    let (good, from) = written(|_| 7);
    let ledgers = names(&good).iter().filter(|path| path.extension().is_some_and(|kind| kind == "ledger")).count();
    let before = all(&good);
    assert!(before.len() >= 5, "several files");
    for path in names(&good) {
        // A bit, and a stretch as long as a sector has entries.
        for (length, step) in [(1, 1), (70, 13)] {
            let bytes = content(&good, &path).len();
            for offset in (0..bytes).step_by(step) {
                let (disk, mut writer) = written(|_| 7);
                let end = bytes.min(offset + length);
                let file = disk.open(&path).expect("it is there");
                let changed: Vec<u8> = content(&disk, &path)[offset..end].iter().map(|byte| byte ^ 0x10).collect();
                file.write_all_at(&changed, offset as u64).expect("no crash");
                // Handles are kept; a header is read when a file is opened.
                writer.shared.close_files(|_| true);
                for stretch in stretches(ledgers) {
                    repair(&mut writer, &from, stretch);
                }
                assert_eq!(all(&disk), before, "{} at {offset}, {length} bytes", path.display());
                let left = stretches(ledgers).into_iter().map(|stretch| repair(&mut writer, &from, stretch));
                assert!(left.into_iter().all(|outcome| !matches!(outcome, RepairOutcome::Repaired { .. })));
            }
        }
    }
}

#[test]
fn p11_what_another_node_says_otherwise_is_never_written_over_sound_bytes() {
    let (disk, mut writer) = written(|_| 7);
    let (_, other) = written(|_| 8);
    let before = all(&disk);
    for stretch in stretches(1) {
        assert!(!matches!(repair(&mut writer, &other, stretch), RepairOutcome::Repaired { .. }), "{stretch:?}");
    }
    assert_eq!(all(&disk), before);
}

#[test]
fn p11_bytes_that_are_damaged_cut_or_of_another_place_are_refused() {
    let (disk, mut writer) = written(|_| 7);
    let (_, from) = written(|_| 7);
    let segment = names(&disk).into_iter().find(|path| path.extension().is_some_and(|kind| kind == "segment"));
    let file = disk.open(&segment.expect("a segment")).expect("it is there");
    file.write_all_at(&[0xFF; 4], 32 + 44 + 3).expect("no crash");
    let ledger = names(&disk).into_iter().find(|path| path.extension().is_some_and(|kind| kind == "ledger"));
    let ledger = ledger.expect("a ledger");
    let file = disk.open(&ledger).expect("it is there");
    file.write_all_at(&[0xFF; 4], 32 + 24).expect("no crash");
    let before = all(&disk);
    let given = |stretch| from.reader().read_stretch_for_repair(&stretch).expect("sound").expect("there");
    let mut refused = 0;
    for stretch in [of_record(1), of_ledger(1, 32)] {
        let whole = given(stretch);
        // What comes behind the first entry is not needed, and its damage is told all the same.
        for at in 0..whole.len().min(60) {
            let mut changed = whole.to_vec();
            changed[at] ^= 1;
            for data in [Bytes::from(changed), whole.slice(..at)] {
                if matches!(writer.repair(&stretch, &data).expect("no crash"), RepairOutcome::Refused { .. }) {
                    refused += 1;
                }
                if all(&disk) != before {
                    // A part that is whole by itself was enough.
                    assert!(matches!(stretch, Stretch::Ledger { .. }), "{stretch:?} at {at}");
                    assert_eq!(content(&disk, &ledger)[56..60], [7; 4]);
                    file.write_all_at(&[0xFF; 4], 32 + 24).expect("no crash");
                }
            }
        }
    }
    assert!(refused > 150, "{refused}");
    assert!(matches!(writer.repair(&of_record(1), &given(of_record(2))), Ok(RepairOutcome::Refused { .. })));
    assert_eq!(
        writer.repair(&of_record(1), &given(of_record(1))).expect("no crash"),
        RepairOutcome::Repaired { bytes: 44 + 25 + 24 }
    );
}

#[test]
fn p1_a_crash_at_any_operation_of_a_repair_leaves_bytes_that_are_damaged_or_good() {
    let (good, from) = written(|_| 7);
    let before = all(&good);
    for stretch in [of_record(3), of_ledger(1, 32 + 33)] {
        let mut operation = 0;
        loop {
            let (disk, mut writer) = written(|_| 7);
            // All of it has to be durable before: a repair comes long after.
            for path in names(&disk) {
                disk.open(&path).and_then(|file| file.sync_data()).expect("no crash");
                let folder = path.parent().expect("a folder");
                for folder in folder.ancestors().take_while(|folder| !folder.as_os_str().is_empty()) {
                    disk.sync_dir(folder).expect("no crash");
                }
            }
            for path in names(&disk) {
                let at =
                    if path.extension().is_some_and(|kind| kind == "ledger") { 32 + 33 + 26 } else { 32 + 2 * 69 + 50 };
                if content(&disk, &path).len() > at + 4 {
                    let file = disk.open(&path).expect("it is there");
                    file.write_all_at(&[0xFF; 4], at as u64).and_then(|()| file.sync_data()).expect("no crash");
                }
            }
            let data = from.reader().read_stretch_for_repair(&stretch).expect("sound").expect("there");
            disk.crash_at(disk.operations() + operation);
            let is_done = writer.repair(&stretch, &data).is_ok();
            for seed in 0..6 {
                let found = disk.after_power_loss(seed);
                let options = SegmentOptions { segment_bytes: 600, push_bytes: 700 };
                let reopened = SegmentWriter::open(Arc::new(found.clone()), Path::new("data"), options);
                let mut reopened = reopened.expect("opened");
                for (key, view) in writer.shared.views() {
                    reopened.shared.publish(key, |empty| *empty = view);
                }
                stretches(2).into_iter().for_each(|stretch| _ = repair(&mut reopened, &from, stretch));
                assert_eq!(all(&found), before, "operation {operation}, seed {seed}");
            }
            if is_done {
                break;
            }
            operation += 1;
        }
        assert!(operation >= 2, "{operation}");
    }
}
