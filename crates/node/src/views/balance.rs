//! The books of all paths: `GET /v1/balance`. They add up in every answer (P9).

use mortarmq_shard::State;
use serde::Serialize;

/// The books of the paths that were asked for, at one commit index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BalanceView {
    /// The last command the answer rests on.
    pub commit_index: u64,
    /// The leader's term.
    pub epoch: u64,
    /// One row per path.
    pub paths: Vec<PathBooks>,
    /// Topics that no group reads, with their messages.
    pub without_group: Vec<TopicWithoutGroup>,
}

/// The books of one path.
///
/// # Units
/// Messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathBooks {
    /// The topic's name.
    pub topic: String,
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
}

/// A topic that no group reads yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicWithoutGroup {
    /// The topic's name.
    pub topic: String,
    /// Its messages that are kept.
    pub messages: u64,
}

/// The books of one topic, or of all.
pub(crate) fn view(state: &State, topic: Option<&str>) -> BalanceView {
    let topics: Vec<_> = state.topics.values().filter(|found| topic.is_none_or(|name| name == found.name)).collect();
    let mut paths = Vec::new();
    for topic in &topics {
        for (group, id) in &topic.paths {
            let books = state.books(&state.paths[id]);
            paths.push(PathBooks {
                topic: topic.name.clone(),
                group: group.clone(),
                produced: books.produced,
                delivered: books.delivered,
                dropped: books.dropped,
                dlq: books.dlq,
                depth: books.depth,
            });
        }
    }
    let without_group = topics
        .iter()
        .filter(|topic| topic.paths.is_empty())
        .map(|topic| TopicWithoutGroup { topic: topic.name.clone(), messages: super::topics::kept_messages(topic) })
        .collect();
    BalanceView { commit_index: state.commit_index.get(), epoch: state.epoch.get(), paths, without_group }
}
