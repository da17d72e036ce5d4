//! P11: every byte that counts is read and checked, damage is told from what a crash leaves, and nothing is changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::{CommitIndex, Epoch, KeyHash, Partition, Seq, ShardId, TopicIncarnation, WallTime};

use super::{Finding, Summary, VerifyError, verify};
use crate::disk::{Disk, MemoryDisk};
use crate::{
    CheckpointMeta, Covered, Journal, JournalBatch, JournalEntry, JournalOptions, LedgerRecord, SegmentOptions,
    SegmentRecord, SegmentWriter, load_checkpoint,
};

const DATA_DIR: &str = "data";
const TOPIC: TopicIncarnation = TopicIncarnation::new(0xA1);
const PARTITION: Partition = Partition::new(3);
const FOLDER: &str = "data/topics/00000000000000a1/3";

fn open_journal(disk: &MemoryDisk, covered: Option<Covered>) -> Journal {
    let options =
        JournalOptions { file_bytes: 16 << 10, zero_step_bytes: 16 << 10, ..JournalOptions::new(ShardId::ZERO) };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let members = Bytes::from_static(b"node 0");
    Journal::recover(disk, Path::new(DATA_DIR), options, members, covered, &mut |_| Ok(())).expect("a journal").0
}

fn batch(index: u64, bytes: usize) -> JournalBatch {
    let entry = JournalEntry { index, term: 1, kind: 1, data: vec![index as u8; bytes].into() };
    JournalBatch { entries: vec![entry], ..JournalBatch::default() }
}

fn record(seq: u64) -> SegmentRecord {
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

fn event(seq: u64) -> LedgerRecord {
    let payload = vec![seq as u8; 30].into();
    LedgerRecord { topic: TOPIC, partition: PARTITION, first_seq: Seq::new(seq), count: 1, payload }
}

fn append(segments: &mut SegmentWriter, seqs: std::ops::Range<u64>) {
    segments.append(&seqs.clone().map(record).collect::<Vec<_>>()).expect("appended");
    segments.append_ledger(&seqs.map(event).collect::<Vec<_>>()).expect("appended");
    segments.flush().expect("flushed");
}

/// A data directory with all kinds of files: four journal files, three segments, a checkpoint, and bytes behind it.
fn folder() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let mut journal = open_journal(&disk, None);
    for index in 1..=5 {
        journal.append(&batch(index, 3_000 + index as usize * 300)).expect("appended");
    }
    let options = SegmentOptions { segment_bytes: 1_000, push_bytes: 700 };
    let mut segments = SegmentWriter::open(Arc::new(disk.clone()), Path::new(DATA_DIR), options).expect("opened");
    append(&mut segments, 1..16);
    let meta = CheckpointMeta { log_index: 3, term: 1, commit_index: CommitIndex::new(3), ..CheckpointMeta::default() };
    segments.checkpoint(&meta, b"the state").expect("a checkpoint");
    append(&mut segments, 16..19);
    disk
}

fn check(disk: &MemoryDisk) -> (Summary, Vec<Finding>) {
    let mut findings = Vec::new();
    let before = files(disk, Path::new(DATA_DIR));
    let summary = verify(disk, Path::new(DATA_DIR), &mut |finding| findings.push(finding)).expect("data");
    assert!(before == files(disk, Path::new(DATA_DIR)), "nothing is changed");
    let damages = findings.iter().filter(|finding| finding.is_damage).count() as u64;
    assert_eq!((summary.damages, summary.notes), (damages, findings.len() as u64 - damages));
    (summary, findings)
}

fn read(disk: &MemoryDisk, path: &Path) -> Option<Vec<u8>> {
    let file = disk.open(path).ok()?;
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    Some(bytes)
}

fn files(disk: &MemoryDisk, dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for path in disk.list(dir).expect("listed").into_iter().map(|name| dir.join(name)) {
        match read(disk, &path) {
            Some(bytes) => found.push((path, bytes)),
            None => found.extend(files(disk, &path)),
        }
    }
    found
}

