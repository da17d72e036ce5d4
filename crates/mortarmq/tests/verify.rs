//! `verify` on the folder of a real node: in use, killed, stopped, damaged.

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use support::{Broker, run};

/// Every file and directory with the time of its last change and its bytes.
fn state(dir: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        let changed = path.metadata().and_then(|metadata| metadata.modified()).expect("a time");
        if path.is_dir() {
            found.extend(state(&path));
            found.insert(path, (changed, Vec::new()));
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            found.insert(path, (changed, bytes));
        }
    }
    found
}

fn file_of(dir: &Path, kind: &str) -> PathBuf {
    let found = state(dir).into_keys().find(|path| path.extension().is_some_and(|found| found == kind));
    found.unwrap_or_else(|| panic!("no {kind}"))
}

fn flip(path: &Path, offset: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("opened");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("written");
}

#[test]
fn p11_verify_finds_a_killed_and_a_stopped_folder_sound_and_names_every_flipped_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = folder.path().join("data");
    let mut broker = Broker::start(&dir);
    let data_dir = broker.data_dir();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    broker.rows(&["pub", "orders", "order {n}", "--count", "50"]);
    broker.rows(&["sub", "orders", "--group", "g", "--count", "20"]);

    let in_use = run(&["verify", &data_dir]);
    assert_eq!((in_use.code, in_use.stdout.as_str()), (Some(1), ""));
    assert!(in_use.stderr.contains("in use by another process\n  stop the node first"), "{}", in_use.stderr);

    broker.kill();
    let before = state(&dir);
    let killed = run(&["verify", &data_dir]);
    assert_eq!((killed.code, killed.stdout.as_str()), (Some(0), ""), "{}", killed.stderr);
    assert!(killed.stderr.starts_with("read ") && killed.stderr.contains(": no damage"), "{}", killed.stderr);
    assert!(before == state(&dir), "nothing is changed");

    broker.restart();
    assert_eq!(broker.stop(), Some(0));
    let stopped = run(&["verify", &data_dir]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (Some(0), ""), "{}", stopped.stderr);

    for (kind, offset) in [("journal", 4_200), ("checkpoint", 20), ("segment", 80), ("index", 40), ("ledger", 60)] {
        let path = file_of(&dir, kind);
        flip(&path, offset);
        let before = state(&dir);
        let damaged = run(&["verify", &data_dir]);
        assert_eq!(damaged.code, Some(1), "{kind}: {}", damaged.stderr);
        let rows: Vec<Vec<&str>> = damaged.stdout.lines().map(|row| row.split('\t').collect()).collect();
        assert_eq!((rows.len(), rows[0].len(), rows[0][0]), (1, 3, path.to_str().expect("text")), "{rows:?}");
        assert!(rows[0][1].parse::<u64>().expect("an offset") <= offset, "{rows:?}");
        assert!(damaged.stderr.ends_with(": 1 damage\n"), "{kind}: {}", damaged.stderr);
        assert!(before == state(&dir), "nothing is changed");
        flip(&path, offset);
    }
    broker.restart();
    assert_eq!(broker.found.split(" in ").next(), Some("recovered 50 messages"), "it starts as if nobody had looked");
}

#[test]
fn verify_of_a_folder_without_data_is_an_error_and_makes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for dir in [folder.path().to_path_buf(), folder.path().join("nowhere")] {
        let done = run(&["verify", dir.to_str().expect("text")]);
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{}", done.stderr);
        assert!(done.stderr.contains(" holds no node's data\n  give the folder"), "{}", done.stderr);
    }
    assert!(state(folder.path()).is_empty());
}
