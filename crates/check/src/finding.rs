//! What a rule found, and how often each rule looked.

use hashbrown::HashSet;

use crate::location::Location;
use crate::operation::{MsgId, Name};
use crate::rules::Rule;

/// Something a rule found in the records.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub rule: Rule,
    pub path: Option<Name>,
    pub msg: Option<MsgId>,
    pub other: Option<MsgId>,
    /// What excuses it, if anything does: then it is counted and not found.
    pub explained: Option<String>,
    /// One sentence in plain words.
    pub text: String,
    pub records: Vec<Location>,
}

impl Found {
    /// A finding about a message on a path.
    pub(crate) fn new(rule: Rule, text: String) -> Self {
        Self { rule, path: None, msg: None, other: None, explained: None, text, records: Vec::new() }
    }

    /// Names the path.
    #[must_use]
    pub(crate) fn on(mut self, path: Name) -> Self {
        self.path = Some(path);
        self
    }

    /// Names the message.
    #[must_use]
    pub(crate) fn of(mut self, msg: MsgId) -> Self {
        self.msg = Some(msg);
        self
    }

    /// Names the records that prove it.
    #[must_use]
    pub(crate) fn by(mut self, records: impl IntoIterator<Item = Location>) -> Self {
        self.records.extend(records);
        self
    }
}

/// How often a rule looked and what came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub judged: u64,
    pub found: u64,
    pub explained: u64,
    pub not_judged: u64,
}

/// Collects what the rules say.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    tallies: [Tally; Rule::COUNT],
    /// The first findings of each rule, at most [`MAX_FINDINGS`]; all are counted.
    pub findings: Vec<Found>,
    /// Every message that a finding names, the search aside.
    pub named: HashSet<MsgId>,
    /// Every message of which no order was found.
    pub searched: HashSet<MsgId>,
    /// Whether a rule's answer may change with records not read yet.
    pub is_open: bool,
    /// Pairs that fault windows excuse from the search.
    pub excused: u64,
    /// Findings that fault windows explain.
    pub excused_found: u64,
    /// Searches for an order that were given up.
    pub given_up: u64,
}

impl Sink {
    /// A rule looked at something.
    pub(crate) fn judged(&mut self, rule: Rule) {
        self.tallies[rule as usize].judged += 1;
    }

    /// A rule lacks what it needs to look at something.
    pub(crate) fn not_judged(&mut self, rule: Rule) {
        self.tallies[rule as usize].not_judged += 1;
    }

    /// A rule looked at so many things.
    pub(crate) fn judged_many(&mut self, rule: Rule, count: u64) {
        self.tallies[rule as usize].judged += count;
    }

    /// A rule lacks what it needs to look at so many things.
    pub(crate) fn not_judged_many(&mut self, rule: Rule, count: u64) {
        self.tallies[rule as usize].not_judged += count;
    }

    /// Of what a rule found, so much remains.
    pub(crate) fn set_found(&mut self, rule: Rule, count: u64) {
        self.tallies[rule as usize].found = count;
    }

    /// A rule found something.
    pub(crate) fn found(&mut self, found: Found) {
        let tally = &mut self.tallies[found.rule as usize];
        let count = if found.explained.is_some() { &mut tally.explained } else { &mut tally.found };
        *count += 1;
        if found.explained.is_none() {
            let named = if found.rule == Rule::NoLinearization { &mut self.searched } else { &mut self.named };
            named.extend(found.msg.iter().chain(&found.other));
        }
        if *count <= MAX_FINDINGS {
            self.findings.push(found);
        }
    }

    /// What a rule counted.
    pub(crate) fn tally(&self, rule: Rule) -> Tally {
        self.tallies[rule as usize]
    }

    /// Takes back what was counted of a message that is judged again. Nothing had been found of it.
    pub(crate) fn take_back(&mut self, other: &Self) {
        for (mine, its) in self.tallies.iter_mut().zip(&other.tallies) {
            mine.judged = mine.judged.saturating_sub(its.judged);
            mine.not_judged = mine.not_judged.saturating_sub(its.not_judged);
        }
    }

    /// Takes over what another collected.
    pub(crate) fn absorb(&mut self, other: Self) {
        for (mine, its) in self.tallies.iter_mut().zip(&other.tallies) {
            mine.judged += its.judged;
            mine.found += its.found;
            mine.explained += its.explained;
            mine.not_judged += its.not_judged;
        }
        for found in other.findings {
            let tally = &self.tallies[found.rule as usize];
            if tally.found.max(tally.explained) <= MAX_FINDINGS {
                self.findings.push(found);
            }
        }
        self.named.extend(other.named);
        self.searched.extend(other.searched);
        self.is_open |= other.is_open;
        self.excused += other.excused;
        self.excused_found += other.excused_found;
        self.given_up += other.given_up;
    }
}

/// So many findings of a rule are shown in full; the rest is counted. A broken broker breaks a rule a million times.
const MAX_FINDINGS: u64 = 1_000;
