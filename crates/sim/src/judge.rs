//! A run from its plan to its verdict.

use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use mortarmq_check::{AsText, Options, Report, Verdict, check};
use mortarmq_history::{Limits, ReadError, Reader, Source};

use crate::history::Judged;
use crate::plan::{Fault, Plan};
use crate::tally::Tally;
use crate::trace::Lines;
use crate::world::World;

/// What came of a plan.
#[derive(Debug)]
pub struct Outcome {
    /// The promise that was broken, if one was.
    pub failure: Option<String>,
    /// A digest of everything that happened.
    pub digest: u64,
    /// How much happened.
    pub events: u64,
    /// What was met.
    pub tally: Tally,
    /// How long it lasted in the world.
    pub simulated_us: u64,
    /// Faults whose moment never came.
    pub unreached: Vec<Fault>,
    /// What happened, line by line, if that was asked for.
    pub trace: Option<String>,
    /// The history of the topics that were there at the end.
    pub history: Vec<u8>,
    /// How often each rule of the judge looked, and whether it had the order of all operations.
    pub judged: Vec<(&'static str, u64)>,
}

/// What a run leaves behind, beside its verdict.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep {
    /// The lines of the trace.
    pub trace: bool,
}

/// Lets a plan happen and judges it. A panic of the node is a broken promise like any other.
#[must_use]
pub fn play(plan: &Plan, keep: Keep) -> Outcome {
    let lines = keep.trace.then(Lines::default);
    let played = catch_unwind(AssertUnwindSafe(|| World::new(plan, lines.clone()).run()));
    let trace = lines.map(|lines| lines.take());
    let end = match played {
        Ok(end) => end,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_else(|| "a panic without words".to_owned());
            return Outcome { failure: Some(format!("panic: {text}")), trace, ..Outcome::nothing() };
        }
    };
    let mut failure = end.failure;
    let mut judged = Vec::new();
    let mut history = Vec::new();
    for (place, part) in end.histories.finished().iter().enumerate() {
        if place == 0 {
            history.clone_from(&part.bytes);
        }
        if failure.is_some() {
            continue;
        }
        match judge(part) {
            Ok(report) => {
                for line in &report.rules {
                    judged.push((line.rule.name(), line.judged));
                }
                failure = verdict(&report, &part.name, place == 0);
            }
            Err(error) => failure = Some(format!("the history cannot be read: {error}")),
        }
    }
    let mut tally = end.tally;
    tally.clusters = u64::from(plan.settings.nodes > 1);
    Outcome {
        failure,
        digest: end.trace.digest(),
        events: end.trace.events(),
        tally,
        simulated_us: end.simulated_us,
        unreached: end.unreached,
        trace,
        history,
        judged,
    }
}

fn judge(part: &Judged) -> Result<Report, ReadError> {
    let open = || {
        let source = Source::from_reader(Path::new("history.jsonl"), Cursor::new(part.bytes.clone()))
            .expect("memory can be read");
        Ok(Reader::new(vec![source], Limits::default()))
    };
    check(&open, &Options { is_strict: true, ..Options::default() }, &mut |_| {})
}

/// What is wrong with a history. One that nobody could read to its end is judged by its findings alone.
fn verdict(report: &Report, name: &str, is_whole: bool) -> Option<String> {
    let has_findings = report.findings.iter().any(|finding| finding.explained.is_none());
    let is_empty = report.read.publishes == 0;
    let is_fine = if is_whole && !is_empty { report.verdict == Verdict::Ok } else { !has_findings };
    (!is_fine).then(|| format!("the judge of {name}:\n{}", AsText(report)))
}

impl Outcome {
    fn nothing() -> Self {
        Self {
            failure: None,
            digest: 0,
            events: 0,
            tally: Tally::default(),
            simulated_us: 0,
            unreached: Vec::new(),
            trace: None,
            history: Vec::new(),
            judged: Vec::new(),
        }
    }
}
