//! What the shard keeps beside topics and groups, counted against `state_entries_max` (failure rule 9), and which of it is
//! oldest. All of it follows from the rest of the state.

use super::timers::{ByTopic, Place, Timers};
use mortarmq_types::{Partition, TopicIncarnation};
use std::collections::{BTreeMap, BTreeSet};

/// The counts, and the ages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Facts of the newest messages of all partitions.
    pub facts: u64,
    /// Idempotency keys of all topics.
    pub keys: u64,
    /// Messages that paths were offered and have not settled, and runs of settles.
    pub paths: u64,
    /// What of `paths` the paths of each topic have; a topic that is not there has nothing.
    pub(crate) of_paths: BTreeMap<TopicIncarnation, u64>,
    /// Partitions with facts, by topic.
    pub(crate) with_facts: BTreeMap<TopicIncarnation, BTreeSet<Partition>>,
    /// When the oldest idempotency key of each topic was first used.
    pub(crate) key_ages: Timers<TopicIncarnation>,
    /// When the producer of each topic that is idle longest was last used.
    pub(crate) producer_ages: Timers<TopicIncarnation>,
    /// When the oldest run of settles of each place began.
    pub(crate) run_ages: ByTopic<Place>,
}

impl Entries {
    /// Notes that a partition has another number of facts.
    pub(crate) fn count_facts(&mut self, place: (TopicIncarnation, Partition), before: usize, after: usize) {
        self.facts = self.facts - before as u64 + after as u64;
        if before != 0 && after == 0 {
            let Some(partitions) = self.with_facts.get_mut(&place.0) else { return };
            partitions.remove(&place.1);
            if partitions.is_empty() {
                self.with_facts.remove(&place.0);
            }
        } else if before == 0 && after != 0 {
            self.with_facts.entry(place.0).or_default().insert(place.1);
        }
    }

    /// Notes that the paths of a topic have another number of entries.
    pub(crate) fn count_paths(&mut self, topic: TopicIncarnation, before: u64, after: u64) {
        if before == after {
            return;
        }
        self.paths = self.paths - before + after;
        let of_topic = self.of_paths.entry(topic).or_default();
        *of_topic = *of_topic - before + after;
        if *of_topic == 0 {
            self.of_paths.remove(&topic);
        }
    }

    /// A partition with facts.
    pub(crate) fn first_with_facts(&self) -> Option<(TopicIncarnation, Partition)> {
        let (topic, partitions) = self.with_facts.first_key_value()?;
        partitions.first().map(|partition| (*topic, *partition))
    }
}
