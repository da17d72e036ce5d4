//! Goal: one message that kills whoever works on it ends in the DLQ with its reason, and none of the 255 that were in the
//! same hands does, or is charged more than two attempts (P4, wire rule 6). Method: the binary, and consumer processes that
//! are killed by what they run.

#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use support::Broker;

/// Starts a consumer whose command notes each attempt, and kills it when it comes to the poisoned message.
fn consumer(broker: &Broker, attempts: &Path, settings: &[&str]) -> Child {
    let command = format!(
        "read value; echo \"$MORTARMQ_SEQUENCE $MORTARMQ_ATTEMPT\" >> {}; [ \"$value\" = poison ] && kill -9 $PPID; exit 0",
        attempts.display()
    );
    let mut args = vec!["sub", "orders", "--group", "g"];
    settings.iter().for_each(|setting| args.extend(["--set", setting]));
    args.extend(["--exec", &command]);
    let mut child = broker.command(&args);
    child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary runs")
}

/// Keeps so many consumers running until everything is settled; gives how many died.
fn consume(broker: &Broker, attempts: &Path, settings: &[&str], consumers: usize) -> u64 {
    let (started, mut died, mut running) = (Instant::now(), 0, Vec::new());
    loop {
        running.retain_mut(|child: &mut Child| {
            let has_ended = child.try_wait().expect("a child of ours").is_some();
            died += u64::from(has_ended);
            !has_ended
        });
        while running.len() < consumers {
            running.push(consumer(broker, attempts, settings));
        }
        std::thread::sleep(Duration::from_millis(50));
        let rows = broker.run(&["balance", "orders"]);
        let depth = rows.stdout.trim_end().split('\t').nth(6).map(str::to_owned);
        let is_settled = depth.as_deref() == Some("0");
        let is_late = started.elapsed() > Duration::from_secs(120);
        if is_settled || is_late {
            for mut child in running {
                child.kill().expect("a child of ours");
                child.wait().expect("and waited for");
            }
            assert!(is_settled, "after two minutes: {rows:?}, {died} consumers died");
            return died;
        }
    }
}

/// The highest attempt at which each message was worked on.
fn highest(attempts: &Path) -> BTreeMap<u64, u32> {
    let text = std::fs::read_to_string(attempts).expect("consumers wrote it");
    let mut highest = BTreeMap::new();
    for line in text.lines() {
        let (seq, attempt) = line.split_once(' ').expect("sequence and attempt");
        let most: &mut u32 = highest.entry(seq.parse().expect("a number")).or_default();
        *most = (*most).max(attempt.parse().expect("a number"));
    }
    highest
}

fn p4_poison(settings: &[&str], max_attempts: u32, consumers: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::start(&folder.path().join("data"));
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    // So that the group owes all of them, and the poisoned one comes first.
    broker.rows(&["pub", "orders", "poison"]);
    broker.rows(&["pub", "orders", "order {n}", "--count", "255"]);
    let attempts = folder.path().join("attempts");
    let died = consume(&broker, &attempts, settings, consumers);
    let balance = "orders\tg\t256\t255\t0\t1\t0\t0\n";
    assert_eq!(broker.rows(&["balance", "orders"]), balance);
    assert_eq!(died, u64::from(max_attempts), "one consumer for each attempt");
    let letters = broker.rows(&["dlq", "list", "orders"]);
    let columns: Vec<_> = letters.trim_end().split('\t').collect();
    assert_eq!((letters.lines().count(), columns[2]), (1, "consumer_lost"), "{letters}");
    assert!(letters.contains("orders/g 0:1"), "{letters}");
    let highest = highest(&attempts);
    assert_eq!((highest.len(), highest[&1]), (256, max_attempts));
    let charged = highest.iter().filter(|(seq, most)| **seq != 1 && **most > 3).collect::<Vec<_>>();
    assert!(charged.is_empty(), "charged more than two attempts: {charged:?}");
    broker.kill();
    broker.restart();
    assert_eq!(broker.rows(&["balance", "orders"]), balance, "and so it stays");
}

#[test]
fn p4_a_message_that_kills_three_consumers_ends_in_the_dlq_alone() {
    p4_poison(&["max_attempts=3", "session_ms=1000", "retry_backoff_base_ms=100"], 3, 1);
}

#[test]
fn p4_a_message_that_kills_five_consumers_ends_in_the_dlq_alone() {
    p4_poison(&["session_ms=1000", "retry_backoff_base_ms=100"], 5, 2);
}
