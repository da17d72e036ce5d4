//! Counters and histograms that threads update as they work.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Every meter. Their names stand in [`Meters::new`].
#[derive(Debug)]
pub(super) struct Meters {
    pub(super) fsync_seconds: Histogram,
    pub(super) batch_bytes: Histogram,
    pub(super) batch_commands: Histogram,
    pub(super) commit_seconds: Histogram,
    pub(super) e2e_seconds: Histogram,
    pub(super) deduplicated: Counter,
    pub(super) not_idempotent: Counter,
    pub(super) connections_opened: Counter,
    pub(super) connections_closed: Counter,
    pub(super) connections_refused: Counter,
    pub(super) torn_tails_cut: Counter,
    pub(super) scrubbed_bytes: Counter,
    pub(super) scrub_passes: Counter,
    pub(super) scrub_damaged: Gauge,
}

impl Meters {
    /// Makes all meters and names them in a registry. Counters stand without `_total`, which the encoder adds.
    pub(super) fn new(registry: &mut Registry) -> Self {
        // 50 µs, where a good NVMe disk answers, up to 1.6 s, far beyond the point where a leader gives up its office.
        let fsync_seconds = || Histogram::new(exponential_buckets(0.000_05, 2.0, 16));
        // Up to 65 s: a message may wait for its consumer.
        let wait_seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 17));
        // 4 KiB is the smallest batch on disk, 4 MiB the largest, but for one large message.
        let bytes = || Histogram::new(exponential_buckets(4096.0, 2.0, 13));
        let count = || Histogram::new(exponential_buckets(1.0, 2.0, 14));
        let meters = Self {
            fsync_seconds: fsync_seconds(),
            batch_bytes: bytes(),
            batch_commands: count(),
            commit_seconds: wait_seconds(),
            e2e_seconds: wait_seconds(),
            deduplicated: Counter::default(),
            not_idempotent: Counter::default(),
            connections_opened: Counter::default(),
            connections_closed: Counter::default(),
            connections_refused: Counter::default(),
            torn_tails_cut: Counter::default(),
            scrubbed_bytes: Counter::default(),
            scrub_passes: Counter::default(),
            scrub_damaged: Gauge::default(),
        };
        meters.name(registry);
        meters
    }

    fn name(&self, registry: &mut Registry) {
        let histograms = [
            ("mortarmq_journal_fsync_seconds", "Duration of a journal write with its fsync", &self.fsync_seconds),
            ("mortarmq_journal_batch_bytes", "Bytes that one fsync made durable", &self.batch_bytes),
            ("mortarmq_journal_batch_commands", "Commands that one fsync made durable", &self.batch_commands),
            ("mortarmq_commit_latency_seconds", "From reading a request to its commit", &self.commit_seconds),
            ("mortarmq_e2e_latency_seconds", "From publish to ack", &self.e2e_seconds),
        ];
        for (name, help, histogram) in histograms {
            registry.register(name, help, histogram.clone());
        }
        let counters = [
            ("mortarmq_publishes_deduplicated", "Publishes that were stored already", &self.deduplicated),
            (
                "mortarmq_publishes_not_idempotent",
                "Publishes with no number and no idempotency key",
                &self.not_idempotent,
            ),
            ("mortarmq_connections_opened", "Client connections taken", &self.connections_opened),
            ("mortarmq_connections_refused", "Clients turned away at the limit", &self.connections_refused),
            ("mortarmq_torn_tails_cut", "Torn batches that recovery cut off the journal", &self.torn_tails_cut),
            ("mortarmq_scrub_bytes", "Bytes that the scrub read again", &self.scrubbed_bytes),
            ("mortarmq_scrub_passes", "Times that the scrub read everything", &self.scrub_passes),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let help = "Damages that the last whole pass of the scrub found";
        registry.register("mortarmq_scrub_damaged", help, self.scrub_damaged.clone());
    }
}

/// The nearest float: histograms take floats, and above 2^53 the last digits do not matter to them.
#[expect(clippy::cast_precision_loss, reason = "a bucket is far wider than what is lost")]
pub(super) const fn to_float(number: u64) -> f64 {
    number as f64
}
