//! What a power loss, a kill and a failed sync leave behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::MemoryDisk;
use crate::disk::{Disk, DiskFile, SECTOR_BYTES};

fn disk_with_file() -> (MemoryDisk, Arc<dyn DiskFile>) {
    let disk = MemoryDisk::new();
    let file = disk.create_new(Path::new("file")).expect("created");
    disk.sync_dir(Path::new("")).expect("synced");
    (disk, file)
}

fn contents(disk: &MemoryDisk) -> Vec<u8> {
    let file = disk.open(Path::new("file")).expect("opened");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

#[test]
fn synced_bytes_survive_and_unsynced_ones_are_kept_dropped_or_torn_at_sectors() {
    let (disk, file) = disk_with_file();
    file.write_all_at(&[1; 4 * SECTOR_BYTES], 0).expect("written");
    file.sync_data().expect("synced");
    file.write_all_at(&[2; 4 * SECTOR_BYTES], 0).expect("written");
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let bytes = contents(&disk.after_power_loss(seed));
        assert_eq!(bytes.len(), 4 * SECTOR_BYTES, "seed {seed}");
        for sector in bytes.chunks(SECTOR_BYTES) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "seed {seed}: a sector is never torn");
        }
        outcomes.insert(bytes.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect::<Vec<u8>>());
        assert_eq!(bytes, contents(&disk.after_power_loss(seed)), "seed {seed} loses the same writes twice");
    }
    assert_eq!(outcomes.len(), 16, "every mixture of old and new sectors comes up");
    assert_eq!(contents(&disk.after_process_kill()), vec![2; 4 * SECTOR_BYTES]);
}

#[test]
fn unsynced_names_are_kept_or_dropped_by_the_seed() {
    let disk = MemoryDisk::new();
    drop(disk.create_new(Path::new("synced")).expect("created"));
    disk.sync_dir(Path::new("")).expect("synced");
    drop(disk.create_new(Path::new("new")).expect("created"));
    disk.rename(Path::new("synced"), Path::new("renamed")).expect("renamed");
    let outcomes: BTreeSet<Vec<String>> =
        (0..50).map(|seed| disk.after_power_loss(seed).list(Path::new("")).expect("listed")).collect();
    let expected: [&[&str]; 4] = [&["new", "renamed"], &["new", "synced"], &["renamed"], &["synced"]];
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn after_the_power_is_lost_every_operation_fails() {
    let (disk, file) = disk_with_file();
    let used = disk.operations();
    disk.crash_at(used + 2);
    file.write_all_at(&[1; 512], 0).expect("the operation before");
    assert!(file.sync_data().is_err());
    assert!(file.len().is_err());
    assert!(disk.list(Path::new("")).is_err());
    assert!(disk.create_new(Path::new("other")).is_err());
    assert_eq!(disk.operations(), used + 2);
    assert_eq!(contents(&disk.after_process_kill()), vec![1; 512], "a kill keeps what was written");
}

#[test]
fn rule_2_writes_of_a_failed_sync_read_back_and_are_gone_after_a_power_loss() {
    let (disk, file) = disk_with_file();
    file.write_all_at(&[1; 512], 0).expect("written");
    disk.fail_at(disk.operations() + 1);
    assert!(file.sync_data().is_err());
    file.sync_data().expect("the second sync lies");
    assert_eq!(contents(&disk.after_process_kill()), vec![1; 512]);
    for seed in 0..20 {
        assert!(contents(&disk.after_power_loss(seed)).is_empty(), "seed {seed}");
    }
    assert_eq!(disk.syncs(), 3);
}

#[test]
fn what_a_kill_kept_a_later_power_loss_may_drop() {
    let (disk, file) = disk_with_file();
    file.write_all_at(&[1; 512], 0).expect("written");
    let killed = disk.after_process_kill();
    let lengths: BTreeSet<usize> = (0..50).map(|seed| contents(&killed.after_power_loss(seed)).len()).collect();
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [0, 512]);
}

/// What every outcome holds in its one file, each once.
fn all_contents(disk: &MemoryDisk) -> BTreeSet<Vec<u8>> {
    let outcomes = disk.power_loss_outcomes(4096).expect("few");
    let count = outcomes.len();
    let contents: Vec<_> = outcomes.map(|disk| contents(&disk)).collect();
    assert_eq!(contents.len(), count, "as many as were announced");
    let distinct: BTreeSet<_> = contents.into_iter().collect();
    assert_eq!(distinct.len(), count, "each once");
    distinct
}

