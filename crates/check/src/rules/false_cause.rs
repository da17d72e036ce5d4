//! `false-cause`: a delivery says why it was made, and the records show that this cannot be why.
//!
//! # Source
//! P7: every delivery after the first names its cause.

use super::Rule;
use crate::finding::{Found, Sink};
use crate::lease::{LeaseEnd, is_behind_failed, lease_end, may_be_over};
use crate::operation::{Cause, Delivery, NackTo, OperateKind, SettleKind};
use crate::pair::{Case, Pair};

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    for pair in case.pairs.iter().filter(|pair| pair.is_one) {
        for delivery in &pair.deliveries {
            match delivery.cause {
                None | Some(Cause::First) => {}
                Some(cause) => judge_cause(pair, delivery, cause, sink),
            }
        }
    }
}

/// Whether a cause holds.
enum Answer {
    May,
    False(&'static str),
    NotKnown,
}

fn judge_cause(pair: &Pair<'_>, delivery: &Delivery, cause: Cause, sink: &mut Sink) {
    let answer = match cause {
        Cause::First => Answer::May,
        Cause::LeaseExpired => lease_expired(pair, delivery),
        Cause::Nacked => nacked(pair, delivery),
        Cause::Redriven | Cause::Replayed | Cause::Released | Cause::ConsumerLost if !pair.context.is_complete => {
            // An operator's record, or another message's, that is read later may still justify it.
            sink.is_open = true;
            Answer::NotKnown
        }
        Cause::Redriven | Cause::Replayed | Cause::Released | Cause::ConsumerLost if !pair.context.has_operates() => {
            Answer::NotKnown
        }
        Cause::Redriven => operated(pair, delivery, OperateKind::Redrive, "Nobody redrove it."),
        Cause::Replayed => operated(pair, delivery, OperateKind::Replay, "Nobody moved the path back."),
        Cause::Released => released(pair, delivery),
        Cause::ConsumerLost => consumer_lost(pair, delivery),
    };
    match answer {
        Answer::May => sink.judged(Rule::FalseCause),
        Answer::NotKnown => sink.not_judged(Rule::FalseCause),
        Answer::False(why) => {
            sink.judged(Rule::FalseCause);
            let text = format!("The cause is given as {}. {why}", cause.word());
            let found = Found::new(Rule::FalseCause, text).of(pair.msg).on(pair.path);
            let followed = pair.followed(delivery);
            let settles = followed.into_iter().flat_map(|followed| pair.settles_of(followed).map(|settle| settle.at));
            sink.found(found.by(settles).by(followed.map(|followed| followed.at)).by([delivery.at]));
        }
    }
}

fn lease_expired(pair: &Pair<'_>, delivery: &Delivery) -> Answer {
    let Some(followed) = pair.followed(delivery) else { return Answer::NotKnown };
    match lease_end(pair, followed) {
        LeaseEnd::NotKnown => Answer::NotKnown,
        LeaseEnd::Shown => Answer::May,
        LeaseEnd::AtLeast(end) if delivery.span.ret < end => {
            Answer::False("The lease before it certainly had not run out.")
        }
        LeaseEnd::AtLeast(_) => Answer::May,
    }
}

fn nacked(pair: &Pair<'_>, delivery: &Delivery) -> Answer {
    let is_nack = |kind| matches!(kind, SettleKind::Nack(NackTo::Retry | NackTo::Dead));
    let followed = pair.followed(delivery);
    if delivery.prev.is_none() && followed.is_none() {
        return Answer::NotKnown;
    }
    let has_nack = pair.settles.iter().any(|settle| {
        let is_of_it = match (settle.delivery_id, delivery.prev, followed) {
            (Some(named), Some(prev), _) => named == prev,
            (_, _, Some(followed)) => crate::pair::names(settle, followed),
            _ => settle.delivery_id.is_none(),
        };
        is_nack(settle.kind) && settle.may_hold() && is_of_it && settle.span.may_precede(&delivery.span)
    });
    if has_nack { Answer::May } else { Answer::False("Nobody nacked the delivery before it.") }
}

fn operated(pair: &Pair<'_>, delivery: &Delivery, kind: OperateKind, why: &'static str) -> Answer {
    let mut acts = pair.context.operates(kind, pair.path, pair.msg);
    if acts.any(|operate| operate.span.may_precede(&delivery.span)) { Answer::May } else { Answer::False(why) }
}

fn released(pair: &Pair<'_>, delivery: &Delivery) -> Answer {
    let followed = certainly_followed(pair, delivery);
    let is_given_back = pair.settles.iter().any(|settle| {
        settle.kind == SettleKind::Nack(NackTo::Release)
            && settle.may_hold()
            && settle.span.may_precede(&delivery.span)
            && (settle.delivery_id.is_none() || settle.delivery_id == delivery.prev || delivery.prev.is_none())
    });
    let is_gone = is_gone(pair, followed, delivery, &[OperateKind::Leave, OperateKind::Revoke]);
    // What a broker holds back at a resume, because too little of its lease is left to be sent again, is given back.
    if is_given_back || is_gone || has_fault_since(pair, delivery) {
        return Answer::May;
    }
    let before = followed.or_else(|| pair.latest_before(delivery).filter(|_| delivery.prev.is_none()));
    if before.is_some_and(|before| is_behind_failed(pair, before)) {
        return Answer::May;
    }
    // What never arrived came to nobody knows whom, with nobody knows what, once the lease before it had ended.
    let may_be_of_unseen = followed.is_none() && before.is_none_or(|before| may_be_over(pair, before, delivery));
    if may_be_of_unseen {
        return Answer::NotKnown;
    }
    Answer::False(
        "Nobody gave it back or left, nothing was made to fail, and no earlier message of its key failed in the same Deliver.",
    )
}

fn consumer_lost(pair: &Pair<'_>, delivery: &Delivery) -> Answer {
    if has_fault_since(pair, delivery)
        || is_gone(pair, certainly_followed(pair, delivery), delivery, &[OperateKind::Leave])
    {
        return Answer::May;
    }
    Answer::False("No consumer left, and nothing was made to fail meanwhile.")
}

/// Whether something was made to fail since the delivery before.
fn has_fault_since(pair: &Pair<'_>, delivery: &Delivery) -> bool {
    let since = pair.followed(delivery).or_else(|| pair.latest_before(delivery)).map_or(0, |before| before.span.call);
    pair.context.has_fault_between(since, delivery.span.ret)
}

/// The delivery before this one, unless one that never arrived may lie between.
fn certainly_followed<'a>(pair: &Pair<'a>, delivery: &Delivery) -> Option<&'a Delivery> {
    if pair.may_follow_unseen(delivery) { None } else { pair.followed(delivery) }
}

/// Whether the consumer that held it, or any if that is not known, left or lost it before this delivery.
fn is_gone(pair: &Pair<'_>, followed: Option<&Delivery>, delivery: &Delivery, kinds: &[OperateKind]) -> bool {
    kinds.iter().any(|kind| {
        pair.context.operates(*kind, pair.path, pair.msg).any(|operate| {
            let is_holder = match (operate.client, followed) {
                (Some(client), Some(followed)) => client == followed.client,
                (None, _) | (_, None) => true,
            };
            is_holder
                && operate.span.may_precede(&delivery.span)
                && followed.is_none_or(|followed| followed.span.may_precede(&operate.span))
        })
    })
}
