use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mortarmq_http::BrokerStatus;
use mortarmq_node::ErrorCode;
use mortarmq_node::views::{GroupPartitionStats, GroupStats, PartitionStats, StatsView, TopicStats};
use mortarmq_types::NodeId;
use mortarmq_wire::Op;

use super::{Metrics, Scrape};

fn group(name: &str, books: [u64; 4], dropped_by: &[(&'static str, u64)]) -> GroupStats {
    let [produced, delivered, dlq, depth] = books;
    GroupStats {
        group: name.to_owned(),
        produced,
        delivered,
        dropped: dropped_by.iter().map(|(_, count)| count).sum(),
        dlq,
        depth,
        dropped_by: dropped_by.iter().copied().collect(),
        in_flight: 12,
        unreadable: 0,
        oldest_ready_s: 42,
        oldest_leased_s: 7,
        scheduled: 3,
        retries_by: BTreeMap::from([("nacked", 4)]),
        state: "active",
        partitions: vec![
            GroupPartitionStats { partition: 0, floor: 376, depth: depth / 2 },
            GroupPartitionStats { partition: 1, floor: 1, depth: depth - depth / 2 },
        ],
    }
}

fn stats() -> StatsView {
    let partition = |number, last_seq| PartitionStats {
        partition: number,
        leader: Some(0),
        first_seq: 1,
        last_seq,
        bytes: 60_000,
        stored_bytes: 70_000,
    };
    let orders = TopicStats {
        topic: "orders".to_owned(),
        id: "00000000000000a1".to_owned(),
        produced: 2000,
        partitions: vec![partition(0, 1200), partition(1, 800)],
        groups: vec![
            group("billing", [2000, 1500, 7, 481], &[("ttl", 5), ("purge", 7)]),
            group("audit", [800, 0, 0, 800], &[]),
        ],
    };
    let quiet = TopicStats { topic: "quiet".to_owned(), produced: 0, groups: vec![], ..orders.clone() };
    StatsView {
        node: 0,
        shard: 0,
        epoch: 3,
        commit_index: 8123,
        quorum_state: 0,
        stale: false,
        groups_expired: 0,
        topics: vec![orders, quiet],
    }
}

fn render(metrics: &Metrics, stats: Option<&StatsView>, per_partition: bool) -> String {
    let broker = BrokerStatus { uptime_s: 61, connections: metrics.connections(), ..BrokerStatus::alone(0, "0.1.0") };
    metrics.render(&Scrape {
        stats,
        broker: &broker,
        pending_bytes: 1,
        unwritten_bytes: 2,
        repairing: 3,
        repaired: 4,
        is_rejoining: true,
        sent_to_peers: &[(NodeId::new(1), 4096), (NodeId::new(2), 0)],
        journal_bytes: 64 << 20,
        checkpoint_age: Some(Duration::from_secs(7)),
        reserve_bytes: 256 << 20,
        file_system: Some("ext4"),
        open_files_limit: Some(16_384),
        is_disk_low: false,
        disk_free_bytes: Some(1 << 40),
        memory_bytes: None,
        per_partition,
    })
}

/// The value of one row, by its exact text in front of the value.
fn value(text: &str, row: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(row)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no row {row} in\n{text}"));
    // Sums of histograms are floats, also where they are whole.
    value.strip_suffix(".0").unwrap_or(value).parse().expect("the value is a whole number")
}

/// The sum of all rows of one metric that carry one group.
fn sum(text: &str, name: &str, group: &str) -> u64 {
    let rows: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(&format!("group=\"{group}\"")))
        .map(|line| line.rsplit_once(' ').expect("a row has a value").1.parse().expect("a whole number"))
        .collect();
    assert!(!rows.is_empty(), "no row of {name} for {group} in\n{text}");
    rows.iter().sum()
}

#[test]
fn p9_the_books_balance_within_one_scrape() {
    // Goal: whoever adds up a scrape gets what the snapshot says. Method: recompute from the text alone.
    let text = render(&Metrics::new(), Some(&stats()), true);
    for (name, produced) in [("billing", 2000), ("audit", 800)] {
        let of = |metric: &str| sum(&text, metric, name);
        assert_eq!(of("mortarmq_path_obliged_total"), produced);
        let settled = of("mortarmq_topic_messages_delivered_total")
            + of("mortarmq_topic_messages_dropped_total")
            + of("mortarmq_topic_messages_dlq_total");
        assert_eq!(settled + of("mortarmq_group_lag"), produced, "{name}");
        assert_eq!(settled + of("mortarmq_partition_depth"), produced, "{name}");
    }
}

#[test]
fn the_scrape_has_the_documented_names_types_and_labels() {
    let text = render(&Metrics::new(), Some(&stats()), true);
    let types = [
        ("mortarmq_broker_uptime_seconds", "gauge"),
        ("mortarmq_connections", "gauge"),
        ("mortarmq_leader_epoch", "gauge"),
        ("mortarmq_commit_index", "gauge"),
        ("mortarmq_quorum_state", "gauge"),
        ("mortarmq_topic_messages_produced_total", "counter"),
        ("mortarmq_topic_messages_delivered_total", "counter"),
        ("mortarmq_topic_messages_dropped_total", "counter"),
        ("mortarmq_topic_messages_dlq_total", "counter"),
        ("mortarmq_path_obliged_total", "counter"),
        ("mortarmq_topic_bytes_total", "counter"),
        ("mortarmq_partition_depth", "gauge"),
        ("mortarmq_partition_last_seq", "gauge"),
        ("mortarmq_group_lag", "gauge"),
        ("mortarmq_group_in_flight", "gauge"),
        ("mortarmq_group_unreadable", "gauge"),
        ("mortarmq_group_retries_total", "counter"),
        ("mortarmq_e2e_latency_seconds", "histogram"),
        ("mortarmq_journal_fsync_seconds", "histogram"),
        ("mortarmq_journal_batch_bytes", "histogram"),
        ("mortarmq_commit_latency_seconds", "histogram"),
        ("mortarmq_journal_bytes", "gauge"),
        ("mortarmq_peer_sent_bytes_total", "counter"),
        ("mortarmq_torn_tails_cut_total", "counter"),
        ("mortarmq_disk_free_bytes", "gauge"),
        ("mortarmq_disk_reserve_bytes", "gauge"),
        ("mortarmq_disk_low", "gauge"),
        ("mortarmq_publishes_refused_for_space_total", "counter"),
    ];
    for (name, kind) in types {
        let line = format!("# TYPE {name} {kind}");
        assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line} in\n{text}");
    }
    let rows = [
        ("mortarmq_leader_epoch{shard=\"0\"}", 3),
        ("mortarmq_commit_index{shard=\"0\"}", 8123),
        ("mortarmq_topic_messages_produced_total{topic=\"orders\"}", 2000),
        ("mortarmq_topic_messages_produced_total{topic=\"quiet\"}", 0),
        ("mortarmq_topic_bytes_total{topic=\"orders\"}", 140_000),
        ("mortarmq_topic_messages_dropped_total{topic=\"orders\",group=\"billing\",reason=\"ttl\"}", 5),
        ("mortarmq_topic_messages_dropped_total{topic=\"orders\",group=\"audit\",reason=\"retention\"}", 0),
        ("mortarmq_group_retries_total{topic=\"orders\",group=\"billing\",cause=\"nacked\"}", 4),
        ("mortarmq_partition_depth{topic=\"orders\",partition=\"1\",group=\"billing\"}", 241),
        ("mortarmq_partition_last_seq{topic=\"orders\",partition=\"0\"}", 1200),
        ("mortarmq_broker_uptime_seconds", 61),
        ("mortarmq_journal_bytes", 64 << 20),
        ("mortarmq_peer_sent_bytes_total{peer=\"1\"}", 4096),
        ("mortarmq_peer_sent_bytes_total{peer=\"2\"}", 0),
        ("mortarmq_disk_reserve_bytes", 256 << 20),
        ("mortarmq_disk_low", 0),
    ];
    for (row, expected) in rows {
        assert_eq!(value(&text, row), expected, "{row}");
    }
    assert!(!text.contains("mortarmq_memory_bytes"), "what cannot be told is left out");
}

