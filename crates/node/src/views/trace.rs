//! The life of one message: `GET /v1/topics/{topic}/trace` (P7).

use mortarmq_delivery::{PathPartition, State as Standing};
use mortarmq_shard::State;
use mortarmq_types::{ClusterTime, Partition, Seq, TopicIncarnation};
use serde::Serialize;

/// What happened to a message, in the order of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceView {
    /// One row per event.
    pub events: Vec<TraceEvent>,
    /// Where it stands: one row per path.
    pub standing: Vec<TraceStanding>,
}

/// One event of a message's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceEvent {
    /// Wall-clock time, for display: milliseconds since 1970.
    pub time_ms: u64,
    /// The command.
    pub commit_index: u64,
    /// `topic/group`, or `-` for the topic's own.
    pub path: String,
    /// `stored`, `leased`, `extended`, `lease_ended`, `acked`, `dead`, `dropped`, `redriven` or `replayed`.
    pub stage: &'static str,
    /// The delivery; absent where none is meant.
    pub delivery_id: Option<u64>,
    /// The attempt; absent where it is not known.
    pub attempt: Option<u32>,
    /// The member, 16 hex digits; absent where none is meant.
    pub member: Option<String>,
    /// Why it was delivered, why the lease ended, why it is dead, or by which rule it was dropped.
    pub cause: Option<&'static str>,
    /// The producer of `stored`, the delivery that `leased`, `dropped` or `redriven` follows, the error text of a nack, the
    /// place of a dead letter, or of the message that it became again.
    pub detail: String,
}

/// Where a message stands on one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TraceStanding {
    /// `topic/group`.
    pub path: String,
    /// `pending`, `leased`, `scheduled` (delayed, or backing off), `unreadable` (its record is damaged), `acked`, `dead` (in
    /// the dead-letter topic), `dropped`, `not_owed` (it lies before the group's start) or `gone` (retention has passed it, and
    /// its history does not reach back to how it was settled).
    pub standing: &'static str,
}

impl TraceStanding {
    /// The state knows that a message is settled; how, its history tells.
    pub(crate) fn look_up(&mut self, events: &[TraceEvent], is_kept: bool) {
        if self.standing != "acked" {
            return;
        }
        let settles =
            |event: &&TraceEvent| event.path == self.path && matches!(event.stage, "acked" | "dead" | "dropped");
        match events.iter().rev().find(settles) {
            Some(last) => self.standing = last.stage,
            None if !is_kept => self.standing = "gone",
            None => {}
        }
    }
}

/// Where a message stands on every path of its topic.
pub(crate) fn standing(state: &State, topic: TopicIncarnation, partition: Partition, seq: Seq) -> Vec<TraceStanding> {
    let Some(topic) = state.topics.get(&topic) else { return Vec::new() };
    let number = partition.index();
    let due = topic.partitions[number].schedule.due_of(seq);
    topic
        .paths
        .iter()
        .map(|(group, id)| {
            let standing = standing_of(&state.paths[id].partitions[number], seq, due);
            TraceStanding { path: format!("{}/{group}", topic.name), standing }
        })
        .collect()
}

/// Where a message stands on one path; `acked` for every settled one. `due` is when it falls due, if it stands in the
/// partition's schedule.
pub(crate) fn standing_of(path: &PathPartition, seq: Seq, due: Option<ClusterTime>) -> &'static str {
    match path.lease_of(seq).map(|entry| &entry.state) {
        Some(Standing::Waiting { .. }) => "pending",
        Some(Standing::Scheduled { .. }) => "scheduled",
        Some(Standing::Leased(_)) => "leased",
        Some(Standing::Held) => "unreadable",
        None if due.is_some_and(|due| path.is_delayed(due, seq)) => "scheduled",
        None if path.owes(seq, due) => "pending",
        None if seq < path.start() => "not_owed",
        None => "acked",
    }
}
