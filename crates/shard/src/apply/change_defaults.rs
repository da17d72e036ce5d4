//! `ChangeDefaults`: other initial values of the cluster. They count for topics and groups made from then on, and for the bounds
//! of the shard at once: what is beyond a smaller bound stays, and nothing is added to it.

use crate::defaults::{DefaultKey, Defaults, DefaultsPatch};
use crate::effect::Effect;
use crate::outcome::Outcome;
use crate::state::State;

pub(super) fn apply(state: &mut State, patch: &DefaultsPatch, effects: &mut Vec<Effect>) -> Outcome {
    let defaults = state.defaults.get_or_insert(Defaults::BUILD);
    for (key, value) in &patch.values {
        defaults.set(*key, *value);
        if *key == DefaultKey::SegmentMaxBytes {
            effects.push(Effect::SegmentBytes(*value));
        }
    }
    Outcome::Changed
}
