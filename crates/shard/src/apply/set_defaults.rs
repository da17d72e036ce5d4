//! `SetDefaults`: the first leader writes the cluster's initial values; a later one changes nothing.

use crate::effect::Effect;
use crate::outcome::Outcome;
use crate::settings::Defaults;
use crate::state::State;

pub(super) fn apply(state: &mut State, defaults: Defaults, effects: &mut Vec<Effect>) -> Outcome {
    if state.defaults.is_none() {
        effects.push(Effect::SegmentBytes(defaults.segment_max_bytes));
        state.defaults = Some(defaults);
    }
    Outcome::Done
}
