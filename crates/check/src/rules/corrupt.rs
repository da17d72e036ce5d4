//! `corrupt`: the payload's hash differs from the publish.
//!
//! # Source
//! P11: bytes that are not what was stored are never served.

use super::Rule;
use crate::context::Field;
use crate::finding::{Found, Sink};
use crate::pair::Case;

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    let sent: Vec<u64> = case.publishes.iter().filter_map(|publish| publish.hash).collect();
    let is_known = !case.publishes.is_empty() && sent.len() == case.publishes.len();
    for pair in &case.pairs {
        for delivery in &pair.deliveries {
            let text = match delivery.hash {
                _ if !is_known => None,
                Some(hash) if sent.contains(&hash) => {
                    sink.judged(Rule::Corrupt);
                    continue;
                }
                Some(_) => Some("The bytes that were delivered are not those that were published."),
                None if pair.info.gives(Field::Hash, delivery) => Some("The hash of the payload is missing."),
                None => None,
            };
            let Some(text) = text else {
                sink.not_judged(Rule::Corrupt);
                continue;
            };
            sink.judged(Rule::Corrupt);
            let found = Found::new(Rule::Corrupt, text.to_owned()).of(case.msg).on(pair.path);
            sink.found(found.by(case.publishes.iter().map(|publish| publish.at)).by([delivery.at]));
        }
    }
}
