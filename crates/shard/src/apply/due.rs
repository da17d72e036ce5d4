//! The stamp: moves the clock, and ends what is due at it.

use super::ends;
use crate::command::{STEPS_MAX, Stamp};
use crate::effect::Effect;
use crate::state::State;
use mortarmq_types::Epoch;

/// Moves the shard's clock to the stamp and says how the stamp took effect.
///
/// A stamp never moves the clock back, and a gap is never longer than the time it lies in: leases are only ever
/// lengthened by a stamp, never shortened (P5).
pub(super) fn advance(state: &mut State, stamp: Stamp, epoch: Epoch) -> Stamp {
    let time = stamp.time.max(state.time);
    let gap_ms = stamp.gap_ms.min(time.since_ms(state.time));
    state.time = time;
    state.gaps_ms += gap_ms;
    state.wall = stamp.wall;
    state.epoch = epoch.max(state.epoch);
    if gap_ms > 0 {
        retime_all(state);
    }
    Stamp { time, gap_ms, wall: stamp.wall }
}

/// Ends what is due, at most [`STEPS_MAX`] deliveries; what is left stays due and goes on with the next batch.
pub(super) fn end_due(state: &mut State, effects: &mut Vec<Effect>) {
    let now = state.now();
    let mut budget = STEPS_MAX;
    finish_ending(state, &mut budget, effects);
    while budget > 0 {
        let Some((id, number)) = state.timers.due(state.time) else { break };
        budget -= 1;
        let path = state.paths.get_mut(&id).expect("invariant 5: timers are removed with their path");
        let rules = path.settings.rules();
        let mut ended = Vec::new();
        path.partitions[usize::from(number.get())].end_due(now, &mut budget, &rules, &mut ended);
        state.retime(id, number);
        ends::book(state, id, number, &ended, "", effects);
        // Retries may have become ready without any delivery ending.
        effects.push(Effect::PathMoved(id));
    }
}

/// Goes on ending the leases of members that are gone.
pub(super) fn finish_ending(state: &mut State, budget: &mut u32, effects: &mut Vec<Effect>) {
    let now = state.now();
    while *budget > 0 {
        let Some(&(id, member, cause)) = state.ending.front() else { return };
        let Some(path) = state.paths.get_mut(&id) else {
            state.ending.pop_front();
            continue;
        };
        let rules = path.settings.rules();
        let mut all_done = true;
        for number in 0..path.partitions.len() {
            let path = state.paths.get_mut(&id).expect("found above; ending deliveries removes no path");
            let mut ended = Vec::new();
            all_done &= path.partitions[number].end_member(member, cause, budget, &rules, now, &mut ended);
            if ended.is_empty() {
                continue;
            }
            let number = mortarmq_types::Partition::new(u16::try_from(number).expect("at most 1024 partitions"));
            state.retime(id, number);
            ends::book(state, id, number, &ended, "", effects);
        }
        if !all_done {
            return;
        }
        state.ending.pop_front();
    }
}

/// A gap moves every lease deadline, so every timer is set anew. Gaps are rare: a restart, a failover, a stall.
fn retime_all(state: &mut State) {
    let places: Vec<_> =
        state.paths.iter().flat_map(|(id, path)| (0..path.partitions.len()).map(|number| (*id, number))).collect();
    for (id, number) in places {
        state.retime(id, mortarmq_types::Partition::new(u16::try_from(number).expect("at most 1024 partitions")));
    }
}
