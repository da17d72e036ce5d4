//! What a power loss, a kill and a failed sync leave behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

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
