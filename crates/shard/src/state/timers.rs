//! When each place next has something to end, to wake or to tell.

use mortarmq_types::{ClusterTime, Partition, PathId, TopicIncarnation};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// One path in one partition.
pub type Place = (PathId, Partition);

/// The earliest time of each place, and all of them in order.
///
/// # Invariants
/// 1. `order` holds exactly the entries of `times`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timers<P> {
    times: BTreeMap<P, ClusterTime>,
    order: BTreeSet<(ClusterTime, P)>,
}

impl<P> Default for Timers<P> {
    fn default() -> Self {
        Self { times: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<P: Copy + Debug + Ord> Timers<P> {
    /// Sets or removes the time of a place.
    pub fn set(&mut self, place: P, time: Option<ClusterTime>) {
        if self.times.get(&place).copied() == time {
            return;
        }
        if let Some(old) = self.times.remove(&place) {
            self.order.remove(&(old, place));
        }
        if let Some(new) = time {
            self.times.insert(place, new);
            self.order.insert((new, place));
        }
    }

    /// The earliest time of all.
    #[must_use]
    pub fn earliest(&self) -> Option<ClusterTime> {
        self.order.first().map(|(time, _)| *time)
    }

    /// The time of one place.
    #[must_use]
    pub fn time(&self, place: P) -> Option<ClusterTime> {
        self.times.get(&place).copied()
    }

    /// A place whose time has come.
    #[must_use]
    pub fn due(&self, now: ClusterTime) -> Option<P> {
        self.order.first().filter(|(time, _)| *time <= now).map(|(_, place)| *place)
    }

    /// How many places have a time.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// Takes out at most so many, in no stated order; says how many.
    pub(crate) fn take_apart(&mut self, limit: usize) -> usize {
        let mut gone = 0;
        while gone < limit && (self.times.pop_first().is_some() | self.order.pop_first().is_some()) {
            gone += 1;
        }
        gone
    }

    /// Asserts every numbered invariant.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        assert_eq!(self.times.len(), self.order.len(), "invariant 1");
        assert!(self.times.iter().all(|(place, time)| self.order.contains(&(*time, *place))), "invariant 1");
    }
}

/// The same, topic by topic: those of one topic leave together, in one step.
///
/// # Invariants
/// 1. `first` holds the earliest time of each topic, and a topic without times is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByTopic<P> {
    topics: BTreeMap<TopicIncarnation, Timers<P>>,
    first: Timers<TopicIncarnation>,
}

impl<P> Default for ByTopic<P> {
    fn default() -> Self {
        Self { topics: BTreeMap::new(), first: Timers::default() }
    }
}

impl<P: Copy + Debug + Ord> ByTopic<P> {
    /// Sets or removes the time of a place.
    pub fn set(&mut self, topic: TopicIncarnation, place: P, time: Option<ClusterTime>) {
        let Some(timers) = self.topics.get_mut(&topic) else {
            if time.is_some() {
                let mut timers = Timers::default();
                timers.set(place, time);
                self.topics.insert(topic, timers);
                self.first.set(topic, time);
            }
            return;
        };
        let before = timers.earliest();
        timers.set(place, time);
        let after = timers.earliest();
        if before != after {
            self.first.set(topic, after);
        }
        if after.is_none() {
            self.topics.remove(&topic);
        }
    }

    /// Takes out all of one topic.
    pub(crate) fn remove(&mut self, topic: TopicIncarnation) -> Timers<P> {
        self.first.set(topic, None);
        self.topics.remove(&topic).unwrap_or_default()
    }

    /// The earliest time of all.
    #[must_use]
    pub fn earliest(&self) -> Option<ClusterTime> {
        self.first.earliest()
    }

    /// The time of one place.
    #[must_use]
    pub fn time(&self, topic: TopicIncarnation, place: P) -> Option<ClusterTime> {
        self.topics.get(&topic)?.time(place)
    }

    /// A place whose time has come, and its topic.
    #[must_use]
    pub fn due(&self, now: ClusterTime) -> Option<(TopicIncarnation, P)> {
        let topic = self.first.due(now)?;
        self.topics[&topic].due(now).map(|place| (topic, place))
    }

    /// The topics that have some.
    pub(crate) fn topics(&self) -> impl Iterator<Item = TopicIncarnation> + '_ {
        self.topics.keys().copied()
    }

    /// Asserts every numbered invariant.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        self.first.check();
        for (topic, timers) in &self.topics {
            timers.check();
            assert!(timers.earliest().is_some(), "invariant 1: {topic} has no times");
            assert_eq!(self.first.time(*topic), timers.earliest(), "invariant 1: the first of {topic}");
        }
        assert_eq!(self.first.times.len(), self.topics.len(), "invariant 1");
    }
}
