//! `stored-twice`: one message at two places of one topic, though it was published once or with one identity.
//!
//! Dead-letter topics are left aside: a message may die more than once.
//!
//! # Source
//! P3: one producer identity and sequence is stored at most once.

use super::Rule;
use crate::context::Field;
use crate::finding::{Found, Sink};
use crate::location::Location;
use crate::operation::{Name, Position};
use crate::pair::Case;

/// Judges one message.
pub(crate) fn judge(case: &Case<'_>, sink: &mut Sink) {
    if !is_stored_once(case) {
        if !case.publishes.is_empty() {
            sink.not_judged(Rule::StoredTwice);
        }
        return;
    }
    let mut places: Vec<(Name, Position, Location)> = Vec::new();
    for publish in &case.publishes {
        places.extend(publish.position.map(|position| (publish.topic, position, publish.at)));
    }
    for pair in case.pairs.iter().filter(|pair| !pair.info.is_dead_letters) {
        // A path of an unknown topic is compared with itself alone.
        let topic = pair.info.topic.unwrap_or(pair.path);
        for delivery in pair.deliveries.iter().filter(|delivery| delivery.origin.is_none()) {
            match delivery.position {
                Some(position) => places.push((topic, position, delivery.at)),
                None if pair.info.gives(Field::Position, delivery) => {
                    let text = "Partition and sequence of a delivery are missing.".to_owned();
                    sink.found(Found::new(Rule::StoredTwice, text).of(case.msg).on(pair.path).by([delivery.at]));
                }
                None => {}
            }
        }
    }
    if places.is_empty() {
        sink.not_judged(Rule::StoredTwice);
        return;
    }
    sink.judged(Rule::StoredTwice);
    let twice = places.iter().enumerate().find_map(|(index, (topic, position, at))| {
        let other = places[..index].iter().find(|(known, place, _)| known == topic && place != position)?;
        Some([other.2, *at])
    });
    if let Some(records) = twice {
        let text = "It stands at two places of one topic, and was sent once or under one identity.".to_owned();
        sink.found(Found::new(Rule::StoredTwice, text).of(case.msg).by(records));
    }
}

/// Whether a correct broker can have stored it only once: one publish, or one identity in all, whatever the outcomes.
fn is_stored_once(case: &Case<'_>) -> bool {
    match case.publishes.as_slice() {
        [] => false,
        [_] => true,
        [first, rest @ ..] => {
            first.identity.is_some()
                && rest.iter().all(|publish| publish.identity == first.identity && publish.topic == first.topic)
        }
    }
}
