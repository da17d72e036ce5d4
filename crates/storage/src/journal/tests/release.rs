//! Freeing files, using them again, and what of their earlier use is never taken for batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{DATA_DIR, Opened, batch, membership, options, overwrite, path, read, recover, rotten, written};
use crate::disk::{Disk, MemoryDisk, SECTOR_BYTES};
use crate::journal::layout::{BLOCK_BYTES, FileHeader, Parsed};
use crate::journal::{Covered, Journal, JournalBatch, JournalError, JournalOptions, Released};

const FILE_BYTES: u64 = 32 << 10;

/// Recovers with a checkpoint that covers what is missing.
pub(super) fn recover_covered(disk: &MemoryDisk) -> Opened {
    let mut batches = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let covered = Some(Covered { log_index: 1 });
    let (journal, recovered) =
        Journal::recover(disk, Path::new(DATA_DIR), options(), membership(), covered, &mut |batch| {
            batches.push(batch);
            Ok(())
        })?;
    Ok((journal, recovered, batches))
}

fn names(disk: &MemoryDisk) -> Vec<String> {
    disk.list(&Path::new(DATA_DIR).join("journal")).expect("listed")
}

fn spare(slot: u64) -> PathBuf {
    Path::new(DATA_DIR).join("journal").join(format!("spare-{slot:04}"))
}

fn header(disk: &MemoryDisk, number: u64) -> FileHeader {
    match FileHeader::parse(&read(disk, number)[..BLOCK_BYTES]) {
        Parsed::Good(header) => header,
        Parsed::UnknownVersion(_) | Parsed::Damaged => panic!("file {number} has no sound header"),
    }
}

/// One batch that fills a file but for its header. Its entry's index is 100 times its number.
fn full(number: u64) -> JournalBatch {
    batch(number, &[25_000])
}

/// A journal of so many files, each with one batch.
fn files(count: u64) -> (MemoryDisk, Journal, Vec<JournalBatch>) {
    let batches: Vec<_> = (1..=count).map(full).collect();
    let disk = written(&batches);
    let (journal, ..) = recover(&disk).expect("recovered");
    assert_eq!(journal.bytes(), count * FILE_BYTES);
    (disk, journal, batches)
}

#[test]
fn only_the_oldest_files_go_that_are_covered_and_beyond_what_is_kept() {
    for (log_index, keep_bytes, freed) in [
        (99, 0, 0),
        (100, 0, 1),
        (299, 0, 2),
        (300, 0, 3),
        (300, 2 * FILE_BYTES, 3),
        (300, 2 * FILE_BYTES + 1, 2),
        (u64::MAX, 0, 4),
        (u64::MAX, FILE_BYTES, 4),
        (u64::MAX, u64::MAX, 0),
    ] {
        let (disk, mut journal, batches) = files(5);
        let story = format!("covered to {log_index}, {keep_bytes} bytes kept");
        let released = journal.release(log_index, keep_bytes).expect("released");
        assert_eq!(released, Released { files: freed, bytes: freed * FILE_BYTES }, "{story}");
        assert_eq!(journal.bytes(), (5 - freed) * FILE_BYTES, "{story}");
        let spares = names(&disk).iter().filter(|name| name.starts_with("spare-")).count() as u64;
        assert_eq!(spares, freed.min(2), "{story}");
        let (_, recovered, found) = recover_covered(&disk).expect("recovered");
        assert_eq!(found, batches[freed as usize..], "{story}");
        assert_eq!(recovered.hard_state, batches[4].hard_state, "{story}");
        if freed > 0 {
            let error = recover(&disk).err().expect("a checkpoint is missing");
            assert!(matches!(&error, JournalError::Missing { path: found } if *found == path(1)), "{error}");
        }
    }
}

#[test]
fn an_entry_counts_where_it_stands_even_if_a_later_one_replaced_it() {
    let mut high = full(1);
    high.entries[0].index = 900;
    let disk = written(&[high, full(2), full(3)]);
    let (mut journal, ..) = recover(&disk).expect("recovered");
    assert_eq!(journal.release(300, 0).expect("released").files, 0, "the oldest holds the file behind it");
    assert_eq!(journal.release(900, 0).expect("released").files, 2);
}

