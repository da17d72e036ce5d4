//! Topics are declared and deleted.

use super::{Model, Seen, Topic, Verdict, allowed};
use mortarmq_shard::command::CreateTopic;
use mortarmq_shard::{Outcome, Refusal, TopicSettings};
use mortarmq_types::TopicIncarnation;

impl Model {
    pub(super) fn create_topic(&mut self, create: &CreateTopic, seen: &Seen<'_>) -> Verdict {
        if create.name.is_empty() || create.name.starts_with('$') {
            allowed!(matches!(seen.outcome, Outcome::Refused(Refusal::Name(_))), "the name is not a client's");
            return Ok(());
        }
        let alike = |topic: &&Topic| topic.name.eq_ignore_ascii_case(&create.name);
        if let Some(topic) = self.topics.values().find(alike) {
            if topic.name != create.name {
                return seen.expect(&Outcome::Refused(Refusal::NameCase { existing: topic.name.clone() }));
            }
            if create.settings.values.iter().any(|(setting, value)| topic.settings.get(*setting) != *value) {
                allowed!(
                    matches!(seen.outcome, Outcome::Refused(Refusal::TopicMismatch { .. })),
                    "its settings are others"
                );
                return Ok(());
            }
        }
        let found = self.topics.iter().find(|(_, topic)| topic.name == create.name).map(|(id, _)| *id);
        let existed = found.is_some();
        let settings = TopicSettings::new(&self.defaults().settings, &create.settings);
        let id = found.unwrap_or_else(|| self.add_topic(Topic::new(create.name.clone(), settings)));
        let partitions = u16::try_from(self.topics[&id].partitions.len()).expect("small");
        seen.expect(&Outcome::TopicDeclared { topic: id, partitions, existed })
    }

    pub(super) fn delete_topic(&mut self, name: &str, seen: &Seen<'_>) -> Verdict {
        let named =
            |name: &str, model: &Self| model.topics.iter().find(|(_, topic)| topic.name == name).map(|(id, _)| *id);
        let Some(id) = named(name, self) else { return seen.expect(&Outcome::TopicDeleted { topic: None }) };
        if name.starts_with('$') {
            return seen.expect(&Outcome::Refused(Refusal::DeadLetterTopic));
        }
        let dead_letters = named(&format!("$dlq.{name}"), self);
        for gone in [Some(id), dead_letters].into_iter().flatten() {
            self.remove_topic(gone);
        }
        seen.expect(&Outcome::TopicDeleted { topic: Some(id) })
    }

    fn remove_topic(&mut self, id: TopicIncarnation) {
        let leases = |path: &super::Path| path.partitions.iter().any(|part| part.leases().next().is_some());
        if self.paths.values().any(|path| path.topic == id && leases(path)) {
            self.reach("deletion while leased");
        }
        self.paths.retain(|_, path| path.topic != id);
        self.topics.remove(&id);
    }
}
