//! What a check says, before it is printed.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod text;

use crate::context::nanoseconds;
use crate::evidence::Evidence;
use crate::finding::{Found, Tally};
use crate::names::Names;
use crate::rules::Rule;
use crate::verdict::{Facts, Verdict};

/// How the order of operations was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every ok answer names its commit index: the order is given, and only checked.
    Witnessed,
    /// It is looked for, pair by pair and key by key.
    Searched,
}

impl Mode {
    /// What is printed.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Witnessed => "witnessed: every ok answer names its commit index",
            Self::Searched => "searched: an order is looked for, pair by pair and key by key",
        }
    }
}

/// What a check says.
#[derive(Debug)]
pub struct Report {
    /// One word.
    pub verdict: Verdict,
    /// Why, in a few words.
    pub reason: String,
    /// How the order was known.
    pub mode: Mode,
    /// Each rule with what came of it.
    pub rules: Vec<RuleLine>,
    /// What was found, with what proves it; explained ones last.
    pub findings: Vec<Finding>,
    /// What was read.
    pub read: Read,
    /// Lines that could not be read, the first of them.
    pub unreadable: Vec<UnreadableLine>,
    /// What was made to fail, and when.
    pub faults: Vec<FaultWindow>,
}

/// What was read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    /// Lines that are records.
    pub records: u64,
    /// Lines that are not.
    pub unreadable: u64,
    /// Publishes.
    pub publishes: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Acks, nacks and extends.
    pub settles: u64,
    /// Pairs (message, path) published ok or delivered.
    pub pairs: u64,
    /// Pairs that nothing finished or accounts for.
    pub backlog: u64,
}

/// A rule, and what came of it.
#[derive(Debug, Clone, Copy)]
pub struct RuleLine {
    /// The rule.
    pub rule: Rule,
    /// How often it looked.
    pub judged: u64,
    /// How often it was broken.
    pub found: u64,
    /// How often what looks broken is explained.
    pub explained: u64,
    /// How often it lacked what it needs.
    pub not_judged: u64,
}

/// Something that was found.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The path.
    pub path: Option<String>,
    /// The message; of two, the later.
    pub msg: Option<String>,
    /// The other, of two messages.
    pub other: Option<String>,
    /// What explains it, if anything does.
    pub explained: Option<String>,
    /// One sentence.
    pub text: String,
    /// The records that prove it.
    pub records: Vec<RecordLine>,
    /// All records of the messages, as far as they are kept.
    pub life: Vec<RecordLine>,
    /// How long a lease on the path lasts.
    ///
    /// # Units
    /// Nanoseconds.
    pub lease_ns: Option<u64>,
}

/// A record as it stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordLine {
    /// `FILE:LINE`
    pub place: String,
    /// The line.
    pub text: String,
}

/// A line that is no record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableLine {
    /// `FILE:LINE`
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A time in which something was made to fail.
#[derive(Debug, Clone)]
pub struct FaultWindow {
    /// What.
    pub kind: String,
    /// When it began.
    pub call: u64,
    /// When it was over; [`u64::MAX`] if nobody said.
    pub ret: u64,
}

impl Report {
    pub(crate) fn new(facts: &Facts<'_>, names: &Names, evidence: Evidence, unreadable: Vec<UnreadableLine>) -> Self {
        let (verdict, reason) = facts.verdict();
        let counts = facts.counts;
        let is_witnessed = counts.without_index == 0 && counts.operations() > 0;
        let rules = Rule::ALL.into_iter().map(|rule| {
            let Tally { judged, found, explained, not_judged } = facts.sink.tally(rule);
            RuleLine { rule, judged, found, explained, not_judged }
        });
        let mut findings: Vec<&Found> = facts.sink.findings.iter().collect();
        findings.sort_by_key(|found| (found.explained.is_some(), found.rule, found.records.first().copied()));
        let findings = findings.into_iter().map(|found| finding(found, facts, names, &evidence)).collect();
        let faults = facts.context.faults.iter();
        Self {
            verdict,
            reason,
            mode: if is_witnessed { Mode::Witnessed } else { Mode::Searched },
            rules: rules.collect(),
            findings,
            read: Read {
                records: facts.read.records,
                unreadable: facts.read.unreadable,
                publishes: counts.publishes,
                deliveries: counts.deliveries,
                settles: counts.settles,
                pairs: facts.pairs,
                backlog: facts.backlog,
            },
            unreadable,
            faults: faults
                .map(|fault| FaultWindow { kind: fault.kind.to_string(), call: fault.call, ret: fault.ret })
                .collect(),
        }
    }

    /// How often a rule was broken.
    #[must_use]
    pub fn found(&self, rule: Rule) -> u64 {
        self.rules.iter().find(|line| line.rule == rule).map_or(0, |line| line.found)
    }
}

fn finding(found: &Found, facts: &Facts<'_>, names: &Names, evidence: &Evidence) -> Finding {
    let line = |(place, text): (&str, &str)| RecordLine { place: place.to_owned(), text: text.to_owned() };
    let mut places = found.records.clone();
    places.dedup();
    let life = found.msg.into_iter().chain(found.other).flat_map(|msg| evidence.life(msg));
    Finding {
        rule: found.rule,
        path: found.path.map(|path| names.text(path).to_owned()),
        msg: found.msg.map(|msg| evidence.msg(msg)),
        other: found.other.map(|other| evidence.msg(other)),
        explained: found.explained.clone(),
        text: found.text.clone(),
        records: places.into_iter().filter_map(|at| evidence.line(at)).map(line).collect(),
        life: life.map(line).collect(),
        lease_ns: found.path.and_then(|path| facts.context.path(path).lease_ms).map(nanoseconds),
    }
}
