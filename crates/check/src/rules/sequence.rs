//! `sequence`: two messages share a (topic, partition, seq), or a later publish got a lower seq.
//!
//! Answers to a message published before are not compared. Publishes come in the order of their answers, so what had
//! returned before a call has been seen when its answer comes.
//!
//! # Source
//! P10: sequences never go back, and none is given twice.

use std::collections::VecDeque;

use hashbrown::HashMap;
use roaring::RoaringTreemap;

use super::Rule;
use crate::finding::{Found, Sink};
use crate::location::Location;
use crate::operation::{MsgId, Name, Publish};
use crate::recent::partition_from_end;
use crate::span::Span;

/// A place in a topic: topic, partition, sequence.
pub(crate) type Place = (Name, u32, u64);

/// The sequences of all partitions, up to now.
#[derive(Debug, Default)]
pub(crate) struct Sequences {
    partitions: HashMap<(Name, u32), Partition>,
    /// Places that a second message claims.
    pub suspects: Vec<(Place, MsgId, Location)>,
    /// Whether a publish could not be judged because too much had happened since its call.
    pub is_blurred: bool,
    /// Whether everything is kept, so that nothing is blurred.
    keeps_all: bool,
}

#[derive(Debug, Default)]
struct Partition {
    taken: RoaringTreemap,
    /// In time: each answer with a sequence above all before it.
    steps: VecDeque<Step>,
    /// By index, then by sequence.
    by_commit: VecDeque<Step>,
    /// The highest index that was left out of it.
    forgotten: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Step {
    span: Span,
    seq: u64,
    msg: MsgId,
    at: Location,
}

impl Sequences {
    /// Nothing seen yet. `keeps_all` blurs nothing.
    pub(crate) fn new(keeps_all: bool) -> Self {
        Self { keeps_all, ..Self::default() }
    }

    /// A message is at a place, as a record says that is the first of its message to say so.
    pub(crate) fn take_place(&mut self, place: Place, msg: MsgId, at: Location) {
        let partition = self.partitions.entry((place.0, place.1)).or_default();
        if !partition.taken.insert(place.2) {
            self.suspects.push((place, msg, at));
        }
    }

    /// The next ok publish in the order of answers, the first of its message.
    pub(crate) fn add(&mut self, publish: &Publish, msg: MsgId, sink: &mut Sink) {
        let Some((number, seq)) = publish.position else { return sink.not_judged(Rule::Sequence) };
        sink.judged(Rule::Sequence);
        let step = Step { span: publish.span, seq, msg, at: publish.at };
        let partition = self.partitions.entry((publish.topic, number)).or_default();
        let kept = if self.keeps_all { usize::MAX } else { KEPT };
        self.is_blurred |= partition.is_blurred_for(&step);
        if let Some((before, after)) = partition.against_time(&step).or_else(|| partition.against_index(&step)) {
            let text = format!("It got sequence {} after {} had been given.", after.seq, before.seq);
            let mut found = Found::new(Rule::Sequence, text).of(after.msg).by([before.at, after.at]);
            found.other = Some(before.msg);
            sink.found(found);
        }
        partition.keep(step, kept);
    }
}

impl Partition {
    fn is_blurred_for(&self, step: &Step) -> bool {
        let is_before_all =
            self.steps.front().is_some_and(|first| step.span.call <= first.span.ret && step.seq < first.seq);
        let is_below = step.span.commit.is_some() && self.forgotten >= step.span.commit;
        self.forgotten.is_some() && (is_before_all || is_below)
    }

    fn against_time(&self, step: &Step) -> Option<(Step, Step)> {
        let earlier = partition_from_end(&self.steps, |known| known.span.ret < step.span.call);
        let higher = self.steps.range(..earlier).rev().take_while(|known| known.seq > step.seq);
        let before = higher.copied().find(|known| known.span.certainly_before(&step.span))?;
        Some((before, *step))
    }

    fn against_index(&self, step: &Step) -> Option<(Step, Step)> {
        let commit = step.span.commit?;
        // Of each index the one next to it: the highest sequence below, the lowest above.
        let start = partition_from_end(&self.by_commit, |known| known.span.commit < Some(commit));
        let below = start.checked_sub(1).map(|below| self.by_commit[below]);
        if let Some(below) = below.filter(|below| below.seq > step.seq && below.span.certainly_before(&step.span)) {
            return Some((below, *step));
        }
        let end = partition_from_end(&self.by_commit, |known| known.span.commit <= Some(commit));
        let above = self.by_commit.get(end).copied();
        let above = above.filter(|above| above.seq < step.seq && step.span.certainly_before(&above.span))?;
        Some((*step, above))
    }

    fn keep(&mut self, step: Step, kept: usize) {
        if self.steps.back().is_none_or(|last| last.seq < step.seq) {
            self.steps.push_back(step);
            if self.steps.len() > kept {
                self.steps.pop_front();
                self.forgotten = self.forgotten.or(Some(0));
            }
        }
        if step.span.commit.is_none() {
            return;
        }
        let place = (step.span.commit, step.seq);
        let index = partition_from_end(&self.by_commit, |known| (known.span.commit, known.seq) < place);
        self.by_commit.insert(index, step);
        if self.by_commit.len() > kept
            && let Some(first) = self.by_commit.pop_front()
        {
            self.forgotten = self.forgotten.max(first.span.commit);
        }
    }
}

/// So many publishes of a partition are kept: more than can be in flight together.
const KEPT: usize = 32_768;

/// Two messages at one place.
pub(crate) fn shared(place: Place, earlier: (MsgId, Location), later: (MsgId, Location)) -> Found {
    let text = format!("Partition {} has two messages at sequence {}.", place.1, place.2);
    let mut found = Found::new(Rule::Sequence, text).of(later.0).by([earlier.1, later.1]);
    found.other = Some(earlier.0);
    found
}
