//! Settings that an operator changes on a running broker: the binary, its operator routes, and what holds after a crash.

mod support;

use std::process::Stdio;
use std::time::Duration;

use support::{Broker, Done, wait_for};

fn columns(row: &str) -> Vec<&str> {
    row.split('\t').collect()
}

fn broker() -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = Broker::start(&folder.path().join("data"));
    (folder, broker)
}

#[test]
fn p4_settings_change_under_load_hold_after_a_crash_and_are_refused_by_name() {
    // Goal: producer and consumer that are connected go on over every change, and nothing is lost or doubled. Method: a
    // consumer runs while its topic grows and its group changes; the broker is killed between two changes.
    let (_folder, mut broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "1"]);
    let consumer = broker
        .command(&["sub", "orders", "--group", "billing", "--count", "300"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    broker.rows(&["pub", "orders", "{n}", "--count", "100"]);
    wait_for(Duration::from_secs(10), || {
        broker.run(&["groups", "describe", "orders/billing"]).code.filter(|code| *code == 0)
    });
    let set = broker.rows(&["topics", "set", "orders", "partitions=4", "ttl_ms=3600000"]);
    assert_eq!(set, "partitions\t4\nttl_ms\t3600000\n");
    broker.rows(&["pub", "orders", "{n}", "--count", "100"]);
    let set = broker.rows(&["groups", "set", "orders/billing", "order=none", "lease_ms=2000", "credit_count=7"]);
    assert_eq!(set, "credit_count\t7\nlease_ms\t2000\norder\tnone\n");
    broker.kill();
    broker.restart();
    let after: Vec<String> = broker.rows(&["topics", "describe", "orders"]).lines().map(str::to_owned).collect();
    assert!(after.contains(&"partitions\t4".to_owned()), "{after:?}");
    let again = broker.rows(&["groups", "set", "orders/billing", "order=key"]);
    assert_eq!(again, "order\tkey\n");
    broker.rows(&["pub", "orders", "{n}", "--count", "100"]);
    let done = Done::of(consumer.wait_with_output().expect("it ends"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let mut places: Vec<_> = done.stdout.lines().map(|row| columns(row)[..2].join(":")).collect();
    let partitions: std::collections::BTreeSet<_> = done.stdout.lines().map(|row| columns(row)[0].to_owned()).collect();
    assert_eq!((places.len(), partitions.len()), (300, 4));
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), 300, "each message once: no change and no crash costs a redelivery");
    let books = broker.rows(&["balance", "orders"]);
    assert_eq!(columns(books.trim_end())[2..], ["300", "300", "0", "0", "0", "0"]);
    for (args, text) in [
        (vec!["topics", "set", "orders", "partitions=2"], "partitions only grows: there are 4, 2 would be fewer"),
        (vec!["topics", "set", "orders", "leese_ms=1"], "did you mean \"lease_ms\"?"),
        (vec!["groups", "set", "orders/billing", "type=shared"], "type is fixed when it is made"),
        (vec!["groups", "set", "orders/billing", "lease_ms=1"], "a whole number from 1000 to 43200000"),
        (vec!["topics", "set", "ordres", "ttl_ms=1"], "did you mean \"orders\"?"),
    ] {
        let refused = broker.run(&args);
        assert_eq!(refused.code, Some(4), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(text), "{args:?}: {}", refused.stderr);
    }
}
