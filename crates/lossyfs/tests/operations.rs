//! What a process sees while the power stays on: a file system like any other.

mod support;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use support::{create, errno, mounted, sync_dir};

#[test]
fn the_flags_of_open_mean_what_they_say() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("file");
    create(&path).write_all(b"first").expect("written");
    assert_eq!(errno(File::create_new(&path)), Errno::EXIST);
    let mut appends = OpenOptions::new().append(true).open(&path).expect("opened");
    let mut other = OpenOptions::new().append(true).open(&path).expect("opened");
    appends.write_all(b" second").expect("appended");
    other.write_all(b" third").expect("appended");
    appends.write_all(b" fourth").expect("appended");
    assert_eq!(mounted.read("file").expect("read"), b"first second third fourth");
    drop(OpenOptions::new().write(true).truncate(true).open(&path).expect("opened"));
    assert_eq!(mounted.read("file").expect("read"), b"");
    assert_eq!(errno(File::open(mounted.path("none"))), Errno::NOENT);
    assert_eq!(errno(File::open(mounted.path("file/below"))), Errno::NOTDIR);
    let synchronous = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::DSYNC;
    let refused = rustix::fs::open(&path, synchronous, rustix::fs::Mode::empty());
    assert_eq!(refused.err(), Some(Errno::OPNOTSUPP), "what is not modelled is not pretended");
}

#[test]
fn reads_and_writes_keep_their_place_and_the_end_is_the_end() {
    let Some(mounted) = mounted() else { return };
    let mut file = create(&mounted.path("file"));
    file.write_all(b"abc").expect("written");
    file.rewind().expect("rewound");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    assert_eq!(text, "abc");
    assert_eq!(file.read_at(&mut [0; 8], 3).expect("read at the end"), 0);
    assert_eq!(file.read_at(&mut [0; 8], 1 << 40).expect("read far beyond"), 0);
    let large: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    file.write_all_at(&large, 7).expect("written in many pieces");
    assert_eq!(mounted.read("file").expect("read")[7..], large);
    assert_eq!(errno(file.set_len(1 << 50)), Errno::FBIG);
    std::fs::set_permissions(mounted.path("file"), PermissionsExt::from_mode(0o640)).expect("set");
    let found = file.metadata().expect("looked").permissions().mode();
    assert_eq!(found & 0o7777, 0o640);
}

