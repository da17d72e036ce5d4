//! When each place next has something to end, to wake or to tell.

use mortarmq_types::{ClusterTime, Partition, PathId};
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

    /// Asserts every numbered invariant.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        assert_eq!(self.times.len(), self.order.len(), "invariant 1");
        assert!(self.times.iter().all(|(place, time)| self.order.contains(&(*time, *place))), "invariant 1");
    }
}
