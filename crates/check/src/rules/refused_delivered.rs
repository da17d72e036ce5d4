//! `refused-delivered`: delivered although its only publishes were refused.
//!
//! # Source
//! P2: refusal is final.

use super::Rule;
use crate::finding::{Found, Sink};
use crate::operation::Outcome;
use crate::pair::Case;

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    if case.publishes.is_empty() {
        return;
    }
    sink.judged(Rule::RefusedDelivered);
    if case.publishes.iter().any(|publish| publish.outcome != Outcome::Refused) {
        return;
    }
    for pair in &case.pairs {
        let Some(delivery) = pair.deliveries.first() else { continue };
        let text = "Every publish of it was refused, and it was delivered.".to_owned();
        let found = Found::new(Rule::RefusedDelivered, text).of(case.msg).on(pair.path);
        sink.found(found.by(case.publishes.iter().map(|publish| publish.at)).by([delivery.at]));
    }
}
