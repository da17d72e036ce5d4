//! The contract's states of a pair, and the search for an order of its operations that walks them.
//!
//! With commit indexes on every answer the order is given and this is a replay; without, it is a memoised search: the same
//! set of operations done, in the same state, is never looked at twice.
//!
//! # Source
//! The life of a pair: absent → pending → leased → acked, dead or pending again. Wing and Gong's search for a linearization,
//! with the memo of Lowe.

use hashbrown::HashSet;

use crate::operation::{Delivery, NackTo, Outcome, Publish, Settle, SettleKind};
use crate::pair::{Pair, names};
use crate::span::{Span, Timed};

/// What a search came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is an order.
    Order,
    /// There is none.
    NoOrder,
    /// It took too many steps.
    GivenUp,
}

/// One operation of a pair.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    /// It was published.
    Publish(&'a Publish),
    /// It was delivered; the number is that of the delivery in the pair.
    Delivery(&'a Delivery, usize),
    /// It was settled or extended.
    Settle(&'a Settle),
}

/// Where a pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// Not published.
    Absent,
    /// To be delivered.
    Pending,
    /// Held by this delivery.
    Leased(usize),
    /// Done.
    Acked,
    /// In the dead letters.
    Dead,
}

/// A state of the contract's model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub phase: Phase,
    /// The settles that took effect, as (delivery id, kind): one of these may be answered ok again.
    pub settled: Vec<(Option<u64>, u8)>,
}

/// Looks for an order of a pair's operations that the contract allows.
pub(crate) fn find_order(pair: &Pair<'_>, publishes: &[&Publish], limit: u64) -> Answer {
    let steps = steps(pair, publishes);
    if is_plain(&steps) {
        return Answer::Order;
    }
    Search::new(pair, steps, limit).run(start(publishes))
}

/// The operations that took or may have taken effect, in the order of their answers.
pub(crate) fn steps<'a>(pair: &Pair<'a>, publishes: &[&'a Publish]) -> Vec<Step<'a>> {
    let taken = publishes.iter().copied().filter(|publish| publish.outcome != Outcome::Refused);
    let mut steps: Vec<Step<'a>> = taken.map(Step::Publish).collect();
    steps.extend(pair.deliveries.iter().enumerate().map(|(index, delivery)| Step::Delivery(delivery, index)));
    let settles = pair.settles.iter().copied().filter(|settle| match settle.kind {
        // An extend that was not answered ok changes no state.
        SettleKind::Extend(_) => settle.outcome == Outcome::Ok,
        SettleKind::Ack | SettleKind::Nack(_) => settle.may_hold(),
    });
    steps.extend(settles.map(Step::Settle));
    steps.sort_by_key(|step| (step.span().ret, step.span().call));
    steps
}

/// The state before everything. Without publishes, as on a dead-letter path, the message is there.
pub(crate) fn start(publishes: &[&Publish]) -> State {
    let phase = if publishes.is_empty() { Phase::Pending } else { Phase::Absent };
    State { phase, settled: Vec::new() }
}

impl Step<'_> {
    /// When it happened.
    pub(crate) fn span(&self) -> &Span {
        match self {
            Self::Publish(publish) => &publish.stored,
            Self::Delivery(delivery, _) => delivery.span(),
            Self::Settle(settle) => settle.span(),
        }
    }

    /// Whether it may also not have happened.
    pub(crate) fn is_optional(&self) -> bool {
        match self {
            Self::Publish(publish) => publish.outcome == Outcome::Unknown,
            Self::Delivery(..) => false,
            Self::Settle(settle) => settle.outcome == Outcome::Unknown,
        }
    }

    /// The state after it, if the contract allows it in this one.
    pub(crate) fn apply(&self, pair: &Pair<'_>, state: &State) -> Option<State> {
        match self {
            Self::Publish(_) => {
                let phase = if state.phase == Phase::Absent { Phase::Pending } else { state.phase };
                Some(State { phase, settled: state.settled.clone() })
            }
            Self::Delivery(delivery, index) => {
                let may_be = match state.phase {
                    Phase::Absent => false,
                    // A lease ends by itself at any moment the rules about leases do not exclude.
                    Phase::Pending | Phase::Leased(_) => true,
                    Phase::Acked | Phase::Dead => pair.may_be_brought_back(delivery),
                };
                may_be.then(|| State { phase: Phase::Leased(*index), settled: state.settled.clone() })
            }
            Self::Settle(settle) => apply_settle(pair, settle, state),
        }
    }
}

