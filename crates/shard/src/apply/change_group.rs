//! `ChangeGroup`: other settings for a group, for all that happens from then on.
//!
//! What is leased keeps its lease; attempts, backoff and limits are looked at when they are next needed. Another order is a
//! step for each unsettled message that was offered, and goes on with the next batches (see `follow_order` in the delivery
//! crate).

use super::moves;
use crate::command::ChangeGroup;
use crate::effect::Effect;
use crate::outcome::{Outcome, Refusal};
use crate::settings::Setting;
use crate::state::State;
use mortarmq_types::Partition;

pub(super) fn apply(state: &mut State, change: &ChangeGroup, effects: &mut Vec<Effect>) -> Outcome {
    let Some(path) = state.paths.get_mut(&change.path) else { return Outcome::Refused(Refusal::UnknownGroup) };
    let other = |(setting, _): &&(Setting, u64)| setting.is_fixed() || *setting == Setting::Partitions;
    if let Some((fixed, _)) = change.settings.values.iter().find(other) {
        return Outcome::Refused(Refusal::Fixed { key: fixed.key() });
    }
    let has_limit = change.settings.get(Setting::MaxAttempts).is_some_and(|attempts| attempts != 0);
    if has_limit && state.topics[&path.topic].holds_dead_letters() {
        return Outcome::Refused(Refusal::DeadLetterAttempts);
    }
    let expires = change.settings.get(Setting::ExpireIdleMs).is_some_and(|after_ms| after_ms != 0);
    if expires && !path.counts(&state.topics[&path.topic]) {
        return Outcome::Refused(Refusal::DeadLetterGroup);
    }
    path.settings.change(&change.settings);
    let order = path.settings.rules().order;
    let partitions: Vec<usize> = path.partitions.made().map(|(number, _)| number).collect();
    let mut left = moves::left_of(partitions.len());
    for number in partitions {
        let path = state.paths.get_mut(&change.path).expect("looked up above");
        path.partitions.make(number).follow_order(order, &mut left);
        state.retime(change.path, Partition::from_index(number));
    }
    state.retime_idle(change.path);
    // Limits may leave room now, and sessions have another time.
    effects.push(Effect::PathChanged(change.path));
    effects.push(Effect::PathMoved(change.path));
    Outcome::Changed
}