fn write(disk: &MemoryDisk, path: &Path, offset: u64, bytes: &[u8]) {
    disk.open(path).and_then(|file| file.write_all_at(bytes, offset)).expect("written");
}

fn flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    let byte = read(disk, path).expect("there")[offset as usize];
    write(disk, path, offset, &[byte ^ (1 << (offset % 8))]);
}

fn length(disk: &MemoryDisk, path: &Path) -> u64 {
    disk.open(path).and_then(|file| file.len()).expect("there")
}

fn listed_bytes(disk: &MemoryDisk, path: &Path) -> u64 {
    let loaded = load_checkpoint(disk, Path::new(DATA_DIR)).expect("loaded").expect("a checkpoint");
    let listed = loaded.files.list().iter().find(|file| Path::new(DATA_DIR).join(&file.path) == *path);
    listed.map_or(0, |file| file.bytes)
}

#[test]
fn p11_sound_folder_is_clean_and_read_whole() {
    let disk = folder();
    let (summary, findings) = check(&disk);
    assert_eq!(findings, []);
    let all = files(&disk, Path::new(DATA_DIR));
    let journals = all.iter().filter(|(path, _)| path.extension().is_some_and(|kind| kind == "journal")).count();
    assert!(journals >= 2, "the journal has rolled over");
    let bytes: usize = all.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!((summary.files, summary.bytes), (all.len() as u64, bytes as u64));
    // What recovery makes of it is sound too.
    open_journal(&disk, Some(Covered { log_index: 3 }));
    assert_eq!(check(&disk).1, []);
}

#[test]
fn p11_a_flipped_bit_anywhere_is_named_with_its_file() {
    let disk = folder();
    let mut flips = 0;
    for (path, bytes) in files(&disk, Path::new(DATA_DIR)) {
        let in_checkpoint = path.starts_with("data/checkpoints");
        let listed = if path.starts_with("data/topics") { listed_bytes(&disk, &path) } else { u64::MAX };
        for offset in (0..bytes.len() as u64).step_by((bytes.len() / 300).max(1)) {
            flip(&disk, &path, offset);
            let (summary, findings) = check(&disk);
            assert!(findings.iter().any(|finding| finding.path == path), "{} byte {offset}", path.display());
            let named = |finding: &Finding| finding.path == path && finding.offset <= offset;
            // Without the checkpoint, no file is listed: the rest is sound, so nothing is said of it.
            assert!(findings.iter().all(named), "{} byte {offset}: {findings:?}", path.display());
            assert_eq!(summary.damages > 0, offset < listed, "{} byte {offset}: {findings:?}", path.display());
            assert!(!in_checkpoint || summary.damages == 1, "{findings:?}");
            flip(&disk, &path, offset);
            flips += 1;
        }
    }
    assert!(flips > 2_000, "{flips}");
    assert_eq!(check(&disk).1, []);
}

#[test]
fn p11_every_damage_is_named_not_only_the_first() {
    let disk = folder();
    let journal = Path::new(DATA_DIR).join("journal/00000001.journal");
    let segment = Path::new(FOLDER).join("00000000000000000001.segment");
    // The header of a batch, the entry of the next, and the positions of the first and third record of a segment.
    for (path, offset) in [(&journal, 4_196), (&journal, 8_792), (&segment, 32), (&segment, 32 + 2 * 144 + 8)] {
        flip(&disk, path, offset);
    }
    let (_, findings) = check(&disk);
    let places: Vec<_> = findings.iter().map(|finding| (&finding.path, finding.offset)).collect();
    let expected = [(&journal, 4_096), (&journal, 8_192), (&segment, 32), (&segment, 320)];
    assert_eq!(places, expected, "{findings:?}");
}

