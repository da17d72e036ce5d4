//! `EndMember`: a session is over, because its member left or was silent too long.

use super::due;
use crate::command::{EndMember, STEPS_MAX};
use crate::effect::Effect;
use crate::outcome::{Outcome, Refusal};
use crate::state::State;
use mortarmq_types::Cause;

pub(super) fn apply(state: &mut State, end: EndMember, effects: &mut Vec<Effect>) -> Outcome {
    let Some(path) = state.path_mut(end.path) else {
        return Outcome::Refused(Refusal::UnknownGroup);
    };
    if path.members.remove(&end.member).is_none() {
        return Outcome::Refused(Refusal::UnknownMember);
    }
    state.retime_idle(end.path);
    let cause = if end.lost { Cause::ConsumerLost } else { Cause::Released };
    // What this command cannot end within its steps goes on with the next batches.
    state.ending.push_back((end.path, end.member, cause));
    effects.push(Effect::MemberEnded { path: end.path, member: end.member });
    let mut budget = STEPS_MAX;
    due::finish_ending(state, &mut budget, effects);
    Outcome::Done
}