#[test]
fn the_file_with_the_newest_batch_stays_although_the_next_was_begun() {
    // The roll-over was made durable, its batch was not: a batch too large to fit the file that was begun for another.
    let (disk, mut journal, _) = files(3);
    let operations = disk.operations();
    journal.append(&full(4)).expect("appended");
    for operation in operations + 1..=disk.operations() {
        let (disk, mut journal, _) = files(3);
        disk.crash_at(operation);
        journal.append(&full(4)).expect_err("power lost");
        let disk = disk.after_process_kill();
        let (mut journal, _, found) = recover(&disk).expect("recovered");
        journal.release(u64::MAX, 0).expect("released");
        let (_, _, left) = recover_covered(&disk).expect("recovered");
        assert_eq!(left, found[found.len() - 1..], "operation {operation}");
    }
}

#[test]
fn rule_4_a_checkpoint_without_its_journal_is_refused() {
    let disk = MemoryDisk::new();
    let error = recover_covered(&disk).err().expect("no journal");
    assert!(matches!(&error, JournalError::Missing { .. }), "{error}");
    assert!(names(&disk).is_empty(), "none is begun");
    let (disk, mut journal, _) = files(3);
    journal.release(u64::MAX, 0).expect("released");
    overwrite(&disk, 3, 0, &[0; BLOCK_BYTES]);
    overwrite(&disk, 3, BLOCK_BYTES, &vec![0; FILE_BYTES as usize - BLOCK_BYTES]);
    let (found, offset, _) = rotten(recover_covered(&disk));
    assert_eq!((found, offset), (path(3), 0), "no roll-over leaves the only file without a header");
}

#[test]
fn rule_3_a_gap_between_files_is_refused_also_with_a_checkpoint() {
    let (disk, _, _) = files(4);
    disk.remove(&path(2)).expect("removed");
    let error = recover_covered(&disk).err().expect("a gap");
    assert!(matches!(&error, JournalError::Missing { path: found } if *found == path(2)), "{error}");
}

#[test]
fn a_spare_is_begun_with_its_header_alone_under_a_new_generation() {
    let (disk, mut journal, mut batches) = files(3);
    journal.release(u64::MAX, 0).expect("released");
    assert_eq!(names(&disk), ["00000003.journal", "spare-0001", "spare-0002"]);
    for number in 4..=7 {
        let operations = disk.operations();
        journal.append(&full(number)).expect("appended");
        batches.push(full(number));
        if number <= 5 {
            // Header, sync, rename, sync of the directory; then the batch and its sync.
            assert_eq!(disk.operations() - operations, 6, "nothing is filled with zeros");
        }
    }
    assert_eq!(names(&disk).len(), 5);
    let generations: Vec<_> =
        (3..=7).map(|number| header(&disk, number)).map(|found| (found.generation, found.reused_generation)).collect();
    assert_eq!(generations, [(3, 0), (4, 2), (5, 1), (6, 0), (7, 0)]);
    for disk in [disk.after_power_loss(1), disk] {
        assert_eq!(recover_covered(&disk).expect("recovered").2, batches[2..]);
    }
}

/// A journal whose last file, of number 3, was file 1 before: behind its one batch stands the end of the one of then.
pub(super) fn recycled() -> (MemoryDisk, Journal, JournalBatch) {
    let disk = written(&[full(1), full(2)]);
    let (mut journal, ..) = recover(&disk).expect("recovered");
    journal.release(u64::MAX, 0).expect("released");
    let small = batch(3, &[20_000]);
    journal.append(&small).expect("appended");
    assert_eq!((header(&disk, 3).generation, header(&disk, 3).reused_generation), (3, 1));
    (disk, journal, small)
}

#[test]
fn rule_3_what_an_earlier_use_left_is_never_taken_for_batches() {
    // Many small batches of before stand behind a shorter one of now, each sound in itself and in its place.
    let small: Vec<_> = (1..=7).map(|number| batch(number, &[100])).collect();
    let disk = written(&[&small[..], &[full(8)]].concat());
    let (mut journal, ..) = recover(&disk).expect("recovered");
    let before = read(&disk, 1);
    journal.release(u64::MAX, 0).expect("released");
    for number in [9, 10] {
        journal.append(&batch(number, &[100])).expect("appended");
    }
    let now = read(&disk, 3);
    assert_eq!(now[3 * BLOCK_BYTES..8 * BLOCK_BYTES], before[3 * BLOCK_BYTES..8 * BLOCK_BYTES], "they are still there");
    let expected = [full(8), batch(9, &[100]), batch(10, &[100])];
    let (_, recovered, found) = recover_covered(&disk.after_process_kill()).expect("recovered");
    assert_eq!((found, recovered.torn), (expected.to_vec(), None));
    // Batch 10 never arrived at all: what stands there is an older batch, whole.
    overwrite(&disk, 3, 2 * BLOCK_BYTES, &before[2 * BLOCK_BYTES..3 * BLOCK_BYTES]);
    let (mut journal, recovered, found) = recover_covered(&disk).expect("recovered");
    assert_eq!((found, recovered.torn), (expected[..2].to_vec(), None));
    journal.append(&batch(10, &[50])).expect("appended in its place");
    let (_, _, found) = recover_covered(&disk.after_power_loss(3)).expect("recovered");
    assert_eq!(found[2], batch(10, &[50]));
}

