//! When each path and partition next has something to end or to wake.

use mortarmq_types::{ClusterTime, Partition, PathId};
use std::collections::{BTreeMap, BTreeSet};

/// One path in one partition.
pub type Place = (PathId, Partition);

/// The earliest time of each place, and all of them in order.
///
/// # Invariants
/// 1. `order` holds exactly the entries of `times`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    times: BTreeMap<Place, ClusterTime>,
    order: BTreeSet<(ClusterTime, Place)>,
}

impl Timers {
    /// Sets or removes the time of a place.
    pub fn set(&mut self, place: Place, time: Option<ClusterTime>) {
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
    pub fn time(&self, place: Place) -> Option<ClusterTime> {
        self.times.get(&place).copied()
    }

    /// A place whose time has come.
    #[must_use]
    pub fn due(&self, now: ClusterTime) -> Option<Place> {
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
