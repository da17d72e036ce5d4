//! The invariants of the shard, asserted.

use super::entries::Entries;
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
                let due = self.delays.time(place.0, place.1);
                assert_eq!(due, partition.schedule.next_due(), "invariant 6: {place:?}");
            }
            assert_eq!(dead_letters_fault(topic, &self.topics, &self.names, &self.paths), None, "invariant 7");
        }
        self.check_pins();
        assert!(self.topics.keys().all(|incarnation| *incarnation <= self.last_topic), "invariant 2");
        assert!(self.paths.keys().all(|path| *path <= self.last_path), "invariant 2");
        for (id, path) in self.paths.iter() {
            self.check_path(*id, path);
        }
        self.timers.check();
        self.delays.check();
        self.idle.check();
        self.entries.run_ages.check();
        self.check_entries();
        self.check_catalog();
        let partitions = self.topics.values().flat_map(|topic| &topic.partitions);
        let delayed: usize = partitions.map(|partition| partition.schedule.len()).sum();
        assert_eq!(self.delayed, delayed as u64, "invariant 6: delayed messages");
    }

    /// Asserts that topics and paths are counted for their limits, and that nothing is known of any other topic.
    fn check_catalog(&self) {
        let counted = || self.paths.values().filter(|path| path.counts(&self.topics[&path.topic]));
        assert_eq!(self.paths_total, counted().count(), "invariant 10: paths");
        let partitions: usize = counted().map(|path| self.topics[&path.topic].partitions.len()).sum();
        assert_eq!(self.path_partitions_total, partitions, "invariant 10: partitions of paths");
        let made = self.topics.values().filter(|topic| !topic.holds_dead_letters());
        let partitions: usize = made.map(|topic| topic.partitions.len()).sum();
        assert_eq!(self.partitions_total, partitions, "invariant 10: partitions");
        let Entries { of_paths, with_facts, run_ages, .. } = &self.entries;
        let timed = self.timers.topics().chain(self.delays.topics()).chain(self.idle.topics());
        let kept = run_ages.topics().chain(of_paths.keys().copied()).chain(with_facts.keys().copied());
        for id in timed.chain(kept) {
            assert!(self.topics.contains_key(&id), "invariant 12: {id} is deleted");
        }
    }

    fn check_path(&self, id: PathId, path: &Path) {
        let topic = &self.topics[&path.topic];
        assert_eq!(topic.paths.get(&path.group), Some(&id), "invariant 1");
        path.partitions.check(topic.partitions.len());
        for (partition, state) in path.partitions_of(topic) {
            partition.check(state.last_seq);
            partition.check_delayed(state.schedule.places());
            let (kept, bound) = (state.kept.first_seq, partition.kept_from());
            assert!(bound >= kept, "retention, invariant 2: {kept} is kept, and a path from {bound} on");
            let (now, granted_at) = (self.position(), partition.latest_grant());
            assert!(granted_at <= now, "invariant 2, P10: a lease of {granted_at:?} at {now:?}");
        }
        assert_eq!(path.alone_fault(), None, "invariant 11: {id}");
        assert_eq!(path.idle_since.is_some(), path.members.is_empty(), "invariant 9: {id}");
        let expires_at = path.expires_at().filter(|_| path.counts(topic));
        assert_eq!(self.idle.time(path.topic, id), expires_at, "invariant 9: {id} expires");
        let held: u64 = path.partitions.made().map(|(_, partition)| partition.in_flight()).sum();
        let pushed: u64 = path.members.values().map(|member| u64::from(member.held_messages)).sum();
        assert!(pushed <= held, "invariant 3: members hold {pushed} by pushes, {held} are leased");
        let books = self.books(path);
        assert_eq!(books.difference(), 0, "P9: {books:?}");
        for (number, partition) in path.partitions.made() {
            let place = (id, Partition::from_index(number));
            let due = self.timers.time(path.topic, place);
            assert_eq!(due, partition.next_due(self.gaps_ms), "invariant 5: {place:?}");
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
        let of_paths = self.paths.values().flat_map(|path| path.partitions.made());
        let paths: u64 = of_paths.map(|(_, partition)| partition.kept_entries()).sum();
        assert_eq!(self.entries.paths, paths, "invariant 10: what paths have");
        for (id, topic) in &self.topics {
            topic.keys.check();
            let facts: usize = topic.partitions.iter().map(|partition| partition.facts.len()).sum();
            assert_eq!(topic.facts, facts as u64, "invariant 10: facts of {id}");
            let delayed: usize = topic.partitions.iter().map(|partition| partition.schedule.len()).sum();
            assert_eq!(topic.delayed, delayed as u64, "invariant 6: delayed messages of {id}");
            let paths = topic.paths.values().flat_map(|path| self.paths[path].partitions.made());
            let paths: u64 = paths.map(|(_, partition)| partition.kept_entries()).sum();
            let of_paths = self.entries.of_paths.get(id).copied().unwrap_or_default();
            assert_eq!(of_paths, paths, "invariant 10: what paths of {id} have");
            assert_eq!(self.entries.key_ages.time(*id), topic.keys.oldest(), "invariant 10: keys of {id}");
            let filed = topic.producers.oldest_filed();
            assert_eq!(self.entries.producer_ages.time(*id), filed, "invariant 10: producers of {id}");
            for (number, partition) in topic.partitions.iter().enumerate() {
                let with_facts = self.entries.with_facts.get(id);
                let is_there = with_facts.is_some_and(|it| it.contains(&Partition::from_index(number)));
                assert_eq!(is_there, !partition.facts.is_empty(), "invariant 10: facts of {id}, partition {number}");
            }
        }
    }
}
