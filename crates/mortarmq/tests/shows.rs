//! The two commands that run a broker of their own: `demo` and `bench`.

mod support;

use std::process::Stdio;
use std::time::Duration;

use support::{mortarmq, run, wait_for};

#[test]
fn demo_kills_the_leader_of_three_nodes_and_nothing_is_lost() {
    let done = run(&["demo"]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    for part in [
        "started three nodes",
        "they have elected node ",
        "which leads, is gone",
        "s after the kill",
        "recovered ",
        "counts for a majority again",
        "is a dead letter now",
        "(no such customer); read, and settled",
        "books balance at commit index",
        "P12 a majority goes on by itself within 2 s",
        "\nverdict: OK\n",
    ] {
        assert!(done.stderr.contains(part), "{part:?} is not in:\n{}", done.stderr);
    }
    let rows: Vec<Vec<&str>> = done.stdout.lines().map(|line| line.split('\t').collect()).collect();
    let books = |group: &str| rows.iter().find(|row| row.len() == 8 && row[1] == group).expect(group);
    assert_eq!(books("billing")[5..], ["1", "0", "0"], "one dead letter: {}", done.stdout);
    assert_eq!(books("shipping")[4..], ["0", "0", "0", "0"], "{}", done.stdout);
    assert!(done.stdout.contains("\tdead\t"), "the dead letter's life is told: {}", done.stdout);
}

#[test]
fn demo_kills_a_single_node_and_its_books_balance() {
    let done = run(&["demo", "--nodes", "1"]);
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    for part in [
        "published 2,000 messages",
        "kill -9",
        "recovered 2,000 messages",
        "2,000 confirmed, 2,000 acked once each",
        "\nverdict: OK\n",
    ] {
        assert!(done.stderr.contains(part), "{part:?} is not in:\n{}", done.stderr);
    }
    assert!(done.stdout.contains("orders\tbilling\t2000\t2000\t0\t0\t0\t0\n"), "{}", done.stdout);
    assert!(done.stdout.contains("\tconsumer_lost\t"), "a message of the lost consumer is traced: {}", done.stdout);
    let refused = run(&["demo", "--nodes", "2"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}

/// The processes that have this text in their command line.
fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("Linux").filter_map(Result::ok);
    let command = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let commands = entries.filter_map(command).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    commands.filter(|command| command.contains(text)).collect()
}

#[test]
fn demo_that_is_interrupted_leaves_no_process_and_no_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("text").to_owned();
    let mut command = mortarmq();
    command.arg("demo").env("TMPDIR", &place).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut demo = command.spawn().expect("the binary runs");
    wait_for(Duration::from_secs(30), || (processes_with(&place).len() == 3).then_some(()));
    // In the middle of it: the load has begun once there is a history.
    wait_for(Duration::from_secs(30), || {
        let folders = std::fs::read_dir(&place).ok()?.filter_map(Result::ok);
        folders.into_iter().any(|entry| entry.path().join("history.jsonl.zst").exists()).then_some(())
    });
    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let ended = wait_for(Duration::from_secs(20), || demo.try_wait().expect("a child of ours"));
    assert_eq!(ended.code(), Some(1));
    assert_eq!(processes_with(&place), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(&place).expect("it is there").count(), 0);
}

/// The rows of `bench` with these arguments beside what keeps it short.
fn bench(args: &[&str]) -> (Vec<serde_json::Value>, String) {
    let short = ["bench", "--seconds", "1", "--backlog", "20000", "--json"];
    let done = run(&[&short[..], args].concat());
    assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    let rows = done.stdout.lines().map(|line| serde_json::from_str(line).expect("one object per line")).collect();
    (rows, done.stderr)
}

#[test]
fn bench_prints_a_row_per_phase_next_to_its_floors() {
    let (rows, stderr) = bench(&[]);
    let phases: Vec<_> = rows.iter().map(|row| row["phase"].as_str().expect("a name")).collect();
    let all = ["floor: write 4 KiB + fdatasync", "single", "publish", "batch", "consume", "at-once", "idle"];
    assert_eq!(phases, all);
    for row in rows.iter().filter(|row| row["phase"] != "idle") {
        assert!(row["messages"].as_u64() > Some(0) && row["per_s"].as_u64() > Some(0), "{row}");
        assert!(row["p50_us"].as_u64() <= row["p99_us"].as_u64(), "{row}");
        assert!(row["p99_us"].as_u64() <= row["p999_us"].as_u64(), "{row}");
    }
    for row in rows.iter().filter(|row| all[1..6].contains(&row["phase"].as_str().expect("a name"))) {
        for ratio in ["of_echo_pct", "of_commit_pct", "p50_of_commit_pct", "commit_p50_us", "cpu_ms_per_million"] {
            assert!(row[ratio].as_u64() > Some(0), "{ratio} of {row}");
        }
        assert!(row["peak_kib"].as_u64() > Some(1000), "{row}");
    }
    let at_once = &rows[5];
    assert!(at_once["delivery_p50_us"].as_u64() > Some(0), "{at_once}");
    assert!(at_once["commit_delivery_p50_us"].as_u64() > Some(0), "{at_once}");
    assert!(rows[6]["peak_kib"].as_u64() > Some(1000), "{}", rows[6]);
    assert!(stderr.contains("floor of this disk: "), "{stderr}");
}

#[test]
fn bench_of_three_nodes_stands_next_to_one_and_tells_what_the_nodes_send() {
    // Goal: what a majority costs is measured at one of three: both followers are sent every byte, and one alone sends none.
    let args = ["--nodes", "3", "--phase", "publish"];
    let (rows, stderr) = bench(&args);
    let row = &rows[1];
    assert_eq!((row["phase"].as_str(), row["nodes"].as_u64()), (Some("publish"), Some(3)), "{row}");
    for figure in ["per_s", "of_echo_pct", "of_commit_pct", "of_single_pct", "p50_of_single_pct", "cpu_ms_per_million"]
    {
        assert!(row[figure].as_u64() > Some(0), "{figure} of {row}");
    }
    let sent = row["peer_bytes_of_published_pct"].as_u64().expect("it is told");
    // Every value twice; heads, votes and answers are less than a value of 256 bytes.
    assert!((200..400).contains(&sent), "{sent} % of {row}");
    assert!(!stderr.contains("leader changed"), "{stderr}");
    let (rows, _) = bench(&["--no-floors", "--phase", "publish"]);
    assert_eq!((rows[0]["nodes"].as_u64(), rows[0]["peer_bytes"].is_null()), (Some(1), true), "{}", rows[0]);
    let refused = run(&["bench", "--nodes", "2"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}

#[test]
fn bench_runs_the_phases_that_are_named_with_keys_and_several_consumers() {
    let args = ["--phase", "at-once", "--keys", "7", "--consumers", "3", "--producers", "4", "--outstanding", "8"];
    let (rows, _) = bench(&[&args[..], &["--no-floors", "--runs", "2"]].concat());
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((rows[0]["keys"].as_u64(), rows[0]["runs"].as_u64()), (Some(7), Some(2)));
    assert!(rows[0]["messages"].as_u64() > Some(0) && rows[0]["of_commit_pct"].is_null(), "{}", rows[0]);
    let refused = run(&["bench", "--phase", "publsh"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("single, publish, batch, consume, at-once, idle"), "{}", refused.stderr);
}
