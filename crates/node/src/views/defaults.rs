//! The initial values of the cluster: `GET /v1/defaults`.

use mortarmq_shard::{DefaultKey, State};
use serde::Serialize;

/// All initial values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DefaultsView {
    /// Key and value.
    pub defaults: serde_json::Map<String, serde_json::Value>,
}

pub(crate) fn view(state: &State) -> DefaultsView {
    let defaults = state.defaults();
    let shown = DefaultKey::all().map(|key| (key.key().to_owned(), key.show(defaults.get(key)))).collect();
    DefaultsView { defaults: shown }
}
