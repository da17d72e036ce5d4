//! A broker that keeps its contract is OK in every mode, whatever happens to it.

mod support;

use mortarmq_check::{Options, Verdict};
use serde_json::Value;
use support::broker::{Shape, history};
use support::random::Random;
use support::{expect, found, judge, without};

/// So many seeds; `MORTARMQ_CASES` asks for more.
fn seeds() -> std::ops::Range<u64> {
    0..std::env::var("MORTARMQ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

fn shape(seed: u64) -> Shape {
    let has_events = !seed.is_multiple_of(3);
    Shape { steps: 60 + seed % 7 * 60, has_events, has_deaths: !has_events && seed.is_multiple_of(2) }
}

fn forgetful() -> Options {
    Options { keep_finished: 0, ..Options::default() }
}

/// Fields that brokers may be unable to give, in the order in which they are taken away.
const FEWER: [&[&str]; 9] = [
    &["commit", "epoch"],
    &["commit", "epoch", "hash", "prev"],
    &["commit", "epoch", "hash", "prev", "partition", "seq"],
    &["commit", "hash", "attempt"],
    &["cause"],
    &["commit", "epoch", "delivery_id", "prev"],
    &["commit", "epoch", "cause", "delivery_id"],
    &["commit", "epoch", "cause", "delivery_id", "prev", "attempt"],
    &["commit", "epoch", "cause", "delivery_id", "prev", "attempt", "partition", "seq", "lease_ms", "hash"],
];

#[test]
fn a_broker_that_keeps_the_contract_is_ok_in_every_mode() {
    for seed in seeds() {
        let records = history(seed, shape(seed));
        let report = judge(&records, &Options::default());
        expect(report.verdict == Verdict::Ok, &format!("seed {seed}"), &report, &records);
        for fields in FEWER {
            let fewer = without(&records, fields);
            let report = judge(&fewer, &Options::default());
            expect(report.verdict == Verdict::Ok, &format!("seed {seed} without {fields:?}"), &report, &fewer);
        }
    }
}

#[test]
fn what_was_forgotten_is_judged_as_what_was_kept() {
    for seed in seeds() {
        let mut records = history(seed, shape(seed));
        let kept = judge(&records, &Options::default());
        let forgotten = judge(&records, &forgetful());
        expect(forgotten.verdict == Verdict::Ok, &format!("seed {seed}, forgetful"), &forgotten, &records);
        assert_eq!((kept.read.pairs, kept.read.backlog), (forgotten.read.pairs, forgotten.read.backlog), "seed {seed}");
        let counted = |report: &mortarmq_check::Report| -> Vec<String> {
            report
                .rules
                .iter()
                .map(|line| format!("{} {} {}", line.rule.name(), line.judged, line.not_judged))
                .collect()
        };
        expect(
            counted(&kept) == counted(&forgotten),
            &format!("seed {seed}: {:?}", counted(&kept)),
            &forgotten,
            &records,
        );
        // The same for a history in which something is wrong: a delivery of an acked message at the very end.
        spoil(&mut records, seed);
        let kept = judge(&records, &Options::default());
        let forgotten = judge(&records, &forgetful());
        let findings = |report: &mortarmq_check::Report| -> Vec<String> {
            let told = report.findings.iter().map(|finding| {
                let places: Vec<&str> = finding.records.iter().map(|record| record.place.as_str()).collect();
                format!("{} {:?} {:?} {:?} {places:?}", finding.rule.name(), finding.path, finding.msg, finding.other)
            });
            told.collect()
        };
        expect(
            findings(&kept) == findings(&forgotten),
            &format!("seed {seed}: {:?}", found(&kept)),
            &forgotten,
            &records,
        );
    }
}

#[test]
fn the_order_of_lines_does_not_matter() {
    for seed in seeds().step_by(3) {
        let mut records = history(seed, shape(seed));
        let mut random = Random::new(seed);
        for index in (1..records.len()).rev() {
            records.swap(index, random.below(index as u64 + 1) as usize);
        }
        let report = judge(&records, &Options::default());
        expect(report.verdict == Verdict::Ok, &format!("seed {seed}, shuffled"), &report, &records);
    }
}

/// Delivers an acked message again.
fn spoil(records: &mut Vec<Value>, seed: u64) {
    let mut random = Random::new(seed);
    let delivered: Vec<Value> = records.iter().filter(|record| record["op"] == "deliver").cloned().collect();
    let Some(again) = random.pick(&delivered) else { return };
    let mut again = again.clone();
    let at = records.iter().filter_map(|record| record["ret"].as_u64()).max().unwrap_or(0);
    again["call"] = (at + 10).into();
    again["ret"] = (at + 20).into();
    again["prev"] = again["delivery_id"].clone();
    again["delivery_id"] = 999_999.into();
    again["cause"] = "lease_expired".into();
    again["commit"] = 999_999.into();
    records.push(again);
}
