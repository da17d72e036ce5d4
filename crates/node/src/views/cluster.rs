//! Who belongs to the cluster, and how each stands: `GET /v1/cluster/members`.

use serde::Serialize;

/// The members of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterView {
    /// By node.
    pub members: Vec<NodeView>,
    /// Nodes whose data is gone, and that wait to be readmitted.
    pub asking: Vec<AskingView>,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeView {
    /// The node.
    pub id: u16,
    /// Which life of its data it is.
    pub incarnation: u32,
    /// `voter`; `learner`: it is brought up, neither votes nor counts; `promoting`: it votes, and not every other voter is known to know that.
    pub role: &'static str,
    /// Whether it leads.
    pub leads: bool,
    /// Whether it was heard lately by the one that leads.
    pub reached: bool,
    /// `current`, `lagging`, `silent` or `catching_up`; `leading`; absent where nobody leads that could tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// What it lacks of the log, in bytes; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_bytes: Option<u64>,
    /// What it lacks of the log, in entries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_entries: Option<u64>,
    /// For how long it was not heard, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
}

/// A node that asks to be readmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AskingView {
    /// The node.
    pub id: u16,
    /// The life that it asks as.
    pub incarnation: u32,
}
