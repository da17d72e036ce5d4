//! Faults on demand: each one happens, once, where it was asked for.

mod support;

use std::io::ErrorKind::{InvalidInput, NotFound};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use support::{create, errno, mounted};

const BLOCK_BYTES: usize = 4096;

#[test]
fn rule_2_a_failed_sync_forgets_its_writes_although_they_read_back() {
    for seed in 0..10 {
        let Some(mounted) = mounted() else { return };
        let file = mounted.durable_file("journal", b"synced");
        mounted.fs.fail_next_sync(2);
        file.write_all_at(b"saved!", 6).expect("written");
        file.sync_data().expect("the first one works");
        file.write_all_at(b"forgotten", 12).expect("written");
        assert_eq!(errno(file.sync_data()), Errno::IO);
        file.sync_data().expect("the next one lies");
        assert_eq!(mounted.read("journal").expect("read"), b"syncedsaved!forgotten");
        file.write_all_at(b"later", 21).expect("written");
        file.sync_data().expect("synced");
        mounted.fs.lose_power(seed);
        assert_eq!(mounted.read("journal").expect("read"), b"syncedsaved!\0\0\0\0\0\0\0\0\0later", "seed {seed}");
    }
}

#[test]
fn rule_2_a_failed_sync_of_a_directory_forgets_its_names() {
    for seed in 0..10 {
        let Some(mounted) = mounted() else { return };
        drop(create(&mounted.path("forgotten")));
        mounted.fs.fail_next_sync(1);
        let root = std::fs::File::open(mounted.root()).expect("opened");
        assert_eq!(errno(root.sync_all()), Errno::IO);
        drop(create(&mounted.path("later")));
        root.sync_all().expect("synced");
        assert!(mounted.exists("forgotten") && mounted.exists("later"));
        mounted.fs.lose_power(seed);
        assert!(!mounted.exists("forgotten") && mounted.exists("later"), "seed {seed}");
    }
}

#[test]
fn the_write_that_was_named_fails_and_writes_nothing() {
    let Some(mounted) = mounted() else { return };
    let file = create(&mounted.path("file"));
    mounted.fs.fail_next_write(2);
    file.write_all_at(b"one", 0).expect("written");
    assert_eq!(errno(file.write_all_at(b"two", 3)), Errno::IO);
    file.write_all_at(b"six", 6).expect("written");
    assert_eq!(mounted.read("file").expect("read"), b"one\0\0\0six");
    assert_eq!(mounted.fs.writes(), 3);
}

#[test]
fn a_full_disk_refuses_what_needs_space_and_works_again_when_there_is_some() {
    let Some(mounted) = mounted() else { return };
    mounted.fs.set_capacity(Some(3 * BLOCK_BYTES as u64));
    let file = create(&mounted.path("file"));
    let all = vec![1; 4 * BLOCK_BYTES];
    assert_eq!(file.write_at(&all, 0).expect("a short write"), 3 * BLOCK_BYTES);
    assert_eq!(errno(file.write_at(&all, 3 * BLOCK_BYTES as u64)), Errno::NOSPC);
    assert_eq!(errno(std::fs::File::create_new(mounted.path("other"))), Errno::NOSPC);
    assert_eq!(errno(std::fs::create_dir(mounted.path("dir"))), Errno::NOSPC);
    let reported = rustix::fs::statvfs(mounted.root()).expect("reported");
    assert_eq!((reported.f_blocks, reported.f_bfree, reported.f_bavail), (3, 0, 0));
    file.write_all_at(&all[..BLOCK_BYTES], 100).expect("an overwrite needs no space");
    file.set_len(BLOCK_BYTES as u64).expect("cut");
    assert_eq!(rustix::fs::statvfs(mounted.root()).expect("reported").f_bavail, 2);
    file.write_all_at(&all[..BLOCK_BYTES], BLOCK_BYTES as u64).expect("there is room again");
    drop(create(&mounted.path("other")));
    mounted.fs.set_capacity(None);
    file.write_all_at(&all, 0).expect("no limit");
}

#[test]
fn a_length_is_no_reservation_and_fallocate_is() {
    let Some(mounted) = mounted() else { return };
    mounted.fs.set_capacity(Some(4 * BLOCK_BYTES as u64));
    let (sparse, reserved) = (create(&mounted.path("sparse")), create(&mounted.path("reserved")));
    sparse.set_len(100 * BLOCK_BYTES as u64).expect("a hole needs no space");
    let whole = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&reserved, whole, 0, 3 * BLOCK_BYTES as u64).expect("reserved");
    assert_eq!(reserved.metadata().expect("length").len(), 3 * BLOCK_BYTES as u64);
    sparse.write_all_at(&[1; BLOCK_BYTES], 0).expect("the last block");
    assert_eq!(errno(sparse.write_at(&[1; BLOCK_BYTES], BLOCK_BYTES as u64)), Errno::NOSPC);
    reserved.write_all_at(&[1; 3 * BLOCK_BYTES], 0).expect("it was reserved");
    let answer = rustix::fs::fallocate(&reserved, whole, 0, 4 * BLOCK_BYTES as u64);
    assert_eq!(answer, Err(Errno::NOSPC));
}

