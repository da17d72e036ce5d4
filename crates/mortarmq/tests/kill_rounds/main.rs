//! Goal: SIGKILL at random moments under load loses no acknowledged message, repeats no acked one, reuses no number, gives
//! every repeat a true cause, and leaves books that balance. Method: real processes, real disk, and a record of what the
//! clients saw kept in this process, against which every delivery and every restart is held.
//!
//! `MORTARMQ_KILL_ROUNDS=20 cargo test --profile ci -p mortarmq --test kill_rounds -- --nocapture` plays 20 rounds;
//! `MORTARMQ_SEED` repeats the choices (not the moments) of a run.

mod load;
mod random;
mod record;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use load::Load;
use random::Random;
use record::{Counts, Record};
use support::Broker;

/// Each round goes on until so much is confirmed since the last kill.
const PUBLISHES_PER_ROUND: u64 = 1000;
const SETTLES_PER_ROUND: u64 = 500;
/// Files so small that a round goes over several roll-overs and checkpoints.
const SMALL_FILES: [&str; 6] =
    ["--journal-file-bytes", "1MiB", "--snapshot-journal-bytes", "1MiB", "--journal-keep-bytes", "1MiB"];
/// A round or a drain that takes longer has stopped moving.
const PATIENCE: Duration = Duration::from_secs(90);

#[test]
fn p1_p3_p6_p7_p9_p10_hold_through_kill_rounds() {
    let rounds = number("MORTARMQ_KILL_ROUNDS").unwrap_or(3);
    let seed = number("MORTARMQ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("{rounds} rounds, MORTARMQ_SEED={seed}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::start(&folder.path().join("data"));
    broker.rows(&["topics", "create", "orders", "--partitions", "4"]);
    let record = Arc::new(Record::default());
    let mut random = Random::new(seed);
    let load = Load::start(&broker.client_addr, &record, seed);
    for round in 1..=rounds {
        let before = record.counts();
        wait_until("a round's work", || {
            load.check_alive();
            let now = record.counts();
            now.publishes - before.publishes >= PUBLISHES_PER_ROUND && now.settles - before.settles >= SETTLES_PER_ROUND
        });
        std::thread::sleep(Duration::from_millis(random.below(300)));
        let killed = record.kill(|| broker.kill());
        let started = Instant::now();
        // Every other round rolls over and takes checkpoints all the time.
        broker.restart_with(if round % 2 == 1 { &SMALL_FILES } else { &[] });
        let recovered = started.elapsed();
        check_books(&broker, &record);
        print_round(round, &before, &killed, recovered, &broker.found);
    }
    load.stop_producers();
    wait_until("the drain", || {
        load.check_alive();
        depth(&broker) == 0
    });
    load.stop();
    finish(&broker, &record);
}

/// The books balance at this moment, and agree with what the clients saw.
fn check_books(broker: &Broker, record: &Record) {
    // What is confirmed before the question is in the answer; what is sent after it may not be.
    let before = record.counts();
    let rows = broker.rows(&["balance", "--json"]);
    let after = record.counts();
    for row in rows.lines() {
        let row: serde_json::Value = serde_json::from_str(row).expect("a row of JSON");
        let of = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{key} in {row}"));
        assert_eq!(of("produced"), of("delivered") + of("dropped") + of("dlq") + of("depth"), "P9: {row}");
        assert_eq!(of("dropped") + of("dlq"), 0, "P4: nothing was dropped: {row}");
        let path = record::path_of(row["group"].as_str().expect("a group"));
        assert!(of("produced") >= before.publishes, "P1: {} confirmed, {row}", before.publishes);
        assert!(of("produced") <= after.sent, "P3: {} sent, {row}", after.sent);
        assert!(of("delivered") >= before.acks_confirmed[path], "P6: {:?}, {row}", before.acks_confirmed);
        assert!(of("delivered") <= after.acks_sent[path], "P9: {:?}, {row}", after.acks_sent);
    }
}

fn finish(broker: &Broker, record: &Record) {
    record.check_everything_was_acked();
    check_books(broker, record);
    let counts = record.counts();
    for row in broker.rows(&["balance", "--json"]).lines() {
        let row: serde_json::Value = serde_json::from_str(row).expect("a row of JSON");
        assert_eq!(row["produced"].as_u64(), Some(counts.publishes), "P3: each number is stored once: {row}");
        assert_eq!(row["delivered"].as_u64(), Some(counts.publishes), "P4: {row}");
    }
    let repeated = record.some_repeated(5);
    for (group, partition, seq, cause) in &repeated {
        let trace = broker.rows(&["trace", "orders", &partition.to_string(), &seq.to_string()]);
        let path = format!("orders/{group}");
        let ended = trace.lines().any(|row| row.contains(&path) && row.contains("lease_ended") && row.contains(cause));
        assert!(ended, "P7: the trace of {partition}:{seq} tells no lease of {path} ended as {cause}:\n{trace}");
    }
    println!(
        "{} publishes and {} settles confirmed, {} deliveries, {} repeats by cause {:?}, {} traces read",
        counts.publishes,
        counts.settles,
        counts.deliveries,
        counts.repeats.values().sum::<u64>(),
        counts.repeats,
        repeated.len()
    );
}

fn print_round(round: u64, before: &Counts, killed: &Counts, recovered: Duration, found: &str) {
    println!(
        "round {round}: killed after {} publishes and {} settles; ready again after {:.2} s ({found})",
        killed.publishes - before.publishes,
        killed.settles - before.settles,
        recovered.as_secs_f64()
    );
}

fn depth(broker: &Broker) -> u64 {
    let rows = broker.rows(&["balance", "--json"]);
    let depths = rows.lines().map(|row| {
        let row: serde_json::Value = serde_json::from_str(row).expect("a row of JSON");
        row["depth"].as_u64().expect("a depth")
    });
    depths.sum()
}

fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_done() {
        assert!(started.elapsed() < PATIENCE, "{what} did not end within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
