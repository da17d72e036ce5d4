//! What a run met: faults by kind, rare states, and how much was done.

use std::collections::BTreeMap;

use crate::plan::Site;

/// Counts of one run, or of many.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Faults that struck, by kind: the node came through all of them.
    pub faults: BTreeMap<&'static str, u64>,
    /// Faults at an operation of the disk, by what the node was doing.
    pub sites: BTreeMap<Site, u64>,
    /// Rare states that were reached.
    pub reached: BTreeMap<&'static str, u64>,
    /// Requests that reached a node.
    pub requests: u64,
    /// Operations of clients: publishes, deliveries, settles, acts.
    pub operations: u64,
    /// Looks at every invariant.
    pub checks: u64,
}

impl Tally {
    pub(crate) fn fault(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    pub(crate) fn struck_at(&mut self, site: Site) {
        *self.sites.entry(site).or_default() += 1;
    }

    pub(crate) fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (site, count) in &other.sites {
            *self.sites.entry(*site).or_default() += count;
        }
        for (what, count) in &other.reached {
            *self.reached.entry(what).or_default() += count;
        }
        self.requests += other.requests;
        self.operations += other.operations;
        self.checks += other.checks;
    }
}

/// What many runs must reach together, or they prove little.
pub const RARE_STATES: &[&str] = &[
    "torn tail cut",
    "dedup hit after a restart",
    "ack retried after a lost answer",
    "disk full and back",
    "redrive under load",
    "lease alive across a restart",
    "dead letter around a restart",
    "start from a checkpoint",
    "recovery cut",
    "resumed after a restart",
    "read from disk",
    "a slow reader got nothing more",
    "lease half spent before it was sent",
    "a connection broke between two frames",
    "topic deleted and made again",
    "late ack refused",
    "lease_expired",
    "nacked",
    "consumer_lost",
    "released",
    "redriven",
    "replayed",
];
