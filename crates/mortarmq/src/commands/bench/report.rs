//! The rows: medians of the runs, and how they stand to the floors that ran beside them.

use std::time::Duration;

use super::measure::Sample;
use super::phase::{Kind, Load, Phase};
use super::target::Side;
use crate::bench::{DiskFloor, Latency, Spread, median};
use crate::output::{Cell, grouped};

/// The samples of a phase, in the order of the runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    broker: Vec<Sample>,
    echo: Vec<Sample>,
    commit: Vec<Sample>,
    single: Vec<Sample>,
    /// How many nodes the broker has, where that is ours to know.
    nodes: Option<u16>,
}

impl Results {
    /// Nothing yet, of a broker of so many nodes.
    pub(super) fn of(nodes: Option<u16>) -> Self {
        Self { nodes, ..Self::default() }
    }

    pub(super) fn push(&mut self, side: Side, sample: Sample) {
        match side {
            Side::Broker => self.broker.push(sample),
            Side::Echo => self.echo.push(sample),
            Side::Commit => self.commit.push(sample),
            Side::Single => self.single.push(sample),
        }
    }
}

/// A row for machines: every figure, in the order of [`COLUMNS`].
pub(super) fn full(phase: &Phase, results: &Results) -> Vec<Cell> {
    let Results { broker, echo, commit, single, nodes } = results;
    let of = |samples: &[Sample], figure: fn(&Sample) -> Option<f64>| whole(middle(samples, figure));
    let rate = Spread::of(broker.iter().map(Sample::per_s));
    let load = phase.load;
    let connections = if load.producers > 0 { load.producers } else { load.consumers };
    vec![
        Cell::Text(phase.name.to_owned()),
        Cell::Number(u64::from(connections)),
        Cell::Number(u64::from(load.outstanding) * u64::from(load.lines)),
        Cell::Number(u64::from(load.batch)),
        of(broker, |sample| Some(sample.messages as f64)),
        of(broker, |sample| Some(sample.elapsed.as_millis() as f64)),
        whole(rate.map(|rate| rate.median)),
        of(broker, p50),
        of(broker, p99),
        of(broker, |sample| Some(sample.usage?.cpu.as_millis() as f64)),
        of(broker, |sample| quantile(&sample.latency, 0.999)),
        Cell::Number(u64::from(load.consumers)),
        Cell::Number(u64::from(load.credit)),
        Cell::Number(u64::from(load.value_bytes)),
        Cell::Number(u64::from(load.keys)),
        Cell::Number(broker.len() as u64),
        percent(rate.map(|rate| rate.spread)),
        of(broker, delivered_p50),
        of(broker, |sample| quantile(sample.delivery.as_ref()?, 0.99)),
        of(broker, |sample| quantile(sample.delivery.as_ref()?, 0.999)),
        of(broker, published_per_s),
        percent(middle(broker, |sample| sample.slowest_second)),
        of(broker, cpu_ms_per_million),
        of(broker, |sample| Some(sample.usage?.peak_bytes as f64 / 1024.0)),
        of(echo, |sample| Some(sample.per_s())),
        of(commit, |sample| Some(sample.per_s())),
        percent(ratio(broker, echo, |sample| Some(sample.per_s()))),
        percent(ratio(broker, commit, |sample| Some(sample.per_s()))),
        of(commit, p50),
        percent(ratio(broker, commit, p50)),
        of(commit, delivered_p50),
        percent(ratio(broker, commit, delivered_p50)),
        of(echo, cpu_ms_per_million),
        of(commit, cpu_ms_per_million),
        Cell::number(nodes.map(u64::from)),
        of(broker, |sample| Some(sample.peer_bytes? as f64)),
        percent(middle(broker, |sample| sent_for_each_byte(sample, load))),
        of(single, |sample| Some(sample.per_s())),
        percent(ratio(broker, single, |sample| Some(sample.per_s()))),
        of(single, p50),
        percent(ratio(broker, single, p50)),
    ]
}

