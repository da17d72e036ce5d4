//! Retention on the real binary and a real disk: files go, room comes back, and the books balance over a kill and a stop.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use support::{Broker, wait_for};

/// Everything that makes files go soon.
const FLAGS: &[&str] = &["--segment-max-bytes", "1MiB", "--snapshot-journal-bytes", "1MiB"];
const KEEP_BYTES: u64 = 2 << 20;
const LONG: Duration = Duration::from_secs(60);

/// The files of a kind, over all partitions, with their sizes.
fn files(data: &Path, kind: &str) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut folders = vec![data.join("topics")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry")) {
            // A file may go while it is looked at.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                folders.push(entry.path());
            } else if entry.path().extension().is_some_and(|extension| extension == kind) {
                found.push((entry.path(), about.len()));
            }
        }
    }
    found.sort();
    found
}

/// `first_seq`, `last_seq` and `size_bytes` of the only partition.
fn kept(broker: &Broker) -> (u64, u64, u64) {
    let row: serde_json::Value = serde_json::from_str(&get(broker, "/v1/topics/orders")).expect("JSON");
    let partition = &row["partition_stats"][0];
    let number = |key: &str| partition[key].as_u64().expect("a number");
    (number("first_seq"), number("last_seq"), number("size_bytes"))
}

fn get(broker: &Broker, path: &str) -> String {
    let text = broker.get(path).expect("it listens and answers");
    text.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
}

/// The row of a path: produced, delivered, dropped, dlq, depth. It adds up.
fn books(broker: &Broker, group: &str) -> [u64; 5] {
    let rows = broker.rows(&["balance", "orders"]);
    let row = rows.lines().find(|row| row.split('\t').nth(1) == Some(group)).expect("a row");
    let numbers: Vec<u64> = row.split('\t').skip(2).take(5).map(|text| text.parse().expect("a number")).collect();
    let found: [u64; 5] = numbers.try_into().expect("five");
    assert_eq!(found[0], found[1..].iter().sum::<u64>(), "P9: {row}");
    found
}

fn publish(broker: &Broker, count: u64) {
    broker.rows(&["pub", "orders", "order {n}", "--count", &count.to_string(), "--size", "2000"]);
}

#[test]
fn p4_p9_files_of_what_is_beyond_retention_bytes_go_and_the_books_balance_over_a_kill() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let data = dir.path().join("data");
    let mut broker = Broker::start_with(&data, FLAGS);
    let keep = format!("retention_bytes={KEEP_BYTES}");
    broker.rows(&["topics", "create", "orders", "--set", "partitions=1", "--set", &keep]);
    assert!(broker.rows(&["topics", "describe", "orders"]).contains("retention_bytes\t2097152\n"));
    // A group that reads some of it and goes away.
    publish(&broker, 10);
    assert_eq!(broker.rows(&["sub", "orders", "-g", "billing", "--count", "10"]).lines().count(), 10);
    publish(&broker, 6000);
    wait_for(LONG, || (kept(&broker).2 < KEEP_BYTES + (KEEP_BYTES >> 4)).then_some(()));
    publish(&broker, 1000);
    let (first, last, size) =
        wait_for(LONG, || Some(kept(&broker)).filter(|(_, _, size)| *size < KEEP_BYTES * 17 / 16));
    assert!((last, first > 5000, size >= KEEP_BYTES) == (7010, true, true), "{first} to {last}, {size} bytes");
    // Checkpoints follow each other closely here, and each takes away what is free by then.
    wait_for(LONG, || {
        publish(&broker, 50);
        let on_disk: u64 = files(&data, "segment").iter().map(|(_, bytes)| bytes).sum();
        (on_disk < KEEP_BYTES * 2 + (1 << 20)).then_some(())
    });
    assert!(files(&data, "segment").len() <= 5, "{:?}", files(&data, "segment"));
    // Retention goes on until less than a step is too much; then nothing changes any more.
    let step = KEEP_BYTES / 64 + 2100;
    wait_for(LONG, || (kept(&broker).2 <= KEEP_BYTES + step).then_some(()));
    let before = (kept(&broker), books(&broker, "billing"));
    assert_eq!((before.1[1], before.0.0), (10, before.1[2] + 11), "what is not acked is dropped, and no more");
    broker.kill();
    broker.restart_with(FLAGS);
    assert_eq!((kept(&broker), books(&broker, "billing")), before);
    assert_eq!(broker.stop(), Some(0));
    broker.restart_with(FLAGS);
    assert_eq!((kept(&broker), books(&broker, "billing")), before);
    let metrics = get(&broker, "/metrics");
    let dropped = format!("reason=\"retention\"}} {}\n", before.1[2]);
    assert!(metrics.contains(&dropped), "no {dropped:?}");
    // What is kept comes, from the first on; what is not is told in words.
    let (first, last, _) = kept(&broker);
    let rows = broker.rows(&["sub", "orders", "-g", "audit", "--count", &(last + 1 - first).to_string()]);
    assert_eq!(rows.lines().count() as u64, last + 1 - first);
    let traced = broker.run(&["trace", "orders", "0", "1"]);
    assert!(traced.stdout.contains("its record is gone: retention keeps this partition from sequence"), "{traced:?}");
    assert_eq!(books(&broker, "audit"), [last + 1 - first, last + 1 - first, 0, 0, 0]);
    assert_eq!(broker.stop(), Some(0));
    assert_eq!(support::run(&["verify", data.to_str().expect("text")]).code, Some(0));
}
