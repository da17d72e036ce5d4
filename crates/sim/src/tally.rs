//! What a run met: faults by kind, rare states, and how much was done.

use std::collections::BTreeMap;

use crate::plan::{FaultKind, Site};

/// Counts of one run, or of many.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Faults that struck and that the node came through, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Faults outside of what one node can survive, which it refused to go on with, by kind.
    pub refused: BTreeMap<String, u64>,
    /// Faults at an operation of the disk, by what the node was doing.
    pub sites: BTreeMap<Site, u64>,
    /// Rare states that were reached.
    pub reached: BTreeMap<&'static str, u64>,
    /// Requests that reached a node.
    pub requests: u64,
    /// Operations of clients: publishes, deliveries, settles, acts.
    pub operations: u64,
    /// Lives of several nodes.
    pub clusters: u64,
    /// How long it took from the loss of a leader to the next confirmed publish, while a majority without it was up and connected
    /// by links that carry what they are given.
    ///
    /// # Units
    /// Milliseconds of the world.
    pub failovers_ms: Vec<u64>,
    /// The same where one message in ten is lost.
    pub lossy_failovers_ms: Vec<u64>,
    /// Looks at every invariant.
    pub checks: u64,
}

impl Tally {
    pub(crate) fn fault(&mut self, kind: FaultKind) {
        *self.faults.entry(kind.name()).or_default() += 1;
    }

    /// The node named what is wrong and did not go on: it did not come through that one.
    pub(crate) fn refuse(&mut self, kind: FaultKind) {
        let name = kind.name();
        if let Some(survived) = self.faults.get_mut(&name) {
            *survived -= 1;
        }
        *self.refused.entry(name).or_default() += 1;
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
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        for (kind, count) in &other.refused {
            *self.refused.entry(kind.clone()).or_default() += count;
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
        self.clusters += other.clusters;
        self.failovers_ms.extend(&other.failovers_ms);
        self.lossy_failovers_ms.extend(&other.lossy_failovers_ms);
    }

    /// Rare states that so many lives should have met, and did not.
    #[must_use]
    pub fn missed(&self) -> Vec<&'static str> {
        let of_several = if self.clusters > 0 { RARE_STATES_OF_SEVERAL } else { &[] };
        let all = RARE_STATES.iter().chain(of_several);
        all.filter(|what| !self.reached.contains_key(**what)).copied().collect()
    }
}

/// What many runs must reach together in which several nodes run.
pub const RARE_STATES_OF_SEVERAL: &[&str] = &[
    "lease alive across a failover",
    "dead letter during a failover",
    "dedup hit after a failover",
    "ack retried after a failover",
    "resumed after a failover",
    "office handed over",
    "a client heard nothing and went elsewhere",
    "snapshot installed under load",
    "catch-up resumed after a crash",
    "a request was forwarded",
    "rotten record repaired",
    "began anew after rot",
    "wiped node rejoined",
];

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
    "a batch was held back for more",
    "a half-closed connection got all its answers",
    "a slow reader was turned out",
    "stopped with everything answered",
    "the journal waited for room",
    "dead letter without its value",
    "what cannot be read was purged",
    "rot refused",
    "a read met rot",
    "the scrub found rot",
];
