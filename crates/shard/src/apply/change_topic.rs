//! `ChangeTopic`: other settings for a topic, and more partitions.
//!
//! The settings take effect for what happens from then on. Group keys are the defaults of groups made later; those that exist
//! keep theirs. A topic only ever gets more partitions, and its dead-letter topic grows with it: every group of both owes the
//! new ones from their first message on. That follows from there being nothing of them in the group, so no group is visited:
//! what a partition takes is a step, however many groups there are (see [`crate::state::path_partitions`]).

use super::create_topic::{FACTS_MAX, empty_partition};
use crate::command::ChangeTopic;
use crate::outcome::{Outcome, Refusal};
use crate::settings::{Setting, SettingsPatch};
use crate::state::{PARTITIONS_MAX, PATH_PARTITIONS_MAX, State, Topic, topic_of};
use mortarmq_types::TopicIncarnation;
use std::sync::Arc;

pub(super) fn apply(state: &mut State, change: &ChangeTopic) -> Outcome {
    let Some(topic) = state.topics.get(&change.topic) else { return Outcome::Refused(Refusal::UnknownTopic) };
    if let Err(refusal) = check(topic, &change.settings) {
        return Outcome::Refused(refusal);
    }
    let (have, dead_letters) = (topic.partitions.len(), state.dead_letters_of(change.topic));
    let wanted = change.settings.get(Setting::Partitions).map_or(have, |count| usize::try_from(count).unwrap_or(have));
    // Both grow, so the groups of both count.
    let groups = topic.counted_paths() + dead_letters.map_or(0, |id| state.topics[&id].counted_paths());
    if let Err(refusal) = check_room(state, groups, wanted - have) {
        return Outcome::Refused(refusal);
    }
    let topic = topic_of(&mut state.topics, change.topic).expect("looked up above");
    topic.settings.change(&change.settings);
    state.partitions_total += wanted - have;
    grow(state, change.topic, wanted);
    if let Some(dead_letters) = dead_letters {
        grow(state, dead_letters, wanted);
    }
    Outcome::Changed
}

fn check(topic: &Topic, patch: &SettingsPatch) -> Result<(), Refusal> {
    if let Some((fixed, _)) = patch.values.iter().find(|(setting, _)| setting.is_fixed()) {
        return Err(Refusal::Fixed { key: fixed.key() });
    }
    let have = topic.partitions.len() as u64;
    if topic.holds_dead_letters() {
        if patch.get(Setting::Partitions).is_some_and(|wanted| wanted != have) {
            return Err(Refusal::DeadLetterPartitions);
        }
        if patch.get(Setting::MaxAttempts).is_some_and(|attempts| attempts != 0) {
            return Err(Refusal::DeadLetterAttempts);
        }
    }
    match patch.get(Setting::Partitions) {
        Some(asked) if asked < have => Err(Refusal::FewerPartitions { have, asked }),
        _ => Ok(()),
    }
}

/// The limits of the catalog are looked at once, for all that is asked: each of the groups gets as many partitions as are added.
fn check_room(state: &State, groups: usize, added: usize) -> Result<(), Refusal> {
    if added == 0 {
        return Ok(());
    }
    if state.partitions_total + added > PARTITIONS_MAX {
        return Err(Refusal::CatalogQuota { what: "partitions", limit: PARTITIONS_MAX });
    }
    if state.path_partitions_total + added * groups > PATH_PARTITIONS_MAX {
        return Err(Refusal::CatalogQuota { what: "partitions of groups", limit: PATH_PARTITIONS_MAX });
    }
    Ok(())
}

fn grow(state: &mut State, id: TopicIncarnation, partitions: usize) {
    let topic = topic_of(&mut state.topics, id).expect("looked up by the caller");
    let have = topic.partitions.len();
    // All that are new begin as one, as those of a new topic do.
    topic.partitions.resize(partitions, Arc::new(empty_partition(FACTS_MAX)));
    topic.settings.change(&SettingsPatch { values: vec![(Setting::Partitions, partitions as u64)] });
    state.path_partitions_total += (partitions - have) * topic.counted_paths();
}
