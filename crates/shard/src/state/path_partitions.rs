//! What a path has in the partitions of its topic.
//!
//! A partition that the topic got after the path was made is made here when something first happens to the path in it. Until
//! then the path owes all of it, from its first message on, and has settled nothing: everybody is told so, and nothing needs
//! to be kept. So a topic grows without a step for any of its groups, however many they are.
//!
//! # Invariants
//! 1. The numbers of `later` lie behind `first`.

use mortarmq_delivery::PathPartition;
use mortarmq_types::Seq;
use std::collections::BTreeMap;
use std::ops::Index;
use std::sync::LazyLock;

/// The partitions of one path.
#[derive(Clone, Debug, Default)]
pub struct PathPartitions {
    /// Those that the topic had when the path was made.
    first: Vec<Made>,
    /// Of those that it got since, the ones in which something happened.
    later: BTreeMap<usize, Made>,
}

/// What the path has in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Made {
    here: PathPartition,
    /// Its entries, as they are counted for the shard.
    counted: u64,
}

/// What a path has where nothing has happened.
static UNTOUCHED: LazyLock<PathPartition> = LazyLock::new(|| PathPartition::new(Seq::FIRST));

impl PathPartitions {
    /// Those of a path that is made now.
    pub(crate) fn new(first: impl Iterator<Item = PathPartition>) -> Self {
        Self { first: first.map(Made::new).collect(), later: BTreeMap::new() }
    }

    /// Those in which something is kept, with their numbers, rising.
    pub fn made(&self) -> impl Iterator<Item = (usize, &PathPartition)> {
        let first = self.first.iter().enumerate();
        first.chain(self.later.iter().map(|(number, made)| (*number, made))).map(|(number, made)| (number, &made.here))
    }

    /// All of them, of as many as the topic has.
    pub fn all(&self, count: usize) -> impl Iterator<Item = &PathPartition> {
        (0..count).map(|number| &self[number])
    }

    /// One of them, if something is kept of it.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&PathPartition> {
        self.made_at(number).map(|made| &made.here)
    }

    /// One of them, to change it if something is kept of it.
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut PathPartition> {
        self.made_at_mut(number).map(|made| &mut made.here)
    }

    /// One of them, to change it. The caller knows that the topic has it.
    pub(crate) fn make(&mut self, number: usize) -> &mut PathPartition {
        if number < self.first.len() {
            return &mut self.first[number].here;
        }
        &mut self.later.entry(number).or_insert_with(|| Made::new(UNTOUCHED.clone())).here
    }

    /// Adds what an image has of one, behind all that were added before.
    pub(crate) fn push(&mut self, number: usize, partition: PathPartition) {
        if number == self.first.len() && self.later.is_empty() {
            self.first.push(Made::new(partition));
        } else {
            self.later.insert(number, Made::new(partition));
        }
    }

    /// Takes one out, for good.
    pub(crate) fn take(&mut self, number: usize) -> PathPartition {
        std::mem::replace(self.make(number), UNTOUCHED.clone())
    }

    /// Takes the last one away that is kept; says with how many entries it was counted.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let last = self.later.pop_last().map(|(_, made)| made);
        last.or_else(|| self.first.pop()).map(|made| made.counted)
    }

    /// How many are kept.
    #[cfg(test)]
    pub(crate) fn made_count(&self) -> usize {
        self.first.len() + self.later.len()
    }

    /// Notes how many entries one of them is counted with; says how many it was.
    pub(crate) fn count(&mut self, number: usize, entries: u64) -> u64 {
        self.made_at_mut(number).map_or(0, |made| std::mem::replace(&mut made.counted, entries))
    }

    /// The entries with which all of them are counted.
    pub(crate) fn counted(&self) -> u64 {
        self.first.iter().chain(self.later.values()).map(|made| made.counted).sum()
    }

    /// Asserts the numbered invariant.
    ///
    /// # Panics
    /// When it does not hold, or there are more than the topic has.
    pub(crate) fn check(&self, count: usize) {
        assert!(self.later.keys().all(|number| (self.first.len()..count).contains(number)), "invariant 1");
        assert!(self.first.len() <= count, "invariant 1: {} of {count}", self.first.len());
    }

    fn made_at(&self, number: usize) -> Option<&Made> {
        self.first.get(number).or_else(|| self.later.get(&number))
    }

    fn made_at_mut(&mut self, number: usize) -> Option<&mut Made> {
        if number < self.first.len() { self.first.get_mut(number) } else { self.later.get_mut(&number) }
    }
}

impl Made {
    const fn new(here: PathPartition) -> Self {
        Self { here, counted: 0 }
    }
}

impl Index<usize> for PathPartitions {
    type Output = PathPartition;

    fn index(&self, number: usize) -> &PathPartition {
        self.made_at(number).map_or(&*UNTOUCHED, |made| &made.here)
    }
}

/// From an image come those without a hole as the first, whatever the topic had when the path was made.
impl PartialEq for PathPartitions {
    fn eq(&self, other: &Self) -> bool {
        self.made().eq(other.made()) && self.counted() == other.counted()
    }
}

impl Eq for PathPartitions {}
