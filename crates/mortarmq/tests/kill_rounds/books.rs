//! The books of the broker against what the clients saw.

use crate::record::{self, Record};
use crate::support::Broker;

/// The books balance at this moment, and agree with what the clients saw.
pub(crate) fn check(broker: &Broker, record: &Record) {
    // What is confirmed before the question is in the answer; what is sent after it may not be.
    let before = record.counts();
    let rows = rows(broker);
    let after = record.counts();
    for row in rows {
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

/// Messages that are not settled, on all paths together.
pub(crate) fn depth(broker: &Broker) -> u64 {
    rows(broker).iter().map(|row| row["depth"].as_u64().expect("a depth")).sum()
}

/// Everything that was confirmed was acked on every path, once, and traces tell why some came again; how many were read.
pub(crate) fn check_final(broker: &Broker, record: &Record) -> usize {
    record.check_everything_was_acked();
    check(broker, record);
    let counts = record.counts();
    for row in rows(broker) {
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
    repeated.len()
}

fn rows(broker: &Broker) -> Vec<serde_json::Value> {
    let rows = broker.rows(&["balance", "--json"]);
    rows.lines().map(|row| serde_json::from_str(row).expect("a row of JSON")).collect()
}