#[test]
fn a_removed_file_gives_its_space_back_when_nobody_has_it_open() {
    let Some(mounted) = mounted() else { return };
    mounted.fs.set_capacity(Some(2 * BLOCK_BYTES as u64));
    let file = mounted.durable_file("file", &[1; 2 * BLOCK_BYTES]);
    std::fs::remove_file(mounted.path("file")).expect("removed");
    let available = || rustix::fs::statvfs(mounted.root()).expect("reported").f_bavail;
    assert_eq!(available(), 0, "it is open");
    drop(file);
    // The kernel tells of a close after it returned.
    let patience = Instant::now() + Duration::from_secs(10);
    while available() != 2 && Instant::now() < patience {
        std::thread::yield_now();
    }
    assert_eq!(available(), 2);
}

#[test]
fn a_sync_takes_as_long_as_it_is_told_and_is_durable_then() {
    const DELAY: Duration = Duration::from_millis(200);
    let Some(mounted) = mounted() else { return };
    let file = mounted.durable_file("file", &[0; 512]);
    mounted.fs.set_sync_delay(DELAY);
    file.write_all_at(&[1; 512], 0).expect("written");
    let start = Instant::now();
    file.sync_data().expect("synced");
    assert!(start.elapsed() >= DELAY);
    assert!(!mounted.fs.lose_power(1).is_real());
    assert_eq!(mounted.read("file").expect("read"), [1; 512]);
}

#[test]
fn a_slow_sync_stops_no_one_else_and_ends_with_an_error_when_the_power_goes() {
    const DELAY: Duration = Duration::from_secs(60);
    let Some(mounted) = mounted() else { return };
    let (file, other) = (mounted.durable_file("file", &[0; 512]), mounted.durable_file("other", b""));
    mounted.fs.set_sync_delay(DELAY);
    let start = Instant::now();
    let asked = mounted.fs.syncs();
    file.write_all_at(&[1; 512], 0).expect("written");
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| file.sync_data());
        while mounted.fs.syncs() == asked {
            std::thread::yield_now();
        }
        assert_eq!(mounted.read("file").expect("read"), [1; 512]);
        other.write_all_at(&[2; 512], 0).expect("written");
        let loss = mounted.fs.lose_power(3);
        assert_eq!(loss.sectors_kept + loss.sectors_dropped, 2, "what the sync was to cover was pending: {loss:?}");
        assert_eq!(errno(sync.join().expect("no panic")), Errno::STALE);
    });
    assert!(start.elapsed() < DELAY, "nobody waited for it");
}

#[test]
fn a_flipped_bit_is_read_now_and_after_a_power_loss() {
    let Some(mounted) = mounted() else { return };
    mounted.durable_file("file", &[0; 10]);
    mounted.fs.flip_bit(&mounted.path("file"), 3, 6).expect("flipped");
    mounted.fs.flip_bit(std::path::Path::new("file"), 4, 0).expect("flipped");
    let rotten = [0, 0, 0, 64, 1, 0, 0, 0, 0, 0];
    assert_eq!(mounted.read("file").expect("read"), rotten);
    mounted.fs.lose_power(1);
    assert_eq!(mounted.read("file").expect("read"), rotten);
    let file = std::fs::File::options().write(true).open(mounted.path("file")).expect("opened");
    file.write_all_at(&[9; 10], 0).expect("written");
    mounted.fs.flip_bit(&mounted.path("file"), 3, 6).expect("flipped under a pending write");
    assert_eq!(mounted.read("file").expect("read"), [9; 10], "what is cached hides the medium");
    let errors = [
        mounted.fs.flip_bit(&mounted.path("file"), 10, 0),
        mounted.fs.flip_bit(&mounted.path("file"), 0, 8),
        mounted.fs.flip_bit(&mounted.path("none"), 0, 0),
    ];
    let kinds = errors.map(|answer| answer.expect_err("refused").kind());
    assert_eq!(kinds, [InvalidInput, InvalidInput, NotFound]);
}

#[test]
fn reads_of_a_bad_range_fail_until_it_is_healed() {
    let Some(mounted) = mounted() else { return };
    mounted.durable_file("file", &[5; 2000]);
    mounted.fs.fail_reads(&mounted.path("file"), 600..700).expect("marked");
    for seed in 0..2 {
        let file = std::fs::File::open(mounted.path("file")).expect("opened");
        assert_eq!(errno(file.read_exact_at(&mut [0; 1], 699)), Errno::IO);
        file.read_exact_at(&mut [0; 600], 0).expect("before it");
        file.read_exact_at(&mut [0; 1300], 700).expect("after it");
        assert_eq!(errno(mounted.read("file")), Errno::IO);
        drop(file);
        mounted.fs.lose_power(seed);
    }
    mounted.fs.heal_reads(&mounted.path("file")).expect("healed");
    assert_eq!(mounted.read("file").expect("read"), [5; 2000]);
}
