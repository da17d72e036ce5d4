//! P11: every byte that counts is read and checked, damage is told from what a crash leaves, and nothing is changed.

use std::path::Path;

use mortarmq_types::Seq;

use super::rig::{
    DATA_DIR, FOLDER, PARTITION, TOPIC, batch, checkpoint, event, files, flip, folder, folder_with_writer, length,
    listed_bytes, open_journal, record, write, write_identity,
};
use super::{Finding, FindingAt, Summary, VerifyError, verify};
use crate::disk::{Disk, MemoryDisk};
use crate::{Covered, LedgerRecord, SegmentRecord};

fn check(disk: &MemoryDisk) -> (Summary, Vec<Finding>) {
    let mut findings = Vec::new();
    let before = files(disk, Path::new(DATA_DIR));
    let summary = verify(disk, Path::new(DATA_DIR), &mut |finding| findings.push(finding)).expect("data");
    assert!(before == files(disk, Path::new(DATA_DIR)), "nothing is changed");
    let damages = findings.iter().filter(|finding| finding.is_damage).count() as u64;
    assert_eq!((summary.damages, summary.notes), (damages, findings.len() as u64 - damages));
    (summary, findings)
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
fn p11_a_place_that_cannot_be_read_is_damage_and_what_follows_is_read() {
    let folder_files = files(&folder(), Path::new(DATA_DIR));
    for (path, bytes) in &folder_files {
        let disk = folder();
        let place = bytes.len() as u64 / 2;
        disk.fail_reads(path, place..place + 1).expect("there");
        let mut findings = Vec::new();
        let summary = verify(&disk, Path::new(DATA_DIR), &mut |finding| findings.push(finding)).expect("data");
        let damages: Vec<_> = findings.iter().filter(|finding| finding.is_damage).collect();
        assert_eq!((summary.damages, damages.len()), (1, 1), "{}: {findings:?}", path.display());
        let named = damages[0].path == *path && damages[0].offset <= place;
        assert!(named && damages[0].what.contains("cannot be read"), "{}: {findings:?}", path.display());
    }
    // In the first file of the journal the first of two batches cannot be read, and the second is damaged.
    let disk = folder();
    let journal = Path::new(DATA_DIR).join("journal/00000001.journal");
    disk.fail_reads(&journal, 4_096 + 700..4_096 + 701).expect("there");
    disk.flip_bit(&journal, 8_192 + 800, 0).expect("there");
    let mut places = Vec::new();
    verify(&disk, Path::new(DATA_DIR), &mut |finding| places.push((finding.path, finding.offset))).expect("data");
    assert_eq!(places, [(journal.clone(), 4_096), (journal, 8_192)]);
}

#[test]
fn p11_every_damage_is_named_not_only_the_first() {
    let disk = folder();
    let journal = Path::new(DATA_DIR).join("journal/00000001.journal");
    let segment = Path::new(FOLDER).join("00000000000000000001.segment");
    // The header of a batch, the entry of the next, and the positions of the first and third record of a segment.
    for (path, offset) in [(&journal, 4_196), (&journal, 8_792), (&segment, 32), (&segment, 32 + 2 * 148 + 8)] {
        flip(&disk, path, offset);
    }
    let (_, findings) = check(&disk);
    let places: Vec<_> = findings.iter().map(|finding| (&finding.path, finding.offset)).collect();
    let expected = [(&journal, 4_096), (&journal, 8_192), (&segment, 32), (&segment, 328)];
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
    write_identity(&disk);
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
    let says = |what: &str| findings.iter().any(|finding| finding.is_damage && finding.what.contains(what));
    assert!(says("the journal that they come from is missing"), "{findings:?}");
}

#[test]
fn rule_4_data_without_an_identity_is_damage_and_an_identity_without_data_is_not() {
    let identity = Path::new(DATA_DIR).join("identity");
    // Checkpoint, journal and topics; a journal alone.
    let journal_alone = MemoryDisk::new();
    write_identity(&journal_alone);
    open_journal(&journal_alone, None);
    for disk in [folder(), journal_alone] {
        assert_eq!(check(&disk).1, []);
        disk.remove(&identity).expect("removed");
        let (summary, findings) = check(&disk);
        assert_eq!((summary.damages, summary.notes), (1, 0), "{findings:?}");
        assert_eq!((&findings[0].path, findings[0].offset), (&identity, 0));
        assert!(findings[0].what.starts_with("the identity file is missing: "), "{findings:?}");
    }
    // A start that was interrupted before, or right behind, the rename.
    let disk = MemoryDisk::new();
    write_identity(&disk);
    let (summary, findings) = check(&disk);
    assert_eq!((summary.files, summary.damages, summary.notes), (1, 0, 1), "{findings:?}");
    disk.rename(&identity, &identity.with_extension("new")).expect("renamed");
    let (summary, findings) = check(&disk);
    assert_eq!((summary.files, summary.damages, summary.notes), (0, 0, 1), "{findings:?}");
    assert_eq!(findings[0].path, identity.with_extension("new"));
}

#[test]
fn p11_damage_of_a_record_names_topic_partition_and_sequence() {
    let segment = Path::new(FOLDER).join("00000000000000000001.segment");
    let place = |seq: Option<u64>| Some(FindingAt { topic: TOPIC, partition: PARTITION, seq: seq.map(Seq::new) });
    let (index, ledger) = (segment.with_extension("index"), Path::new(FOLDER).join("0001.ledger"));
    // The position and the bytes of the second record; its line, the file's header, a ledger entry, the image.
    let checkpoint = Path::new(DATA_DIR).join("checkpoints/00000000000000000003.checkpoint");
    let places = [(&segment, 32 + 148, place(Some(2))), (&segment, 32 + 148 + 50, place(Some(2)))];
    let others = [(&index, 32 + 24, place(None)), (&segment, 5, place(None)), (&ledger, 40, place(None))];
    for (path, offset, at) in places.into_iter().chain(others).chain([(&checkpoint, 30, None)]) {
        let disk = folder();
        flip(&disk, path, offset);
        let (_, findings) = check(&disk);
        assert_eq!(findings[0].at, at, "{} byte {offset}: {findings:?}", path.display());
    }
}

#[test]
fn p11_a_sound_record_under_another_position_is_found() {
    let disk = folder();
    let file = disk.open(&Path::new(FOLDER).join("00000000000000000001.segment")).expect("opened");
    // Records of 104 bytes behind positions of 44: the bytes of the first are written over those of the second.
    let mut body = [0; 104];
    file.read_exact_at(&mut body, 32 + 44).expect("read");
    file.write_all_at(&body, 32 + 148 + 44).expect("written");
    let (_, findings) = check(&disk);
    let found: Vec<_> = findings.iter().map(|finding| (finding.at, finding.what.to_string())).collect();
    let at = Some(FindingAt { topic: TOPIC, partition: PARTITION, seq: Some(Seq::new(2)) });
    assert!(found.contains(&(at, "record 2: another record stands under its position".to_owned())), "{found:?}");
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

/// Once, what stood behind a record that is larger than what is read at once, and not of whole sectors, read as zeros.
#[test]
fn p11_what_stands_behind_a_large_record_is_read() {
    let (disk, mut segments) = folder_with_writer();
    let mut bytes = vec![5; (1 << 20) + 1_000];
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    let large = SegmentRecord { record: bytes.into(), ..record(19) };
    segments.append(&[large, record(20), record(21)]).expect("appended");
    let payload = vec![6; (1 << 20) + 1_000].into();
    segments.append_ledger(&[LedgerRecord { payload, ..event(19) }, event(20)]).expect("appended");
    checkpoint(&mut segments, 4);
    assert_eq!(check(&disk).1, []);
}
