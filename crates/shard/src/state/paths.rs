//! All paths by number, and what is left of those that went with their topic.
//!
//! A topic that is deleted leaves the state in one step, whatever hangs on it: its paths are hidden from then on, and no
//! counter, timer or image knows them. What they take in memory is given back piece by piece
//! ([`Shard::give_back`](crate::Shard::give_back)). It is no part of the state: states that differ in it alone are equal, an
//! image has none of it, and no outcome and no effect depends on it.
//!
//! # Invariants
//! 1. A path is hidden exactly while its topic's remains are not taken apart.

use super::entries::Entries;
use super::timers::{Place, Timers};
use super::{Path, State, Topic};
use mortarmq_types::{ClusterTime, MemberId, Partition, PathId, TopicIncarnation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, Index};
use std::sync::Arc;

/// Paths by number.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    all: BTreeMap<PathId, Path>,
    /// Topics whose paths are hidden.
    gone: BTreeSet<TopicIncarnation>,
    remains: VecDeque<Remains>,
}

/// What of a deleted topic is gone from memory. Whoever keeps something for it lets go of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gone {
    /// A member of a path.
    Member(PathId, MemberId),
    /// A path, with all its members.
    Path(PathId),
}

/// What is left of a topic that is deleted.
#[derive(Clone, Debug)]
struct Remains {
    id: TopicIncarnation,
    topic: Arc<Topic>,
    /// The group whose path was taken out last.
    last_group: Option<String>,
    /// The path that is being taken apart.
    path: Option<(PathId, Path)>,
    timers: Timers<Place>,
    run_ages: Timers<Place>,
    idle: Timers<PathId>,
    delays: Timers<Partition>,
    with_facts: BTreeSet<Partition>,
}

impl Paths {
    /// The path of this number.
    #[must_use]
    pub fn get(&self, id: &PathId) -> Option<&Path> {
        self.all.get(id).filter(|path| !self.is_hidden(path))
    }

    /// The path of this number, to change it.
    #[must_use]
    pub fn get_mut(&mut self, id: &PathId) -> Option<&mut Path> {
        let gone = &self.gone;
        self.all.get_mut(id).filter(|path| gone.is_empty() || !gone.contains(&path.topic))
    }

    /// Whether there is a path of this number.
    #[must_use]
    pub fn contains_key(&self, id: &PathId) -> bool {
        self.get(id).is_some()
    }

    /// All of them, by rising number.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&PathId, &Path)> {
        self.all.iter().filter(|(_, path)| !self.is_hidden(path))
    }

    /// Their numbers, rising.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &PathId> {
        self.iter().map(|(id, _)| id)
    }

    /// The paths themselves, by rising number.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Path> {
        self.iter().map(|(_, path)| path)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Whether something of deleted topics is still in memory.
    pub(crate) fn has_remains(&self) -> bool {
        !self.remains.is_empty()
    }

    pub(crate) fn insert(&mut self, id: PathId, path: Path) {
        self.all.insert(id, path);
    }

    pub(crate) fn remove(&mut self, id: &PathId) -> Option<Path> {
        self.get(id)?;
        self.all.remove(id)
    }

    fn is_hidden(&self, path: &Path) -> bool {
        !self.gone.is_empty() && self.gone.contains(&path.topic)
    }
}

impl<'a> IntoIterator for &'a Paths {
    type Item = (&'a PathId, &'a Path);
    type IntoIter = Box<dyn Iterator<Item = Self::Item> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl Index<&PathId> for Paths {
    type Output = Path;

    fn index(&self, id: &PathId) -> &Path {
        self.get(id).expect("no path of this number")
    }
}

/// What is hidden is no part of the state.
impl PartialEq for Paths {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Paths {}

impl State {
    /// Takes a topic out, with its paths. The caller has its name and what it counts for.
    ///
    /// # Panics
    /// When there is no such topic.
    pub(crate) fn unlink(&mut self, id: TopicIncarnation) -> Arc<Topic> {
        let topic = self.topics.remove(&id).expect("invariant 1: a name refers to a topic");
        self.names.remove(&topic.name.to_ascii_lowercase());
        let Entries { with_facts, run_ages, .. } = &mut self.entries;
        let remains = Remains {
            id,
            topic: Arc::clone(&topic),
            last_group: None,
            path: None,
            timers: self.timers.remove(id),
            run_ages: run_ages.remove(id),
            idle: self.idle.remove(id),
            delays: self.delays.remove(id),
            with_facts: with_facts.remove(&id).unwrap_or_default(),
        };
        self.entries.key_ages.set(id, None);
        self.entries.producer_ages.set(id, None);
        let of_paths = self.entries.of_paths.get(&id).copied().unwrap_or_default();
        self.entries.count_paths(id, of_paths, 0);
        self.paths.gone.insert(id);
        self.paths.remains.push_back(remains);
        topic
    }

