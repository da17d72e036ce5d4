//! Goal: a data directory comes to another's checkpoint whatever was there before, and a crash anywhere leaves one state or the other.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::{CommitIndex, Epoch, KeyHash, Partition, Seq, ShardId, TopicIncarnation, WallTime};

use super::{Staging, StagingStep, finish_install, is_shared, resume_install};
use crate::checkpoint::{CheckpointMeta, load_checkpoint};
use crate::disk::{Disk, MemoryDisk};
use crate::journal::{Journal, JournalOptions};
use crate::scrub::{Scrub, ScrubStep};
use crate::segment::{SegmentOptions, SegmentReader, SegmentRecord, SegmentWriter};
use crate::verify::{Finding, rig::write_identity, verify};

const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
const DATA_DIR: &str = "data";

fn data() -> &'static Path {
    Path::new(DATA_DIR)
}

fn record(seq: u64) -> SegmentRecord {
    let mut record = vec![seq as u8; 100];
    record.extend(crc32c::crc32c(&record).to_le_bytes());
    SegmentRecord {
        topic: TOPIC,
        partition: Partition::ZERO,
        seq: Seq::new(seq),
        commit_index: CommitIndex::new(seq),
        epoch: Epoch::new(1),
        published_at: WallTime::ZERO,
        key_hash: KeyHash::NONE,
        payload_bytes: 100,
        expires_at_ms: 0,
        record: record.into(),
    }
}

fn open(disk: &MemoryDisk) -> SegmentWriter {
    let options = SegmentOptions { segment_bytes: 1000, push_bytes: 700 };
    SegmentWriter::open(Arc::new(disk.clone()), data(), options).expect("opened")
}

/// A data directory with so many records behind a checkpoint at entry `to`.
fn filled(to: u64) -> (MemoryDisk, SegmentWriter, u64) {
    let disk = MemoryDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let journal = JournalOptions { file_bytes: 8 << 10, ..JournalOptions::new(ShardId::ZERO) };
    Journal::recover(shared, data(), journal, Bytes::new(), None, &mut |_| Ok(())).expect("a journal");
    let mut writer = open(&disk);
    (1..=to).for_each(|seq| writer.append(&[record(seq)]).expect("appended"));
    let meta = CheckpointMeta { log_index: to, term: 1, ..CheckpointMeta::default() };
    let written = writer.checkpoint(&meta, b"the state").expect("a checkpoint");
    (disk, writer, written.bytes)
}

/// Fetches everything that is wanted, in pieces; how the last step ended, and the bytes that were fetched.
fn fetch(staging: &mut Staging, from: &SegmentReader, log_index: u64, bytes: u64) -> (StagingStep, u64) {
    let mut fetched = 0;
    let mut step = staging.begin(log_index, bytes).expect("no crash");
    loop {
        step = match step {
            StagingStep::Wants { file, from: offset, to } => {
                let count = (to - offset).min(300);
                let data = from.read_file(&file, offset, count as u32).expect("it is there");
                fetched += count;
                staging.write(offset, &data).expect("no crash")
            }
            StagingStep::Checking => staging.check().expect("no crash"),
            step => return (step, fetched),
        };
    }
}

fn last_seq(writer: &SegmentWriter) -> u64 {
    let records = writer.reader().read_records(TOPIC, Partition::ZERO, Seq::FIRST, Seq::MAX, 1 << 20).expect("read");
    records.last().map_or(0, |record| record.seq.get())
}

#[test]
fn only_what_is_missing_is_fetched() {
    let (_, leader, bytes) = filled(40);
    let (disk, mut writer, _) = filled(20);
    let reader = leader.reader();
    let all: u64 = {
        let mut staging = open(&MemoryDisk::new()).staging();
        fetch(&mut staging, &reader, 40, bytes).1
    };
    let mut staging = writer.staging();
    let (step, fetched) = fetch(&mut staging, &reader, 40, bytes);
    assert!(matches!(step, StagingStep::Whole { ref image, .. } if &image[..] == b"the state"), "{step:?}");
    assert!(fetched < all * 3 / 4, "{fetched} of {all} bytes, half of it was there");
    // A process that died in between fetches nothing again.
    let mut again = open(&disk.after_process_kill()).staging();
    assert_eq!(fetch(&mut again, &reader, 40, bytes).1, 0);
    assert_eq!(staging.install(&mut writer).expect("no crash"), None);
    staging.finish(40).expect("no crash");
    assert_eq!(last_seq(&writer), 40);
    writer.append(&[record(41)]).expect("it goes on from there");
    let names = disk.list(&data().join("checkpoints")).expect("a folder");
    assert_eq!(names, ["00000000000000000040.checkpoint"]);
    let topic = disk.list(&data().join("topics").join(TOPIC.to_hex()).join("0")).expect("a folder");
    assert!(topic.iter().all(|name| !name.contains("staged")), "{topic:?}");
}