#[test]
fn rule_3_a_batch_torn_over_an_older_generation_is_cut_whatever_subset_of_its_blocks_arrived() {
    const BLOCKS: usize = 6;
    let (older, newer) = (read(&written(&[full(1), full(2)]), 1), read(&recycled().0, 3));
    for arrived in 0..1usize << BLOCKS {
        let (disk, _, third) = recycled();
        for block in (0..BLOCKS).filter(|block| arrived >> block & 1 == 0) {
            let bytes = (block + 1) * BLOCK_BYTES..(block + 2) * BLOCK_BYTES;
            assert_ne!(older[bytes.clone()], newer[bytes.clone()]);
            overwrite(&disk, 3, bytes.start, &older[bytes]);
        }
        let complete = arrived == (1 << BLOCKS) - 1;
        let (mut journal, recovered, found) =
            recover_covered(&disk).unwrap_or_else(|error| panic!("{arrived:b}: {error}"));
        assert_eq!(found[1..], [third][..usize::from(complete)], "{arrived:b}");
        assert_eq!(recovered.torn.is_some(), arrived != 0 && !complete, "{arrived:b}");
        if !complete {
            journal.append(&batch(3, &[600])).expect("appended in its place");
            let (_, _, found) = recover_covered(&disk.after_power_loss(1)).expect("recovered");
            assert_eq!(found[1..], [batch(3, &[600])], "{arrived:b}");
        }
    }
}

#[test]
fn rule_3_damage_behind_the_tail_of_a_recycled_file_is_rotten() {
    let (disk, ..) = recycled();
    let bytes = read(&disk, 3);
    let tail = 7 * BLOCK_BYTES;
    assert!(bytes[tail..].iter().any(|byte| *byte != 0), "an older generation stands there");
    for sector in (tail..bytes.len()).step_by(SECTOR_BYTES) {
        for byte in (0..24).map(|at| sector + at) {
            let disk = disk.after_process_kill();
            overwrite(&disk, 3, byte, &[bytes[byte] ^ 4]);
            assert_eq!(rotten(recover_covered(&disk)).0, path(3), "byte {byte}");
        }
    }
}

#[test]
fn a_spare_prepared_ahead_is_filled_step_by_step_and_spares_the_hot_path_the_zeros() {
    let disk = written(&[full(1)]);
    let (mut journal, ..) = recover(&disk).expect("recovered");
    let mut steps = 0;
    while journal.prepare_spare().expect("prepared") {
        steps += 1;
    }
    assert_eq!(steps, 4, "32 KiB in steps of 8 KiB");
    assert_eq!(names(&disk), ["00000001.journal", "spare-0001"]);
    assert_eq!(journal.bytes(), FILE_BYTES, "a spare holds no journal");
    let operations = disk.operations();
    journal.append(&full(2)).expect("appended");
    assert_eq!(disk.operations() - operations, 6);
    assert_eq!(header(&disk, 2).reused_generation, 0, "it was never used");
    assert_eq!(recover(&disk.after_power_loss(5)).expect("recovered").2, [full(1), full(2)]);
    // One that was not finished is not used, and what was left of it goes at the next start.
    assert!(journal.prepare_spare().expect("prepared"));
    journal.append(&full(3)).expect("appended");
    assert_eq!(names(&disk), ["00000001.journal", "00000002.journal", "00000003.journal", "spare-0001"]);
    assert_eq!(recover(&disk).expect("recovered").2.len(), 3);
    assert_eq!(names(&disk).len(), 3);
}

#[test]
fn rule_8_a_full_disk_gives_no_spare_and_no_error() {
    let disk = written(&[full(1)]);
    let (mut journal, ..) = recover(&disk).expect("recovered");
    assert!(journal.prepare_spare().expect("prepared"));
    disk.set_full(true);
    for _ in 0..2 {
        assert!(!journal.prepare_spare().expect("no room is no error"));
        assert_eq!(names(&disk), ["00000001.journal"], "what was prepared gives its room back");
    }
    disk.set_full(false);
    while journal.prepare_spare().expect("prepared") {}
    journal.append(&full(2)).expect("appended");
}