/// A row for people, in the order of [`SHORT_COLUMNS`].
pub(super) fn short(phase: &Phase, results: &Results) -> Vec<Cell> {
    let Results { broker, echo, commit, .. } = results;
    let text = |text: Option<String>| text.map_or(Cell::Absent, Cell::Text);
    let rate = Spread::of(broker.iter().map(Sample::per_s)).filter(|rate| rate.median > 0.0);
    let times =
        |figure: fn(&Sample) -> Option<f64>| text(ratio(broker, commit, figure).map(|ratio| format!("{ratio:.2}x")));
    let share = |share: Option<f64>| text(share.map(|share| format!("{:.0} %", share * 100.0)));
    let three = |latency: fn(&Sample) -> Option<&Latency>| {
        let figure = |share: f64| {
            let figures = broker.iter().filter_map(|sample| quantile(latency(sample)?, share));
            median(figures).map(|us| format!("{:.2}", us / 1000.0))
        };
        text((|| Some(format!("{} / {} / {}", figure(0.5)?, figure(0.99)?, figure(0.999)?)))())
    };
    let cpu = if phase.kind == Kind::Idle {
        let busy = |sample: &Sample| Some(sample.usage?.cpu.as_secs_f64() / sample.elapsed.as_secs_f64() * 100.0);
        middle(broker, busy).map(|percent| format!("{percent:.1} % of a core"))
    } else {
        middle(broker, Sample::cpu_us_per_message).map(|us| format!("{us:.2}"))
    };
    vec![
        Cell::Text(phase.name.to_owned()),
        text(shape(phase.load)),
        text(rate.map(|rate| grouped(rate.median.round() as u64))),
        share(rate.map(|rate| rate.spread)),
        three(|sample| (sample.latency.count() > 0).then_some(&sample.latency)),
        three(|sample| sample.delivery.as_ref()),
        share(middle(broker, |sample| sample.slowest_second)),
        share(ratio(broker, echo, |sample| Some(sample.per_s()))),
        share(ratio(broker, commit, |sample| Some(sample.per_s()))),
        times(p50),
        times(delivered_p50),
        text(cpu),
        text(middle(commit, Sample::cpu_us_per_message).map(|us| format!("{us:.2}"))),
        text(middle(broker, |sample| Some(sample.usage?.peak_bytes as f64)).map(|bytes| format!("{:.0}", bytes / MIB))),
    ]
}

/// As [`short`], in the order of [`CLUSTER_COLUMNS`].
pub(super) fn short_of_several(phase: &Phase, results: &Results) -> Vec<Cell> {
    let Results { broker, single, .. } = results;
    let text = |text: Option<String>| text.map_or(Cell::Absent, Cell::Text);
    let times = |ratio: Option<f64>| text(ratio.map(|ratio| format!("{ratio:.2}x")));
    let share = ratio(broker, single, |sample| Some(sample.per_s()));
    let mut cells = short(phase, results);
    cells.extend([
        text(share.map(|share| format!("{:.0} %", share * 100.0))),
        times(ratio(broker, single, p50)),
        times(middle(broker, |sample| sent_for_each_byte(sample, phase.load))),
    ]);
    cells
}

/// What the disk does alone, as a result under the phases' columns.
pub(super) fn disk(floors: &[DiskFloor]) -> (Phase, Results) {
    let load = Load { producers: 1, lines: 1, outstanding: 1, batch: 1, value_bytes: 4096, ..Load::default() };
    let sample = |floor: &DiskFloor| Sample {
        messages: floor.syncs,
        elapsed: floor.elapsed,
        latency: floor.latency.clone(),
        delivery: None,
        published: None,
        slowest_second: None,
        usage: None,
        peer_bytes: None,
    };
    let phase = Phase { name: DISK, kind: Kind::Publish, load };
    (phase, Results { broker: floors.iter().map(sample).collect(), ..Results::default() })
}

/// The median of a figure over the runs.
fn middle(samples: &[Sample], figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    median(samples.iter().filter_map(figure))
}

/// The median of the ratios, each of two samples of one run: what disturbs the machine disturbs both.
fn ratio(broker: &[Sample], floor: &[Sample], figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
    let pairs = broker.iter().zip(floor).filter_map(|(broker, floor)| Some((figure(broker)?, figure(floor)?)));
    median(pairs.filter(|(_, floor)| *floor > 0.0).map(|(broker, floor)| broker / floor))
}

fn quantile(latency: &Latency, share: f64) -> Option<f64> {
    (latency.count() > 0).then(|| latency.quantile_us(share) as f64)
}

fn p50(sample: &Sample) -> Option<f64> {
    quantile(&sample.latency, 0.5)
}