fn apply_settle(pair: &Pair<'_>, settle: &Settle, state: &State) -> Option<State> {
    let (code, phase) = match settle.kind {
        SettleKind::Ack => (0, Phase::Acked),
        SettleKind::Nack(NackTo::Dead) => (1, Phase::Dead),
        SettleKind::Nack(NackTo::Retry) => (2, Phase::Pending),
        SettleKind::Nack(NackTo::Release) => (3, Phase::Pending),
        SettleKind::Extend(_) => return holds(pair, settle, state).then(|| state.clone()),
    };
    let mark = (settle.delivery_id, code);
    if state.settled.contains(&mark) {
        return Some(state.clone());
    }
    if !holds(pair, settle, state) {
        return None;
    }
    let mut settled = state.settled.clone();
    settled.push(mark);
    settled.sort_unstable();
    Some(State { phase, settled })
}

/// Whether a settle names the delivery that holds the pair.
fn holds(pair: &Pair<'_>, settle: &Settle, state: &State) -> bool {
    match state.phase {
        Phase::Leased(index) => names(settle, pair.deliveries[index]) || is_unrecorded(pair, settle),
        Phase::Pending => is_unrecorded(pair, settle),
        Phase::Absent | Phase::Acked | Phase::Dead => false,
    }
}

/// Whether it names a delivery that nobody recorded: its client got it, and the record is missing.
fn is_unrecorded(pair: &Pair<'_>, settle: &Settle) -> bool {
    let has_ids = pair.deliveries.iter().all(|delivery| delivery.id.is_some());
    has_ids && settle.delivery_id.is_some_and(|id| pair.find(id).is_none())
}

/// One publish, one delivery and at most one settle of it, one after another: what almost every pair is.
fn is_plain(steps: &[Step<'_>]) -> bool {
    let (publish, delivery, settle) = match steps {
        [Step::Publish(publish), Step::Delivery(delivery, _)] => (publish, delivery, None),
        [Step::Publish(publish), Step::Delivery(delivery, _), Step::Settle(settle)] => {
            (publish, delivery, Some(settle))
        }
        _ => return false,
    };
    publish.stored.may_precede(&delivery.span)
        && settle.is_none_or(|settle| {
            names(settle, delivery)
                && delivery.span.may_precede(&settle.span)
                && publish.stored.may_precede(&settle.span)
        })
}

/// A set of operations, as bits.
type Done = Vec<u64>;

struct Search<'a, 'p> {
    pair: &'p Pair<'a>,
    steps: Vec<Step<'a>>,
    seen: HashSet<(Done, State)>,
    left: u64,
}

impl<'a, 'p> Search<'a, 'p> {
    fn new(pair: &'p Pair<'a>, steps: Vec<Step<'a>>, limit: u64) -> Self {
        Self { pair, steps, seen: HashSet::new(), left: limit }
    }

    fn run(&mut self, start: State) -> Answer {
        let done = vec![0; self.steps.len().div_ceil(64)];
        // A stack of its own: a pair may have more operations than the thread's stack has room for.
        let mut stack = vec![(done, start)];
        while let Some((done, state)) = stack.pop() {
            if self.left == 0 {
                return Answer::GivenUp;
            }
            self.left -= 1;
            if self.is_complete(&done) {
                return Answer::Order;
            }
            // The latest is pushed first, so that the earliest is tried first.
            for index in (0..self.steps.len()).rev() {
                if has(&done, index) || !self.is_next(&done, index) {
                    continue;
                }
                if let Some(next) = self.steps[index].apply(self.pair, &state) {
                    let mut after = done.clone();
                    after[index / 64] |= 1 << (index % 64);
                    if self.seen.insert((after.clone(), next.clone())) {
                        stack.push((after, next));
                    }
                }
            }
        }
        Answer::NoOrder
    }

    fn is_complete(&self, done: &Done) -> bool {
        self.steps.iter().enumerate().all(|(index, step)| step.is_optional() || has(done, index))
    }

    /// Whether nothing that certainly comes before it is still to be done. What may not have happened holds up nothing.
    fn is_next(&self, done: &Done, index: usize) -> bool {
        let span = self.steps[index].span();
        self.steps.iter().enumerate().all(|(other, step)| {
            other == index || has(done, other) || step.is_optional() || !step.span().certainly_before(span)
        })
    }
}

fn has(done: &Done, index: usize) -> bool {
    done[index / 64] >> (index % 64) & 1 == 1
}

#[cfg(test)]
mod tests;