#[test]
fn p11_bytes_that_are_not_what_the_checkpoint_lists_are_fetched_anew() {
    let (_, leader, bytes) = filled(40);
    let reader = leader.reader();
    let (disk, writer, _) = filled(1);
    let mut staging = writer.staging();
    assert!(matches!(fetch(&mut staging, &reader, 40, bytes).0, StagingStep::Whole { .. }));
    // What is staged rots, and so does what is in place.
    let folder = data().join("topics").join(TOPIC.to_hex()).join("0");
    let names = disk.list(&folder).expect("a folder");
    let staged = names.iter().find(|name| name.ends_with(".segment.staged")).expect("one at least");
    for name in [staged.as_str(), "00000000000000000001.segment"] {
        disk.open(&folder.join(name)).and_then(|file| file.write_all_at(b"rot", 40)).expect("no crash");
    }
    let mut again = open(&disk.after_process_kill()).staging();
    let (step, fetched) = fetch(&mut again, &reader, 40, bytes);
    assert!(matches!(step, StagingStep::Whole { .. }) && fetched > 0);
    // A piece that is changed on the way is found when its file is there.
    let mut third = open(&MemoryDisk::new()).staging();
    let mut step = third.begin(40, bytes).expect("no crash");
    let mut is_lost = false;
    for _ in 0..1000 {
        step = match step {
            StagingStep::Wants { ref file, from, to } => {
                let mut data = reader.read_file(file, from, (to - from) as u32).expect("it is there").to_vec();
                if file.ends_with(".index") {
                    data[0] ^= 1;
                }
                third.write(from, &data).expect("no crash")
            }
            StagingStep::Checking => third.check().expect("no crash"),
            StagingStep::Lost => {
                is_lost = true;
                break;
            }
            StagingStep::Whole { .. } | StagingStep::NoRoom => break,
        };
    }
    assert!(is_lost, "{step:?}");
}

#[test]
fn rules_2_and_5_a_crash_at_any_operation_leaves_one_state_or_the_other() {
    let (_, leader, bytes) = filled(40);
    let reader = leader.reader();
    let (disk, writer, _) = filled(20);
    let (step, _) = fetch(&mut writer.staging(), &reader, 40, bytes);
    assert!(matches!(step, StagingStep::Whole { .. }));
    let (mut old, mut new) = (0, 0);
    for operation in 1.. {
        let disk = disk.after_process_kill();
        let mut writer = open(&disk);
        let loaded = load_checkpoint(&disk, data()).expect("loaded").expect("a checkpoint");
        writer.restore(&loaded.files).expect("restored");
        let mut staging = writer.staging();
        assert_eq!(fetch(&mut staging, &reader, 40, bytes).1, 0);
        disk.crash_at(disk.operations() + operation);
        let is_done = staging.install(&mut writer).is_ok_and(|left| left.is_none()) && staging.finish(40).is_ok();
        for seed in 0..4 {
            let found = disk.after_power_loss(seed);
            assert_sound(&found);
            let resumed = resume_install(&found, data()).expect("what a crash leaves is sound");
            let is_installing = resumed.is_some();
            let loaded = match resumed {
                Some(loaded) => loaded,
                None => load_checkpoint(&found, data()).expect("loaded").expect("a checkpoint"),
            };
            let mut writer = open(&found);
            writer.restore(&loaded.files).expect("every listed file is there");
            let expected = if loaded.meta.log_index == 40 { 40 } else { 20 };
            assert_eq!(last_seq(&writer), expected, "operation {operation}, seed {seed}");
            if is_installing {
                finish_install(&found, data(), 40).expect("no crash");
                assert!(resume_install(&found, data()).expect("sound").is_none(), "it is over");
            }
            let counted = if expected == 40 { &mut new } else { &mut old };
            *counted += 1;
        }
        if is_done {
            break;
        }
    }
    assert!(old > 20 && new > 20, "{old} of the old state, {new} of the new");
}

