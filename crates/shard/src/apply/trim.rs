//! `Trim`: the oldest messages of a partition go, as far as its topic's settings permit at this moment (P4).
//!
//! A path that owes some of them drops them first, by reason `retention`; then nothing is kept below the lowest bound of all
//! paths. A path, a message that was offered, and a delayed message are a step each. What the steps do not reach stays as it
//! was, for the next command; there is no state between two of them.
//!
//! The records go with their files, once nobody needs them: a live lease, and a redriven message whose bytes they are, hold
//! back the files, not the trim.

use super::deliver;
use super::moves::Steps;
use crate::command::{STEPS_MAX, Trim};
use crate::effect::Effect;
use crate::outcome::{Outcome, Refusal};
use crate::state::{State, topic_of};
use mortarmq_delivery::Ended;
use mortarmq_types::{Partition, PathId, Seq, TopicIncarnation};

pub(super) fn apply(state: &mut State, trim: Trim, effects: &mut Vec<Effect>) -> Outcome {
    let Some(topic) = state.topics.get(&trim.topic) else { return Outcome::Refused(Refusal::UnknownTopic) };
    let number = trim.partition.index();
    if number >= topic.partitions.len() {
        let partitions = u16::try_from(topic.partitions.len()).expect("at most 1024 partitions");
        return Outcome::Refused(Refusal::UnknownPartition { requested: trim.partition, partitions });
    }
    let Some(target) = state.trim_target(trim.topic, trim.partition, state.time) else { return Outcome::Done };
    let below = target.min(trim.below);
    let mut steps = Steps { left: STEPS_MAX, ..Steps::default() };
    let paths: Vec<PathId> = state.topics[&trim.topic].paths.values().copied().collect();
    let mut lowest = below;
    for id in paths {
        pass(state, id, trim.partition, below, &mut steps, effects);
        lowest = lowest.min(state.paths[&id].partitions[number].kept_from());
    }
    deliver::forget_facts(state, trim.topic, number);
    raise(state, trim.topic, trim.partition, lowest, &mut steps.left, effects);
    Outcome::Done
}

/// The deliveries of a path ended: where retention had passed one of their messages, its record may go now.
pub(super) fn lease_ended(state: &State, id: PathId, partition: Partition, ended: &[Ended], effects: &mut Vec<Effect>) {
    let topic = state.paths[&id].topic;
    let kept = state.topics[&topic].partitions[partition.index()].kept.first_seq;
    if ended.iter().any(|end| end.seq < kept) {
        let_go(state, topic, partition, effects);
    }
}

/// Redriven messages were settled by this batch: where retention had passed one of their dead letters, its record may go now.
pub(super) fn let_unpinned_go(state: &mut State, effects: &mut Vec<Effect>) {
    for (topic, partition) in std::mem::take(&mut state.unpinned) {
        if let Some(below) = state.needed_from(topic, partition) {
            effects.push(Effect::Trim { topic, partition, below });
        }
    }
}

/// Lets go of the records that nobody needs.
pub(super) fn let_go(state: &State, topic: TopicIncarnation, partition: Partition, effects: &mut Vec<Effect>) {
    let below = state.needed_from(topic, partition).expect("the caller names a partition that exists");
    effects.push(Effect::Trim { topic, partition, below });
}

/// Drops what a path owes below a sequence, as far as the steps reach.
fn pass(state: &mut State, id: PathId, partition: Partition, below: Seq, steps: &mut Steps, effects: &mut Vec<Effect>) {
    let path = state.paths.get_mut(&id).expect("invariant 1: a topic refers to its paths");
    let found = &state.topics[&path.topic].partitions[partition.index()];
    let here = &path.partitions[partition.index()];
    if here.kept_from() >= below || here.is_moving() || steps.left == 0 {
        return;
    }
    steps.left -= 1;
    let passed = path.partitions.make(partition.index());
    passed.trim(below, found.last_seq, &found.facts(), &mut steps.left, &mut steps.moved);
    state.retime(id, partition);
    if !steps.moved.is_empty() {
        steps.book(state, id, partition, effects);
        effects.push(Effect::PathMoved(id));
    }
}

/// Nothing below a sequence is kept any more. What is delayed there leaves the schedule, as far as the steps reach.
fn raise(
    state: &mut State,
    id: TopicIncarnation,
    partition: Partition,
    below: Seq,
    steps: &mut u32,
    effects: &mut Vec<Effect>,
) {
    let topic = topic_of(&mut state.topics, id).expect("looked up by the caller");
    let found = topic.partition_mut(partition.index()).expect("looked up by the caller");
    let (mut first_seq, mut gone) = (below, 0);
    while let Some(at) = found.schedule.first_among(Seq::ZERO..below) {
        if *steps == 0 {
            first_seq = at.seq;
            break;
        }
        *steps -= 1;
        found.schedule.forget(at);
        state.delayed -= 1;
        gone += 1;
    }
    let is_raised = first_seq > found.kept.first_seq;
    if is_raised {
        found.kept.raise_to(first_seq, found.last_seq, found.bytes);
    }
    topic.delayed -= gone;
    state.retime_delays(id, partition);
    if is_raised {
        let_go(state, id, partition, effects);
    }
}
