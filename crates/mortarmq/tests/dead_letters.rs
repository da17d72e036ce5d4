//! Messages that die, with the real binary: from a command that fails to the rows of `dlq`, over a kill.

mod support;

use std::time::Duration;

use support::{Broker, wait_for};

fn columns(row: &str) -> Vec<&str> {
    row.split('\t').collect()
}

#[test]
fn p4_a_message_that_a_command_rejects_or_never_takes_is_dead_with_its_reason_also_after_a_kill() {
    // Goal: exit code 65 and used-up attempts both end in the dead-letter topic, with what was said, and nothing else
    // does. Method: one command acks, rejects or fails by the value; the books and rows are read before and after a kill.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::start(&folder.path().join("data"));
    let settings = ["--partitions", "1", "--set", "max_attempts=2", "--set", "retry_backoff_base_ms=0"];
    broker.rows(&[&["topics", "create", "orders"], &settings[..]].concat());
    assert_eq!(broker.rows(&["dlq", "list", "orders"]), "", "no dead letter yet");
    for value in ["good", "bad", "flaky", "good"] {
        broker.rows(&["pub", "orders", value, "--key", "k", "--header", "from=test"]);
    }
    let command = "read -r value; case $value in bad) echo never >&2; exit 65;; flaky) echo later >&2; exit 1;; esac";
    let mut consumer = broker
        .command(&["sub", "orders", "--group", "billing", "--count", "3", "--exec", command])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the binary was built");
    let settled = "orders\tbilling\t4\t2\t0\t2\t0\t0\n";
    wait_for(Duration::from_secs(20), || (broker.run(&["balance", "orders"]).stdout == settled).then_some(()));
    // Two that were acked and one that was rejected are three that are settled.
    let ended = wait_for(Duration::from_secs(20), || consumer.try_wait().expect("it is our child"));
    assert!(ended.success(), "{ended}");

    let listed = "0\t1\trejected\t1\torders/billing 0:2\tnever\n0\t2\tnacked\t2\torders/billing 0:3\tlater\n";
    assert_eq!(broker.rows(&["dlq", "list", "orders"]), listed);
    broker.kill();
    let verified = support::run(&["verify", &broker.data_dir()]);
    assert_eq!(verified.code, Some(0), "{}{}", verified.stdout, verified.stderr);
    broker.restart();
    assert_eq!(broker.rows(&["dlq", "list", "orders"]), listed, "P1");
    let peeked = broker.rows(&["dlq", "peek", "orders", "--from", "2"]);
    assert_eq!(columns(peeked.trim_end())[6..], ["k", "flaky"]);
    let trace = broker.rows(&["trace", "orders", "0", "2"]);
    assert!(trace.contains("\tdead\t") && trace.contains("\trejected\tsequence 1 of $dlq.orders: never"), "{trace}");
    assert_eq!(broker.rows(&["balance", "$dlq.orders"]), "$dlq.orders\tdefault\t2\t0\t0\t0\t2\t0\n");

    // It is consumed like any topic; what is settled there is listed no more.
    let consumed = broker.rows(&["sub", "$dlq.orders", "--group", "default", "--count", "1"]);
    assert_eq!(columns(consumed.trim_end())[5..], ["k", "bad"]);
    let left = broker.rows(&["dlq", "list", "orders"]);
    assert_eq!(columns(left.trim_end())[..3], ["0", "2", "nacked"]);
    let refused = broker.run(&["pub", "$dlq.orders", "x"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    let refused = broker.run(&["topics", "delete", "$dlq.orders"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert_eq!(broker.rows(&["topics", "delete", "orders"]), "deleted\n");
    assert_eq!(broker.rows(&["topics", "list"]), "", "its dead letters went with it");
}
