//! `no-linearization`: no order of the pair's operations walks the contract's states, and no other rule names the message.
//!
//! # Source
//! The life of a pair; see [`crate::search`].

use super::Rule;
use crate::finding::{Found, Sink};
use crate::operation::Publish;
use crate::pair::{Case, Pair};
use crate::search::{Answer, find_order, steps};

/// Judges one message that no other rule names.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    for pair in case.pairs.iter().filter(|pair| !pair.deliveries.is_empty()) {
        if !pair.is_one {
            sink.not_judged(Rule::NoLinearization);
            continue;
        }
        if is_excused(pair) {
            sink.not_judged(Rule::NoLinearization);
            sink.excused += 1;
            continue;
        }
        judge_pair(case, pair, sink);
    }
}

fn judge_pair(case: &Case<'_>, pair: &Pair<'_>, sink: &mut Sink) {
    let is_letter = pair.info.is_dead_letters || pair.deliveries.iter().any(|delivery| delivery.origin.is_some());
    let publishes: &[&Publish] = if is_letter || case.is_ambiguous { &[] } else { &case.publishes };
    match find_order(pair, publishes, case.context.options.search_steps) {
        Answer::Order => sink.judged(Rule::NoLinearization),
        Answer::GivenUp => {
            sink.not_judged(Rule::NoLinearization);
            sink.given_up += 1;
        }
        Answer::NoOrder => {
            sink.judged(Rule::NoLinearization);
            let text = "No order of its operations is one that the contract allows.".to_owned();
            let places = steps(pair, publishes).into_iter().map(|step| match step {
                crate::search::Step::Publish(publish) => publish.at,
                crate::search::Step::Delivery(delivery, _) => delivery.at,
                crate::search::Step::Settle(settle) => settle.at,
            });
            sink.found(Found::new(Rule::NoLinearization, text).of(pair.msg).on(pair.path).by(places));
        }
    }
}

/// Whether the contract lets an acked pair come again, and this one did, inside the window of a fault.
fn is_excused(pair: &Pair<'_>) -> bool {
    let acks = pair.settles.iter().filter(|settle| settle.may_ack());
    acks.into_iter().any(|ack| {
        pair.deliveries.iter().any(|delivery| {
            ack.span.may_precede(&delivery.span)
                && Some(delivery.id) != Some(ack.delivery_id).filter(Option::is_some)
                && pair.deliveries.len() > 1
                && pair.context.excuse(pair.path, &delivery.span).is_some()
        })
    })
}
