//! Topics: `GET /v1/topics` and `GET /v1/topics/{topic}`.

use mortarmq_shard::settings::Scope;
use mortarmq_shard::{Setting, State, Topic};
use mortarmq_types::TopicIncarnation;
use serde::Serialize;

/// All topics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicsView {
    /// In the order in which they were made.
    pub topics: Vec<TopicSummary>,
}

/// What all answers say of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicSummary {
    /// The name.
    pub name: String,
    /// The incarnation, 16 hex digits.
    pub id: String,
    /// How many partitions.
    pub partitions: u16,
    /// `active`.
    pub state: &'static str,
    /// The leader's term when it was made.
    pub created_epoch: u64,
    /// When it was made, in seconds since 1970.
    pub created_at: u64,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopicView {
    /// What all answers say.
    #[serde(flatten)]
    pub summary: TopicSummary,
    /// Its settings, and the defaults of its groups.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// Its partitions.
    pub partition_stats: Vec<TopicPartitionView>,
}

/// One partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicPartitionView {
    /// The partition's number.
    pub index: u16,
    /// The node that leads it; absent when none is known.
    pub leader: Option<u16>,
    /// The first sequence kept; `last_seq` + 1 if there is none.
    pub first_seq: u64,
    /// The last sequence; 0 without messages.
    pub last_seq: u64,
    /// Unsettled messages of the path that has most of them.
    pub depth: u64,
    /// Bytes of the records that are kept.
    pub size_bytes: u64,
}

/// Messages ever stored in a topic.
pub(crate) fn messages(topic: &Topic) -> u64 {
    topic.partitions.iter().map(|partition| partition.last_seq.get()).sum()
}

/// Messages of a topic that are kept.
pub(crate) fn kept_messages(topic: &Topic) -> u64 {
    topic.partitions.iter().map(|partition| partition.last_seq.next().above(partition.kept.first_seq)).sum()
}

pub(crate) fn list(state: &State) -> TopicsView {
    TopicsView { topics: state.topics.iter().map(|(id, topic)| summary(*id, topic)).collect() }
}

pub(crate) fn describe(state: &State, id: TopicIncarnation, topic: &Topic, leader: Option<u16>) -> TopicView {
    let settings = Setting::ALL
        .iter()
        .filter(|setting| setting.scope() == Scope::Topic || **setting != Setting::Type)
        .map(|setting| (setting.key().to_owned(), setting.show(state.topic_setting(topic, *setting))))
        .collect();
    let partition_stats = (0..topic.partitions.len()).map(|number| partition(state, topic, number, leader)).collect();
    TopicView { summary: summary(id, topic), settings, partition_stats }
}

fn partition(state: &State, topic: &Topic, number: usize, leader: Option<u16>) -> TopicPartitionView {
    let found = &topic.partitions[number];
    let depths = topic.paths.values().map(|id| state.paths[id].partitions[number].books(found.last_seq).depth);
    TopicPartitionView {
        index: u16::try_from(number).expect("at most 1024 partitions"),
        leader,
        first_seq: found.kept.first_seq.get(),
        last_seq: found.last_seq.get(),
        depth: depths.max().unwrap_or(0),
        size_bytes: found.kept_bytes(),
    }
}

fn summary(id: TopicIncarnation, topic: &Topic) -> TopicSummary {
    TopicSummary {
        name: topic.name.clone(),
        id: id.to_hex(),
        partitions: u16::try_from(topic.partitions.len()).expect("at most 1024 partitions"),
        state: "active",
        created_epoch: topic.created_epoch.get(),
        created_at: topic.created_at.get() / 1000,
    }
}
