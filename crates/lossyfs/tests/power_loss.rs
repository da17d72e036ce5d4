//! What a power loss keeps, drops and tears.

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::io::Errno;
use support::{Mounted, create, errno, mounted, sync_dir};

const RECORD_BYTES: usize = 256;
const SECTOR_BYTES: usize = 512;

/// Ten records that a sync covers and ten that none does.
fn write_twenty_records(mounted: &Mounted) {
    let mut file = mounted.durable_file("journal", b"");
    for record in 0..20u8 {
        file.write_all(&[record + 1; RECORD_BYTES]).expect("written");
        if record == 9 {
            file.sync_data().expect("synced");
        }
    }
}

#[test]
fn p1_synced_records_are_always_there_and_later_ones_by_chance() {
    // Goal: fdatasync is the border. Method: over seeds the first ten records always survive; each count of the later
    // ones between none and all is a legal outcome, and both ends must come up.
    let mut lengths = BTreeSet::new();
    for seed in 0..60 {
        let Some(mounted) = mounted() else { return };
        write_twenty_records(&mounted);
        let loss = mounted.fs.lose_power(seed);
        let found = mounted.read("journal").expect("read");
        assert!(found.len() >= 10 * RECORD_BYTES, "seed {seed}: {} bytes", found.len());
        for (record, bytes) in found[..10 * RECORD_BYTES].chunks(RECORD_BYTES).enumerate() {
            assert_eq!(bytes, [record as u8 + 1; RECORD_BYTES], "seed {seed}: record {record}");
        }
        assert_eq!(loss.writes_kept + loss.writes_torn + loss.writes_dropped, 10, "seed {seed}: {loss:?}");
        let last = found.len() == 20 * RECORD_BYTES;
        assert!(!last || loss.writes_kept > 0, "seed {seed}: {loss:?}");
        lengths.insert(found.len() / RECORD_BYTES);
    }
    assert!(lengths.contains(&20) && lengths.len() > 3, "{lengths:?}");
}

#[test]
fn what_is_found_after_a_loss_is_durable_and_the_same_seed_loses_the_same() {
    let mut found = Vec::new();
    for _ in 0..2 {
        let Some(mounted) = mounted() else { return };
        write_twenty_records(&mounted);
        let loss = mounted.fs.lose_power(7);
        assert!(loss.is_real(), "{loss:?}");
        let first = mounted.read("journal").expect("read");
        assert!(!mounted.fs.lose_power(8).is_real(), "nothing was pending");
        assert_eq!(mounted.read("journal").expect("read"), first);
        found.push((first, loss));
    }
    assert_eq!(found[0], found[1]);
}

#[test]
fn a_write_is_torn_at_sectors_only() {
    let (mut torn, mut mixtures) = (0, BTreeSet::new());
    for seed in 0..100 {
        let Some(mounted) = mounted() else { return };
        let file = mounted.durable_file("sectors", &[1; 4 * SECTOR_BYTES]);
        file.write_all_at(&[2; 4 * SECTOR_BYTES], 0).expect("written");
        torn += mounted.fs.lose_power(seed).writes_torn;
        let found = mounted.read("sectors").expect("read");
        assert_eq!(found.len(), 4 * SECTOR_BYTES);
        let sectors: Vec<u8> = found.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect();
        for (sector, first) in found.chunks(SECTOR_BYTES).zip(&sectors) {
            assert!(sector.iter().all(|byte| byte == first), "seed {seed}: a sector is never torn");
        }
        mixtures.insert(sectors);
    }
    assert!(torn > 10, "{torn} torn");
    assert!(mixtures.len() > 8, "{mixtures:?}");
    assert!(mixtures.contains(&vec![1; 4]) && mixtures.contains(&vec![2; 4]), "{mixtures:?}");
}

#[test]
fn a_later_write_may_survive_an_earlier_one() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..60 {
        let Some(mounted) = mounted() else { return };
        let file = mounted.durable_file("order", &[0; 2 * SECTOR_BYTES]);
        file.write_all_at(&[1; SECTOR_BYTES], 0).expect("written");
        file.write_all_at(&[2; SECTOR_BYTES], SECTOR_BYTES as u64).expect("written");
        mounted.fs.lose_power(seed);
        let found = mounted.read("order").expect("read");
        outcomes.insert((found[0], found[SECTOR_BYTES]));
    }
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [(0, 0), (0, 2), (1, 0), (1, 2)]);
}

#[test]
fn an_unsynced_cut_may_be_undone() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..30 {
        let Some(mounted) = mounted() else { return };
        let file = mounted.durable_file("cut", &[7; 1000]);
        file.set_len(10).expect("cut");
        mounted.fs.lose_power(seed);
        outcomes.insert(mounted.read("cut").expect("read"));
    }
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [vec![7; 10], vec![7; 1000]]);
}

