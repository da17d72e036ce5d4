//! `DeleteTopic`: ends one life of a topic, with its paths and its dead letters. Its name can be used again at once, for
//! another incarnation.
//!
//! However much hangs on it, that is one step: from this command on nothing of it is found, counted, or due. What it takes in
//! memory is given back afterwards, piece by piece (see [`crate::state::paths`]).

use crate::effect::Effect;
use crate::names::is_reserved;
use crate::outcome::{Outcome, Refusal};
use crate::state::State;
use mortarmq_types::TopicIncarnation;

pub(super) fn apply(state: &mut State, name: &str, effects: &mut Vec<Effect>) -> Outcome {
    let Some((incarnation, topic)) = state.topic_by_name(name) else {
        return Outcome::TopicDeleted { topic: None };
    };
    if is_reserved(name) {
        return Outcome::Refused(Refusal::DeadLetterTopic);
    }
    let partitions = topic.partitions.len();
    let dead_letters = state.dead_letters_of(incarnation);
    state.partitions_total -= partitions;
    remove(state, incarnation, effects);
    if let Some(dead_letters) = dead_letters {
        remove(state, dead_letters, effects);
    }
    Outcome::TopicDeleted { topic: Some(incarnation) }
}

fn remove(state: &mut State, incarnation: TopicIncarnation, effects: &mut Vec<Effect>) {
    let topic = state.unlink(incarnation);
    state.producer_entries -= topic.producers.entries();
    state.entries.keys -= topic.keys.len();
    state.entries.facts -= topic.facts;
    state.delayed -= topic.delayed;
    let paths = topic.counted_paths();
    state.paths_total -= paths;
    state.path_partitions_total -= paths * topic.partitions.len();
    effects.push(Effect::TopicDeleted(incarnation));
}
