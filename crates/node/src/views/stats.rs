//! Counters of topics and groups, from one snapshot: `GET /stats`. The balance holds in every answer.

use std::collections::BTreeMap;

use mortarmq_shard::{Path, State, Topic};
use mortarmq_types::{Cause, DropReason, TopicIncarnation};
use serde::Serialize;

/// Counters of the topics that were asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatsView {
    /// The node that answers.
    pub node: u16,
    /// The shard.
    pub shard: u32,
    /// The leader's term.
    pub epoch: u64,
    /// The last command the answer rests on.
    pub commit_index: u64,
    /// 0 healthy, 1 soft, 2 read-only.
    pub quorum_state: u8,
    /// Whether the answer may be older than the last committed command.
    pub stale: bool,
    /// Groups that nobody used and that were deleted for it.
    pub groups_expired: u64,
    /// One row per topic.
    pub topics: Vec<TopicStats>,
}

/// Counters of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicStats {
    /// The name.
    pub topic: String,
    /// The incarnation, 16 hex digits.
    pub id: String,
    /// Messages ever stored.
    pub produced: u64,
    /// Its partitions.
    pub partitions: Vec<PartitionStats>,
    /// Its groups.
    pub groups: Vec<GroupStats>,
}

/// Counters of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionStats {
    /// The partition's number.
    pub partition: u16,
    /// The node that leads it; absent when none is known.
    pub leader: Option<u16>,
    /// The first sequence kept.
    pub first_seq: u64,
    /// The last sequence; 0 without messages.
    pub last_seq: u64,
    /// Bytes of the records that are kept.
    pub bytes: u64,
    /// Bytes of all records ever stored.
    #[serde(skip)]
    pub stored_bytes: u64,
}

/// Counters of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupStats {
    /// The group's name.
    pub group: String,
    /// Messages the path owes or owed.
    pub produced: u64,
    /// Messages that were acked.
    pub delivered: u64,
    /// Messages that left by a stated rule.
    pub dropped: u64,
    /// Messages in the dead-letter topic.
    pub dlq: u64,
    /// Messages that are not settled.
    pub depth: u64,
    /// Dropped messages by reason; reasons without any are left out.
    pub dropped_by: BTreeMap<&'static str, u64>,
    /// Messages under a live lease.
    pub in_flight: u64,
    /// Messages that wait for a time: retries that back off, and delayed messages that are not due.
    pub scheduled: u64,
    /// Messages that are held because their record is damaged.
    pub unreadable: u64,
    /// For how long the message that can be leased and has waited longest has done so; 0 without one.
    ///
    /// # Units
    /// Seconds.
    #[serde(skip)]
    pub oldest_ready_s: u64,
    /// For how long the message that was leased first of those that are leased has been; 0 without one.
    ///
    /// # Units
    /// Seconds.
    #[serde(skip)]
    pub oldest_leased_s: u64,
    /// Deliveries after the first by cause; causes without any are left out.
    pub retries_by: BTreeMap<&'static str, u64>,
    /// `active` with members, else `empty`.
    pub state: &'static str,
    /// Its partitions.
    pub partitions: Vec<GroupPartitionStats>,
}

/// Counters of one group in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupPartitionStats {
    /// The partition's number.
    pub partition: u16,
    /// The lowest sequence that is not settled; `last_seq` + 1 if all are.
    pub floor: u64,
    /// Messages that are not settled.
    pub depth: u64,
}

pub(crate) fn topic_stats(state: &State, id: TopicIncarnation, topic: &Topic, leader: Option<u16>) -> TopicStats {
    let partitions = topic
        .partitions
        .iter()
        .enumerate()
        .map(|(number, partition)| PartitionStats {
            partition: u16::try_from(number).expect("at most 1024 partitions"),
            leader,
            first_seq: partition.kept.first_seq.get(),
            last_seq: partition.last_seq.get(),
            bytes: partition.kept_bytes(),
            stored_bytes: partition.bytes,
        })
        .collect();
    TopicStats {
        topic: topic.name.clone(),
        id: id.to_hex(),
        produced: super::topics::messages(topic),
        partitions,
        groups: topic.paths.values().map(|id| group_stats(state, &state.paths[id])).collect(),
    }
}

pub(crate) fn group_stats(state: &State, path: &Path) -> GroupStats {
    let topic = &state.topics[&path.topic];
    let books = state.books(path);
    let dropped =
        |reason: DropReason| path.partitions.made().map(|(_, partition)| partition.dropped_by(reason)).sum::<u64>();
    let retries = |cause: Cause| path.partitions.made().map(|(_, partition)| partition.retries_by(cause)).sum::<u64>();
    let partitions = path
        .partitions_of(topic)
        .enumerate()
        .map(|(number, (partition, found))| GroupPartitionStats {
            partition: u16::try_from(number).expect("at most 1024 partitions"),
            floor: found.floor(partition).get(),
            depth: partition.books(found.last_seq).depth,
        })
        .collect();
    GroupStats {
        group: path.group.clone(),
        produced: books.produced,
        delivered: books.delivered,
        dropped: books.dropped,
        dlq: books.dlq,
        depth: books.depth,
        dropped_by: DropReason::ALL
            .iter()
            .filter(|reason| dropped(**reason) > 0)
            .map(|reason| (reason.word(), dropped(*reason)))
            .collect(),
        in_flight: path.partitions.made().map(|(_, partition)| partition.in_flight()).sum(),
        scheduled: path
            .partitions_of(topic)
            .map(|(partition, found)| partition.scheduled() + found.delayed(partition))
            .sum(),
        unreadable: path.partitions.made().map(|(_, partition)| partition.unreadable()).sum(),
        // The state has no clock of its own: whoever has tells them.
        oldest_ready_s: 0,
        oldest_leased_s: 0,
        retries_by: Cause::ALL
            .iter()
            .filter(|cause| **cause != Cause::First && retries(**cause) > 0)
            .map(|cause| (cause.word(), retries(*cause)))
            .collect(),
        state: if path.members.is_empty() { "empty" } else { "active" },
        partitions,
    }
}
