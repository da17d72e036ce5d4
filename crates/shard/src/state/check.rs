//! The invariants of the shard, asserted.

use super::{Path, State, dead_letters_fault};
use mortarmq_types::{Partition, PathId, Seq};

impl State {
    /// Asserts every numbered invariant of the shard and of all that it holds.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        assert_eq!(self.names.len(), self.topics.len(), "invariant 1");
        for (incarnation, topic) in &self.topics {
            assert_eq!(self.names.get(&topic.name.to_ascii_lowercase()), Some(incarnation), "invariant 1");
            assert!(topic.paths.iter().all(|(_, path)| self.paths[path].topic == *incarnation), "invariant 1");
            topic.producers.check();
            for (number, partition) in topic.partitions.iter().enumerate() {
                partition.facts.check(partition.last_seq);
                partition.schedule.check(partition.last_seq);
                partition.kept.check(partition.last_seq, partition.bytes);
                let lowest = partition.schedule.first_among(Seq::ZERO..partition.kept.first_seq);
                assert_eq!(lowest, None, "retention, invariant 2: delayed, and not kept");
                let place = (*incarnation, Partition::from_index(number));
                assert_eq!(self.delays.time(place), partition.schedule.next_due(), "invariant 6: {place:?}");
            }
            assert_eq!(dead_letters_fault(topic, &self.topics, &self.names, &self.paths), None, "invariant 7");
        }
        self.check_pins();
        assert!(self.topics.keys().all(|incarnation| *incarnation <= self.last_topic), "invariant 2");
        assert!(self.paths.keys().all(|path| *path <= self.last_path), "invariant 2");
        for (id, path) in &self.paths {
            self.check_path(*id, path);
        }
        self.timers.check();
        self.delays.check();
        self.idle.check();
        self.check_entries();
        let partitions = self.topics.values().flat_map(|topic| &topic.partitions);
        let delayed: usize = partitions.map(|partition| partition.schedule.len()).sum();
        assert_eq!(self.delayed, delayed as u64, "invariant 6: delayed messages");
    }

    fn check_path(&self, id: PathId, path: &Path) {
        let topic = &self.topics[&path.topic];
        assert_eq!(topic.paths.get(&path.group), Some(&id), "invariant 1");
        assert_eq!(path.partitions.len(), topic.partitions.len(), "invariant 1");
        for (partition, state) in path.partitions.iter().zip(&topic.partitions) {
            partition.check(state.last_seq);
            partition.check_delayed(state.schedule.places());
            let (kept, bound) = (state.kept.first_seq, partition.kept_from());
            assert!(bound >= kept, "retention, invariant 2: {kept} is kept, and a path from {bound} on");
            let (now, granted_at) = (self.position(), partition.latest_grant());
            assert!(granted_at <= now, "invariant 2, P10: a lease of {granted_at:?} at {now:?}");
        }
        assert_eq!(path.idle_since.is_some(), path.members.is_empty(), "invariant 9: {id}");
        let expires_at = path.expires_at().filter(|_| path.counts(topic));
        assert_eq!(self.idle.time(id), expires_at, "invariant 9: {id} expires");
        let held: u64 = path.partitions.iter().map(|partition| partition.in_flight()).sum();
        let pushed: u64 = path.members.values().map(|member| u64::from(member.held_messages)).sum();
        assert!(pushed <= held, "invariant 3: members hold {pushed} by pushes, {held} are leased");
        let books = self.books(path);
        assert_eq!(books.difference(), 0, "P9: {books:?}");
        for (number, partition) in path.partitions.iter().enumerate() {
            let place = (id, Partition::from_index(number));
            assert_eq!(self.timers.time(place), partition.next_due(self.gaps_ms), "invariant 5: {place:?}");
        }
    }

    /// Asserts that what is kept is counted.
    fn check_entries(&self) {
        let partitions = || self.topics.values().flat_map(|topic| &topic.partitions);
        let facts: usize = partitions().map(|partition| partition.facts.len()).sum();
        assert_eq!(self.entries.facts, facts as u64, "invariant 10: facts");
        let keys: u64 = self.topics.values().map(|topic| topic.keys.len()).sum();
        assert_eq!(self.entries.keys, keys, "invariant 10: idempotency keys");
        let producers: u64 = self.topics.values().map(|topic| topic.producers.entries()).sum();
        assert_eq!(self.producer_entries, producers, "invariant 10: producers");
        let of_paths = self.paths.values().flat_map(|path| &path.partitions);
        let paths: u64 = of_paths.map(|partition| partition.passed_over() + partition.settled_runs()).sum();
        assert_eq!(self.entries.paths, paths, "invariant 10: what paths have");
        for (id, topic) in &self.topics {
            topic.keys.check();
            assert_eq!(self.entries.key_ages.time(*id), topic.keys.oldest(), "invariant 10: keys of {id}");
            let filed = topic.producers.oldest_filed();
            assert_eq!(self.entries.producer_ages.time(*id), filed, "invariant 10: producers of {id}");
            for (number, partition) in topic.partitions.iter().enumerate() {
                let is_there = self.entries.with_facts.contains(&(*id, Partition::from_index(number)));
                assert_eq!(is_there, !partition.facts.is_empty(), "invariant 10: facts of {id}, partition {number}");
            }
        }
    }
}