#[test]
fn every_line_is_a_comment_or_a_row_and_no_name_is_doubled() {
    let text = render(&Metrics::new(), Some(&stats()), true);
    assert!(text.ends_with('\n') && !text.contains("_total_total"), "{text}");
    let mut seen = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with("# ")) {
        let (row, value) = line.rsplit_once(' ').expect("a row has a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(seen.insert(row), "{row} stands twice");
        assert!(row.starts_with("mortarmq_"), "{row}");
    }
}

#[test]
fn rows_per_partition_can_be_left_out_and_the_balance_stays() {
    let text = render(&Metrics::new(), Some(&stats()), false);
    assert!(!text.contains("mortarmq_partition_"), "{text}");
    assert_eq!(sum(&text, "mortarmq_group_lag", "billing"), 481);
}

#[test]
fn a_node_that_cannot_answer_still_tells_about_its_process() {
    let text = render(&Metrics::new(), None, true);
    assert_eq!(value(&text, "mortarmq_connections"), 0);
    assert!(!text.contains("mortarmq_leader_epoch"), "{text}");
}

#[test]
fn what_threads_count_shows_in_the_next_scrape() {
    let metrics = Metrics::new();
    metrics.count_request(Op::Publish, None);
    metrics.count_request(Op::Publish, None);
    metrics.count_request(Op::Publish, Some(ErrorCode::Backpressure));
    metrics.count_request(Op::Ack, Some(ErrorCode::StaleOwner));
    metrics.count_request(Op::PublishBatch, Some(ErrorCode::StorageHighWatermark));
    metrics.count_request(Op::Publish, Some(ErrorCode::StorageHighWatermark));
    metrics.count_journal_write(Duration::from_micros(300), 8192, 40);
    metrics.count_commit(Duration::from_millis(2));
    metrics.count_ack(Duration::from_millis(20));
    metrics.count_deduplicated();
    metrics.count_not_idempotent(3);
    metrics.count_torn_tail();
    metrics.count_connection_opened();
    metrics.count_connection_opened();
    metrics.count_connection_closed();
    metrics.count_connection_refused();
    let text = render(&metrics, None, true);
    let rows = [
        ("mortarmq_requests_total{op=\"PUB\",code=\"OK\"}", 2),
        ("mortarmq_requests_total{op=\"PUB\",code=\"BACKPRESSURE\"}", 1),
        ("mortarmq_requests_total{op=\"ACK\",code=\"STALE_OWNER\"}", 1),
        ("mortarmq_backpressure_total", 1),
        ("mortarmq_publishes_refused_for_space_total", 2),
        ("mortarmq_journal_fsync_seconds_count", 1),
        ("mortarmq_journal_fsync_seconds_bucket{le=\"0.0002\"}", 0),
        ("mortarmq_journal_fsync_seconds_bucket{le=\"0.0004\"}", 1),
        ("mortarmq_journal_batch_bytes_sum", 8192),
        ("mortarmq_journal_batch_commands_sum", 40),
        ("mortarmq_commit_latency_seconds_count", 1),
        ("mortarmq_e2e_latency_seconds_count", 1),
        ("mortarmq_publishes_deduplicated_total", 1),
        ("mortarmq_publishes_not_idempotent_total", 3),
        ("mortarmq_torn_tails_cut_total", 1),
        ("mortarmq_connections", 1),
        ("mortarmq_connections_opened_total", 2),
        ("mortarmq_connections_refused_total", 1),
    ];
    for (row, expected) in rows {
        assert_eq!(value(&text, row), expected, "{row}");
    }
}
