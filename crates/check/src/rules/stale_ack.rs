//! `stale-ack`: an ok ack of a delivery though another of the pair certainly came after it and before the ack.
//!
//! Not if these two are a double lease, which is found by itself, or an earlier ack of the same delivery may have settled it:
//! a settle may be answered ok again.
//!
//! # Source
//! P5, P6; failure rule 7. An ack names the delivery, so that a delayed one cannot settle a later attempt.

use super::Rule;
use crate::finding::{Found, Sink};
use crate::lease::certainly_overlap;
use crate::operation::{Delivery, Settle};
use crate::pair::{Case, Pair};

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    for pair in &case.pairs {
        for ack in pair.settles.iter().copied().filter(|settle| settle.is_ok_ack()) {
            match ack.delivery_id {
                Some(id) => {
                    sink.judged(Rule::StaleAck);
                    if let Some(held) = pair.find(id) {
                        judge_ack(pair, held, ack, sink);
                    }
                }
                None => sink.not_judged(Rule::StaleAck),
            }
        }
    }
}

fn judge_ack(pair: &Pair<'_>, held: &Delivery, ack: &Settle, sink: &mut Sink) {
    let between = pair.deliveries.iter().copied().find(|other| {
        held.span.certainly_before(&other.span)
            && other.span.certainly_before(&ack.span)
            && certainly_overlap(pair, held, other) != Some(true)
            && !may_be_settled(pair, held, ack, other)
    });
    if let Some(between) = between {
        let text = "An ack of a delivery was answered ok after the message had been given to another.".to_owned();
        let found = Found::new(Rule::StaleAck, text).of(pair.msg).on(pair.path);
        sink.found(found.by([held.at, between.at, ack.at]));
    }
}

/// Whether an earlier ack of the same delivery may have settled it before the other delivery.
fn may_be_settled(pair: &Pair<'_>, held: &Delivery, ack: &Settle, other: &Delivery) -> bool {
    pair.settles_of(held).any(|earlier| {
        earlier.at != ack.at
            && earlier.may_ack()
            && earlier.span.may_precede(&ack.span)
            && earlier.span.may_precede(&other.span)
    })
}