    /// Gives back memory of deleted topics: a partition, of a topic or of a group, a member, a timer, a producer and an
    /// idempotency key are a step each, and so are every [`ENTRIES_PER_STEP`] entries of a partition. Says of whom nothing is
    /// left, and counts the steps down. A partition goes as a whole, with all the steps that are left if it takes more.
    pub(crate) fn free(&mut self, steps: &mut usize, told: &mut Vec<Gone>) {
        while *steps > 0 {
            let Some(remains) = self.paths.remains.front_mut() else { break };
            if remains.step(&mut self.paths.all, steps, told) {
                continue;
            }
            let done = self.paths.remains.pop_front().expect("looked at above");
            self.paths.gone.remove(&done.id);
        }
    }
}

impl Remains {
    /// Takes something away, in at least one step; says whether there was anything.
    fn step(&mut self, all: &mut BTreeMap<PathId, Path>, steps: &mut usize, told: &mut Vec<Gone>) -> bool {
        if let Some((id, path)) = &mut self.path {
            *steps -= 1;
            if let Some((member, _)) = path.members.pop_first() {
                told.push(Gone::Member(*id, member));
            } else if let Some(entries) = path.partitions.pop() {
                *steps = steps.saturating_sub(steps_of(entries));
            } else {
                told.push(Gone::Path(*id));
                self.path = None;
            }
            return true;
        }
        let behind = self.last_group.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        if let Some((group, id)) = self.topic.paths.range::<str, _>((behind, Bound::Unbounded)).next() {
            *steps -= 1;
            self.path = all.remove(id).map(|path| (*id, path));
            self.last_group = Some(group.clone());
            return true;
        }
        let gone = self.timers.take_apart(*steps);
        let gone = gone + self.run_ages.take_apart(*steps - gone);
        let gone = gone + self.idle.take_apart(*steps - gone);
        let gone = gone + self.delays.take_apart(*steps - gone);
        let gone = gone + take_apart(&mut self.with_facts, *steps - gone);
        // What an image still has goes with the image.
        let gone = gone + Arc::get_mut(&mut self.topic).map_or(0, |topic| topic.take_apart(*steps - gone));
        *steps = steps.saturating_sub(gone);
        gone > 0
    }
}

fn take_apart<T: Ord>(set: &mut BTreeSet<T>, limit: usize) -> usize {
    let mut gone = 0;
    while gone < limit && set.pop_first().is_some() {
        gone += 1;
    }
    gone
}

impl Topic {
    /// Takes so much of it away, and the rest of the last partition; says how much.
    fn take_apart(&mut self, limit: usize) -> usize {
        let mut gone = self.producers.take_apart(limit);
        let keys = u32::try_from(limit - gone).unwrap_or(u32::MAX);
        gone += self.keys.forget(ClusterTime::MAX, 0, keys) as usize;
        while gone < limit && self.paths.pop_first().is_some() {
            gone += 1;
        }
        while gone < limit
            && let Some(partition) = self.partitions.pop()
        {
            let entries = partition.facts.len() + partition.schedule.len() + partition.pins.len();
            gone += 1 + steps_of(entries as u64);
        }
        gone
    }
}

/// What a partition takes beside its own step.
fn steps_of(entries: u64) -> usize {
    usize::try_from(entries / ENTRIES_PER_STEP).unwrap_or(usize::MAX)
}

/// So many entries of a partition are freed as fast as one piece that stands alone: they lie close together, in few nodes.
const ENTRIES_PER_STEP: u64 = 1024;

#[cfg(test)]
mod tests;