#[test]
fn rule_5_a_synced_file_has_a_name_for_certain_only_after_its_directory_was_synced() {
    let mut found = BTreeSet::new();
    for seed in 0..40 {
        let Some(mounted) = mounted() else { return };
        std::fs::create_dir(mounted.path("dir")).expect("made");
        mounted.sync_root();
        for name in ["dir/named", "dir/nameless"] {
            let mut file = create(&mounted.path(name));
            file.write_all(b"synced").expect("written");
            file.sync_all().expect("synced");
            if name == "dir/named" {
                sync_dir(&mounted.path("dir"));
            }
        }
        mounted.fs.lose_power(seed);
        assert_eq!(mounted.read("dir/named").expect("read"), b"synced", "seed {seed}");
        if mounted.exists("dir/nameless") {
            assert_eq!(mounted.read("dir/nameless").expect("read"), b"synced", "seed {seed}");
        }
        found.insert(mounted.exists("dir/nameless"));
    }
    assert_eq!(found.len(), 2, "both outcomes come up");
}

#[test]
fn rule_5_a_synced_directory_is_gone_with_the_unsynced_name_above_it() {
    let mut found = BTreeSet::new();
    for seed in 0..40 {
        let Some(mounted) = mounted() else { return };
        std::fs::create_dir(mounted.path("dir")).expect("made");
        create(&mounted.path("dir/file")).sync_all().expect("synced");
        sync_dir(&mounted.path("dir"));
        mounted.fs.lose_power(seed);
        assert_eq!(mounted.exists("dir"), mounted.exists("dir/file"), "seed {seed}");
        found.insert(mounted.exists("dir"));
    }
    assert_eq!(found.len(), 2, "both outcomes come up");
}

#[test]
fn a_rename_that_was_not_synced_leaves_the_old_or_the_new_file_and_never_neither() {
    let mut found = BTreeSet::new();
    for seed in 0..40 {
        let Some(mounted) = mounted() else { return };
        mounted.durable_file("name", b"old");
        mounted.durable_file("name.new", b"new");
        std::fs::rename(mounted.path("name.new"), mounted.path("name")).expect("renamed");
        mounted.fs.lose_power(seed);
        let name = mounted.read("name").expect("never neither");
        assert_eq!(mounted.exists("name.new"), name == b"old", "seed {seed}: a rename is one change");
        found.insert(name);
    }
    assert_eq!(found.len(), 2, "both outcomes come up");
    let Some(mounted) = mounted() else { return };
    mounted.durable_file("name", b"old");
    mounted.durable_file("name.new", b"new");
    std::fs::rename(mounted.path("name.new"), mounted.path("name")).expect("renamed");
    mounted.sync_root();
    assert!(!mounted.fs.lose_power(1).is_real(), "a synced rename is durable");
    assert_eq!(mounted.read("name").expect("read"), b"new");
}

#[test]
fn a_removed_file_may_come_back_with_its_synced_bytes_until_the_directory_is_synced() {
    let mut found = BTreeSet::new();
    for seed in 0..30 {
        let Some(mounted) = mounted() else { return };
        mounted.durable_file("segment", b"synced");
        std::fs::remove_file(mounted.path("segment")).expect("removed");
        mounted.fs.lose_power(seed);
        if mounted.exists("segment") {
            assert_eq!(mounted.read("segment").expect("read"), b"synced", "seed {seed}");
        }
        found.insert(mounted.exists("segment"));
    }
    assert_eq!(found.len(), 2, "both outcomes come up");
}

#[test]
fn a_killed_process_is_started_again_without_mounting_anew() {
    let Some(mounted) = mounted() else { return };
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(mounted.root());
        command
    };
    mounted.durable_file("log", b"");
    let mut child = run("echo saved > log; sync log; while :; do echo lost >> log; done").spawn().expect("sh runs");
    while mounted.fs.writes() < 100 {
        std::thread::yield_now();
    }
    child.kill().expect("killed");
    child.wait().expect("dead");
    let loss = mounted.fs.lose_power(5);
    assert!(loss.writes_kept > 0 && loss.writes_dropped > 0, "{loss:?}");
    let output = run("head -n 1 log; echo more >> log; tail -n 1 log").output().expect("sh runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "saved\nmore\n");
}

#[test]
fn handles_from_before_the_loss_are_stale() {
    let Some(mounted) = mounted() else { return };
    let file = mounted.durable_file("file", b"bytes");
    let root = File::open(mounted.root()).expect("opened");
    mounted.fs.lose_power(1);
    let is_stale = |error: Errno| error == Errno::STALE || error == Errno::IO;
    assert!(is_stale(errno(file.read_exact_at(&mut [0; 5], 0))));
    assert!(is_stale(errno(file.write_all_at(b"late!", 0))));
    assert!(is_stale(errno(file.sync_data())));
    assert!(is_stale(errno(file.set_len(0))));
    assert!(is_stale(errno(root.sync_all())));
    drop(file);
    assert_eq!(mounted.read("file").expect("the name leads to it again"), b"bytes");
}
