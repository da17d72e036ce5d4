//! What operators change of settings, and topics that they delete: proposed once a read index is confirmed, and answered with
//! what there is when it is applied.

use mortarmq_shard::command::{ChangeGroup, ChangeTopic};
use mortarmq_shard::settings::Scope;
use mortarmq_shard::{Command, DefaultsPatch, Outcome, Refusal};
use mortarmq_types::{NodeId, PathId, Position, TopicIncarnation};

use crate::acts::unknown_group;
use crate::config::Now;
use crate::node::Node;
use crate::open_batch::WaiterKind;
use crate::options;
use crate::queries::unknown_topic;
use crate::refusal::failure;
use crate::reply::{Failure, QueryAnswer};
use crate::request::Act;
use crate::views::{defaults, groups, topics};

/// A change that is under way.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A topic gets other settings.
    Topic { topic: TopicIncarnation },
    /// A group gets other settings.
    Group { path: PathId },
    /// A topic goes.
    Delete { name: String },
    /// The cluster gets other initial values.
    Defaults,
}

impl Node {
    /// Proposes a change; says whether the act is one.
    pub(crate) fn propose_change(&mut self, query: u64, act: &Act) -> bool {
        let prepared = match act {
            Act::ChangeTopic { topic, settings } => self.topic_change(topic, settings),
            Act::ChangeGroup { topic, group, settings } => self.group_change(topic, group, settings),
            Act::DeleteTopic { name } => {
                let command = Command::DeleteTopic { name: name.clone() };
                Ok((command, Change::Delete { name: name.clone() }))
            }
            Act::ChangeDefaults { values } => match DefaultsPatch::from_json(values) {
                Ok(patch) => Ok((Command::ChangeDefaults(patch), Change::Defaults)),
                Err(error) => Err(options::refused(error)),
            },
            Act::Purge { .. }
            | Act::Seek { .. }
            | Act::SeekTime { .. }
            | Act::DeleteGroup { .. }
            | Act::Letters(_)
            | Act::HandOver { .. }
            | Act::Readmit { .. } => return false,
        };
        match prepared {
            Ok((command, change)) => {
                self.open.add(&command, WaiterKind::Change { query, change: Box::new(change) });
            }
            Err(failure) => self.reply(query, Err(failure)),
        }
        true
    }

    fn topic_change(&self, name: &str, settings: &options::Settings) -> Result<(Command, Change), Failure> {
        let settings = options::change(settings, Scope::Topic)?;
        let (topic, _) = self.shard.state().topic_by_name(name).ok_or_else(|| unknown_topic(name))?;
        Ok((Command::ChangeTopic(ChangeTopic { topic, settings }), Change::Topic { topic }))
    }

    fn group_change(
        &self,
        name: &str,
        group: &str,
        settings: &options::Settings,
    ) -> Result<(Command, Change), Failure> {
        let settings = options::change(settings, Scope::Group)?;
        let (_, topic) = self.shard.state().topic_by_name(name).ok_or_else(|| unknown_topic(name))?;
        let path = topic.paths.get(group).copied().ok_or_else(|| unknown_group(name, group))?;
        Ok((Command::ChangeGroup(ChangeGroup { path, settings }), Change::Group { path }))
    }

    /// The command of a change is applied.
    pub(crate) fn change_applied(&mut self, query: u64, change: Change, outcome: Outcome, position: Position) {
        let answer = match (outcome, change) {
            (Outcome::Refused(refusal), _) => Err(failure(&refusal)),
            (Outcome::TopicDeleted { topic: None }, Change::Delete { name }) => Err(unknown_topic(&name)),
            (_, Change::Delete { .. }) => Ok(QueryAnswer::Done),
            (_, Change::Defaults) => Ok(QueryAnswer::Defaults(defaults::view(self.shard.state()))),
            (_, Change::Topic { topic }) => self.topic_as_it_is(topic),
            (_, Change::Group { path }) => self.group_as_it_is(path),
        };
        self.reply_at(query, position, answer);
    }

    /// The settings of a path changed: its sessions follow.
    pub(crate) fn follow_settings(&mut self, now: Now, path: PathId) {
        if let Some(found) = self.shard.state().paths.get(&path) {
            self.sessions.change(path, &found.settings, now.monotonic);
        }
    }

    /// Whatever came after the change in its batch, too: it may be gone again.
    fn topic_as_it_is(&self, id: TopicIncarnation) -> Result<QueryAnswer, Failure> {
        let state = self.shard.state();
        let topic = state.topics.get(&id).ok_or_else(|| failure(&Refusal::UnknownTopic))?;
        Ok(QueryAnswer::Topic(topics::describe(state, id, topic, self.office.leader.map(NodeId::get))))
    }

    fn group_as_it_is(&self, path: PathId) -> Result<QueryAnswer, Failure> {
        let state = self.shard.state();
        let found = state.paths.get(&path).ok_or_else(|| failure(&Refusal::UnknownGroup))?;
        Ok(QueryAnswer::Group(groups::group(state, found)))
    }
}
