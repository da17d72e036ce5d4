//! What follows from the rest of the state, and is kept in step with it: timers, and how much is kept.

use super::State;
use mortarmq_types::{Partition, PathId, TopicIncarnation};
use std::sync::Arc;

impl State {
    /// Sets the timer of one place from what its path has due, and frees the dead letters that it needs no more. Whoever
    /// changes what a path has in a partition calls it.
    pub(crate) fn retime(&mut self, path: PathId, partition: Partition) {
        self.unpin_freed(path, partition);
        let (place, number) = ((path, partition), partition.index());
        let Some(path) = self.paths.get_mut(&path) else { return };
        let Some(partition) = path.partitions.get(number) else { return };
        let (topic, now) = (path.topic, partition.kept_entries());
        self.timers.set(topic, place, partition.next_due(self.gaps_ms));
        self.entries.run_ages.set(topic, place, partition.oldest_run());
        let before = path.partitions.count(number, now);
        self.entries.count_paths(topic, before, now);
    }

    /// Counts no more what a path has in its partitions: it is about to go.
    pub(crate) fn uncount(&mut self, id: PathId) {
        let Some(path) = self.paths.get(&id) else { return };
        self.entries.count_paths(path.topic, path.partitions.counted(), 0);
        for (number, _) in path.partitions.made() {
            self.entries.run_ages.set(path.topic, (id, Partition::from_index(number)), None);
        }
    }

    /// Sets the delay timer of a partition.
    pub(crate) fn retime_delays(&mut self, topic: TopicIncarnation, partition: Partition) {
        let due = self
            .topics
            .get(&topic)
            .and_then(|found| found.partitions.get(partition.index()))
            .and_then(|found| found.schedule.next_due());
        self.delays.set(topic, partition, due);
    }

    /// Notes whether a path has members, and sets when it expires. The own book of a dead-letter topic never does.
    pub(crate) fn retime_idle(&mut self, id: PathId) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        path.idle_since = if path.members.is_empty() { path.idle_since.or(Some(self.time)) } else { None };
        let due = path.expires_at().filter(|_| path.counts(&self.topics[&path.topic]));
        self.idle.set(path.topic, id, due);
    }

    /// Sets every timer anew. For a gap, which moves every lease deadline and is rare (a restart, a failover, a stall), and
    /// for a state that comes from its image.
    pub(crate) fn retime_all(&mut self) {
        let places: Vec<_> =
            self.paths.iter().flat_map(|(id, path)| path.partitions.made().map(|(number, _)| (*id, number))).collect();
        for (id, number) in places {
            self.retime(id, Partition::from_index(number));
        }
        let paths: Vec<_> = self.paths.keys().copied().collect();
        paths.into_iter().for_each(|id| self.retime_idle(id));
        let partitions: Vec<_> = self
            .topics
            .iter()
            .flat_map(|(id, topic)| (0..topic.partitions.len()).map(|number| (*id, number)))
            .collect();
        for (id, number) in partitions {
            self.retime_delays(id, Partition::from_index(number));
        }
    }

    /// Counts what topics keep, in a state that comes from its image.
    pub(crate) fn recount_topics(&mut self) {
        for (id, topic) in &mut self.topics {
            let topic = Arc::make_mut(topic);
            topic.facts = topic.partitions.iter().map(|partition| partition.facts.len() as u64).sum();
            topic.delayed = topic.partitions.iter().map(|partition| partition.schedule.len() as u64).sum();
            self.entries.keys += topic.keys.len();
            self.entries.key_ages.set(*id, topic.keys.oldest());
            self.entries.producer_ages.set(*id, topic.producers.oldest_filed());
            for (number, partition) in topic.partitions.iter().enumerate() {
                self.entries.count_facts((*id, Partition::from_index(number)), 0, partition.facts.len());
            }
        }
    }
}