fn p99(sample: &Sample) -> Option<f64> {
    quantile(&sample.latency, 0.99)
}

fn delivered_p50(sample: &Sample) -> Option<f64> {
    quantile(sample.delivery.as_ref()?, 0.5)
}

fn published_per_s(sample: &Sample) -> Option<f64> {
    Some(sample.published? as f64 / sample.elapsed.max(Duration::from_millis(1)).as_secs_f64())
}

/// Bytes between the nodes for each byte of a value that was published.
fn sent_for_each_byte(sample: &Sample, load: Load) -> Option<f64> {
    let published = if load.producers > 0 { sample.published.unwrap_or(sample.messages) } else { 0 };
    let value_bytes = published * u64::from(load.value_bytes);
    (value_bytes > 0).then_some(sample.peer_bytes? as f64 / value_bytes as f64)
}

fn cpu_ms_per_million(sample: &Sample) -> Option<f64> {
    Some(sample.cpu_us_per_message()? * 1000.0)
}

fn whole(figure: Option<f64>) -> Cell {
    Cell::number(figure.map(|figure| figure.round() as u64))
}

fn percent(share: Option<f64>) -> Cell {
    whole(share.map(|share| share * 100.0))
}

/// `64x8 + 8 x 256, 1024 B`: connections and what each has unanswered, consumers and their windows, bytes of a value.
fn shape(load: Load) -> Option<String> {
    let requests = load.requests_under_way();
    let publish = match load.batch {
        _ if load.producers == 0 => String::new(),
        1 => format!("{}x{requests}", load.producers),
        batch => format!("{}x{requests} of {batch}", load.producers),
    };
    let consume = if load.consumers == 0 { String::new() } else { format!("{} x {}", load.consumers, load.credit) };
    let sides: Vec<String> = [publish, consume].into_iter().filter(|side| !side.is_empty()).collect();
    let keys = if load.keys > 0 { format!(", {} keys", load.keys) } else { String::new() };
    (!sides.is_empty()).then(|| format!("{}, {} B{keys}", sides.join(" + "), load.value_bytes))
}

/// What the row of the disk is called.
const DISK: &str = "floor: write 4 KiB + fdatasync";
const MIB: f64 = 1024.0 * 1024.0;

/// For machines. New ones are added at the end.
pub(super) const COLUMNS: &[&str] = &[
    "phase",
    "connections",
    "outstanding",
    "batch",
    "messages",
    "elapsed_ms",
    "per_s",
    "p50_us",
    "p99_us",
    "broker_cpu_ms",
    "p999_us",
    "consumers",
    "credit",
    "value_bytes",
    "keys",
    "runs",
    "spread_pct",
    "delivery_p50_us",
    "delivery_p99_us",
    "delivery_p999_us",
    "published_per_s",
    "slowest_second_pct",
    "cpu_ms_per_million",
    "peak_kib",
    "echo_per_s",
    "commit_per_s",
    "of_echo_pct",
    "of_commit_pct",
    "commit_p50_us",
    "p50_of_commit_pct",
    "commit_delivery_p50_us",
    "delivery_p50_of_commit_pct",
    "echo_cpu_ms_per_million",
    "commit_cpu_ms_per_million",
    "nodes",
    "peer_bytes",
    "peer_bytes_of_published_pct",
    "single_per_s",
    "of_single_pct",
    "single_p50_us",
    "p50_of_single_pct",
];

/// For people: all but what only several nodes have.
pub(super) const SHORT_COLUMNS: &[&str] = CLUSTER_COLUMNS.split_at(CLUSTER_COLUMNS.len() - OF_SEVERAL).0;

/// For people, of a broker of several nodes.
pub(super) const CLUSTER_COLUMNS: &[&str] = &[
    "phase",
    "load",
    "a second",
    "spread",
    "answered in ms (p50 / p99 / p99.9)",
    "delivered in ms (p50 / p99 / p99.9)",
    "slowest second",
    "of echo",
    "of commit",
    "p50 to commit",
    "delivery to commit",
    "CPU us/message",
    "commit CPU us/message",
    "peak MiB",
    "of one node",
    "p50 to one node",
    "sent between nodes",
];

/// How many of these only several nodes have.
const OF_SEVERAL: usize = 3;

#[cfg(test)]
mod tests;
