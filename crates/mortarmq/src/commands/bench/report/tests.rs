//! Figures with known medians and ratios, and the rows they make.

use std::time::Duration;

use super::super::measure::Sample;
use super::super::phase::{Kind, Load, Phase};
use super::super::target::Side;
use super::{CLUSTER_COLUMNS, COLUMNS, Results, SHORT_COLUMNS, disk, full, short, short_of_several};
use crate::bench::{DiskFloor, Latency, Usage};
use crate::output::Cell;

fn latency(us: u64) -> Latency {
    let mut latency = Latency::new();
    latency.record(Duration::from_micros(us));
    latency
}

fn sample(messages: u64, us: u64) -> Sample {
    Sample {
        messages,
        elapsed: Duration::from_secs(2),
        latency: latency(us),
        delivery: Some(latency(2 * us)),
        published: Some(messages + 20),
        slowest_second: Some(0.9),
        usage: Some(Usage { cpu: Duration::from_millis(500), peak_bytes: 40 << 20 }),
        peer_bytes: None,
    }
}

fn at_once() -> (Phase, Results) {
    let load = Load {
        producers: 64,
        lines: 1,
        outstanding: 8,
        batch: 1,
        consumers: 8,
        credit: 256,
        value_bytes: 1024,
        keys: 0,
    };
    let mut results = Results::of(Some(1));
    for (broker, echo, commit) in
        [(100_000, 400_000, 200_000), (300_000, 400_000, 300_000), (200_000, 400_000, 400_000)]
    {
        results.push(Side::Broker, sample(broker, 500));
        results.push(Side::Echo, sample(echo, 50));
        results.push(Side::Commit, sample(commit, 250));
    }
    (Phase { name: "at-once", kind: Kind::AtOnce, load }, results)
}

fn named(columns: &[&str], cells: &[Cell]) -> String {
    assert_eq!(columns.len(), cells.len());
    columns.iter().zip(cells).map(|(name, cell)| format!("{name} = {}\n", cell.tsv())).collect()
}

#[test]
fn columns_and_figures_for_machines_are_these() {
    let (phase, results) = at_once();
    let expected = "\
phase = at-once
connections = 64
outstanding = 8
batch = 1
messages = 200000
elapsed_ms = 2000
per_s = 100000
p50_us = 500
p99_us = 500
broker_cpu_ms = 500
p999_us = 500
consumers = 8
credit = 256
value_bytes = 1024
keys = 0
runs = 3
spread_pct = 100
delivery_p50_us = 1000
delivery_p99_us = 1000
delivery_p999_us = 1000
published_per_s = 100010
slowest_second_pct = 90
cpu_ms_per_million = 2500
peak_kib = 40960
echo_per_s = 200000
commit_per_s = 150000
of_echo_pct = 50
of_commit_pct = 50
commit_p50_us = 250
p50_of_commit_pct = 200
commit_delivery_p50_us = 500
delivery_p50_of_commit_pct = 200
echo_cpu_ms_per_million = 1250
commit_cpu_ms_per_million = 1667
nodes = 1
peer_bytes = -
peer_bytes_of_published_pct = -
single_per_s = -
of_single_pct = -
single_p50_us = -
p50_of_single_pct = -
";
    assert_eq!(named(COLUMNS, &full(&phase, &results)), expected);
}

#[test]
fn columns_and_figures_for_people_are_these() {
    let (phase, results) = at_once();
    let expected = "\
phase = at-once
load = 64x8 + 8 x 256, 1024 B
a second = 100,000
spread = 100 %
answered in ms (p50 / p99 / p99.9) = 0.50 / 0.50 / 0.50
delivered in ms (p50 / p99 / p99.9) = 1.00 / 1.00 / 1.00
slowest second = 90 %
of echo = 50 %
of commit = 50 %
p50 to commit = 2.00x
delivery to commit = 2.00x
CPU us/message = 2.50
commit CPU us/message = 1.67
peak MiB = 40
";
    assert_eq!(named(SHORT_COLUMNS, &short(&phase, &results)), expected);
}

#[test]
fn three_nodes_stand_next_to_one_and_say_what_they_sent_to_each_other() {
    // Goal: bytes between nodes are told per byte of what was published, which is not what was acked. Method: each of three runs
    // published 20 messages more than were acked, and sent 2.5 bytes for each of their bytes.
    let (phase, mut results) = at_once();
    results.nodes = Some(3);
    for (sample, one) in results.broker.iter_mut().zip([400_000, 500_000, 600_000]) {
        sample.peer_bytes = Some((sample.messages + 20) * 1024 * 5 / 2);
        results.single.push(self::sample(one, 200));
    }
    let machines = named(COLUMNS, &full(&phase, &results));
    let people = named(CLUSTER_COLUMNS, &short_of_several(&phase, &results));
    for line in [
        "nodes = 3\n",
        "peer_bytes = 512051200\n",
        "peer_bytes_of_published_pct = 250\n",
        "single_per_s = 250000\n",
        "of_single_pct = 33\n",
        "single_p50_us = 200\n",
        "p50_of_single_pct = 250\n",
    ] {
        assert!(machines.contains(line), "{line} is not in:\n{machines}");
    }
    for line in ["of one node = 33 %\n", "p50 to one node = 2.50x\n", "sent between nodes = 2.50x\n"] {
        assert!(people.contains(line), "{line} is not in:\n{people}");
    }
    assert!(people.starts_with(&named(SHORT_COLUMNS, &short(&phase, &results))), "{people}");
    let nothing = Phase { load: Load { producers: 0, ..phase.load }, ..phase };
    let text = named(COLUMNS, &full(&nothing, &results));
    assert!(text.contains("peer_bytes_of_published_pct = -\n"), "nobody publishes: {text}");
}

#[test]
fn a_ratio_is_the_median_of_the_runs_and_not_a_ratio_of_medians() {
    // Goal: what slows the machine down in one run slows down both sides of its pair. Method: the second run is half as
    // fast on both sides, so every pair has the same ratio.
    let (mut results, (phase, _)) = (Results::default(), at_once());
    for (broker, commit) in [(300, 400), (150, 200), (600, 800)] {
        results.push(Side::Broker, sample(broker, 1));
        results.push(Side::Commit, sample(commit, 1));
    }
    assert!(named(COLUMNS, &full(&phase, &results)).contains("of_commit_pct = 75\n"));
}

#[test]
fn what_was_not_measured_is_absent_and_not_zero() {
    let floor = DiskFloor { syncs: 1000, elapsed: Duration::from_secs(1), latency: latency(100) };
    let (phase, results) = disk(&[floor]);
    let text = named(COLUMNS, &full(&phase, &results));
    for line in ["per_s = 1000\n", "p50_us = 100\n", "of_echo_pct = -\n", "peak_kib = -\n", "delivery_p50_us = -\n"] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    let idle = Phase { name: "idle", kind: Kind::Idle, load: Load::default() };
    let mut results = Results::default();
    let nothing = Sample { latency: Latency::new(), delivery: None, slowest_second: None, ..sample(0, 1) };
    results.push(Side::Broker, nothing);
    let text = named(SHORT_COLUMNS, &short(&idle, &results));
    for line in ["load = -\n", "a second = -\n", "CPU us/message = 25.0 % of a core\n", "peak MiB = 40\n"] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}
