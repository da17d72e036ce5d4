//! Latencies, kept as a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Latencies of one phase.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    histogram: Histogram<u64>,
}

impl Latency {
    /// No latency yet.
    pub(crate) fn new() -> Self {
        Self { histogram: Histogram::new(SIGNIFICANT_DIGITS).expect("3 digits are allowed") }
    }

    /// Counts one.
    pub(crate) fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.histogram.record(us).expect("a histogram that grows takes every value");
    }

    /// Counts those of another part of the phase.
    pub(crate) fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("a histogram that grows takes every value");
    }

    /// How many were counted.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that this share of all does not exceed.
    ///
    /// # Units
    /// Microseconds; `share` is from 0 to 1.
    pub(crate) fn quantile_us(&self, share: f64) -> u64 {
        self.histogram.value_at_quantile(share)
    }
}

const SIGNIFICANT_DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Latency;

    #[test]
    fn quantiles_are_those_of_all_parts() {
        let (mut left, mut right) = (Latency::new(), Latency::new());
        (1..=50).for_each(|ms| left.record(Duration::from_millis(ms)));
        (51..=100).for_each(|ms| right.record(Duration::from_millis(ms)));
        left.add(&right);
        assert_eq!(left.count(), 100);
        assert_eq!(left.quantile_us(0.5) / 1000, 50);
        assert_eq!(left.quantile_us(0.99) / 1000, 99);
    }
}
