//! `CreateTopic`: makes a topic, or compares the settings that are given with those of the one that exists.

use crate::command::CreateTopic;
use crate::facts::FactWindow;
use crate::idempotency::Keys;
use crate::names::check_name;
use crate::outcome::{Outcome, Refusal};
use crate::producer::Producers;
use crate::retention::Kept;
use crate::schedule::Schedule;
use crate::settings::{Setting, TopicSettings};
use crate::state::{PARTITIONS_MAX, PartitionState, State, Topic};
use imbl::OrdMap;
use mortarmq_types::{Seq, TopicIncarnation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Facts kept per partition: as many messages as a path may have passed over by default.
pub(super) const FACTS_MAX: usize = 65_536;

pub(super) fn apply(state: &mut State, create: CreateTopic) -> Outcome {
    if let Err(error) = check_name(&create.name) {
        return Outcome::Refused(Refusal::Name(error));
    }
    let lower = create.name.to_ascii_lowercase();
    if let Some(incarnation) = state.names.get(&lower) {
        let topic = &state.topics[incarnation];
        if topic.name != create.name {
            return Outcome::Refused(Refusal::NameCase { existing: topic.name.clone() });
        }
        let differences = create.settings.differences(|setting| topic.settings.get(setting));
        if !differences.is_empty() {
            return Outcome::Refused(Refusal::TopicMismatch { differences });
        }
        return Outcome::TopicDeclared { topic: *incarnation, partitions: count(topic), existed: true };
    }
    let settings = TopicSettings::new(&state.defaults().settings, &create.settings);
    let partitions = usize::try_from(settings.get(Setting::Partitions)).expect("at most 1024 partitions");
    if state.partitions_total + partitions > PARTITIONS_MAX {
        return Outcome::Refused(Refusal::CatalogQuota { what: "partitions", limit: PARTITIONS_MAX });
    }
    state.partitions_total += partitions;
    let topic = insert(state, create.name, settings);
    Outcome::TopicDeclared { topic, partitions: count(&state.topics[&topic]), existed: false }
}

/// Makes a topic whose name and settings were judged.
pub(super) fn insert(state: &mut State, name: String, settings: TopicSettings) -> TopicIncarnation {
    let partitions = usize::try_from(settings.get(Setting::Partitions)).expect("at most 1024 partitions");
    state.last_topic = state.last_topic.next();
    // All begin as one: a partition is made when its first message comes.
    let empty = Arc::new(empty_partition(FACTS_MAX));
    let topic = Topic {
        name,
        settings,
        created_epoch: state.epoch,
        created_at: state.wall,
        partitions: vec![empty; partitions],
        paths: BTreeMap::new(),
        producers: Producers::default(),
        keys: Keys::default(),
        round_robin: 0,
        facts: 0,
        delayed: 0,
    };
    state.names.insert(topic.name.to_ascii_lowercase(), state.last_topic);
    state.topics.insert(state.last_topic, Arc::new(topic));
    state.last_topic
}

/// A partition without messages.
pub(super) fn empty_partition(facts_max: usize) -> PartitionState {
    let (facts, schedule) = (FactWindow::new(facts_max), Schedule::default());
    PartitionState { last_seq: Seq::ZERO, bytes: 0, facts, schedule, pins: OrdMap::new(), kept: Kept::default() }
}

fn count(topic: &Topic) -> u16 {
    u16::try_from(topic.partitions.len()).expect("at most 1024 partitions")
}