#[test]
fn p11_missing_and_shortened_files_are_damage() {
    let shortened = folder();
    let segment = Path::new(FOLDER).join("00000000000000000001.segment");
    let file = shortened.open(&segment).expect("there");
    let bytes = length(&shortened, &segment) - 1;
    file.set_len(bytes).expect("cut");
    let (_, findings) = check(&shortened);
    assert!(findings[0].is_damage && findings[0].path == segment && findings[0].offset == bytes, "{findings:?}");
    let index = segment.with_extension("index");
    let second = Path::new(DATA_DIR).join("journal/00000002.journal");
    for path in [segment, index, Path::new(FOLDER).join("0001.ledger"), second] {
        let disk = folder();
        disk.remove(&path).expect("removed");
        let (summary, findings) = check(&disk);
        assert_eq!(summary.damages, 1, "{}: {findings:?}", path.display());
        assert_eq!((&findings[0].path, findings[0].offset), (&path, 0));
    }
    // The checkpoint covers what the first two journal files hold, but not the third.
    let disk = folder();
    let remove = |number: u64| disk.remove(&Path::new(DATA_DIR).join(format!("journal/{number:08}.journal")));
    remove(1).and_then(|()| remove(2)).expect("removed");
    assert_eq!(check(&disk).1, []);
    remove(3).expect("removed");
    let (_, findings) = check(&disk);
    assert!(findings[0].what.contains("begins with entry 5, but the checkpoint ends with entry 3"), "{findings:?}");
}

#[test]
fn rule_3_torn_last_batch_is_a_note_and_stays_where_it_is() {
    let disk = MemoryDisk::new();
    let mut journal = open_journal(&disk, None);
    journal.append(&batch(1, 100)).expect("appended");
    journal.append(&batch(2, 3_000)).expect("appended");
    drop(journal);
    let path = Path::new(DATA_DIR).join("journal/00000001.journal");
    assert_eq!(check(&disk).1, []);
    // A sector in the middle of the last batch never arrived.
    write(&disk, &path, 8_192 + 1_024, &[0; 512]);
    let (summary, findings) = check(&disk);
    assert_eq!((summary.damages, summary.notes), (0, 1), "{findings:?}");
    assert_eq!((&findings[0].path, findings[0].offset), (&path, 8_192));
    // The same hole in the batch before is rot.
    write(&disk, &path, 4_096 + 1_024, &[0; 512]);
    assert!(check(&disk).0.damages > 0);
}

#[test]
fn p11_a_crash_at_any_moment_leaves_no_damage() {
    let disk = folder();
    assert_eq!(check(&disk.after_process_kill()).0.damages, 0);
    for seed in 0..20 {
        let (summary, findings) = check(&disk.after_power_loss(seed));
        assert_eq!(summary.damages, 0, "seed {seed}: {findings:?}");
    }
}

#[test]
fn p11_nothing_is_played_down_when_checkpoint_or_journal_is_lost() {
    // The end of the last segment is not listed; without its damaged checkpoint nobody can know that.
    let disk = folder();
    let all = files(&disk, Path::new(DATA_DIR));
    let segment = all.iter().rfind(|(path, _)| path.extension().is_some_and(|kind| kind == "segment"));
    let segment = &segment.expect("a segment").0;
    flip(&disk, segment, length(&disk, segment) - 10);
    assert_eq!((check(&disk).0.damages, check(&disk).0.notes), (0, 1), "written anew by the next start");
    flip(&disk, &Path::new(DATA_DIR).join("checkpoints/00000000000000000003.checkpoint"), 20);
    assert_eq!((check(&disk).0.damages, check(&disk).0.notes), (2, 0));
    for (path, _) in all.iter().filter(|(path, _)| !path.starts_with("data/topics")) {
        disk.remove(path).expect("removed");
    }
    let (_, findings) = check(&disk);
    assert!(findings.iter().any(|finding| finding.is_damage && finding.what.contains("journal")), "{findings:?}");
}

#[test]
fn folder_without_data_is_an_error() {
    let disk = MemoryDisk::new();
    disk.create_dir_all(Path::new("other")).expect("made");
    for dir in ["other", "nowhere"] {
        let error = verify(&disk, Path::new(dir), &mut |_| ()).expect_err("no data");
        assert!(matches!(error, VerifyError::NoData { .. }), "{error}");
    }
}
