//! `redelivered-after-ack`: a delivery certainly after an ok ack of the pair.
//!
//! Explained if this delivery, or one of the pair that may lie between the ack and it, was redriven or replayed; with the
//! contract `narad` also if it overlaps the window of a fault. A redelivery that an operator asked for may be granted and
//! never arrive; then the next one says another cause, and names it as `prev`. Where a broker gives no causes, an operator's act
//! that may lie between explains it.
//!
//! # Source
//! P6: settled is final.

use super::Rule;
use crate::finding::{Found, Sink};
use crate::operation::{Delivery, Settle, is_brought_back};
use crate::pair::{Case, Pair};
use crate::span::Span;

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    for pair in case.pairs.iter().filter(|pair| !pair.settles.is_empty()) {
        if !pair.is_one {
            sink.not_judged(Rule::RedeliveredAfterAck);
            continue;
        }
        if pair.settles.iter().any(|settle| settle.is_ok_ack()) {
            sink.judged(Rule::RedeliveredAfterAck);
            pair.deliveries.iter().for_each(|delivery| judge_delivery(pair, delivery, sink));
        }
    }
}

fn judge_delivery(pair: &Pair<'_>, delivery: &Delivery, sink: &mut Sink) {
    let acks = pair.settles.iter().copied().filter(|settle| settle.is_ok_ack());
    // Each ack is final by itself: the first that nothing explains is the finding.
    let mut explained = None;
    for ack in acks.filter(|ack| ack.span.certainly_before(&delivery.span)) {
        let explanation = explanation(pair, ack, delivery);
        let is_final = explanation.is_none();
        explained = Some((ack, explanation));
        if is_final {
            break;
        }
    }
    if let Some((ack, explanation)) = explained {
        let text = "It was delivered again after its ack had been answered ok.".to_owned();
        let mut found = Found::new(Rule::RedeliveredAfterAck, text).of(pair.msg).on(pair.path);
        sink.excused_found += u64::from(explanation.as_ref().is_some_and(|explanation| explanation.is_fault));
        found.explained = explanation.map(|explanation| explanation.text);
        let held = pair.deliveries.iter().filter(|held| ack.delivery_id.is_some() && held.id == ack.delivery_id);
        sink.found(found.by(held.map(|held| held.at)).by([ack.at, delivery.at]));
    }
}

/// What excuses a redelivery.
struct Explanation {
    text: String,
    is_fault: bool,
}

fn explanation(pair: &Pair<'_>, ack: &Settle, delivery: &Delivery) -> Option<Explanation> {
    let brought_back = pair.deliveries.iter().find(|between| {
        let is_between = between.at == delivery.at
            || (may_come_after(pair, ack, &between.span) && between.span.may_precede(&delivery.span));
        is_between && is_brought_back(between.cause)
    });
    if let Some(between) = brought_back {
        let text = format!("an operator brought it back ({})", between.cause?.word());
        return Some(Explanation { text, is_fault: false });
    }
    if is_perhaps_brought_back(pair, ack, delivery) {
        let text = "an operator may have brought it back, and no delivery that arrived says so".to_owned();
        return Some(Explanation { text, is_fault: false });
    }
    let fault = pair.context.excuse(pair.path, &delivery.span)?;
    let text = format!("it came in the window of the fault ({}) at {}", fault.kind, fault.call);
    Some(Explanation { text, is_fault: true })
}

/// Whether an operator may have brought the pair back between an ack and a delivery, without a record that says so: by a
/// delivery that never arrived, or because the broker gives no causes.
fn is_perhaps_brought_back(pair: &Pair<'_>, ack: &Settle, delivery: &Delivery) -> bool {
    let hides_return = pair.deliveries.iter().any(|between| {
        let is_between = may_come_after(pair, ack, &between.span) && between.span.may_precede(&delivery.span);
        is_between && pair.hides_return(between)
    });
    hides_return && pair.has_return(|operate| may_come_after(pair, ack, operate) && operate.may_precede(&delivery.span))
}

/// Whether something may come after what an ack says: after the ack, or after an earlier one of the same delivery whose answer
/// nobody heard. The second is answered ok again, whatever happened since.
fn may_come_after(pair: &Pair<'_>, ack: &Settle, span: &Span) -> bool {
    ack.span.may_precede(span) || (ack.delivery_id.is_some() && pair.may_have_been_said(ack, span))
}
