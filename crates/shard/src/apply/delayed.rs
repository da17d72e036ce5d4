//! Messages that fall due: their topic is told once, and forgets them when every path has passed them.

use crate::command::STEPS_MAX;
use crate::effect::Effect;
use crate::schedule::all_until;
use crate::state::{State, topic_of};
use mortarmq_types::{Partition, TopicIncarnation};

/// Tells the topics whose messages are due. A topic without groups forgets them instead: whoever comes later finds messages
/// like any other. What the budget does not reach stays due and goes on with the next batch.
pub(super) fn tell_due(state: &mut State, budget: &mut u32, effects: &mut Vec<Effect>) {
    let now = state.time;
    while *budget > 0 {
        let Some((id, number)) = state.delays.due(now) else { return };
        *budget -= 1;
        let topic = topic_of(&mut state.topics, id).expect("invariant 6: timers are removed with their topic");
        let has_paths = !topic.paths.is_empty();
        let mut gone = 0;
        let partition = topic.partition_mut(number.index()).expect("invariant 6: timers name its partitions");
        if has_paths {
            effects.push(Effect::TopicMoved(id));
        } else {
            let forgotten = partition.schedule.forget_to(all_until(now), *budget);
            *budget -= forgotten;
            state.delayed -= u64::from(forgotten);
            gone = u64::from(forgotten);
        }
        if has_paths || !partition.schedule.has_due(now) {
            partition.schedule.tell(now);
        }
        topic.delayed -= gone;
        state.retime_delays(id, number);
    }
}

/// Forgets what has fallen due for every path of a topic, at most [`STEPS_MAX`] messages.
pub(super) fn forget_passed(state: &mut State, id: TopicIncarnation, number: usize) {
    let paths = state.topics[&id].paths.values();
    let Some(lowest) = paths.map(|path| state.paths[path].partitions[number].due_position()).min() else { return };
    if state.topics[&id].partitions[number].schedule.next_after(Default::default()).is_none_or(|next| next.at > lowest)
    {
        return;
    }
    let topic = topic_of(&mut state.topics, id).expect("looked at above");
    let partition = topic.partition_mut(number).expect("looked at above");
    let gone = u64::from(partition.schedule.forget_to(lowest, STEPS_MAX));
    topic.delayed -= gone;
    state.delayed -= gone;
    state.retime_delays(id, Partition::from_index(number));
}

/// Forgets what only a path that is gone had still to see fall due. Where it was the last one, what is due is told anew, and
/// so forgotten with the next batches.
pub(super) fn forget_without(state: &mut State, id: TopicIncarnation, number: usize) {
    let found = &state.topics[&id];
    if !found.paths.is_empty() {
        return forget_passed(state, id, number);
    }
    if found.partitions[number].schedule.is_empty() {
        return;
    }
    let topic = topic_of(&mut state.topics, id).expect("looked at above");
    topic.partition_mut(number).expect("looked at above").schedule.tell_again();
    state.retime_delays(id, Partition::from_index(number));
}

#[cfg(test)]
mod tests;
