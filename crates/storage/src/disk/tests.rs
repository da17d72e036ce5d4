//! The contract of [`Disk`], run against every implementation.

use std::io::{ErrorKind, Write};
use std::path::Path;

use mortarmq_lossyfs::LossyFs;

use super::{Disk, MemoryDisk, RealDisk, create_dir_durable};

/// Runs one part of the contract on a real folder, on one that can lose power, and in memory.
fn on_every_disk(part: impl Fn(&dyn Disk, &Path)) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    part(&RealDisk, folder.path());
    on_lossy_folder(|_, root| part(&RealDisk, root));
    let memory = MemoryDisk::new();
    memory.create_dir_all(Path::new("/mnt/data")).expect("a directory");
    part(&memory, Path::new("/mnt/data"));
    part(&MemoryDisk::new(), Path::new(""));
}

/// Runs a test on a folder that can lose power, or writes a notice past the capture of the test harness.
fn on_lossy_folder(test: impl Fn(&LossyFs, &Path)) {
    if let Err(missing) = LossyFs::is_available() {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        writeln!(std::io::stderr(), "SKIPPED on lossyfs, {name}: {missing}").expect("stderr is open");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let fs = LossyFs::mount(folder.path()).expect("mounted");
    test(&fs, folder.path());
}

#[test]
fn bytes_written_at_an_offset_read_back_and_a_gap_is_zero() {
    on_every_disk(|disk, root| {
        let path = root.join("bytes");
        let file = disk.create_new(&path).expect("created");
        assert!(file.is_empty().expect("length"));
        file.write_all_at(b"end", 700).expect("written");
        file.write_all_at(b"start", 0).expect("written");
        file.sync_data().expect("synced");
        assert_eq!(file.len().expect("length"), 703);
        let mut all = vec![1; 703];
        disk.open(&path).expect("opened").read_exact_at(&mut all, 0).expect("read");
        assert_eq!(&all[..6], b"start\0");
        assert_eq!(&all[699..], b"\0end");
        assert!(all[5..700].iter().all(|byte| *byte == 0));
        let beyond = file.read_exact_at(&mut [0; 4], 700).expect_err("read past the end");
        assert_eq!(beyond.kind(), ErrorKind::UnexpectedEof);
        disk.remove(&path).expect("removed");
        file.read_exact_at(&mut [0; 3], 700).expect("an open handle outlives the name");
    });
}

#[test]
fn a_file_is_cut_and_grown_with_zeros() {
    on_every_disk(|disk, root| {
        let file = disk.create_new(&root.join("length")).expect("created");
        file.write_all_at(&[7; 100], 0).expect("written");
        file.set_len(10).expect("cut");
        file.set_len(20).expect("grown");
        let mut all = [1; 20];
        file.read_exact_at(&mut all, 0).expect("read");
        assert_eq!(all, [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    });
}

#[test]
fn names_are_listed_sorted_and_refused_when_taken_or_missing() {
    on_every_disk(|disk, root| {
        let dir = root.join("names");
        let missing = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::NotFound);
        missing(disk.list(&dir).expect_err("no directory"));
        missing(disk.sync_dir(&dir).expect_err("no directory"));
        missing(disk.create_new(&dir.join("b")).err().expect("no directory"));
        disk.create_dir_all(&dir.join("a")).expect("made");
        disk.create_dir_all(&dir.join("a")).expect("made again");
        drop(disk.create_new(&dir.join("c")).expect("created"));
        drop(disk.create_new(&dir.join("b")).expect("created"));
        assert_eq!(disk.list(&dir).expect("listed"), ["a", "b", "c"]);
        let taken = disk.create_new(&dir.join("b")).err().expect("taken");
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        missing(disk.open(&dir.join("d")).err().expect("no file"));
        missing(disk.remove(&dir.join("d")).expect_err("no file"));
        assert!(disk.exists(&dir.join("b")).expect("looked"));
        disk.remove(&dir.join("b")).expect("removed");
        assert!(!disk.exists(&dir.join("b")).expect("looked"));
        assert_eq!(disk.list(&dir).expect("listed"), ["a", "c"]);
    });
}

#[test]
fn only_an_empty_directory_is_removed() {
    on_every_disk(|disk, root| {
        let dir = root.join("folder");
        disk.create_dir_all(&dir).expect("made");
        drop(disk.create_new(&dir.join("file")).expect("created"));
        let full = disk.remove_dir(&dir).expect_err("not empty");
        assert_eq!(full.kind(), ErrorKind::DirectoryNotEmpty);
        disk.remove(&dir.join("file")).expect("removed");
        disk.remove_dir(&dir).expect("removed");
        assert_eq!(disk.remove_dir(&dir).expect_err("gone").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_rename_replaces_the_target_and_stays_in_its_directory() {
    on_every_disk(|disk, root| {
        let (old, new, elsewhere) = (root.join("old"), root.join("new"), root.join("other/new"));
        disk.create_dir_all(&root.join("other")).expect("made");
        disk.create_new(&old).expect("created").write_all_at(b"old", 0).expect("written");
        drop(disk.create_new(&new).expect("created"));
        assert_eq!(disk.rename(&old, &elsewhere).expect_err("moved").kind(), ErrorKind::InvalidInput);
        disk.rename(&old, &new).expect("renamed");
        assert!(!disk.exists(&old).expect("looked"));
        let mut found = [0; 3];
        disk.open(&new).expect("opened").read_exact_at(&mut found, 0).expect("read");
        assert_eq!(&found, b"old");
        assert_eq!(disk.rename(&old, &new).expect_err("gone").kind(), ErrorKind::NotFound);
    });
}

#[test]
fn room_is_taken_at_once_and_counted() {
    on_every_disk(|disk, root| {
        assert!(disk.free_bytes(root).expect("looked") > 1 << 20);
        let file = disk.create_new(&root.join("room")).expect("created");
        file.write_all_at(&[7; 10], 0).expect("written");
        file.allocate(5000).expect("there is room");
        file.allocate(20).expect("it is long enough");
        let mut all = vec![1; 5000];
        file.read_exact_at(&mut all, 0).expect("read");
        assert!(all[..10].iter().all(|byte| *byte == 7) && all[10..].iter().all(|byte| *byte == 0));
        assert_eq!(file.len().expect("length"), 5000);
    });
}

#[test]
fn rule_8_a_disk_in_memory_is_full_at_its_capacity() {
    let (disk, root) = (MemoryDisk::new(), Path::new("data"));
    disk.create_dir_all(root).expect("made");
    disk.set_capacity(Some(1000));
    let file = disk.create_new(&root.join("a")).expect("created");
    file.write_all_at(&[1; 600], 0).expect("it fits");
    assert_eq!(disk.free_bytes(root).expect("looked"), 400);
    let full = file.write_all_at(&[2; 600], 500).expect_err("100 bytes too many");
    assert_eq!((full.kind(), file.len().expect("length")), (ErrorKind::StorageFull, 1000), "what fits is written");
    file.write_all_at(&[3; 1000], 0).expect("what is there can be written over");
    assert_eq!(file.allocate(1001).expect_err("no room").kind(), ErrorKind::StorageFull);
    assert_eq!(disk.create_new(&root.join("b")).err().expect("no room").kind(), ErrorKind::StorageFull);
    file.set_len(300).expect("cut");
    assert_eq!(disk.free_bytes(root).expect("looked"), 700);
    file.allocate(1000).expect("there is room");
    disk.remove(&root.join("a")).expect("removed");
    assert_eq!(disk.free_bytes(root).expect("looked"), 1000);
    disk.set_full(true);
    assert_eq!(disk.free_bytes(root).expect("looked"), 0);
}

#[test]
fn rule_5_a_durable_directory_survives_every_power_loss() {
    let disk = MemoryDisk::new();
    create_dir_durable(&disk, Path::new("data/journal")).expect("made");
    for seed in 0..20 {
        assert!(disk.after_power_loss(seed).exists(Path::new("data/journal")).expect("looked"), "seed {seed}");
    }
    // An earlier process died after making the names and before syncing them: they are there, and must be synced.
    let disk = MemoryDisk::new();
    disk.create_dir_all(Path::new("data/journal")).expect("made");
    create_dir_durable(&disk, Path::new("data/journal")).expect("synced");
    for seed in 0..20 {
        assert!(disk.after_power_loss(seed).exists(Path::new("data/journal")).expect("looked"), "seed {seed}");
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    create_dir_durable(&RealDisk, &folder.path().join("data/journal")).expect("made");
    for seed in 0..20 {
        on_lossy_folder(|fs, root| {
            create_dir_durable(&RealDisk, &root.join("new/journal")).expect("made");
            RealDisk.create_dir_all(&root.join("old/journal")).expect("made and not synced");
            create_dir_durable(&RealDisk, &root.join("old/journal")).expect("synced");
            fs.lose_power(seed);
            assert!(root.join("new/journal").exists() && root.join("old/journal").exists(), "seed {seed}");
        });
    }
}