#[test]
fn directories_are_made_listed_renamed_and_removed() {
    let Some(mounted) = mounted() else { return };
    std::fs::create_dir_all(mounted.path("a/b/c")).expect("made");
    drop(create(&mounted.path("a/file")));
    assert_eq!(errno(std::fs::remove_dir(mounted.path("a"))), Errno::NOTEMPTY);
    assert_eq!(errno(std::fs::remove_dir(mounted.path("a/file"))), Errno::NOTDIR);
    assert_eq!(errno(std::fs::rename(mounted.path("a"), mounted.path("a/b/a"))), Errno::INVAL);
    std::fs::rename(mounted.path("a/b"), mounted.path("moved")).expect("moved elsewhere");
    std::fs::rename(mounted.path("a/file"), mounted.path("moved/file")).expect("moved elsewhere");
    assert!(mounted.exists("moved/c") && mounted.exists("moved/file"));
    assert_eq!(errno(std::fs::rename(mounted.path("moved/file"), mounted.path("a"))), Errno::ISDIR);
    std::fs::rename(mounted.path("moved/c"), mounted.path("a")).expect("an empty directory is replaced");
    assert_eq!(errno(std::fs::remove_dir(mounted.path("moved"))), Errno::NOTEMPTY);
    std::fs::remove_dir_all(mounted.path("moved")).expect("removed");
    let names: Vec<_> = std::fs::read_dir(mounted.root()).expect("listed").map(|entry| entry.expect("entry")).collect();
    assert_eq!(names.iter().map(std::fs::DirEntry::file_name).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_removed_file_stays_usable_while_it_is_open() {
    let Some(mounted) = mounted() else { return };
    let file = mounted.durable_file("file", b"before");
    std::fs::remove_file(mounted.path("file")).expect("removed");
    mounted.sync_root();
    file.write_all_at(b"behind", 3).expect("written");
    file.sync_data().expect("synced");
    let mut found = [0; 9];
    file.read_exact_at(&mut found, 0).expect("read");
    assert_eq!(&found, b"befbehind");
    assert_eq!(file.metadata().expect("looked").len(), 9);
}

#[test]
fn ten_thousand_files_are_removed_while_they_are_listed() {
    const FILES: usize = 10_000;
    let Some(mounted) = mounted() else { return };
    let dir = mounted.path("many");
    std::fs::create_dir(&dir).expect("made");
    for file in 0..FILES {
        drop(create(&dir.join(format!("{file:05}"))));
    }
    sync_dir(&dir);
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(&dir).expect("listed") {
        let path = entry.expect("entry").path();
        std::fs::remove_file(&path).expect("removed");
        seen.insert(path);
    }
    assert_eq!(seen.len(), FILES);
    std::fs::remove_dir(&dir).expect("it is empty");
    mounted.sync_root();
    assert_eq!(rustix::fs::statvfs(mounted.root()).expect("reported").f_bfree, 1 << 28, "all space is free");
    assert!(!mounted.fs.lose_power(1).is_real(), "the directory went with all that was pending in it");
}

#[test]
fn shell_tools_work_on_it() {
    let Some(mounted) = mounted() else { return };
    let script = "set -e; mkdir -p a/b; seq 1 100000 > a/numbers; cp -a a/numbers a/b/copy; cmp a/numbers a/b/copy
        sort -rn a/numbers | head -n 1 > top; mv top a/top; tar cf all.tar a; rm -r a; tar xf all.tar; sync a/top
        dd if=/dev/zero of=zeros bs=4096 count=100 conv=fdatasync 2>/dev/null; stat -c %s zeros; cat a/top
        find . -type f | sort | tr '\\n' ' '; flock a/top true; df -k . >/dev/null; truncate -s 1 zeros; wc -c < zeros";
    let output = Command::new("sh").args(["-c", script]).current_dir(mounted.root()).output().expect("sh runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let expected = "409600\n100000\n./a/b/copy ./a/numbers ./a/top ./all.tar ./zeros 1\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{errors}");
}

#[test]
fn two_threads_use_it_at_once() {
    const ROUNDS: usize = 300;
    let Some(mounted) = mounted() else { return };
    let write = |name: String| {
        let file = create(&mounted.path(&name));
        for round in 0..ROUNDS {
            file.write_all_at(&[round as u8; 700], round as u64 * 700).expect("written");
            file.sync_data().expect("synced");
            let mut back = [0; 700];
            file.read_exact_at(&mut back, round as u64 * 700).expect("read");
            assert_eq!(back, [round as u8; 700]);
            std::fs::rename(mounted.path(&name), mounted.path(&format!("{name}.{round}"))).expect("renamed");
            std::fs::rename(mounted.path(&format!("{name}.{round}")), mounted.path(&name)).expect("renamed");
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || write(format!("file-{thread}")));
        }
    });
    mounted.sync_root();
    assert!(!mounted.fs.lose_power(1).is_real(), "everything was synced");
    for thread in 0..2 {
        assert_eq!(mounted.read(&format!("file-{thread}")).expect("read").len(), ROUNDS * 700);
    }
}

#[test]
fn locks_are_kept_by_the_kernel() {
    let Some(mounted) = mounted() else { return };
    let (first, second) = (create(&mounted.path("lock")), File::open(mounted.path("lock")).expect("opened"));
    first.try_lock().expect("free");
    assert!(matches!(second.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
    drop(first);
    second.try_lock().expect("free again");
}

#[test]
fn dropping_it_unmounts_although_a_process_has_a_file_open() {
    let Some(mounted) = mounted() else { return };
    let file = create(&mounted.path("file"));
    let mut child = Command::new("sh")
        .args(["-c", "echo ready; cat >/dev/null; echo late; exec 3<file"])
        .current_dir(mounted.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh runs");
    let mut answer = [0; 6];
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_exact(&mut answer).expect("it is in the directory");
    let root = mounted.root().to_owned();
    drop(mounted);
    let mounts = std::fs::read_to_string("/proc/mounts").expect("read");
    assert!(!mounts.contains(root.to_str().expect("utf-8")), "{mounts}");
    assert_eq!(errno(file.sync_data()), Errno::NOTCONN);
    drop(child.stdin.take());
    assert!(!child.wait().expect("it ends").success(), "what it had is gone");
}
