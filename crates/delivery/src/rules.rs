//! What every call brings along: the group's settings and the time.

use mortarmq_types::{ClusterTime, LeaseTime};

/// Whether messages with one key wait for one another (P8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// A later message of a key never overtakes an unsettled earlier one.
    Key,
    /// Nothing waits for anything, as in the implicit queue of the HTTP API.
    None,
}

/// The settings of a group that delivery obeys. They may change between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRules {
    /// Whether messages of one key keep their order.
    pub order: Order,
    /// How long a lease runs, and how far an extension reaches.
    pub lease_ms: u64,
    /// The wait before the second attempt; it doubles with every further one. 0 = none.
    pub backoff_base_ms: u64,
    /// The longest wait before an attempt.
    pub backoff_max_ms: u64,
    /// The most unsettled messages below the position; at the limit only these move on.
    pub max_passed_over: u32,
    /// The most messages that are settled past the oldest unsettled one; at the limit nothing new is offered. 0 = no limit.
    pub max_acked_ahead: u32,
    /// The most live leases in this partition. 0 = no limit.
    pub max_in_flight: u32,
    /// After how many attempts a message is dead; it counts at the end of a delivery, so a lower number takes effect with
    /// the next failure. 0 = no limit.
    pub max_attempts: u32,
}

/// The stamp of the batch that is applied, on both of its clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For backoff, delays and how long a settle is remembered.
    pub cluster: ClusterTime,
    /// For lease deadlines: cluster time less the sum of all gaps, so that no outage ends a lease.
    pub lease: LeaseTime,
}

/// How a delivery was asked for. It is told again when the delivery ends, so that the credit of pushes returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grant {
    /// Within the credit of a subscription.
    Push,
    /// By a pull, which takes no credit and returns none.
    Pull,
}
