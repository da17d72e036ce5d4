//! `DeleteGroup`: ends a path. What it owed is dropped with it, and its name can be used again, for another path.
//!
//! Its counters go with it, as those of a deleted topic do. The ledger, which the topic keeps, is told of everything that was
//! never offered and of what was as far as the steps reach.

use super::moves::{self, Steps};
use super::{delayed, trim};
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
    let left = moves::left_of(state.topics[&path.topic].partitions.len());
    Outcome::Moved { replayed: 0, dropped: end(state, id, left, effects), is_partial: false }
}

/// Ends a path that exists, and says how many messages it still owed. The ledger is told of as many of those that were offered
/// as there are steps left.
pub(super) fn end(state: &mut State, id: PathId, left: u32, effects: &mut Vec<Effect>) -> u64 {
    state.uncount(id);
    let path = state.paths.get_mut(&id).expect("looked up by the caller");
    let mut partitions = std::mem::take(&mut path.partitions);
    let (incarnation, group) = (path.topic, path.group.clone());
    let count = state.topics[&incarnation].partitions.len();
    if path.counts(&state.topics[&incarnation]) {
        state.paths_total -= 1;
        state.path_partitions_total -= count;
    }
    let mut steps = Steps { left, ..Steps::default() };
    let (mut dropped, mut held) = (0, Vec::new());
    for number in 0..count {
        let partition = partitions.take(number);
        let sources: Vec<Seq> = partition.sources().map(|(_, source)| source).collect();
        state.unpin(incarnation, Partition::from_index(number), &sources);
        let found = &state.topics[&incarnation].partitions[number];
        held.extend(partition.lowest_offered().filter(|seq| *seq < found.kept.first_seq).map(|_| number));
        dropped +=
            partition.delete(found.last_seq, &found.facts(), &mut steps.left, &mut steps.moved, &mut steps.ended);
        let number = Partition::from_index(number);
        state.timers.set(incarnation, (id, number), None);
        steps.book(state, id, number, effects);
    }
    state.paths.remove(&id);
    state.idle.set(incarnation, id, None);
    let topic = topic_of(&mut state.topics, incarnation).expect("invariant 1: a path's topic exists");
    topic.paths.remove(&group);
    for number in 0..count {
        delayed::forget_without(state, incarnation, number);
    }
    // Not all leases that end are told: the steps may have ended before.
    for number in held {
        trim::let_go(state, incarnation, Partition::from_index(number), effects);
    }
    effects.push(Effect::PathDeleted(id));
    dropped
}
