//! One metric of one scrape: a name and its rows, encoded in the order in which they were added.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// One metric with all its rows. Values are copied in; they do not change afterwards.
#[derive(Debug)]
pub(super) struct Series {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Counter,
    Gauge,
}

#[derive(Debug)]
struct Row {
    labels: Vec<(&'static str, String)>,
    value: u64,
}

impl Series {
    /// A metric that never falls. `name` stands without `_total`, which the encoder adds.
    pub(super) fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Counter, rows: Vec::new() }
    }

    /// A metric that rises and falls.
    pub(super) fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Gauge, rows: Vec::new() }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, labels: &[(&'static str, &str)], value: u64) {
        let labels = labels.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        self.rows.push(Row { labels, value });
    }

    /// The same with one more row.
    pub(super) fn with(mut self, labels: &[(&'static str, &str)], value: u64) -> Self {
        self.add(labels, value);
        self
    }
}

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for row in &self.rows {
            let row_encoder = metric.encode_family(&row.labels)?;
            match self.kind {
                Kind::Counter => ConstCounter::new(row.value).encode(row_encoder)?,
                Kind::Gauge => ConstGauge::new(row.value).encode(row_encoder)?,
            }
        }
        Ok(())
    }
}
