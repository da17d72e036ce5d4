//! `JoinGroup`: makes a member, and its group if there is none. A group on a topic is one path.

use crate::command::{JoinGroup, StartPolicy};
use crate::names::check_name;
use crate::outcome::{Outcome, Refusal};
use crate::settings::{GroupSettings, Setting};
use crate::state::path_partitions::PathPartitions;
use crate::state::{MEMBERS_MAX, Member, PATH_PARTITIONS_MAX, PATHS_MAX, Path, State, Topic, topic_of};
use mortarmq_delivery::PathPartition;
use mortarmq_types::{MemberId, Partition, PathId, Seq, TopicIncarnation};
use std::collections::BTreeMap;

pub(super) fn apply(state: &mut State, join: JoinGroup) -> Outcome {
    if let Err(error) = check_name(&join.group) {
        return Outcome::Refused(Refusal::Name(error));
    }
    let Some(topic) = state.topics.get(&join.topic) else {
        return Outcome::Refused(Refusal::UnknownTopic);
    };
    let existing = topic.paths.get(&join.group).copied();
    if let Err(refusal) = check_member(state, existing, join.member) {
        return Outcome::Refused(refusal);
    }
    let made = match existing {
        Some(id) => compare(&state.paths[&id], &join).map(|()| id),
        None => check_attempts(topic, &join).and_then(|()| make_path(state, &join)),
    };
    match made {
        Err(refusal) => Outcome::Refused(refusal),
        Ok(id) => add_member(state, id, &join),
    }
}

/// On a dead-letter topic no group has a limit of attempts: what dies there stays.
fn check_attempts(topic: &Topic, join: &JoinGroup) -> Result<(), Refusal> {
    match join.settings.get(Setting::MaxAttempts) {
        Some(attempts) if attempts != 0 && topic.holds_dead_letters() => Err(Refusal::DeadLetterAttempts),
        _ => Ok(()),
    }
}

fn compare(path: &Path, join: &JoinGroup) -> Result<(), Refusal> {
    let differences = join.settings.differences(|setting| path.settings.get(setting));
    if differences.is_empty() { Ok(()) } else { Err(Refusal::GroupMismatch { differences }) }
}

fn make_path(state: &mut State, join: &JoinGroup) -> Result<PathId, Refusal> {
    if state.paths_total >= PATHS_MAX {
        return Err(Refusal::CatalogQuota { what: "groups", limit: PATHS_MAX });
    }
    let topic = state.topics.get(&join.topic).ok_or(Refusal::UnknownTopic)?;
    if state.path_partitions_total + topic.partitions.len() > PATH_PARTITIONS_MAX {
        return Err(Refusal::CatalogQuota { what: "partitions of groups", limit: PATH_PARTITIONS_MAX });
    }
    let kept = |number: usize| topic.partitions[number].kept.first_seq;
    let partition = |number| PathPartition::kept(start(&join.start, topic, number), kept(number));
    let partitions = PathPartitions::new((0..topic.partitions.len()).map(partition));
    let settings = GroupSettings::new(&topic.settings, &join.settings);
    Ok(insert(state, join.topic, join.group.clone(), settings, partitions))
}

/// Makes a path of a topic that exists.
pub(super) fn insert(
    state: &mut State,
    incarnation: TopicIncarnation,
    group: String,
    settings: GroupSettings,
    partitions: PathPartitions,
) -> PathId {
    state.last_path = state.last_path.next();
    let topic = topic_of(&mut state.topics, incarnation).expect("looked up by the caller");
    topic.paths.insert(group.clone(), state.last_path);
    let (members, reserved, idle_since) = (BTreeMap::new(), None, Some(state.time));
    let topic = incarnation;
    let path = Path { topic, group, settings, partitions, members, idle_since, cursor: 0, reserved };
    if path.counts(&state.topics[&incarnation]) {
        state.paths_total += 1;
        state.path_partitions_total += state.topics[&incarnation].partitions.len();
    }
    state.paths.insert(state.last_path, path);
    state.retime_idle(state.last_path);
    state.last_path
}

/// The first sequence of a partition that the group owes. A start beyond the end is the end: what is published from
/// now on is owed. One below the beginning is the beginning: what retention has dropped is owed to nobody.
fn start(policy: &StartPolicy, topic: &Topic, number: usize) -> Seq {
    let next = topic.partitions[number].last_seq.next();
    match policy {
        StartPolicy::Earliest => Seq::FIRST,
        StartPolicy::Latest => next,
        StartPolicy::At(places) => places
            .iter()
            .find(|(partition, _)| *partition == Partition::from_index(number))
            .map_or(Seq::FIRST, |(_, seq)| (*seq).clamp(Seq::FIRST, next)),
    }
}

/// Whether the member can join. Looked at before anything is made: what is refused changes nothing (P2).
fn check_member(state: &State, existing: Option<PathId>, member: MemberId) -> Result<(), Refusal> {
    if existing.is_some_and(|id| state.paths[&id].members.len() >= MEMBERS_MAX) {
        return Err(Refusal::MemberLimit { limit: MEMBERS_MAX });
    }
    // A member whose leases are still being ended cannot come back: they are no longer counted as held.
    let is_ending = state.ending.iter().any(|(path, other, _)| (Some(*path), *other) == (existing, member));
    if is_ending || member == MemberId::ZERO { Err(Refusal::UnknownMember) } else { Ok(()) }
}

fn add_member(state: &mut State, id: PathId, join: &JoinGroup) -> Outcome {
    let member = Member { secret_hash: join.secret_hash, ..Member::default() };
    let path = state.path_mut(id).expect("the path was found or made above");
    path.members.entry(join.member).or_insert(member);
    state.retime_idle(id);
    Outcome::Joined { path: id, member: join.member }
}
