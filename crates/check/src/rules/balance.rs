//! `balance`: a scrape or the end record does not add up, or its `delivered` is not what acks allow.
//!
//! At least the pairs with an ok ack certainly before it, at most those with an ok or unknown ack not certainly after it.
//!
//! # Source
//! P9: `produced = delivered + dropped + dlq + depth`, at every scrape.

use mortarmq_history::Counters;

use super::Rule;
use crate::books::{Acked, Acks, Books};
use crate::context::{Context, Scrape};
use crate::finding::{Found, Sink};
use crate::location::Location;
use crate::operation::Name;
use crate::span::{NEVER, Span};

/// Judges every scrape and the end record.
pub(crate) fn judge(context: &Context, books: &Books, sink: &mut Sink) {
    let none = Acks::default();
    let mut scrapes: Vec<&Scrape> = context.scrapes.iter().collect();
    scrapes.sort_by_key(|scrape| (scrape.path, scrape.at));
    for of_path in scrapes.chunk_by(|one, two| one.path == two.path) {
        let path = of_path[0].path;
        let acks = books.paths.get(&path).map_or(&none, |book| &book.acks);
        let counts = Counts::new(acks);
        for scrape in of_path {
            judge_sum(path, &scrape.counters, scrape.at, sink);
            judge_scrape(&counts, acks, scrape, sink);
        }
    }
    let Some(end) = &context.end else { return };
    for (path, counters) in &end.balance {
        judge_sum(*path, counters, end.location, sink);
        let acks = books.paths.get(path).map_or(&none, |book| &book.acks);
        let acked = acks.iter().filter(|acked| acked.ok().is_some()).count() as u64;
        judge_range(*path, counters.delivered, (acked, acks.iter().count() as u64), end.location, sink);
    }
}

fn judge_sum(path: Name, counters: &Counters, at: Location, sink: &mut Sink) {
    sink.judged(Rule::Balance);
    if !counters.balances() {
        let Counters { produced, delivered, dropped, dlq, depth } = counters;
        let text = format!(
            "produced {produced} is not delivered {delivered} + dropped {dropped} + dlq {dlq} + depth {depth}."
        );
        sink.found(Found::new(Rule::Balance, text).on(path).by([at]));
    }
}

fn judge_scrape(counts: &Counts, acks: &Acks, scrape: &Scrape, sink: &mut Sink) {
    // A stale answer may be old: its index still orders it, time does not.
    let span = if scrape.is_stale { Span { call: 0, ret: NEVER, ..scrape.span } } else { scrape.span };
    let delivered = scrape.counters.delivered;
    let quick = counts.range(&span);
    if (quick.0..=quick.1).contains(&delivered) {
        return;
    }
    judge_range(scrape.path, delivered, exact_range(acks, &span), scrape.at, sink);
}

fn judge_range(path: Name, delivered: u64, (least, most): (u64, u64), at: Location, sink: &mut Sink) {
    if (least..=most).contains(&delivered) {
        return;
    }
    let text = if delivered < least {
        format!("delivered is {delivered}, and {least} pairs were certainly acked before.")
    } else {
        format!("delivered is {delivered}, and at most {most} pairs can have been acked by then.")
    };
    sink.found(Found::new(Rule::Balance, text).on(path).by([at]));
}

fn exact_range(acks: &Acks, span: &Span) -> (u64, u64) {
    let mut range = (0, 0);
    for acked in acks.iter() {
        let ok = acked.ok();
        range.0 += u64::from(ok.is_some_and(|ok| ok.certainly_before(span)));
        let may_be_open = acked.open_call <= span.ret;
        range.1 += u64::from(may_be_open || ok.is_some_and(|ok| ok.may_precede(span)));
    }
    range
}

/// The acks of a path in orders that let a scrape be looked up.
///
/// The quick range is never wider than the exact one: what it lets pass is right, and what it does not is counted exactly.
struct Counts {
    /// Commit indexes of ok acks that have one.
    commits: Vec<u64>,
    /// Of ok acks without an index: when they returned, and when they were called.
    rets: Vec<u64>,
    calls: Vec<u64>,
}

impl Counts {
    fn new(acks: &Acks) -> Self {
        let mut counts = Self { commits: Vec::new(), rets: Vec::new(), calls: Vec::new() };
        for ok in acks.iter().filter_map(Acked::ok) {
            match ok.commit {
                Some(commit) => counts.commits.push(commit),
                None => {
                    counts.rets.push(ok.ret);
                    counts.calls.push(ok.call);
                }
            }
        }
        counts.commits.sort_unstable();
        counts.rets.sort_unstable();
        counts.calls.sort_unstable();
        counts
    }

    /// A range that lies inside the exact one, as far as can be told quickly; empty if it cannot.
    fn range(&self, span: &Span) -> (u64, u64) {
        let Some(commit) = span.commit else {
            return if self.commits.is_empty() { self.by_time(span) } else { (1, 0) };
        };
        let before = below(&self.commits, commit);
        let not_after = below(&self.commits, commit.saturating_add(1));
        let (least, most) = self.by_time(span);
        (before + least, not_after + most)
    }

    fn by_time(&self, span: &Span) -> (u64, u64) {
        (below(&self.rets, span.call), below(&self.calls, span.ret.saturating_add(1)))
    }
}

/// How many of some sorted numbers are below another.
fn below(sorted: &[u64], bound: u64) -> u64 {
    sorted.partition_point(|number| *number < bound) as u64
}
