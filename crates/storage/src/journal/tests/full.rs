//! Failure rule 8: a full disk is met before anything of a batch is written, and the journal goes on when there is room.

use std::path::Path;

use super::{DATA_DIR, batch, path, read, recover, written};
use crate::disk::{Disk, MemoryDisk};
use crate::journal::{Journal, JournalBatch, JournalError};

const FILE_BYTES: u64 = 32 << 10;
const STEP_BYTES: u64 = 8 << 10;

/// One batch of a block.
fn small(number: u64) -> JournalBatch {
    batch(number, &[100])
}

fn names(disk: &MemoryDisk) -> Vec<String> {
    disk.list(&Path::new(DATA_DIR).join("journal")).expect("listed")
}

fn held_bytes(disk: &MemoryDisk) -> u64 {
    let length = |name: &String| disk.open(&Path::new(DATA_DIR).join("journal").join(name)).and_then(|file| file.len());
    names(disk).iter().map(|name| length(name).expect("it is there")).sum()
}

/// Leaves the disk room for so many bytes beyond what it holds.
fn leave(disk: &MemoryDisk, bytes: u64) {
    disk.set_capacity(Some(held_bytes(disk) + bytes));
}

fn refused(journal: &mut Journal, batch: &JournalBatch) {
    match journal.append(batch) {
        Err(JournalError::DiskFull { .. }) => {}
        other => panic!("a full disk is told as such, not as {other:?}"),
    }
}

/// Appends with no room, then with room; what recovery finds is what was acknowledged.
fn goes_on_after_room(disk: &MemoryDisk, journal: &mut Journal, next: &JournalBatch, acknowledged: &[JournalBatch]) {
    let number = journal.next_batch();
    for _ in 0..3 {
        refused(journal, next);
        assert_eq!(journal.next_batch(), number, "nothing was written");
        let (_, recovered, found) = recover(&disk.after_process_kill()).expect("a kill now loses nothing");
        assert_eq!((&found[..], recovered.torn), (acknowledged, None));
        let (.., found) = recover(&disk.after_power_loss(number)).expect("nor does a power loss");
        assert_eq!(found, acknowledged);
    }
    disk.set_capacity(None);
    journal.append(next).expect("there is room");
    let all: Vec<JournalBatch> = acknowledged.iter().chain([next]).cloned().collect();
    for seed in 0..20 {
        let (.., found) = recover(&disk.after_power_loss(seed)).expect("recovered");
        assert_eq!(found, all, "seed {seed}");
    }
}

/// A journal whose first file is filled up to a batch's end, with so many bytes of room in its file.
fn journal(batches: u64) -> (MemoryDisk, Journal, Vec<JournalBatch>) {
    let batches: Vec<_> = (1..=batches).map(small).collect();
    let disk = written(&batches);
    let (journal, ..) = recover(&disk).expect("recovered");
    (disk, journal, batches)
}

#[test]
fn rule_8_no_room_to_fill_ahead_is_no_failed_write() {
    // Header and one batch fill the first step.
    for left_bytes in [0, 1, 4096, STEP_BYTES - 1] {
        let (disk, mut journal, batches) = journal(1);
        assert_eq!(held_bytes(&disk), STEP_BYTES);
        leave(&disk, left_bytes);
        goes_on_after_room(&disk, &mut journal, &small(2), &batches);
    }
}

#[test]
fn rule_8_zeros_that_were_not_synced_count_for_nothing() {
    // The batch needs two steps, and there is room for one: a smaller one that comes instead must not be written over
    // zeros that no sync covers.
    let (disk, mut journal, batches) = journal(1);
    leave(&disk, STEP_BYTES);
    refused(&mut journal, &batch(2, &[10_000]));
    let syncs = disk.syncs();
    journal.append(&small(2)).expect("one step is enough for it");
    assert_eq!(disk.syncs() - syncs, 2, "the zeros, then the batch");
    assert_eq!(read(&disk, 1).len() as u64, 2 * STEP_BYTES);
    for seed in 0..50 {
        let (_, recovered, found) = recover(&disk.after_power_loss(seed)).expect("recovered");
        assert_eq!((found.len() as u64, recovered.torn), (batches.len() as u64 + 1, None), "seed {seed}");
    }
}

