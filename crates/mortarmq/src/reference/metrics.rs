//! docs/reference/metrics.md: every metric of a scrape; and that dashboard and alerts speak of no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use mortarmq_node::ErrorCode;
use mortarmq_node::views::{GroupPartitionStats, GroupStats, PartitionStats, StatsView, TopicStats};
use mortarmq_server::metrics::{BrokerStatus, Metrics, PeerStatus, Replication, Scrape};
use mortarmq_types::NodeId;
use mortarmq_wire::Op;

const HEAD: &str = "# Metrics

`GET /metrics` of `listen_admin`, in the Prometheus text format. Counters of topics and groups come from one snapshot of the state, so
the books balance within every scrape: `mortarmq_path_obliged_total` is the sum of delivered, dropped (over all reasons), dlq and
`mortarmq_group_lag`. They go on over restarts. What the process counts (requests, fsyncs, connections) begins at its start. A histogram `x`
has `x_bucket`, `x_sum` and `x_count`. `metrics_per_partition = false` leaves out the rows with a label `partition`.

A dashboard for Grafana is [ops/grafana.json](../../ops/grafana.json), alert rules are [ops/alerts.yaml](../../ops/alerts.yaml); what to
do about each is in the [runbooks](../runbooks/README.md).

This page is printed from a scrape, and a test holds it to it.

| name | type | labels | meaning |
|---|---|---|---|
";

/// A scrape with a row of everything.
fn scrape() -> String {
    let metrics = Metrics::new();
    metrics.count_request(Op::Publish, Some(ErrorCode::Backpressure));
    let group = GroupStats {
        group: "g".to_owned(),
        produced: 1,
        delivered: 0,
        dropped: 0,
        dlq: 0,
        depth: 1,
        dropped_by: BTreeMap::new(),
        in_flight: 0,
        unreadable: 0,
        oldest_ready_s: 0,
        oldest_leased_s: 0,
        scheduled: 0,
        retries_by: BTreeMap::new(),
        state: "active",
        partitions: vec![GroupPartitionStats { partition: 0, floor: 1, depth: 1 }],
    };
    let partition =
        PartitionStats { partition: 0, leader: Some(0), first_seq: 1, last_seq: 1, bytes: 1, stored_bytes: 1 };
    let topic = TopicStats {
        topic: "t".to_owned(),
        id: "0000000000000001".to_owned(),
        produced: 1,
        partitions: vec![partition],
        groups: vec![group],
    };
    let stats = StatsView {
        node: 0,
        shard: 0,
        epoch: 1,
        commit_index: 1,
        quorum_state: 0,
        stale: false,
        groups_expired: 0,
        topics: vec![topic],
    };
    let follower = Replication { state: "current", lag_entries: 0, lag_bytes: Some(0), silent_ms: Some(0) };
    let peers = vec![PeerStatus { id: 1, link: None, replication: Some(follower) }];
    let broker = BrokerStatus { peers, ..BrokerStatus::alone(0, "0.1.0") };
    metrics.render(&Scrape {
        stats: Some(&stats),
        broker: &broker,
        pending_bytes: 0,
        unwritten_bytes: 0,
        repairing: 0,
        repaired: 0,
        is_rejoining: false,
        sent_to_peers: &[(NodeId::new(1), 0)],
        journal_bytes: 0,
        checkpoint_age: Some(Duration::ZERO),
        reserve_bytes: 0,
        is_disk_low: false,
        disk_free_bytes: Some(0),
        file_system: Some("ext4"),
        open_files_limit: Some(0),
        memory_bytes: Some(0),
        per_partition: true,
    })
}

/// Type, labels and meaning of each metric, by the name under which its rows stand (a histogram: without its endings).
fn metrics() -> BTreeMap<String, (String, BTreeSet<String>, String)> {
    let scrape = scrape();
    let mut found = BTreeMap::new();
    let (mut name, mut help) = ("", "");
    for line in scrape.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            (name, help) = rest.split_once(' ').expect("a help text");
        } else if let Some(kind) = line.strip_prefix(&format!("# TYPE {name} ")) {
            found.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new(), help.trim_end_matches('.').to_owned()));
        } else if let Some((row, labels)) = line.split_once('{') {
            let labels = labels.split("=\"").map(|part| part.rsplit(['"', ',']).next().unwrap_or(part).to_owned());
            let labels: Vec<String> =
                labels.filter(|label| !label.is_empty() && label != "le" && !label.contains('}')).collect();
            let row = found.keys().find(|known| row == *known || row.strip_suffix("_bucket") == Some(known)).cloned();
            let row = row.unwrap_or_else(|| name.to_owned());
            found.get_mut(&row).unwrap_or_else(|| panic!("{line}")).1.extend(labels);
        }
    }
    found
}

#[test]
fn every_metric_is_on_the_page_and_nothing_else() {
    let mut page = HEAD.to_owned();
    for (name, (kind, labels, help)) in metrics() {
        let labels: Vec<String> = labels.into_iter().collect();
        let _ = writeln!(page, "| `{name}` | {kind} | {} | {} |", labels.join(", "), super::cell(&help));
    }
    super::holds("docs/reference/metrics.md", &page);
}

#[test]
fn dashboard_and_alerts_name_only_metrics_that_there_are() {
    let known = metrics();
    for path in
        ["ops/grafana.json", "ops/alerts.yaml", "ops/alerts.test.yaml", "docs/runbooks/README.md", "docs/concepts.md"]
    {
        let text = super::read(path);
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("mortarmq_")).collect();
        for name in &named {
            let ending = ["_bucket", "_sum", "_count"].iter().find_map(|ending| name.strip_suffix(ending));
            let is_histogram = |name: &str| known.get(name).is_some_and(|(kind, ..)| kind == "histogram");
            assert!(
                known.contains_key(*name) || ending.is_some_and(is_histogram),
                "{path} names {name}, which is not there"
            );
        }
        assert!(!path.starts_with("ops/") || named.len() > 8, "{path} names {}", named.len());
    }
    let dashboard: serde_json::Value = serde_json::from_str(&super::read("ops/grafana.json")).expect("JSON");
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 8));
}
