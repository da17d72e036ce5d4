//! `attempts`: attempts are counted wrongly, or there are more than the path allows.
//!
//! # Source
//! The life of a pair: an attempt starts at 1, grows by one after `lease_expired`, `nacked` and `consumer_lost`, stays
//! after `released`, and starts again at 1 after `redriven` and `replayed`.

use super::Rule;
use crate::context::Field;
use crate::finding::{Found, Sink};
use crate::operation::{Cause, Delivery, is_brought_back};
use crate::pair::{Case, Pair};

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    for pair in &case.pairs {
        for delivery in &pair.deliveries {
            let Some(attempt) = delivery.attempt else {
                if pair.info.gives(Field::Attempt, delivery) {
                    found(pair, delivery, None, "The attempt is missing.".to_owned(), sink);
                } else {
                    sink.not_judged(Rule::Attempts);
                }
                continue;
            };
            judge_attempt(pair, delivery, attempt, sink);
        }
    }
}

fn judge_attempt(pair: &Pair<'_>, delivery: &Delivery, attempt: u64, sink: &mut Sink) {
    if let Some(limit) = pair.info.max_attempts.filter(|limit| *limit > 0 && attempt > *limit) {
        let text = format!("Attempt {attempt} was made of at most {limit}.");
        return found(pair, delivery, None, text, sink);
    }
    let Some(expected) = expected(pair, delivery) else {
        sink.not_judged(Rule::Attempts);
        return;
    };
    let is_right = match expected.amount {
        Amount::Exactly(number) => attempt == number,
        Amount::AtLeast(number) => attempt >= number,
    };
    if is_right {
        sink.judged(Rule::Attempts);
        return;
    }
    let text = match expected.amount {
        Amount::Exactly(number) => format!("This is attempt {number}, and it says {attempt}."),
        Amount::AtLeast(number) => format!("This is attempt {number} or a later one, and it says {attempt}."),
    };
    found(pair, delivery, expected.after, text, sink);
}

/// What an attempt must be, and after which delivery.
struct Expected<'a> {
    amount: Amount,
    after: Option<&'a Delivery>,
}

enum Amount {
    Exactly(u64),
    AtLeast(u64),
}

fn expected<'a>(pair: &Pair<'a>, delivery: &Delivery) -> Option<Expected<'a>> {
    let alone = |amount| Some(Expected { amount, after: None });
    if is_brought_back(delivery.cause) {
        return alone(Amount::Exactly(1));
    }
    if !pair.is_one {
        return alone(Amount::AtLeast(1));
    }
    if let Some(previous) = pair.previous(delivery) {
        if pair.hides_return(delivery) && is_perhaps_brought_back(pair, previous, delivery) {
            return alone(Amount::AtLeast(1));
        }
        let before = previous.attempt?;
        let amount = match delivery.cause {
            Some(Cause::LeaseExpired | Cause::Nacked | Cause::ConsumerLost) => Amount::Exactly(before + 1),
            Some(Cause::Released) => Amount::Exactly(before),
            Some(Cause::First | Cause::Redriven | Cause::Replayed) | None => Amount::AtLeast(before),
        };
        return Some(Expected { amount, after: Some(previous) });
    }
    let Some(latest) = pair.latest_before(delivery) else {
        // Earlier ones may have been granted and never arrived: only one that says so is certainly the first.
        let says_first = delivery.cause == Some(Cause::First) && delivery.prev.is_none();
        return alone(if says_first { Amount::Exactly(1) } else { Amount::AtLeast(1) });
    };
    if is_perhaps_brought_back(pair, latest, delivery) {
        return alone(Amount::AtLeast(1));
    }
    let before = latest.attempt?;
    let amount = match delivery.cause {
        // One that never arrived may lie between, so it may have grown by more.
        Some(Cause::LeaseExpired | Cause::Nacked | Cause::ConsumerLost) => Amount::AtLeast(before + 1),
        _ => Amount::AtLeast(before),
    };
    Some(Expected { amount, after: Some(latest) })
}

/// Whether an operator may have brought the pair back between two deliveries, for one that never arrived.
fn is_perhaps_brought_back(pair: &Pair<'_>, earlier: &Delivery, later: &Delivery) -> bool {
    pair.has_return(|operate| earlier.span.may_precede(operate) && operate.may_precede(&later.span))
}

fn found(pair: &Pair<'_>, delivery: &Delivery, after: Option<&Delivery>, text: String, sink: &mut Sink) {
    sink.judged(Rule::Attempts);
    let found = Found::new(Rule::Attempts, text).of(pair.msg).on(pair.path);
    sink.found(found.by(after.map(|after| after.at)).by([delivery.at]));
}
