//! What the clients of the demonstration saw of each order, told by themselves and not by a node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mortarmq_client::Cause;

/// Shared by all clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally(Arc<Mutex<Counts>>);

/// All that was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Orders that were given to the producer's client.
    pub(super) sent: u64,
    /// When each confirmed order was sent and confirmed.
    pub(super) confirmed: Vec<(Instant, Instant)>,
    /// Of each group.
    pub(super) groups: BTreeMap<&'static str, GroupCounts>,
    /// The place of the order that becomes a dead letter.
    pub(super) dead: Option<(u16, u64)>,
}

/// What the consumers of a group saw.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupCounts {
    /// How often an ack was answered OK, by order.
    pub(super) acked: BTreeMap<u64, u32>,
    /// Deliveries after the first, by their cause.
    pub(super) again: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Everything so far.
    pub(super) fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// An order is on its way.
    pub(super) fn sent(&self) {
        self.lock().sent += 1;
    }

    /// It was confirmed.
    pub(super) fn confirmed(&self, sent: Instant) {
        self.lock().confirmed.push((sent, Instant::now()));
    }

    /// An order came.
    pub(super) fn came(&self, group: &'static str, cause: Cause) {
        if cause != Cause::First {
            *self.lock().groups.entry(group).or_default().again.entry(cause.word()).or_default() += 1;
        }
    }

    /// Its ack was answered OK.
    pub(super) fn acked(&self, group: &'static str, order: u64) {
        *self.lock().groups.entry(group).or_default().acked.entry(order).or_default() += 1;
    }

    /// This one becomes a dead letter.
    pub(super) fn dies(&self, place: (u16, u64)) {
        self.lock().dead = Some(place);
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// How many acks of a group were answered OK.
    pub(super) fn acked(&self, group: &str) -> u64 {
        self.groups.get(group).map_or(0, |counts| counts.acked.values().map(|count| u64::from(*count)).sum())
    }

    /// How long after a moment the first order was confirmed that was sent after it.
    pub(super) fn confirmed_after(&self, moment: Instant) -> Option<Duration> {
        let later = self.confirmed.iter().filter(|(sent, _)| *sent > moment);
        later.map(|(_, confirmed)| confirmed.duration_since(moment)).min()
    }
}
