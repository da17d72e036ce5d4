//! `unexplained`: a further delivery without a cause, with cause `first`, or with a `prev` that cannot be.
//!
//! `prev` may name a delivery that was granted and never arrived: an id that the path's records do not contain, between
//! the pair's latest recorded delivery and this one. If it names a recorded one, that must be the pair's latest before.
//!
//! # Source
//! P7: every delivery after the first names its cause and the delivery it follows.

use super::Rule;
use crate::context::Field;
use crate::finding::{Found, Sink};
use crate::location::Location;
use crate::operation::{Cause, Delivery, OperateKind};
use crate::pair::{Case, Pair};

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    for pair in &case.pairs {
        for delivery in pair.deliveries.iter().copied().filter(|delivery| is_further(pair, delivery)) {
            judge_cause(pair, delivery, sink);
        }
    }
}

/// Whether it is certainly not the pair's first.
pub(crate) fn is_further(pair: &Pair<'_>, delivery: &Delivery) -> bool {
    delivery.attempt.is_some_and(|attempt| attempt > 1)
        || (pair.is_one && pair.deliveries.len() > 1 && pair.latest_before(delivery).is_some())
}

fn judge_cause(pair: &Pair<'_>, delivery: &Delivery, sink: &mut Sink) {
    match delivery.cause {
        None if !pair.info.gives(Field::Cause, delivery) => {
            sink.not_judged(Rule::Unexplained);
        }
        None => found(pair, delivery, "A further delivery does not say why it was made.", None, sink),
        Some(Cause::First) => found(pair, delivery, "A further delivery says that it is the first.", None, sink),
        Some(cause) => judge_previous(pair, delivery, cause, sink),
    }
}

fn judge_previous(pair: &Pair<'_>, delivery: &Delivery, cause: Cause, sink: &mut Sink) {
    let Some(prev) = delivery.prev else {
        if cause == Cause::Replayed {
            sink.judged(Rule::Unexplained);
        } else if pair.info.gives(Field::Prev, delivery) {
            found(pair, delivery, "A further delivery does not say which one it follows.", None, sink);
        } else {
            sink.not_judged(Rule::Unexplained);
        }
        return;
    };
    if !pair.is_one {
        sink.not_judged(Rule::Unexplained);
        return;
    }
    match wrong_previous(pair, delivery, prev, sink) {
        Some((text, other)) => found(pair, delivery, text, other, sink),
        None => sink.judged(Rule::Unexplained),
    }
}

/// What is wrong with the id a delivery names as the one before it, and the record that shows it.
fn wrong_previous(
    pair: &Pair<'_>,
    delivery: &Delivery,
    prev: u64,
    sink: &mut Sink,
) -> Option<(&'static str, Option<Location>)> {
    if delivery.id == Some(prev) {
        return Some(("A delivery names itself as the one it follows.", None));
    }
    let Some(previous) = pair.previous(delivery) else {
        return wrong_unrecorded(pair, delivery, prev, sink);
    };
    if delivery.span.certainly_before(&previous.span) {
        return Some(("A delivery names a later one as the one it follows.", Some(previous.at)));
    }
    if may_follow_its_death(pair, delivery) {
        return None;
    }
    let between = pair.deliveries.iter().find(|other| {
        other.at != delivery.at
            && previous.span.certainly_before(&other.span)
            && other.span.certainly_before(&delivery.span)
    })?;
    Some(("A delivery does not name the latest one before it as the one it follows.", Some(between.at)))
}

/// Whether a delivery may follow an earlier one than the latest: a dead letter that is redriven follows the delivery that it
/// died by, though the message was replayed meanwhile.
fn may_follow_its_death(pair: &Pair<'_>, delivery: &Delivery) -> bool {
    delivery.cause == Some(Cause::Redriven)
        && pair.context.operates(OperateKind::Replay, pair.path, pair.msg).next().is_some()
}

/// `prev` is no recorded delivery of the pair: it must be one that never arrived.
fn wrong_unrecorded(
    pair: &Pair<'_>,
    delivery: &Delivery,
    prev: u64,
    sink: &mut Sink,
) -> Option<(&'static str, Option<Location>)> {
    if delivery.id.is_some_and(|id| prev > id) {
        return Some(("A delivery names a later id than its own as the one it follows.", None));
    }
    let latest = pair.latest_before(delivery).filter(|_| !may_follow_its_death(pair, delivery));
    if let Some(latest) = latest.filter(|latest| latest.id.is_some_and(|id| prev < id)) {
        return Some(("A delivery names one before the latest as the one it follows.", Some(latest.at)));
    }
    if !pair.context.is_complete {
        // Whether another message has this delivery is known when everything has been read.
        sink.is_open = true;
        return None;
    }
    let is_foreign = pair.context.has_delivery(pair.path, prev);
    is_foreign.then_some(("A delivery names a delivery of another message as the one it follows.", None))
}

fn found(pair: &Pair<'_>, delivery: &Delivery, text: &str, other: Option<Location>, sink: &mut Sink) {
    sink.judged(Rule::Unexplained);
    let latest = pair.latest_before(delivery).map(|latest| latest.at);
    let found = Found::new(Rule::Unexplained, text.to_owned()).of(pair.msg).on(pair.path);
    sink.found(found.by(latest).by(other).by([delivery.at]));
}
