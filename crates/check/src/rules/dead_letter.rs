//! `dead-letter`: a dead letter is missing, too early or there too often.
//!
//! This file judges one message; whether a path's books cover a pair whose dead letter was not seen is known at the end of
//! the run, see [`crate::books`], which asks [`is_exhausted`].
//!
//! # Source
//! The life of a pair: a message is dead when its last attempt ended, or its consumer says so, and has exactly one dead
//! letter then.

use super::Rule;
use crate::context::nanoseconds;
use crate::finding::{Found, Sink};
use crate::location::Location;
use crate::operation::{Delivery, NackTo, Name, OperateKind, Outcome, Position, SettleKind};
use crate::pair::{Case, Pair};

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    let letters: Vec<Letter<'_>> = letters(case).collect();
    if letters.is_empty() {
        return;
    }
    for pair in case.pairs.iter().filter(|pair| !is_letter_path(pair)) {
        let mine: Vec<&Letter<'_>> = letters.iter().filter(|letter| is_of(case, letter, pair)).collect();
        judge_number(pair, &mine, sink);
        judge_time(case, pair, &mine, sink);
    }
}

/// A delivery on a dead-letter path.
pub(crate) struct Letter<'a> {
    pub delivery: &'a Delivery,
    /// The dead-letter topic; the path, where the topic is not known.
    topic: Name,
}

/// The message's dead letters, as they were delivered.
pub(crate) fn letters<'a>(case: &Case<'a>) -> impl Iterator<Item = Letter<'a>> {
    case.pairs.iter().flat_map(|pair| {
        let topic = pair.info.topic.unwrap_or(pair.path);
        let is_letter = is_letter_path(pair);
        let delivered = pair.deliveries.iter().filter(move |delivery| is_letter || delivery.origin.is_some());
        delivered.map(move |delivery| Letter { delivery, topic })
    })
}

/// Whether a dead letter may be of the pair: it names its path, or names none and the path has that topic as its DLQ.
pub(crate) fn is_of(case: &Case<'_>, letter: &Letter<'_>, pair: &Pair<'_>) -> bool {
    match letter.delivery.origin {
        Some(origin) => origin == pair.path,
        None => case.context.path(pair.path).dlq == Some(letter.topic),
    }
}

fn is_letter_path(pair: &Pair<'_>) -> bool {
    pair.info.is_dead_letters || pair.deliveries.iter().any(|delivery| delivery.origin.is_some())
}

/// The places of a pair's dead letters, each once, with the first record of it.
pub(crate) fn places(letters: &[&Letter<'_>]) -> Vec<(Position, Location)> {
    let mut places: Vec<(Position, Location)> = Vec::new();
    for letter in letters {
        if let Some(position) = letter.delivery.position
            && !places.iter().any(|(known, _)| *known == position)
        {
            places.push((position, letter.delivery.at));
        }
    }
    places
}

fn judge_number(pair: &Pair<'_>, letters: &[&Letter<'_>], sink: &mut Sink) {
    // A letter that does not name its path may be of each path with that DLQ: it is counted where it is named alone.
    let named: Vec<&Letter<'_>> =
        letters.iter().copied().filter(|letter| letter.delivery.origin.is_some() || has_own_dlq(pair)).collect();
    if named.is_empty() {
        return;
    }
    let places = places(&named);
    if places.is_empty() {
        sink.not_judged(Rule::DeadLetter);
        return;
    }
    sink.judged(Rule::DeadLetter);
    // A redelivery that an operator asked for may have been granted and never arrived.
    let asked: usize = [OperateKind::Redrive, OperateKind::Replay]
        .into_iter()
        .map(|kind| pair.context.operates(kind, pair.path, pair.msg).count())
        .sum();
    let allowed = 1 + pair.brought_back().max(asked);
    if places.len() > allowed {
        let text = format!("It has {} dead letters of one path, and can have died {allowed} times.", places.len());
        let found = Found::new(Rule::DeadLetter, text).of(pair.msg).on(pair.path);
        sink.found(found.by(places.into_iter().map(|(_, at)| at)));
    }
}

/// Whether no other path sends its dead letters to the same topic.
fn has_own_dlq(pair: &Pair<'_>) -> bool {
    pair.context.named_paths().filter(|(_, info)| info.dlq.is_some() && info.dlq == pair.info.dlq).count() == 1
}

