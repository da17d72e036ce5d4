//! How long messages take from publish to ack: a sample, as a clock and a table for every message would cost more than
//! the figure is worth.

use std::collections::BTreeMap;
use std::time::Duration;

use mortarmq_types::{DeliveryId, WallTime};

/// Deliveries of a connection that are timed.
#[derive(Debug, Default)]
pub(crate) struct AckLatency {
    published: BTreeMap<DeliveryId, WallTime>,
}

impl AckLatency {
    /// A message leaves; perhaps it is timed.
    pub(crate) fn handle_sent(&mut self, delivery_id: DeliveryId, published_at: WallTime) {
        if !is_sampled(delivery_id) {
            return;
        }
        self.published.insert(delivery_id, published_at);
        if self.published.len() > TIMED_MAX {
            self.published.pop_first();
        }
    }

    /// A message is acked: how long after its publish, if it was timed.
    pub(crate) fn handle_acked(&mut self, delivery_id: DeliveryId, now: WallTime) -> Option<Duration> {
        if !is_sampled(delivery_id) {
            return None;
        }
        let published_at = self.published.remove(&delivery_id)?;
        Some(Duration::from_millis(now.since_ms(published_at)))
    }

    /// Whether any delivery is timed, so that a clock is worth reading.
    pub(crate) fn is_empty(&self) -> bool {
        self.published.is_empty()
    }
}

/// One in so many.
const fn is_sampled(delivery_id: DeliveryId) -> bool {
    delivery_id.get().is_multiple_of(16)
}

/// The oldest is forgotten beyond that: it may never be acked.
const TIMED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::{AckLatency, TIMED_MAX};
    use mortarmq_types::{DeliveryId, WallTime};

    #[test]
    fn rule_9_a_bounded_sample_of_deliveries_is_timed() {
        let mut latency = AckLatency::default();
        for number in 1..=16 * (TIMED_MAX as u64 + 1) {
            latency.handle_sent(DeliveryId::new(number), WallTime::new(1000));
        }
        let mut acked = |number| latency.handle_acked(DeliveryId::new(number), WallTime::new(1250));
        assert_eq!(acked(17), None, "not one of the sample");
        assert_eq!(acked(16), None, "forgotten for a newer one");
        assert_eq!(acked(32).map(|took| took.as_millis()), Some(250));
        assert_eq!(acked(32), None, "counted once");
    }
}