#[test]
fn a_file_of_another_size_is_removed_and_none_is_kept_if_none_is_wanted() {
    let disk = written(&[batch(1, &[60_000]), full(2), full(3)]);
    let (mut journal, ..) = recover(&disk).expect("recovered");
    // The first was begun and too small for its batch, the second is as large as that.
    assert_eq!(journal.release(u64::MAX, 0).expect("released").files, 3);
    assert_eq!(names(&disk), ["00000004.journal", "spare-0001"]);
    // A batch that is larger than a file does not fit a spare.
    journal.append(&batch(4, &[60_000])).expect("appended");
    assert_eq!(names(&disk), ["00000004.journal", "00000005.journal", "spare-0001"]);
    let none = JournalOptions { spare_files: 0, ..options() };
    let disk_again: Arc<dyn Disk> = Arc::new(disk.clone());
    let covered = Some(Covered { log_index: 1 });
    let (mut journal, _) =
        Journal::recover(disk_again, Path::new(DATA_DIR), none, membership(), covered, &mut |_| Ok(()))
            .expect("opened");
    assert!(!journal.prepare_spare().expect("asked"));
    journal.release(u64::MAX, 0).expect("released");
    assert_eq!(names(&disk), ["00000005.journal"]);
}

#[test]
fn a_spare_that_is_not_as_it_should_be_is_removed_at_a_start() {
    let (disk, mut journal, _) = files(3);
    journal.release(200, 0).expect("released");
    let sound = {
        let file = disk.open(&spare(1)).expect("opened");
        let mut bytes = vec![0; FILE_BYTES as usize];
        file.read_exact_at(&mut bytes, 0).expect("read");
        bytes
    };
    let Parsed::Good(of_spare) = FileHeader::parse(&sound[..BLOCK_BYTES]) else { panic!("a header") };
    let with = |header: FileHeader| [&header.encode()[..], &sound[BLOCK_BYTES..]].concat();
    let mut flipped = sound.clone();
    flipped[100] ^= 1;
    for (bytes, stays, what) in [
        (sound.clone(), true, "as it was freed"),
        (vec![0; FILE_BYTES as usize], true, "never used"),
        (sound[1..].to_vec(), false, "shorter"),
        ([&sound[..], &[0]].concat(), false, "longer"),
        (flipped, false, "damaged"),
        (with(FileHeader { shard: 8, ..of_spare.clone() }), false, "of another shard"),
        (with(FileHeader { generation: 3, ..of_spare.clone() }), true, "as new as the newest file"),
        (with(FileHeader { generation: 4, ..of_spare }), false, "newer than the newest file"),
    ] {
        let disk = disk.after_process_kill();
        let file = disk.open(&spare(1)).expect("opened");
        file.set_len(0).expect("cut");
        file.write_all_at(&bytes, 0).expect("written");
        let (mut journal, ..) = recover_covered(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(disk.exists(&spare(1)).expect("looked"), stays, "{what}");
        for number in 4..=6 {
            journal.append(&full(number)).expect("appended");
        }
        let expected: Vec<_> = (3..=6).map(full).collect();
        assert_eq!(recover_covered(&disk.after_power_loss(9)).expect("recovered").2, expected, "{what}");
    }
    // A third is one too many.
    disk.create_new(&spare(3)).expect("created").write_all_at(&sound, 0).expect("written");
    recover_covered(&disk).expect("recovered");
    assert_eq!(names(&disk), ["00000003.journal", "spare-0001", "spare-0002"]);
}

/// What a node does with a journal of 32 KiB files: a batch, a release up to a batch, or a spare.
enum Step {
    Append(JournalBatch),
    Release(u64),
    PrepareSpare,
}

fn script() -> Vec<Step> {
    let mut steps = Vec::new();
    for number in 1..=14 {
        let sizes: &[usize] = if number % 3 == 0 { &[100, 9000] } else { &[13_000] };
        steps.push(Step::Append(batch(number, sizes)));
        if number % 4 == 0 {
            steps.push(Step::Release((number - 2) * 100));
        }
        if number == 5 || number == 9 {
            steps.push(Step::PrepareSpare);
        }
    }
    steps
}

/// Plays steps from a batch on; says how many batches were acknowledged and up to which batch the journal was released.
fn play(journal: &mut Journal, steps: &[Step], from: u64) -> (u64, u64, Result<(), JournalError>) {
    let (mut acknowledged, mut released) = (from - 1, 0);
    let first = |step: &Step| matches!(step, Step::Append(batch) if batch.number == from);
    let mut play_all = || {
        for step in steps.iter().skip_while(|step| !first(step)) {
            match step {
                Step::Append(batch) => {
                    journal.append(batch)?;
                    acknowledged = batch.number;
                }
                Step::Release(log_index) => {
                    released = log_index / 100;
                    journal.release(*log_index, 0)?;
                }
                Step::PrepareSpare => while journal.prepare_spare()? {},
            }
        }
        Ok(())
    };
    let played = play_all();
    (acknowledged, released, played)
}

/// Recovers: what is found ends with the last batch, begins no later than behind what was released, and leaves none out.
fn check(disk: &MemoryDisk, steps: &[Step], (acknowledged, released): (u64, u64), story: &str) -> (Journal, u64) {
    let opened = if released == 0 { recover(disk) } else { recover_covered(disk) };
    let (journal, _, found) = opened.unwrap_or_else(|error| panic!("{story}: {error}"));
    let last = journal.next_batch() - 1;
    assert!(last == acknowledged || last == acknowledged + 1, "{story}: P1: {last} where {acknowledged} were told");
    let first = last + 1 - found.len() as u64;
    assert!(first <= released + 1, "{story}: begins with {first} and {released} were released");
    let all: Vec<_> =
        steps.iter().filter_map(|step| if let Step::Append(batch) = step { Some(batch) } else { None }).collect();
    assert!(found.iter().eq(all[first as usize - 1..last as usize].iter().copied()), "{story}: something was invented");
    (journal, last)
}

#[test]
fn p1_a_power_loss_at_any_operation_of_release_reuse_and_preparation_loses_no_batch() {
    let steps = script();
    let whole = MemoryDisk::new();
    let (mut journal, ..) = recover(&whole).expect("a new journal");
    assert!(play(&mut journal, &steps, 1).2.is_ok());
    let reused = |number| header(&whole, number).reused_generation > 0;
    assert!((1..=9).filter(|number| whole.exists(&path(*number)).expect("looked")).any(reused), "files are reused");
    for operation in 1..=whole.operations() {
        let disk = MemoryDisk::new();
        disk.crash_at(operation);
        let (acknowledged, released, played) = match recover(&disk) {
            Ok((mut journal, ..)) => play(&mut journal, &steps, 1),
            Err(error) => (0, 0, Err(error)),
        };
        assert!(played.is_err(), "operation {operation} is never reached");
        let promised = (acknowledged, released);
        for seed in 0..7 {
            let killed = seed == 6;
            let found = || if killed { disk.after_process_kill() } else { disk.after_power_loss(seed) };
            let story = format!("crash at operation {operation}, seed {seed}, killed {killed}");
            let recovery = found();
            let (mut journal, last) = check(&recovery, &steps, promised, &story);
            let recovery_operations = recovery.operations();
            // To the end, with another power loss behind it.
            let (end, then_released, played) = play(&mut journal, &steps, last + 1);
            assert!(played.is_ok() && end == 14, "{story}: {played:?}");
            let promised = (end, released.max(then_released));
            check(&recovery.after_power_loss(seed), &steps, promised, &format!("{story}, in the end"));
            // And once more in the midst of recovery.
            for step in (1..=recovery_operations).filter(|_| seed == 1 || killed) {
                let disk = found();
                disk.crash_at(step);
                let opened = if released == 0 { recover(&disk) } else { recover_covered(&disk) };
                assert!(opened.is_err());
                let story = format!("{story}, then in recovery at {step}");
                check(&disk.after_power_loss(step), &steps, (acknowledged, released), &story);
            }
        }
    }
}

#[test]
fn rule_2_a_failure_in_release_or_reuse_poisons_the_journal() {
    let steps = script();
    let whole = MemoryDisk::new();
    let (mut journal, ..) = recover(&whole).expect("a new journal");
    assert!(play(&mut journal, &steps, 1).2.is_ok());
    for operation in 6..=whole.operations() {
        let disk = MemoryDisk::new();
        disk.fail_at(operation);
        let Ok((mut journal, ..)) = recover(&disk) else { continue };
        let (acknowledged, released, played) = play(&mut journal, &steps, 1);
        assert!(played.is_err(), "operation {operation} fails and nobody notices");
        assert!(matches!(journal.append(&full(99)), Err(JournalError::Poisoned)));
        assert!(matches!(journal.release(0, 0), Err(JournalError::Poisoned)));
        assert!(matches!(journal.prepare_spare(), Err(JournalError::Poisoned)));
        let story = format!("operation {operation} failed");
        let restarted = disk.after_process_kill();
        let (_, there) = check(&restarted, &steps, (acknowledged, released), &story);
        for seed in 0..4 {
            let (_, found) = check(&restarted.after_power_loss(seed), &steps, (there, released), &story);
            assert_eq!(found, there, "{story}, seed {seed}: what recovery handed out is durable");
        }
    }
}