/// Finds a dead letter that came before the attempts can have run out.
fn judge_time(case: &Case<'_>, pair: &Pair<'_>, letters: &[&Letter<'_>], sink: &mut Sink) {
    let Some(max_attempts) = pair.info.max_attempts else { return };
    let Some(letter) = letters.iter().min_by_key(|letter| letter.delivery.span.ret) else { return };
    if letter.delivery.origin.is_none() && !has_own_dlq(pair) {
        return;
    }
    let dead = letter.delivery;
    let is_told = pair.settles.iter().any(|settle| settle.may_kill() && settle.span.may_precede(&dead.span));
    let is_brought_back = pair
        .deliveries
        .iter()
        .any(|delivery| pair.may_be_brought_back(delivery) && delivery.span.may_precede(&dead.span));
    if is_told || is_brought_back || !pair.is_one {
        return;
    }
    let is_early =
        max_attempts == 0 || earliest_death(case, pair, dead, max_attempts).is_some_and(|at| dead.span.ret < at);
    if is_early {
        let text = if max_attempts == 0 {
            "It is a dead letter, and its path has no limit of attempts and nobody told it to die.".to_owned()
        } else {
            format!("It is a dead letter, and its {max_attempts} attempts cannot have run out by then.")
        };
        let last = last_before(pair, dead).map(|last| last.at);
        sink.found(Found::new(Rule::DeadLetter, text).of(pair.msg).on(pair.path).by(last).by([dead.at]));
    }
}

fn last_before<'a>(pair: &Pair<'a>, dead: &Delivery) -> Option<&'a Delivery> {
    let before = pair.deliveries.iter().copied().filter(|delivery| delivery.span.may_precede(&dead.span));
    before.max_by_key(|delivery| (delivery.attempt, delivery.span.ret))
}

/// The earliest time at which the attempts after the last recorded one can have run out; none, if nobody can say.
fn earliest_death(case: &Case<'_>, pair: &Pair<'_>, dead: &Delivery, max_attempts: u64) -> Option<u64> {
    let lease_ms = pair.info.lease_ms?;
    let last = last_before(pair, dead);
    let published = case.publishes.iter().map(|publish| publish.span.call).min();
    let since = last.map(|last| last.span.call).or(published)?;
    let is_cut_short = pair.context.has_fault_between(since, dead.span.ret)
        || pair.context.operates(OperateKind::Leave, pair.path, pair.msg).next().is_some();
    if is_cut_short {
        // A lost consumer's leases end at once.
        return None;
    }
    // Where nobody writes down what became of consumers, those of attempts that never arrived may have died.
    let has_silent_deaths = pair.context.has_silent_deaths();
    // None of its attempts arrived: each took a lease.
    let Some(last) = last else {
        if has_silent_deaths {
            return None;
        }
        return Some(since.saturating_add(nanoseconds(lease_ms).saturating_mul(max_attempts)));
    };
    // Without its number the last recorded attempt may be the last of all: others may never have arrived.
    let missing = last.attempt.map_or(0, |attempt| max_attempts.saturating_sub(attempt));
    if has_silent_deaths && (missing > 0 || pair.context.last_heard(last.client) <= dead.span.ret) {
        return None;
    }
    let nacked = pair
        .settles_of(last)
        .filter(|settle| matches!(settle.kind, SettleKind::Nack(NackTo::Retry | NackTo::Release)) && settle.may_hold());
    let last_lease = nanoseconds(last.lease_ms.unwrap_or(lease_ms));
    let ran_out = last.span.call.saturating_add(last_lease);
    let ended = nacked.map(|settle| settle.span.call).min().map_or(ran_out, |nacked| nacked.min(ran_out));
    Some(ended.saturating_add(nanoseconds(lease_ms).saturating_mul(missing)))
}

/// The delivery that used up a pair's attempts, if its last attempt certainly ended before the end of a drained run.
pub(crate) fn exhausted<'a>(pair: &Pair<'a>) -> Option<&'a Delivery> {
    let max_attempts = pair.info.max_attempts.filter(|limit| *limit > 0)?;
    let end = pair.context.end.as_ref().filter(|end| end.is_drained)?;
    let last = pair.deliveries.iter().copied().max_by_key(|delivery| delivery.span.ret)?;
    if last.attempt? < max_attempts {
        return None;
    }
    let is_nacked = pair.settles_of(last).any(|settle| {
        settle.kind == SettleKind::Nack(NackTo::Retry) && settle.outcome == Outcome::Ok && settle.span.ret <= end.at
    });
    let lease = nanoseconds(last.lease_ms.or(pair.info.lease_ms)?);
    let extended = pair.settles_of(last).filter_map(|settle| match settle.kind {
        SettleKind::Extend(length_ms) if settle.may_hold() => {
            Some(settle.span.ret.saturating_add(length_ms.map_or(lease, nanoseconds)))
        }
        _ => None,
    });
    let ran_out = extended.max().unwrap_or(0).max(last.span.ret.saturating_add(lease));
    (is_nacked || ran_out < end.at).then_some(last)
}
