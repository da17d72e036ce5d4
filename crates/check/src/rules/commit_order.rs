//! `commit-order`: an index lower than one whose answer had returned before the call, or one index with two epochs.
//!
//! The index is evidence to be checked, never an authority. Records come in the order of their answers, so what had returned
//! before a call has been seen when the call's answer comes; only the highest index up to each moment is kept.
//!
//! # Source
//! P10; the index is the position an answer rests on, so it cannot be behind what somebody had already been told.

use std::collections::{BTreeMap, VecDeque};

use super::Rule;
use crate::finding::{Found, Sink};
use crate::location::Location;
use crate::operation::MsgId;
use crate::recent::partition_from_end;
use crate::span::Span;

/// The highest indexes up to now, and when each was told.
#[derive(Debug, Default)]
pub(crate) struct CommitOrder {
    /// In time: each answer with an index above all before it.
    steps: VecDeque<Step>,
    /// The lowest and highest index of each epoch, and the epoch looked at last.
    ranges: BTreeMap<u64, (u64, u64)>,
    latest: (u64, u64, u64),
    /// The epoch of each index, where everything is kept.
    epochs: BTreeMap<u64, (u64, Location)>,
    /// Whether an answer could not be judged because too much had happened since its call.
    pub is_blurred: bool,
    /// Whether everything is kept, so that nothing is blurred.
    keeps_all: bool,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    ret: u64,
    commit: u64,
    at: Location,
}

impl CommitOrder {
    /// Nothing seen yet. `keeps_all` blurs nothing.
    pub(crate) fn new(keeps_all: bool) -> Self {
        Self { keeps_all, ..Self::default() }
    }

    /// Takes the next record in the order of answers.
    pub(crate) fn add(&mut self, span: &Span, epoch: Option<u64>, msg: Option<MsgId>, at: Location, sink: &mut Sink) {
        let Some(commit) = span.commit else { return };
        sink.judged(Rule::CommitOrder);
        let earlier = partition_from_end(&self.steps, |step| step.ret < span.call);
        let before = earlier.checked_sub(1).map(|index| self.steps[index]);
        if let Some(before) = before.filter(|before| before.commit > commit) {
            let text = format!("Its index is {commit}, and {} had been told before it was asked.", before.commit);
            let mut found = Found::new(Rule::CommitOrder, text).by([before.at, at]);
            found.msg = msg;
            sink.found(found);
        } else if self.steps.get(earlier).is_some_and(|next| next.commit > commit && self.is_thinned(earlier)) {
            self.is_blurred = true;
        }
        if self.steps.back().is_none_or(|last| last.commit < commit) {
            self.steps.push_back(Step { ret: span.ret, commit, at });
            self.thin();
        }
        if let Some(epoch) = epoch {
            self.add_epoch(commit, epoch, msg, at, sink);
        }
    }

    /// Of the indexes of each epoch the lowest and highest are kept: as long as these ranges are apart, no index has two
    /// epochs. Where they are not, everything is read again and each index is kept.
    fn add_epoch(&mut self, commit: u64, epoch: u64, msg: Option<MsgId>, at: Location, sink: &mut Sink) {
        if !self.keeps_all {
            if self.latest.0 == epoch && (self.latest.1..=self.latest.2).contains(&commit) {
                return;
            }
            let range = self.ranges.entry(epoch).or_insert((commit, commit));
            *range = (range.0.min(commit), range.1.max(commit));
            self.latest = (epoch, range.0, range.1);
            let range = *range;
            self.is_blurred |=
                self.ranges.iter().any(|(other, known)| *other != epoch && known.0 <= range.1 && range.0 <= known.1);
            return;
        }
        let (known, first) = *self.epochs.entry(commit).or_insert((epoch, at));
        if known != epoch {
            let text = format!("Index {commit} has two epochs, {known} and {epoch}.");
            let mut found = Found::new(Rule::CommitOrder, text).by([first, at]);
            found.msg = msg;
            sink.found(found);
        }
    }

    /// Whether steps before this one may have been left out.
    fn is_thinned(&self, index: usize) -> bool {
        !self.keeps_all && index < KEPT / 2
    }

    /// Leaves out every second of the older half, when there are too many.
    fn thin(&mut self) {
        if self.steps.len() <= 2 * KEPT || self.keeps_all {
            return;
        }
        let older: Vec<Step> = self.steps.drain(..KEPT).collect();
        for step in older.into_iter().rev().step_by(2) {
            self.steps.push_front(step);
        }
    }
}

/// So many steps are kept exactly: more than answers can overlap in any run but one that hangs for hours.
const KEPT: usize = 131_072;
