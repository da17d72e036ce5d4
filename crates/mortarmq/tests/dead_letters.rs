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

/// A topic with one partition whose messages all died.
fn with_dead(broker: &Broker, count: u32) {
    let settings = ["--partitions", "1", "--set", "max_attempts=2", "--set", "retry_backoff_base_ms=0"];
    broker.rows(&[&["topics", "create", "orders"], &settings[..]].concat());
    broker.rows(&["pub", "orders", "{n}", "--count", &count.to_string(), "--key", "k"]);
    let count = count.to_string();
    let reject = ["--exec", "echo never >&2; exit 65", "--count", count.as_str()];
    broker.rows(&[&["sub", "orders", "--group", "billing"], &reject[..]].concat());
}

#[test]
fn p4_p9_dead_letters_are_redriven_and_purged_by_command_and_what_stays_is_told() {
    // Goal: columns, exit codes and two lines of every way it can go. Method: four dead letters and one command after the
    // other; the books are read in between.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let broker = Broker::start(&folder.path().join("data"));
    with_dead(&broker, 4);
    assert_eq!(broker.rows(&["dlq", "redrive", "orders", "--dry-run"]), "4\t0\t0\n");
    assert_eq!(broker.rows(&["dlq", "redrive", "orders", "--dry-run", "--reason", "nacked"]), "0\t0\t0\n");
    assert_eq!(broker.rows(&["balance", "orders"]), "orders\tbilling\t4\t0\t0\t4\t0\t0\n", "nothing was done");
    assert_eq!(broker.rows(&["dlq", "redrive", "orders", "--limit", "1"]), "1\t1\t0\n");
    assert_eq!(broker.rows(&["balance", "orders"]), "orders\tbilling\t5\t0\t0\t4\t1\t0\n");
    assert_eq!(broker.rows(&["balance", "$dlq.orders"]), "$dlq.orders\tdefault\t4\t0\t1\t0\t3\t0\n");
    let twice = broker.run(&["dlq", "redrive", "orders", "--sequence", "1", "--sequence", "2"]);
    assert_eq!((twice.code, twice.stdout.as_str()), (Some(4), "2\t1\t1\n"));
    let lines: Vec<&str> = twice.stderr.lines().collect();
    assert_eq!(lines, ["error: 1 of 2 dead letters stay: 1 settled", "  see what there is: mortarmq dlq list orders"]);
    let json = broker.rows(&["dlq", "purge", "orders", "--sequence", "3", "--partition", "0", "--json"]);
    assert_eq!(json, "{\"matched\":1,\"done\":1,\"refused\":0}\n");
    let consumed = broker.rows(&["sub", "orders", "--group", "billing", "--count", "2"]);
    let rows: Vec<Vec<&str>> = consumed.lines().map(columns).collect();
    for (row, number) in rows.iter().zip(["1", "2"]) {
        assert_eq!((row[1], row[3], row[4], row[5], row[6]), (number, "1", "redriven", "k", number), "{consumed}");
    }
    let trace = broker.rows(&["trace", "orders", "0", "1"]);
    assert!(trace.contains("\tredriven\t") && trace.contains(", from sequence 1 of $dlq.orders"), "{trace}");
    let trace = broker.run(&["trace", "$dlq.orders", "0", "1"]);
    assert!(trace.stdout.contains("\tdropped\t") && trace.stdout.contains("to orders/billing 0:1"), "{}", trace.stdout);
    assert!(trace.stderr.contains("$dlq.orders/default: dropped"), "{}", trace.stderr);
    assert_eq!(broker.rows(&["dlq", "purge", "orders"]), "1\t1\t0\n");
    assert_eq!(broker.rows(&["dlq", "list", "orders"]), "");
    assert_eq!(broker.rows(&["balance", "$dlq.orders"]), "$dlq.orders\tdefault\t4\t0\t4\t0\t0\t0\n");
    let unknown = broker.run(&["dlq", "purge", "ordres"]);
    assert_eq!(unknown.code, Some(4));
    assert!(unknown.stderr.contains("did you mean \"orders\"?"), "{}", unknown.stderr);
    assert_eq!(broker.run(&["dlq", "redrive", "orders", "--rate", "0"]).code, Some(2));
}

#[test]
fn p1_p9_a_paced_redrive_is_cut_off_by_a_kill_or_a_client_that_goes_and_goes_on_where_it_was() {
    // Goal: what is done is done once, and the rest can be asked for again. Method: 60 letters at 20 per second; another
    // redrive meanwhile is refused; the first client is killed, then the broker under the second.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::start(&folder.path().join("data"));
    with_dead(&broker, 60);
    let paced = ["dlq", "redrive", "orders", "--rate", "20"];
    let back = |broker: &Broker| -> u64 {
        let row = broker.rows(&["balance", "orders"]);
        columns(row.trim_end())[2].parse::<u64>().expect("a number") - 60
    };
    let spawn = |broker: &Broker| {
        let mut command = broker.command(&paced);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command.spawn().expect("the binary was built")
    };
    let mut first = spawn(&broker);
    wait_for(Duration::from_secs(20), || (back(&broker) >= 5).then_some(()));
    let refused = broker.run(&["dlq", "purge", "orders"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.stderr.contains("BACKPRESSURE") && refused.stderr.lines().count() == 2, "{}", refused.stderr);
    first.kill().expect("it runs");
    first.wait().expect("it is ours");
    // It is over as soon as the broker sees that nobody waits: then another may begin.
    let dry = wait_for(Duration::from_secs(20), || {
        let dry = broker.run(&["dlq", "redrive", "orders", "--dry-run"]);
        (dry.code == Some(0)).then_some(dry.stdout)
    });
    let done = back(&broker);
    assert!((5..60).contains(&done), "{done} are back");
    assert_eq!(dry, format!("{}\t0\t0\n", 60 - done));

    let second = spawn(&broker);
    wait_for(Duration::from_secs(20), || (back(&broker) >= done + 5).then_some(()));
    broker.kill();
    let ended = second.wait_with_output().expect("it is ours");
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    broker.restart();
    let done = back(&broker);
    let left = 60 - done;
    assert!(left > 0 && left < 55, "{done} are back");
    let depth = |row: &str| columns(row.trim_end())[6].to_owned();
    assert_eq!(depth(&broker.rows(&["balance", "$dlq.orders"])), left.to_string(), "P9: both books say the same");
    assert_eq!(broker.rows(&["dlq", "redrive", "orders", "--rate", "1000"]), format!("{left}\t{left}\t0\n"));
    let consumed = broker.rows(&["sub", "orders", "--group", "billing", "--count", "60"]);
    let values: Vec<u32> = consumed.lines().map(|row| columns(row)[6].parse().expect("a number")).collect();
    assert_eq!(values, (1..=60).collect::<Vec<u32>>(), "P8: each once, in the order of its key");
    assert_eq!(broker.rows(&["balance", "orders"]), "orders\tbilling\t120\t60\t0\t60\t0\t0\n");
}
