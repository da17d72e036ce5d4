//! What the shard keeps beside topics and groups, counted against `state_entries_max` (failure rule 9), and which of it is
//! oldest. All of it follows from the rest of the state.

use super::timers::{Place, Timers};
use mortarmq_types::{Partition, TopicIncarnation};
use std::collections::BTreeSet;

/// The counts, and the ages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Facts of the newest messages of all partitions.
    pub facts: u64,
    /// Idempotency keys of all topics.
    pub keys: u64,
    /// Messages that paths were offered and have not settled, and runs of settles.
    pub paths: u64,
    /// Partitions with facts.
    pub(crate) with_facts: BTreeSet<(TopicIncarnation, Partition)>,
    /// When the oldest idempotency key of each topic was first used.
    pub(crate) key_ages: Timers<TopicIncarnation>,
    /// When the producer of each topic that is idle longest was last used.
    pub(crate) producer_ages: Timers<TopicIncarnation>,
    /// When the oldest run of settles of each place began.
    pub(crate) run_ages: Timers<Place>,
}

impl Entries {
    /// Notes that a partition has another number of facts.
    pub(crate) fn count_facts(&mut self, place: (TopicIncarnation, Partition), before: usize, after: usize) {
        self.facts = self.facts - before as u64 + after as u64;
        if after == 0 {
            self.with_facts.remove(&place);
        } else if before == 0 {
            self.with_facts.insert(place);
        }
    }
}