/// Neither `verify` nor the scrub takes what a crash leaves for damage.
fn assert_sound(disk: &MemoryDisk) {
    write_identity(disk);
    let findings = found(disk);
    assert!(findings.iter().all(|finding| !finding.is_damage), "{findings:?}");
    assert!(findings.iter().all(|finding| !finding.what.contains("this version")), "{findings:?}");
    let mut scrub = Scrub::new(Arc::new(disk.clone()), data().to_path_buf());
    let mut damages = Vec::new();
    while !matches!(scrub.step(u64::MAX, &mut |finding| damages.push(finding)), Ok(ScrubStep::PassDone(_))) {}
    assert_eq!(damages, []);
}

fn found(disk: &MemoryDisk) -> Vec<Finding> {
    let mut findings = Vec::new();
    verify(disk, data(), &mut |finding| findings.push(finding)).expect("there is data");
    findings
}

#[test]
fn p11_an_interrupted_install_is_named_and_each_of_its_bytes_is_read_where_it_waits() {
    let (_, leader, bytes) = filled(40);
    let (disk, writer, _) = filled(20);
    write_identity(&disk);
    assert!(matches!(fetch(&mut writer.staging(), &leader.reader(), 40, bytes).0, StagingStep::Whole { .. }));
    let what = |disk: &MemoryDisk, part: &str| found(disk).iter().filter(|found| found.what.contains(part)).count();
    assert!(what(&disk, "counts for nothing before it is installed") > 1, "{:?}", found(&disk));
    let dir = data().join("checkpoints");
    let name = |suffix: &str| dir.join(format!("00000000000000000040.checkpoint{suffix}"));
    disk.rename(&name(".staged"), &name(".install")).expect("renamed");
    assert_eq!(what(&disk, "the next start finishes it"), 1);
    assert_sound(&disk);
    let folder = data().join("topics").join(TOPIC.to_hex()).join("0");
    let staged: Vec<_> =
        disk.list(&folder).expect("a folder").into_iter().filter(|name| name.ends_with(".staged")).collect();
    assert!(staged.len() > 2, "{staged:?}");
    for path in staged.iter().map(|name| folder.join(name)).chain([name(".install")]) {
        let file = disk.open(&path).expect("there");
        let mut byte = [0];
        file.read_exact_at(&mut byte, 60).expect("read");
        file.write_all_at(&[byte[0] ^ 1], 60).expect("written");
        let findings = found(&disk);
        assert!(findings.iter().any(|finding| finding.is_damage && finding.path == path), "{findings:?}");
        file.write_all_at(&byte, 60).expect("written");
    }
    // What is over is over.
    disk.rename(&name(".install"), &name("")).expect("renamed");
    assert_eq!(what(&disk, "the next start finishes it"), 0);
}

#[test]
fn rule_8_without_room_nothing_is_lost_and_it_goes_on_when_there_is_some() {
    let (_, leader, bytes) = filled(400);
    let reader = leader.reader();
    let (disk, writer, _) = filled(20);
    let huge = 1 << 40;
    disk.set_capacity(Some(huge));
    let free = disk.free_bytes(data()).expect("looked");
    disk.set_capacity(Some(huge - free + 9000));
    let mut staging = writer.staging();
    let (step, before) = fetch(&mut staging, &reader, 400, bytes);
    assert_eq!(step, StagingStep::NoRoom);
    disk.set_capacity(None);
    let (step, after) = fetch(&mut staging, &reader, 400, bytes);
    assert!(matches!(step, StagingStep::Whole { .. }) && before > 0 && after > 0, "{before} and {after} bytes");
    staging.abandon().expect("no crash");
    let names = disk.list(&data().join("checkpoints")).expect("a folder");
    assert_eq!(names, ["00000000000000000020.checkpoint"], "what was fetched is gone");
    assert_eq!(last_seq(&writer), 20);
}

#[test]
fn nothing_else_of_a_data_directory_is_given_to_others() {
    let (_, writer, _) = filled(3);
    for file in
        ["identity", "journal/00000001.journal", "checkpoints/../identity", "/etc/passwd", "topics/../identity", ""]
    {
        assert!(!is_shared(file), "{file}");
        writer.reader().read_file(file, 0, 1).expect_err("refused");
    }
    assert!(is_shared("checkpoints/00000000000000000003.checkpoint"));
    assert!(is_shared("topics/0000000000000001/0/00000000000000000001.segment"));
}
