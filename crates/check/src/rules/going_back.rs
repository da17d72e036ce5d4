//! `going-back`: a counter of a path, or an epoch, lower than one certainly seen before.
//!
//! A redrive or replay adds to `produced`; nothing lowers a counter.
//!
//! # Source
//! P10: what is counted never goes back, across restarts too.

use std::collections::BTreeMap;

use mortarmq_history::Counters;

use super::Rule;
use crate::context::{Context, Scrape};
use crate::finding::{Found, Sink};
use crate::location::Location;
use crate::operation::Name;
use crate::span::{NEVER, Span};

/// Judges the counters of every path.
pub(crate) fn judge_counters(context: &Context, sink: &mut Sink) {
    let mut by_path: BTreeMap<Name, Vec<Reading>> = BTreeMap::new();
    for scrape in context.scrapes.iter().filter(|scrape| !scrape.is_stale) {
        by_path.entry(scrape.path).or_default().push(Reading::of(scrape));
    }
    if let Some(end) = &context.end {
        for (path, counters) in &end.balance {
            let span = Span { call: end.at, ret: end.at, commit: None };
            let reading = Reading { span, counters: *counters, at: end.location };
            by_path.entry(*path).or_default().push(reading);
        }
    }
    for (path, readings) in &by_path {
        sink_path(*path, readings, sink);
    }
}

struct Reading {
    span: Span,
    counters: Counters,
    at: Location,
}

impl Reading {
    fn of(scrape: &Scrape) -> Self {
        Self { span: scrape.span, counters: scrape.counters, at: scrape.at }
    }
}

/// The counters that never fall.
const COUNTERS: [(&str, fn(&Counters) -> u64); 4] = [
    ("produced", |counters| counters.produced),
    ("delivered", |counters| counters.delivered),
    ("dropped", |counters| counters.dropped),
    ("dlq", |counters| counters.dlq),
];

fn sink_path(path: Name, readings: &[Reading], sink: &mut Sink) {
    readings.iter().for_each(|_| sink.judged(Rule::GoingBack));
    for (name, counter) in COUNTERS {
        let mut by_ret: Vec<&Reading> = readings.iter().filter(|reading| reading.span.ret != NEVER).collect();
        by_ret.sort_by_key(|reading| reading.span.ret);
        let highest_by_ret = running_highest(&by_ret, counter);
        let mut by_commit: Vec<&Reading> = readings.iter().filter(|reading| reading.span.commit.is_some()).collect();
        by_commit.sort_by_key(|reading| reading.span.commit);
        let highest_by_commit = running_highest(&by_commit, counter);
        for reading in readings {
            let earlier = by_ret.partition_point(|other| other.span.ret < reading.span.call);
            let lower = by_commit.partition_point(|other| other.span.commit < reading.span.commit);
            let candidates = [highest(&highest_by_ret, earlier), highest(&highest_by_commit, lower)];
            let before = candidates.into_iter().flatten().find(|before| {
                counter(&before.counters) > counter(&reading.counters) && before.span.certainly_before(&reading.span)
            });
            if let Some(before) = before {
                let (was, is) = (counter(&before.counters), counter(&reading.counters));
                let text = format!("{name} was {was} and is {is}.");
                sink.found(Found::new(Rule::GoingBack, text).on(path).by([before.at, reading.at]));
            }
        }
    }
}

/// For each prefix, the reading with the highest value in it.
fn running_highest<'a>(sorted: &[&'a Reading], counter: fn(&Counters) -> u64) -> Vec<&'a Reading> {
    let mut highest: Vec<&Reading> = Vec::with_capacity(sorted.len());
    for reading in sorted {
        let best = highest.last().filter(|best| counter(&best.counters) >= counter(&reading.counters));
        highest.push(best.copied().unwrap_or(reading));
    }
    highest
}

fn highest<'a>(running: &[&'a Reading], length: usize) -> Option<&'a Reading> {
    length.checked_sub(1).map(|last| running[last])
}

/// The epochs seen, each with the records that reach furthest.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    seen: BTreeMap<u64, Extremes>,
}

/// Of the records of one epoch: which returned first and has the lowest index, which was called last and has the highest.
#[derive(Debug, Clone, Copy)]
struct Extremes {
    first: (Span, Location),
    lowest: Option<(Span, Location)>,
    last: (Span, Location),
    highest: Option<(Span, Location)>,
}

impl Epochs {
    /// Takes a record.
    pub(crate) fn add(&mut self, epoch: u64, span: Span, at: Location) {
        let own = (span, at);
        let with_commit = span.commit.map(|_| own);
        let new = Extremes { first: own, lowest: with_commit, last: own, highest: with_commit };
        let known = self.seen.entry(epoch).or_insert(new);
        if span.ret < known.first.0.ret {
            known.first = own;
        }
        if span.call > known.last.0.call {
            known.last = own;
        }
        if with_commit.is_some() {
            if known.lowest.is_none_or(|(lowest, _)| span.commit < lowest.commit) {
                known.lowest = with_commit;
            }
            if known.highest.is_none_or(|(highest, _)| span.commit > highest.commit) {
                known.highest = with_commit;
            }
        }
    }

    /// Finds a lower epoch certainly after a higher one.
    pub(crate) fn judge(&self, sink: &mut Sink) {
        if !self.seen.is_empty() {
            sink.judged(Rule::GoingBack);
        }
        for ((lower, of_lower), (higher, of_higher)) in self.seen.iter().zip(self.seen.iter().skip(1)) {
            let by_time = Some((of_higher.first, of_lower.last));
            let by_index = of_higher.lowest.zip(of_lower.highest);
            let found =
                [by_time, by_index].into_iter().flatten().find(|(before, after)| before.0.certainly_before(&after.0));
            if let Some((before, after)) = found {
                let text = format!("An answer of epoch {lower} came after one of epoch {higher}.");
                sink.found(Found::new(Rule::GoingBack, text).by([before.1, after.1]));
            }
        }
    }
}
