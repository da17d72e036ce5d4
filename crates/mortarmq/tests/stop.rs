//! How a node ends, and what it logs until then.

mod support;

use std::time::Duration;

use mortarmq_lossyfs::LossyFs;
use rustix::process::Signal;
use serde_json::Value;
use support::{Broker, Done, mortarmq, wait_for};

#[test]
fn one_signal_ends_a_node_gracefully_and_its_next_start_reads_a_checkpoint() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut broker = Broker::start(&folder.path().join("data"));
        broker.rows(&["topics", "create", "orders"]);
        broker.rows(&["pub", "orders", "x", "--count", "100"]);
        broker.signal(signal);
        assert_eq!(broker.wait_for_end(), Some(0));
        assert!(broker.log_since_start().contains("stopped"), "{}", broker.log_since_start());
        broker.restart();
        assert!(broker.found.starts_with("recovered 100 messages"), "{}", broker.found);
    }
}

#[test]
fn a_second_signal_ends_a_node_at_once_and_nothing_confirmed_is_lost() {
    if let Err(reason) = LossyFs::is_available() {
        eprintln!("not looked at: {reason}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().join("disk");
    std::fs::create_dir(&at).expect("a folder");
    let disk = LossyFs::mount(&at).expect("a file system");
    let mut broker = Broker::start(&disk.mount_point().join("data"));
    broker.rows(&["topics", "create", "orders"]);
    broker.rows(&["pub", "orders", "x", "--count", "10"]);
    // The checkpoint of a graceful stop takes several syncs. One that is under way keeps the process until the disk answers.
    disk.set_sync_delay(Duration::from_secs(2));
    broker.signal(Signal::TERM);
    let log = || broker.log_since_start().contains("a second signal ends the node at once").then_some(());
    wait_for(Duration::from_secs(10), log);
    broker.signal(Signal::INT);
    assert_eq!(broker.wait_for_end(), Some(143));
    disk.set_sync_delay(Duration::ZERO);
    broker.restart();
    assert!(broker.found.starts_with("recovered 10 messages"), "{}", broker.found);
}

fn objects(log: &str) -> Vec<Value> {
    let object = |line: &str| {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for name in ["time", "level", "target", "message"] {
            assert!(object[name].is_string(), "{name} in {line}");
        }
        assert!(object["fields"].is_object(), "{line}");
        object
    };
    log.lines().map(object).collect()
}

#[test]
fn every_line_of_a_json_log_is_one_object() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = ["--log-format", "json", "--log-level", "trace"];
    let mut broker = Broker::start_with(&folder.path().join("data"), &flags);
    broker.rows(&["topics", "create", "orders"]);
    broker.rows(&["pub", "orders", "two\nlines", "--count", "10"]);
    broker.rows(&["sub", "orders", "--group", "g", "--count", "5"]);
    broker.signal(Signal::HUP);
    wait_for(Duration::from_secs(20), || broker.log_since_start().contains("SIGHUP").then_some(()));
    assert_eq!(broker.stop(), Some(0));
    let lines = objects(&broker.log_since_start());
    assert!(lines.iter().any(|line| line["message"] == "stopped" && line["level"] == "info"), "{lines:?}");

    // A start that fails tells it as an object, too, with what to do.
    let (held, address) = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        (listener, address)
    };
    let mut command = mortarmq();
    command.args(["serve", "--dev", "--listen-client", &address, "--listen-admin", "127.0.0.1:0", "--data-dir"]);
    let done = Done::of(command.arg(folder.path().join("data")).args(flags).output().expect("the binary runs"));
    drop(held);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let lines = objects(&done.stderr);
    let last = lines.last().expect("it says why");
    assert!(last["level"] == "error" && last["fields"]["remedy"].is_string(), "{last}");
}
