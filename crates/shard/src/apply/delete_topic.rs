//! `DeleteTopic`: ends one life of a topic, with its paths and its dead letters. Its name can be used again, for another
//! incarnation.

use crate::effect::Effect;
use crate::names::is_reserved;
use crate::outcome::{Outcome, Refusal};
use crate::state::State;
use mortarmq_types::{Partition, TopicIncarnation};

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
    let topic = state.topics.remove(&incarnation).expect("invariant 1: a name refers to a topic");
    state.names.remove(&topic.name.to_ascii_lowercase());
    state.producer_entries -= topic.producers.entries();
    state.entries.keys -= topic.keys.len();
    state.entries.key_ages.set(incarnation, None);
    state.entries.producer_ages.set(incarnation, None);
    for (number, partition) in topic.partitions.iter().enumerate() {
        state.entries.count_facts((incarnation, Partition::from_index(number)), partition.facts.len(), 0);
        state.delayed -= partition.schedule.len() as u64;
        state.delays.set((incarnation, Partition::from_index(number)), None);
    }
    for id in topic.paths.values() {
        state.uncount(*id);
        let path = state.paths.remove(id).expect("invariant 1: a topic refers to its paths");
        for number in 0..path.partitions.len() {
            let partition = Partition::from_index(number);
            state.timers.set((*id, partition), None);
        }
        state.idle.set(*id, None);
        effects.push(Effect::PathDeleted(*id));
    }
    effects.push(Effect::TopicDeleted(incarnation));
}
