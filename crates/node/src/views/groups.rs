//! The groups of a topic: `GET /v1/topics/{topic}/groups`.

use mortarmq_shard::settings::Scope;
use mortarmq_shard::{Path, Setting, State, Topic};
use serde::Serialize;

use super::stats::{GroupStats, group_stats};

/// All groups of a topic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupsView {
    /// By name.
    pub groups: Vec<GroupView>,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupView {
    /// Its counters, as in `/stats`.
    #[serde(flatten)]
    pub stats: GroupStats,
    /// Its settings.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// Its members.
    pub members: Vec<MemberView>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberView {
    /// The member, 16 hex digits.
    pub member: String,
    /// Messages it holds by pushes.
    pub held_messages: u32,
    /// Bytes it holds by pushes.
    pub held_bytes: u64,
}

pub(crate) fn view(state: &State, topic: &Topic) -> GroupsView {
    GroupsView { groups: topic.paths.values().map(|id| group(state, &state.paths[id])).collect() }
}

pub(crate) fn group(state: &State, path: &Path) -> GroupView {
    let settings = Setting::ALL
        .iter()
        .filter(|setting| setting.scope() == Scope::Group)
        .map(|setting| (setting.key().to_owned(), setting.show(path.settings.get(*setting))))
        .collect();
    let members = path
        .members
        .iter()
        .map(|(id, member)| MemberView {
            member: format!("{:016x}", id.get()),
            held_messages: member.held_messages,
            held_bytes: member.held_bytes,
        })
        .collect();
    GroupView { stats: group_stats(state, path), settings, members }
}
