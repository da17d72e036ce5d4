//! `misroute`: delivered on a path whose topic, or source, it was not published to.
//!
//! A dead letter is at home in its dead-letter topic.
//!
//! # Source
//! P4: a message is owed on the paths of its topic.

use super::Rule;
use crate::finding::{Found, Sink};
use crate::pair::Case;

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    if case.publishes.is_empty() {
        return;
    }
    for pair in &case.pairs {
        let Some(delivery) = pair.deliveries.first() else { continue };
        if pair.info.topic.is_none() {
            sink.not_judged(Rule::Misroute);
            continue;
        }
        sink.judged(Rule::Misroute);
        let is_at_home = case.publishes.iter().any(|publish| pair.info.owes(publish.topic) == Some(true));
        let is_dead_letter = pair.info.is_dead_letters || delivery.origin.is_some();
        if !is_at_home && !is_dead_letter {
            let text = "It was delivered on a path whose topic it was not published to.".to_owned();
            let found = Found::new(Rule::Misroute, text).of(case.msg).on(pair.path);
            sink.found(found.by(case.publishes.iter().map(|publish| publish.at)).by([delivery.at]));
        }
    }
}
