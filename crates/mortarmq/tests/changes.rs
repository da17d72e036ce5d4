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

#[test]
fn initial_values_are_the_catalogs_and_a_configuration_that_differs_is_told_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let flags = ["--partition-default-count", "2"];
    let mut broker = Broker::start_with(&folder.path().join("data"), &flags);
    let partitions = |broker: &Broker, name: &str| {
        broker.rows(&["topics", "create", name]);
        let described = broker.rows(&["topics", "describe", name]);
        described.lines().find_map(|row| row.strip_prefix("partitions\t")).map(str::to_owned)
    };
    assert_eq!(partitions(&broker, "one").as_deref(), Some("2"), "the first start takes them from the configuration");
    let shown = broker.rows(&["defaults", "show"]);
    for row in ["partition_default_count\t2", "lease_ms\t30000", "idempotency_window_ms\t300000", "order\tkey"] {
        assert!(shown.lines().any(|line| line == row), "{row}: {shown}");
    }
    let set = broker.rows(&["defaults", "set", "partition_default_count=3", "lease_ms=5000"]);
    assert_eq!(set, "lease_ms\t5000\npartition_default_count\t3\n");
    broker.kill();
    broker.restart_with(&flags);
    let told = "partition_default_count is what the catalog says, not what the configuration does";
    assert!(broker.log_since_start().contains(told), "{}", broker.log_since_start());
    assert_eq!(partitions(&broker, "two").as_deref(), Some("3"));
    assert_eq!(partitions(&broker, "one").as_deref(), Some("2"), "what is there stays as it is");
    let refused = broker.run(&["defaults", "set", "producer_idle_ms=5"]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.stderr.contains("a whole number from 600000"), "{}", refused.stderr);
    broker.kill();
    broker.restart_with(&["--partition-default-count", "3"]);
    assert!(!broker.log_since_start().contains("what the catalog says"), "nothing differs");
}

#[test]
fn p3_a_publish_under_an_idempotency_key_happens_once_also_when_the_broker_is_killed_in_between() {
    let (_folder, mut broker) = broker();
    broker.rows(&["topics", "create", "orders", "--partitions", "4"]);
    let publish =
        |broker: &Broker| broker.rows(&["pub", "orders", "{n}", "--count", "50", "--idempotency-key", "order-{n}"]);
    let first = publish(&broker);
    assert_eq!(first.lines().count(), 50);
    for _ in 0..3 {
        broker.kill();
        broker.restart();
        assert_eq!(publish(&broker), first, "the first answers, from another process, after a crash");
    }
    // A checkpoint at the graceful stop keeps them, too.
    assert_eq!(broker.stop(), Some(0));
    broker.restart();
    assert_eq!(publish(&broker), first);
    let described = broker.rows(&["topics", "describe", "orders"]);
    let stored: u64 =
        described.lines().filter_map(|row| columns(row).get(2).and_then(|last| last.parse::<u64>().ok())).sum();
    assert_eq!(stored, 50, "{described}");
    let once = broker.rows(&["pub", "orders", "x", "--count", "3", "--idempotency-key", "once"]);
    let places: std::collections::BTreeSet<_> = once.lines().collect();
    assert_eq!((once.lines().count(), places.len()), (3, 1));
    let empty = broker.run(&["pub", "orders", "x", "--idempotency-key", ""]);
    assert_ne!(empty.code, Some(0), "an empty key is none: {}", empty.stdout);
}
