//! `SetDefaults`: the first leader writes the cluster's initial values; a later one changes nothing.

use crate::outcome::Outcome;
use crate::settings::Defaults;
use crate::state::State;

pub(super) fn apply(state: &mut State, defaults: Defaults) -> Outcome {
    state.defaults.get_or_insert(defaults);
    Outcome::Done
}
