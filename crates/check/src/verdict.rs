//! From what was found to one word.

use mortarmq_history as history;

use crate::context::Context;
use crate::finding::Sink;
use crate::judge::Counts;
use crate::rules::Rule;
use crate::span::NEVER;

/// One word for a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was found, and everything is finished.
    Ok,
    /// Nothing was found; some pairs are not finished.
    Overdue,
    /// Nothing was found; too many pairs are not finished.
    Stalled,
    /// The history does not say enough.
    Unknown,
    /// Messages came again after their acks, and nothing else was found.
    Anomaly,
    /// The contract was broken.
    Violation,
}

impl Verdict {
    /// The word that is printed.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Overdue => "OVERDUE",
            Self::Stalled => "STALLED",
            Self::Unknown => "UNKNOWN",
            Self::Anomaly => "ANOMALY",
            Self::Violation => "VIOLATION",
        }
    }

    /// Whether a program that asks should go on.
    #[must_use]
    pub fn is_success(self) -> bool {
        matches!(self, Self::Ok | Self::Overdue)
    }
}

/// Everything a verdict rests on.
pub(crate) struct Facts<'a> {
    pub context: &'a Context,
    pub counts: &'a Counts,
    pub read: history::Counts,
    pub sink: &'a Sink,
    pub pairs: u64,
    pub backlog: u64,
}

impl Facts<'_> {
    /// The verdict, and why.
    pub(crate) fn verdict(&self) -> (Verdict, String) {
        if let Some(why) = self.unreadable() {
            return (Verdict::Unknown, why);
        }
        if let Some(found) = self.broken() {
            return found;
        }
        if let Some(why) = self.too_little() {
            return (Verdict::Unknown, why);
        }
        if self.backlog == 0 {
            return (Verdict::Ok, "nothing was found, and every pair is finished".to_owned());
        }
        let share = self.backlog as f64 / self.pairs.max(1) as f64;
        let why = format!("{} of {} pairs are not finished", self.backlog, self.pairs);
        let verdict = if share > self.context.options.max_overdue { Verdict::Stalled } else { Verdict::Overdue };
        (verdict, why)
    }

    fn unreadable(&self) -> Option<String> {
        let history::Counts { records, unreadable, damaged, .. } = self.read;
        let lines = records + unreadable;
        let is_too_much = unreadable.saturating_mul(UNREADABLE_PER) > lines;
        (is_too_much || damaged > 0).then(|| format!("{unreadable} of {lines} lines cannot be read"))
    }

    fn broken(&self) -> Option<(Verdict, String)> {
        let found = |rule: &Rule| self.sink.tally(*rule).found > 0;
        let broken: Vec<&str> = Rule::ALL.iter().filter(|rule| found(rule)).map(|rule| rule.name()).collect();
        match broken.as_slice() {
            [] => None,
            ["redelivered-after-ack"] => {
                Some((Verdict::Anomaly, "messages came again after their acks had been answered ok".to_owned()))
            }
            _ => Some((Verdict::Violation, format!("found: {}", broken.join(", ")))),
        }
    }

    fn too_little(&self) -> Option<String> {
        let options = &self.context.options;
        let operations = self.counts.operations();
        if operations < options.min_operations {
            let needed = options.min_operations;
            return Some(format!("{operations} publishes, deliveries and settles, and {needed} are asked for"));
        }
        if self.sink.given_up > 0 {
            return Some(format!("{} searches for an order were given up", self.sink.given_up));
        }
        let explains = self.sink.excused > 0 || self.sink.excused_found > 0;
        let coverage = self.fault_coverage();
        (explains && coverage > options.max_fault_coverage)
            .then(|| format!("fault windows explain something and cover {:.0} % of the run", coverage * 100.0))
    }

    /// The share of the run that fault windows cover.
    pub(crate) fn fault_coverage(&self) -> f64 {
        let context = self.context;
        let from = self.counts.from.unwrap_or(0);
        let to = self.counts.to.max(context.end.as_ref().map_or(0, |end| end.at));
        let grace = context.named_paths().map(|(path, _)| context.grace(path)).max();
        let grace = grace.unwrap_or_else(|| context.grace(u32::MAX));
        let mut windows: Vec<(u64, u64)> = context
            .faults
            .iter()
            .map(|fault| {
                (fault.call.max(from), if fault.ret == NEVER { to } else { fault.ret.saturating_add(grace).min(to) })
            })
            .collect();
        windows.sort_unstable();
        let (mut covered, mut reached) = (0, from);
        for (start, end) in windows {
            covered += end.saturating_sub(start.max(reached));
            reached = reached.max(end);
        }
        covered as f64 / to.saturating_sub(from).max(1) as f64
    }
}

/// More than one unreadable line in so many, and nobody knows what was missed.
const UNREADABLE_PER: u64 = 1_000;
