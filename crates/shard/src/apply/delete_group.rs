//! `DeleteGroup`: ends a path. What it owed is dropped with it, and its name can be used again, for another path.
//!
//! Its counters go with it, as those of a deleted topic do. The ledger, which the topic keeps, is told of everything that was
//! never offered and of what was as far as the steps reach.

use super::delayed;
use super::moves::{self, Steps};
use crate::dead_letter::DEAD_LETTER_GROUP;
use crate::effect::Effect;
use crate::outcome::{Outcome, Refusal};
use crate::state::{State, topic_of};
use mortarmq_types::{Partition, PathId, Seq};

pub(super) fn apply(state: &mut State, id: PathId, effects: &mut Vec<Effect>) -> Outcome {
    let Some(path) = state.paths.get_mut(&id) else { return Outcome::Refused(Refusal::UnknownGroup) };
    if path.group == DEAD_LETTER_GROUP && state.topics[&path.topic].holds_dead_letters() {
        return Outcome::Refused(Refusal::DeadLetterGroup);
    }
    let partitions = std::mem::take(&mut path.partitions);
    let (incarnation, group) = (path.topic, path.group.clone());
    let mut steps = Steps { left: moves::left_of(partitions.len()), ..Steps::default() };
    let mut dropped = 0;
    for (number, partition) in partitions.into_iter().enumerate() {
        let sources: Vec<Seq> = partition.sources().map(|(_, source)| source).collect();
        state.unpin(incarnation, Partition::from_index(number), &sources);
        let found = &state.topics[&incarnation].partitions[number];
        dropped +=
            partition.delete(found.last_seq, &found.facts(), &mut steps.left, &mut steps.moved, &mut steps.ended);
        let number = Partition::from_index(number);
        state.timers.set((id, number), None);
        steps.book(state, id, number, effects);
    }
    state.paths.remove(&id);
    let topic = topic_of(&mut state.topics, incarnation).expect("invariant 1: a path's topic exists");
    topic.paths.remove(&group);
    for number in 0..topic.partitions.len() {
        delayed::forget_without(state, incarnation, number);
    }
    effects.push(Effect::PathDeleted(id));
    Outcome::Moved { replayed: 0, dropped, is_partial: false }
}