#[test]
fn rule_8_no_room_for_a_new_file_leaves_nothing_of_it() {
    // Seven batches and the header fill the file.
    for left_bytes in [0, 1, 4096, STEP_BYTES - 1] {
        let (disk, mut journal, batches) = journal(7);
        assert_eq!((names(&disk).len(), held_bytes(&disk)), (1, FILE_BYTES));
        leave(&disk, left_bytes);
        refused(&mut journal, &small(8));
        assert_eq!(names(&disk), ["00000001.journal"], "{left_bytes}: the half-made file is gone");
        goes_on_after_room(&disk, &mut journal, &small(8), &batches);
    }
}

#[test]
fn rule_8_a_new_file_that_is_there_but_cannot_be_filled_is_used_when_there_is_room() {
    // The file is begun with one step; its first batch needs two.
    let (disk, mut journal, batches) = journal(7);
    leave(&disk, STEP_BYTES + 100);
    goes_on_after_room(&disk, &mut journal, &batch(8, &[10_000]), &batches);
}

#[test]
fn rule_8_a_spare_needs_no_room() {
    let (disk, mut journal, _) = journal(7);
    journal.append(&small(8)).expect("the second file");
    journal.release(700, 0).expect("released");
    assert!(names(&disk).contains(&"spare-0001".to_owned()), "{:?}", names(&disk));
    let full: Vec<_> = (9..=14).map(small).collect();
    full.iter().for_each(|batch| journal.append(batch).expect("the second file has room"));
    disk.set_capacity(Some(0));
    (15..=21).map(small).for_each(|batch| journal.append(&batch).expect("the spare has room"));
    refused(&mut journal, &small(22));
}

#[test]
fn spares_go_when_their_room_is_needed() {
    let (disk, mut journal, _) = journal(7 * 3);
    journal.append(&small(22)).expect("the fourth file");
    journal.release(u64::MAX, 0).expect("released");
    let spares = |disk: &MemoryDisk| names(disk).iter().filter(|name| name.starts_with("spare-")).count();
    assert_eq!(spares(&disk), 2);
    journal.drop_spares(1).expect("dropped");
    assert_eq!(spares(&disk), 1);
    journal.drop_spares(0).expect("dropped");
    assert!(journal.prepare_spare().expect("begun"));
    assert_eq!(spares(&disk), 1, "one is being filled");
    journal.drop_spares(1).expect("dropped");
    assert_eq!(spares(&disk), 0, "what is being filled goes first");
    journal.append(&small(23)).expect("the journal goes on");
}

#[test]
fn rule_2_a_failed_sync_poisons_also_on_a_full_disk() {
    // Filling ahead: the sync behind the zeros fails.
    let (disk, mut journal, _) = journal(1);
    disk.fail_at(disk.operations() + 2);
    let error = journal.append(&small(2)).expect_err("the sync failed");
    assert!(matches!(error, JournalError::Io { doing: "sync", .. }), "{error}");
    assert!(matches!(journal.append(&small(2)), Err(JournalError::Poisoned)));
}

#[test]
fn rule_2_a_disk_that_is_full_only_when_the_batch_is_written_poisons() {
    // Zeros stand there, so on most file systems this cannot be; the file was cut to make it so.
    let (disk, mut journal, _) = journal(2);
    disk.open(&path(1)).and_then(|file| file.set_len(3 * 4096)).expect("cut");
    leave(&disk, 0);
    let error = journal.append(&small(3)).expect_err("the write failed");
    assert!(matches!(error, JournalError::Io { doing: "write", .. }), "{error}");
    disk.set_capacity(None);
    assert!(matches!(journal.append(&small(3)), Err(JournalError::Poisoned)));
}
