//! Dead letters whose bytes a redriven message still needs.

use super::paths::Paths;
use super::{PartitionState, State, Topic, topic_of};
use imbl::OrdMap;
use mortarmq_types::{Partition, PathId, Seq, TopicIncarnation};
use std::collections::BTreeMap;

/// The pinned dead letters of one partition of one dead-letter topic, by sequence.
pub(crate) type Pins = OrdMap<Seq, PathId>;

impl PartitionState {
    /// The lowest dead letter that must stay because a redriven message is read from it: no segment from its own on may go.
    ///
    /// # Source
    /// P4; DESIGN section 2, "Dead letters, fan-out, delay".
    #[must_use]
    pub fn lowest_pin(&self) -> Option<Seq> {
        self.pins.get_min().map(|(seq, _)| *seq)
    }

    /// Whether a redriven message is read from this dead letter.
    #[must_use]
    pub fn is_pinned(&self, seq: Seq) -> bool {
        self.pins.contains_key(&seq)
    }
}

impl State {
    /// Frees the dead letters of what a path has settled in a partition since this was called last.
    pub(super) fn unpin_freed(&mut self, id: PathId, number: Partition) {
        let Some(path) = self.paths.get_mut(&id) else { return };
        let Some(partition) = path.partitions.get_mut(number.index()) else { return };
        let (freed, topic) = (partition.take_freed(), path.topic);
        self.unpin(topic, number, &freed);
    }

    /// Frees dead letters of a topic.
    pub(crate) fn unpin(&mut self, source: TopicIncarnation, number: Partition, freed: &[Seq]) {
        if freed.is_empty() {
            return;
        }
        let dead_letters = self.dead_letters_of(source).expect("invariant 8: a topic with redriven messages has one");
        let topic = topic_of(&mut self.topics, dead_letters).expect("invariant 1: a name refers to a topic");
        let partition = topic.partition_mut(number.index()).expect("invariant 7: it has its source's partitions");
        for seq in freed {
            let path = partition.pins.remove(seq);
            assert!(path.is_some(), "invariant 8: dead letter {seq} is freed and was not pinned");
            if *seq < partition.kept.first_seq {
                self.unpinned.insert((dead_letters, number));
            }
        }
    }

    pub(super) fn check_pins(&self) {
        let pinned = self.topics.iter().flat_map(|(id, topic)| {
            (0..).zip(&topic.partitions).flat_map(move |(number, partition)| {
                partition.pins.iter().map(move |(seq, path)| ((*id, number, *seq), *path))
            })
        });
        let pinned: BTreeMap<(TopicIncarnation, usize, Seq), PathId> = pinned.collect();
        let mut needed = BTreeMap::new();
        for (id, path) in self.paths.iter() {
            for (number, partition) in path.partitions.made() {
                for (seq, source) in partition.sources() {
                    let dead_letters = self.dead_letters_of(path.topic).expect("invariant 8: a dead-letter topic");
                    let twice = needed.insert((dead_letters, number, source), *id);
                    assert_eq!(twice, None, "invariant 8: {source} is the source of {seq} and of another message");
                }
            }
        }
        assert_eq!(pinned, needed, "invariant 8: pinned dead letters, and sources of redriven messages");
    }
}

/// The pins of every dead-letter topic, by topic and partition, as the paths say; or a source that cannot be, and its path.
pub(crate) fn pins_of<T: std::borrow::Borrow<Topic>>(
    topics: &BTreeMap<TopicIncarnation, T>,
    names: &BTreeMap<String, TopicIncarnation>,
    paths: &Paths,
) -> Result<BTreeMap<(TopicIncarnation, usize), Pins>, (PathId, Seq)> {
    let mut pins: BTreeMap<(TopicIncarnation, usize), Pins> = BTreeMap::new();
    for (id, path) in paths.iter() {
        for (number, partition) in path.partitions.made() {
            for (_, source) in partition.sources() {
                let name = crate::names::dead_letter_name(&topics[&path.topic].borrow().name).to_ascii_lowercase();
                let dead_letters = names.get(&name).ok_or((*id, source))?;
                let last = topics[dead_letters].borrow().partitions.get(number).map(|partition| partition.last_seq);
                let is_there = last.is_some_and(|last| source <= last);
                if !is_there || pins.entry((*dead_letters, number)).or_default().insert(source, *id).is_some() {
                    return Err((*id, source));
                }
            }
        }
    }
    Ok(pins)
}