#[test]
fn power_loss_outcomes_are_every_subset_of_sectors_and_what_a_seed_leaves_is_one_of_them() {
    let (disk, file) = disk_with_file();
    file.write_all_at(&[1; 4 * SECTOR_BYTES], 0).expect("written");
    file.sync_data().expect("synced");
    // Two writes over the same sectors: each sector is old, of the first or of the second.
    file.write_all_at(&[2; 2 * SECTOR_BYTES], 0).expect("written");
    file.write_all_at(&[3; 3 * SECTOR_BYTES], SECTOR_BYTES as u64).expect("written");
    let outcomes = all_contents(&disk);
    assert_eq!(outcomes.len(), 2 * 3 * 2 * 2);
    assert!(outcomes.iter().any(|bytes| bytes[0] == 1 && bytes[SECTOR_BYTES] == 3), "the later write alone");
    for seed in 0..300 {
        assert!(outcomes.contains(&contents(&disk.after_power_loss(seed))), "seed {seed}");
    }
    file.sync_data().expect("synced");
    assert_eq!(all_contents(&disk).len(), 1);
    assert_eq!(disk.power_loss_outcomes(0).map(|_| ()), None, "one is more than none");
}

#[test]
fn a_file_that_grew_is_left_with_any_length_in_between_and_zeros_where_nothing_arrived() {
    let (disk, file) = disk_with_file();
    file.write_all_at(&[1; 100], 0).expect("written");
    file.sync_data().expect("synced");
    file.write_all_at(&[2; 600], 100).expect("written");
    let outcomes = all_contents(&disk);
    let lengths: BTreeSet<_> = outcomes.iter().map(Vec::len).collect();
    assert_eq!(lengths, BTreeSet::from([100, 512, 700]));
    // 100; 512 with or without the piece; 700 with each of the two pieces or not.
    assert_eq!(outcomes.len(), 1 + 2 + 4);
    assert!(outcomes.iter().all(|bytes| bytes[..100] == [1; 100]));
    for seed in 0..300 {
        assert!(outcomes.contains(&contents(&disk.after_power_loss(seed))), "seed {seed}");
    }
}

#[test]
fn a_cut_is_lost_or_kept_and_what_was_written_before_it_does_not_come_back_behind_it() {
    let (disk, file) = disk_with_file();
    file.write_all_at(&[1; 1024], 0).expect("written");
    file.sync_data().expect("synced");
    file.set_len(10).expect("cut");
    file.write_all_at(&[2; 20], 600).expect("written");
    let outcomes = disk.power_loss_outcomes(4096).expect("few").map(|disk| contents(&disk)).collect::<BTreeSet<_>>();
    let cut_and_grown = |bytes: &Vec<u8>| bytes.len() > 10 && bytes[511] == 0;
    assert!(
        outcomes.iter().filter(|bytes| cut_and_grown(bytes)).all(|bytes| bytes[10..600].iter().all(|byte| *byte == 0))
    );
    assert!(outcomes.iter().any(|bytes| bytes.len() == 10) && outcomes.iter().any(|bytes| bytes.len() == 1024));
    for seed in 0..300 {
        assert!(outcomes.contains(&contents(&disk.after_power_loss(seed))), "seed {seed}");
    }
}

#[test]
fn power_loss_outcomes_are_every_subset_of_names_and_a_rename_is_whole() {
    let disk = MemoryDisk::new();
    let (one, two, three) = (Path::new("one"), Path::new("two"), Path::new("three"));
    drop(disk.create_new(one).expect("created"));
    disk.sync_dir(Path::new("")).expect("synced");
    disk.rename(one, two).expect("renamed");
    disk.rename(two, three).expect("renamed");
    disk.create_dir_all(Path::new("dir/below")).expect("made");
    let outcomes: BTreeSet<Vec<String>> = disk
        .power_loss_outcomes(100)
        .expect("few")
        .map(|disk| {
            let mut names = disk.list(Path::new("")).expect("listed");
            names.extend(disk.list(Path::new("dir")).unwrap_or_default());
            names
        })
        .collect();
    let mut expected = BTreeSet::new();
    for file in ["one", "two", "three"] {
        for dirs in [&[][..], &["dir"], &["dir", "below"]] {
            let mut names: Vec<String> = dirs.iter().chain([&file]).map(|name| (*name).to_owned()).collect();
            names.sort_by_key(|name| (name == "below", name.clone()));
            expected.insert(names);
        }
    }
    assert_eq!(outcomes, expected, "one file has one name, and a lost directory takes its names along");
    for seed in 0..100 {
        let found = disk.after_power_loss(seed);
        let files = found.list(Path::new("")).expect("listed").len();
        assert!(files - usize::from(found.exists(Path::new("dir")).expect("looked")) == 1, "seed {seed}");
    }
    assert!(disk.power_loss_outcomes(8).is_none(), "nine are more than eight");
}

