//! The stamp: moves the clock, and ends what is due at it.

use super::moves::Steps;
use super::{delayed, delete_group, ends};
use crate::command::{STEPS_MAX, Stamp};
use crate::effect::Effect;
use crate::state::State;
use mortarmq_delivery::PathPartition;
use mortarmq_types::{MemberId, Partition, PathId};

/// Moves the shard's clock to the stamp and says how the stamp took effect.
///
/// A stamp never moves the clock back, and a gap is never longer than the time it lies in: leases are only ever
/// lengthened by a stamp, never shortened (P5).
pub(super) fn advance(state: &mut State, stamp: Stamp) -> Stamp {
    let time = stamp.time.max(state.time);
    let gap_ms = stamp.gap_ms.min(time.since_ms(state.time));
    state.time = time;
    state.gaps_ms += gap_ms;
    state.wall = stamp.wall;
    if gap_ms > 0 {
        state.retime_all();
    }
    Stamp { time, gap_ms, wall: stamp.wall }
}

/// Ends what is due and goes on with what an operator moves, at most [`STEPS_MAX`] steps; what is left stays due and goes on
/// with the next batch.
pub(super) fn end_due(state: &mut State, effects: &mut Vec<Effect>) {
    let now = state.now();
    let mut budget = STEPS_MAX;
    finish_ending(state, &mut budget, effects);
    while budget > 0 {
        let Some((_, (id, number))) = state.timers.due(state.time) else { break };
        budget -= 1;
        let path = state.paths.get_mut(&id).expect("invariant 5: timers are removed with their path");
        let found = &state.topics[&path.topic].partitions[number.index()];
        let rules = path.settings.rules();
        let mut ended = Vec::new();
        let mut steps = Steps { left: budget, ..Steps::default() };
        let partition = path.partitions.make(number.index());
        partition.go_on(&found.facts(), &mut steps.left, &mut steps.moved, &mut steps.ended);
        // The settings may ask for another order since one began.
        partition.follow_order(rules.order, &mut steps.left);
        budget = steps.left;
        partition.end_due(now, &mut budget, &rules, &mut ended);
        state.retime(id, number);
        steps.book(state, id, number, effects);
        ends::book(state, id, number, &ended, "", effects);
        // Retries may have become ready without any delivery ending.
        effects.push(Effect::PathMoved(id));
    }
    delayed::tell_due(state, &mut budget, effects);
    expire_idle(state, budget, effects);
}

/// Deletes a group that nobody has used for as long as its settings allow: one in a batch at most, as it takes what is left of
/// its steps. Whoever joins in the same batch comes too late, and makes another group.
fn expire_idle(state: &mut State, budget: u32, effects: &mut Vec<Effect>) {
    let Some((_, id)) = state.idle.due(state.time).filter(|_| budget > 0) else { return };
    let path = &state.paths[&id];
    assert!(path.members.is_empty(), "invariant 9: {id} is used and expires");
    let (topic, group) = (path.topic, path.group.clone());
    let dropped = delete_group::end(state, id, budget, effects);
    state.groups_expired += 1;
    effects.push(Effect::GroupExpired { topic, group, dropped });
}

/// Goes on ending the leases of members that are gone.
pub(super) fn finish_ending(state: &mut State, budget: &mut u32, effects: &mut Vec<Effect>) {
    let now = state.now();
    while *budget > 0 {
        let Some(&(id, member, cause)) = state.ending.front() else { return };
        let Some(path) = state.paths.get(&id) else {
            state.ending.pop_front();
            continue;
        };
        let rules = path.settings.rules();
        let partitions: Vec<usize> = path.partitions.made().map(|(number, _)| number).collect();
        let mut all_done = true;
        for number in partitions {
            let Some(partition) = held_partition(state, id, member, number) else { continue };
            let mut ended = Vec::new();
            all_done &= partition.end_member(member, cause, budget, &rules, now, &mut ended);
            if ended.is_empty() {
                continue;
            }
            let number = Partition::from_index(number);
            state.retime(id, number);
            ends::book(state, id, number, &ended, "", effects);
        }
        if !all_done {
            return;
        }
        state.ending.pop_front();
    }
}

/// What the path has in one partition, to change it; none if the member holds nothing there.
fn held_partition(state: &mut State, id: PathId, member: MemberId, number: usize) -> Option<&mut PathPartition> {
    let holds = state.paths.get(&id)?.partitions.get(number)?.holds(member);
    if holds { state.path_mut(id)?.partitions.get_mut(number) } else { None }
}
