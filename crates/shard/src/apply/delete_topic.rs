//! `DeleteTopic`: ends one life of a topic, with its paths. Its name can be used again, for another incarnation.

use crate::effect::Effect;
use crate::outcome::Outcome;
use crate::state::State;
use mortarmq_types::Partition;

pub(super) fn apply(state: &mut State, name: &str, effects: &mut Vec<Effect>) -> Outcome {
    let Some((incarnation, _)) = state.topic_by_name(name) else {
        return Outcome::TopicDeleted { topic: None };
    };
    state.names.remove(&name.to_ascii_lowercase());
    let topic = state.topics.remove(&incarnation).expect("invariant 1: a name refers to a topic");
    state.partitions_total -= topic.partitions.len();
    state.producer_entries -= topic.producers.entries();
    for id in topic.paths.values() {
        let path = state.paths.remove(id).expect("invariant 1: a topic refers to its paths");
        for number in 0..path.partitions.len() {
            let partition = Partition::from_index(number);
            state.timers.set((*id, partition), None);
        }
        effects.push(Effect::PathDeleted(*id));
    }
    effects.push(Effect::TopicDeleted(incarnation));
    Outcome::TopicDeleted { topic: Some(incarnation) }
}