#[test]
fn an_operation_that_the_power_loss_caught_may_survive_in_any_part() {
    // How much of it a reader saw, and whether it saw a name, goes by the number of the operation.
    for before in 0..12 {
        let (disk, file) = disk_with_file();
        file.write_all_at(&[1; 3 * SECTOR_BYTES], 0).expect("written");
        (0..=before).for_each(|_| file.sync_data().expect("synced"));
        let cut = disk.after_process_kill();
        disk.crash_at(disk.operations() + 1);
        assert!(file.write_all_at(&[2; 3 * SECTOR_BYTES], 0).is_err());
        assert_eq!(all_contents(&disk).len(), 8);
        cut.crash_at(before + 1);
        let file = cut.open(Path::new("file")).expect("there");
        (0..before).for_each(|_| file.sync_data().expect("synced"));
        assert!(file.set_len(100).is_err());
        let lengths =
            cut.power_loss_outcomes(9).expect("few").map(|disk| contents(&disk).len()).collect::<BTreeSet<_>>();
        assert_eq!(lengths, BTreeSet::from([100, 3 * SECTOR_BYTES]));
    }
    for operation in 1..12 {
        let disk = MemoryDisk::new();
        disk.crash_at(operation);
        (1..operation).for_each(|_| disk.sync_dir(Path::new("")).expect("synced"));
        assert!(disk.create_new(Path::new("file")).is_err());
        let found: BTreeSet<_> = disk
            .power_loss_outcomes(9)
            .expect("few")
            .map(|disk| disk.exists(Path::new("file")).expect("looked"))
            .collect();
        assert_eq!(found, BTreeSet::from([false, true]));
    }
}

#[test]
fn a_short_write_leaves_what_it_wrote_and_fails() {
    let (disk, file) = disk_with_file();
    disk.short_write_at(disk.operations() + 1, 700);
    assert!(file.write_all_at(&[1; 1000], 0).is_err());
    assert_eq!(contents(&disk), vec![1; 700]);
    file.write_all_at(&[2; 1000], 0).expect("the next one is whole");
    assert_eq!(contents(&disk), vec![2; 1000]);
    disk.short_write_at(disk.operations() + 1, 1);
    assert!(file.sync_data().is_err(), "what is no write fails as a whole");
}

#[test]
fn a_place_that_cannot_be_read_fails_those_reads_that_touch_it() {
    let (disk, file) = disk_with_file();
    file.write_all_at(&[1; 2000], 0).expect("written");
    file.sync_data().expect("synced");
    disk.fail_reads(Path::new("file"), 512..1024).expect("there");
    for disk in [&disk, &disk.after_power_loss(1), &disk.power_loss_outcomes(1).expect("one").next().expect("one")] {
        let file = disk.open(Path::new("file")).expect("opened");
        for (offset, is_read) in [(0, true), (500, false), (1023, false), (1024, true)] {
            assert_eq!(file.read_exact_at(&mut [0; 100], offset).is_ok(), is_read, "offset {offset}");
        }
    }
    disk.fail_reads(Path::new("file"), 0..0).expect("there");
    assert_eq!(contents(&disk), vec![1; 2000]);
    assert!(disk.fail_reads(Path::new("other"), 0..1).is_err());
}

#[test]
fn a_flipped_bit_is_durable_and_flips_back() {
    let (disk, file) = disk_with_file();
    file.write_all_at(&[0; 10], 0).expect("written");
    file.sync_data().expect("synced");
    disk.flip_bit(Path::new("file"), 3, 2).expect("there");
    let expected = [0, 0, 0, 4, 0, 0, 0, 0, 0, 0];
    for disk in [&disk, &disk.after_process_kill(), &disk.after_power_loss(1)] {
        assert_eq!(contents(disk), expected);
    }
    disk.flip_bit(Path::new("file"), 3, 2).expect("there");
    assert_eq!(contents(&disk), vec![0; 10]);
    assert!(disk.flip_bit(Path::new("file"), 10, 0).is_err());
}

#[test]
fn a_slow_sync_takes_its_time_and_holds_up_no_other_operation() {
    let (disk, file) = disk_with_file();
    file.write_all_at(&[1; 10], 0).expect("written");
    let latency = Duration::from_millis(50);
    disk.set_sync_latency(latency);
    let begun = Instant::now();
    // Once is enough, and a busy machine may let the first few syncs end before the read is even tried.
    let read_meanwhile = |_| {
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| file.sync_data());
            assert_eq!(contents(&disk), vec![1; 10]);
            let is_meanwhile = !sync.is_finished();
            sync.join().expect("no panic").expect("synced");
            is_meanwhile
        })
    };
    assert!((0..20).any(read_meanwhile), "no read ever ended before the sync");
    assert!(begun.elapsed() >= latency);
    let begun = Instant::now();
    disk.sync_dir(Path::new("")).expect("synced");
    assert!(begun.elapsed() >= latency);
}

#[test]
fn disks_have_one_digest_if_they_read_alike() {
    let (disk, file) = disk_with_file();
    let empty = disk.digest();
    file.write_all_at(&[0; 10], 0).expect("written");
    assert_ne!(disk.digest(), empty);
    assert_eq!(disk.digest(), disk.after_process_kill().digest());
    let written = disk.digest();
    disk.rename(Path::new("file"), Path::new("other")).expect("renamed");
    assert_ne!(disk.digest(), written);
}
