//! The series of topics, groups and partitions: copies of one snapshot of the state machine.
//!
//! # Invariants
//! 1. Within one scrape, for every topic and group: obliged = delivered + dropped (over its reasons) + dlq + lag (P9).
//! 2. Every path has every row, also at zero: a query that adds and compares series finds nothing where one is missing.

use mortarmq_node::views::{GroupStats, StatsView, TopicStats};
use mortarmq_types::{Cause, DropReason};

use super::series::Series;

/// All series of one snapshot. `per_partition` adds those that have a row per partition.
pub(super) fn series(stats: &StatsView, per_partition: bool) -> Vec<Series> {
    let mut all = shard_series(stats);
    all.extend(topic_series(&stats.topics));
    all.extend(path_series(&stats.topics));
    if per_partition {
        all.extend(partition_series(&stats.topics));
    }
    all
}

fn shard_series(stats: &StatsView) -> Vec<Series> {
    let shard = stats.shard.to_string();
    let gauge = |name, help, value| Series::gauge(name, help).with(&[("shard", &shard)], value);
    vec![
        gauge("mortarmq_leader_epoch", "The leader's term", stats.epoch),
        gauge("mortarmq_commit_index", "The last command that the scrape rests on", stats.commit_index),
        gauge("mortarmq_quorum_state", "0 healthy, 1 soft, 2 read-only", u64::from(stats.quorum_state)),
        Series::counter("mortarmq_groups_expired", "Groups deleted because nobody used them")
            .with(&[("shard", &shard)], stats.groups_expired),
    ]
}

fn topic_series(topics: &[TopicStats]) -> Vec<Series> {
    let mut produced = Series::counter("mortarmq_topic_messages_produced", "Messages stored");
    let mut bytes = Series::counter("mortarmq_topic_bytes", "Bytes of the messages stored");
    for topic in topics {
        let labels = [("topic", topic.topic.as_str())];
        produced.add(&labels, topic.produced);
        bytes.add(&labels, topic.partitions.iter().map(|partition| partition.stored_bytes).sum());
    }
    vec![produced, bytes]
}

/// What one path has to show for itself under one name.
type Count = fn(&GroupStats) -> u64;

fn path_series(topics: &[TopicStats]) -> Vec<Series> {
    let counters: [(&'static str, &'static str, Count); 3] = [
        ("mortarmq_path_obliged", "Messages the path owes or owed", |group| group.produced),
        ("mortarmq_topic_messages_delivered", "Messages acked", |group| group.delivered),
        ("mortarmq_topic_messages_dlq", "Messages moved to the dead-letter topic", |group| group.dlq),
    ];
    let gauges: [(&'static str, &'static str, Count); 6] = [
        ("mortarmq_group_lag", "Messages that are not settled", |group| group.depth),
        ("mortarmq_group_in_flight", "Messages under a live lease", |group| group.in_flight),
        ("mortarmq_group_scheduled", "Messages that wait for a retry or a delay", |group| group.scheduled),
        ("mortarmq_group_oldest_ready_seconds", OLDEST_READY, |group| group.oldest_ready_s),
        ("mortarmq_group_oldest_leased_seconds", OLDEST_LEASED, |group| group.oldest_leased_s),
        ("mortarmq_group_unreadable", "Messages held because their record is damaged", |group| group.unreadable),
    ];
    let counters = counters.map(|(name, help, count)| (Series::counter(name, help), count));
    let gauges = gauges.map(|(name, help, count)| (Series::gauge(name, help), count));
    let mut all: Vec<Series> = counters
        .into_iter()
        .chain(gauges)
        .map(|(mut series, count)| {
            for (topic, group) in paths(topics) {
                series.add(&[("topic", &topic.topic), ("group", &group.group)], count(group));
            }
            series
        })
        .collect();
    all.push(dropped_series(topics));
    all.push(retries_series(topics));
    all
}

fn dropped_series(topics: &[TopicStats]) -> Series {
    let help = "Messages that left the path by a stated rule";
    let mut dropped = Series::counter("mortarmq_topic_messages_dropped", help);
    for (topic, group) in paths(topics) {
        for reason in DropReason::ALL {
            let count = group.dropped_by.get(reason.word()).copied().unwrap_or(0);
            dropped.add(&[("topic", &topic.topic), ("group", &group.group), ("reason", reason.word())], count);
        }
    }
    dropped
}

fn retries_series(topics: &[TopicStats]) -> Series {
    let mut retries = Series::counter("mortarmq_group_retries", "Deliveries after the first, by their cause");
    for (topic, group) in paths(topics) {
        for cause in Cause::ALL.iter().filter(|cause| **cause != Cause::First) {
            let count = group.retries_by.get(cause.word()).copied().unwrap_or(0);
            retries.add(&[("topic", &topic.topic), ("group", &group.group), ("cause", cause.word())], count);
        }
    }
    retries
}

fn partition_series(topics: &[TopicStats]) -> Vec<Series> {
    let help = "The last sequence; 0 without messages";
    let mut last_seq = Series::gauge("mortarmq_partition_last_seq", help);
    for topic in topics {
        for partition in &topic.partitions {
            let number = partition.partition.to_string();
            last_seq.add(&[("topic", &topic.topic), ("partition", &number)], partition.last_seq);
        }
    }
    let mut depth = Series::gauge("mortarmq_partition_depth", "Messages of the partition that are not settled");
    for (topic, group) in paths(topics) {
        for partition in &group.partitions {
            let number = partition.partition.to_string();
            let labels = [("topic", topic.topic.as_str()), ("partition", &number), ("group", &group.group)];
            depth.add(&labels, partition.depth);
        }
    }
    vec![last_seq, depth]
}

const OLDEST_READY: &str = "How long the oldest message that can be leased has waited; 0 without one";
const OLDEST_LEASED: &str =
    "How long the message that was leased first of those that are leased has been; 0 without one";

fn paths(topics: &[TopicStats]) -> impl Iterator<Item = (&TopicStats, &GroupStats)> {
    topics.iter().flat_map(|topic| topic.groups.iter().map(move |group| (topic, group)))
}
