//! Groups and their members: they join, leave, are lost, resume; a group is deleted.

use super::ends::Failure;
use super::{Fate, Model, Obligation, Path, Seen, Topic, Verdict, allowed};
use mortarmq_shard::command::{EndMember, JoinGroup, ResumeMember};
use mortarmq_shard::{GroupSettings, Outcome, Refusal, Setting, StartPolicy};
use mortarmq_types::{DropReason, MemberId, Partition, PathId, TopicIncarnation};

impl Model {
    pub(super) fn join(&mut self, join: &JoinGroup, seen: &Seen<'_>) -> Verdict {
        if join.group.is_empty() {
            allowed!(matches!(seen.outcome, Outcome::Refused(Refusal::Name(_))), "a group has a name");
            return Ok(());
        }
        let Some(topic) = self.topics.get(&join.topic) else {
            return seen.expect(&Outcome::Refused(Refusal::UnknownTopic));
        };
        if join.member == MemberId::ZERO {
            allowed!(matches!(seen.outcome, Outcome::Refused(_)), "nobody is member 0");
            return Ok(());
        }
        let found = self.path_of(join.topic, &join.group);
        if let Some(path) = found.map(|id| &self.paths[&id]) {
            if join.settings.values.iter().any(|(setting, value)| path.get(*setting) != *value) {
                allowed!(
                    matches!(seen.outcome, Outcome::Refused(Refusal::GroupMismatch { .. })),
                    "its settings are others"
                );
                return Ok(());
            }
        } else if topic.holds_dead_letters() && join.settings.get(Setting::MaxAttempts).is_some_and(|most| most != 0) {
            return seen.expect(&Outcome::Refused(Refusal::DeadLetterAttempts));
        }
        let settings = GroupSettings::new(&topic.settings, &join.settings);
        let partitions = obligations(topic, &join.start);
        let path = found.unwrap_or_else(|| self.add_path(join.topic, join.group.clone(), settings, partitions));
        let members = &mut self.paths.get_mut(&path).expect("found or made").members;
        members.entry(join.member).or_insert(join.secret_hash);
        seen.expect(&Outcome::Joined { path, member: join.member })
    }

    /// What of a member's leases was live ends: `consumer_lost` if it went without a word, else `released`. Those behind
    /// another of their key are given back with it, and nobody is to blame for them.
    pub(super) fn end_member(&mut self, end: &EndMember, seen: &Seen<'_>) -> Verdict {
        let Some(path) = self.paths.get_mut(&end.path) else {
            return seen.expect(&Outcome::Refused(Refusal::UnknownGroup));
        };
        if path.members.remove(&end.member).is_none() {
            return seen.expect(&Outcome::Refused(Refusal::UnknownMember));
        }
        path.reserved = path.reserved.filter(|(member, _)| *member != end.member);
        path.idle_since = self.time;
        let failure = if end.lost { Failure::Lost } else { Failure::GivenBack };
        for number in 0..self.paths[&end.path].partitions.len() {
            while let Some((seq, _)) = self.first_held(end.path, number, end.member) {
                self.fail(end.path, number, seq, failure, "");
            }
        }
        seen.expect(&Outcome::Done)
    }

    fn first_held(&self, path: PathId, number: usize, member: MemberId) -> Option<(u64, super::Lease)> {
        self.paths[&path].partitions[number].leases().find(|(_, lease)| lease.member == member)
    }

    pub(super) fn resume(&mut self, resume: &ResumeMember, seen: &Seen<'_>) -> Verdict {
        if !self.topics.contains_key(&resume.topic) {
            return seen.expect(&Outcome::Refused(Refusal::UnknownTopic));
        }
        let knows = |path: &Path| path.members.get(&resume.member) == Some(&resume.secret_hash);
        match self.path_of(resume.topic, &resume.group).filter(|id| knows(&self.paths[id])) {
            Some(path) => {
                if self.paths[&path]
                    .partitions
                    .iter()
                    .any(|part| part.leases().any(|(_, it)| it.member == resume.member))
                {
                    self.reach("resume with deliveries out");
                }
                seen.expect(&Outcome::Joined { path, member: resume.member })
            }
            None => seen.expect(&Outcome::Refused(Refusal::UnknownMember)),
        }
    }

    pub(super) fn delete_group(&mut self, id: PathId, seen: &Seen<'_>) -> Verdict {
        let Some(path) = self.paths.get(&id) else { return seen.expect(&Outcome::Refused(Refusal::UnknownGroup)) };
        if path.group == "default" && self.topic_of(id).holds_dead_letters() {
            return seen.expect(&Outcome::Refused(Refusal::DeadLetterGroup));
        }
        let dropped = self.end_group(id);
        seen.expect(&Outcome::Moved { replayed: 0, dropped, is_partial: false })
    }

    /// All that a group owes is dropped, and nothing is left of it.
    pub(super) fn end_group(&mut self, id: PathId) -> u64 {
        let mut dropped = 0;
        self.group_went = true;
        let mut path = self.paths.remove(&id).expect("the caller found it");
        for obligation in &mut path.partitions {
            if obligation.leases().next().is_some() {
                self.reach("deletion while leased");
            }
            for pair in obligation.pairs.values_mut().filter(|pair| pair.open.is_some()) {
                pair.end(Fate::Dropped(DropReason::GroupDeleted));
                dropped += 1;
            }
        }
        dropped
    }

    pub(crate) fn path_of(&self, topic: TopicIncarnation, group: &str) -> Option<PathId> {
        self.paths.iter().find(|(_, path)| path.topic == topic && path.group == group).map(|(id, _)| *id)
    }
}

fn obligations(topic: &Topic, start: &StartPolicy) -> Vec<Obligation> {
    let of = |number: usize, messages: &super::Messages| {
        let next = messages.last() + 1;
        let first = match start {
            StartPolicy::Earliest => 1,
            StartPolicy::Latest => next,
            StartPolicy::At(places) => {
                let named = places.iter().find(|(partition, _)| *partition == Partition::from_index(number));
                named.map_or(1, |(_, seq)| seq.get().clamp(1, next))
            }
        };
        Obligation::new(first.max(messages.kept_from), messages.last())
    };
    topic.partitions.iter().enumerate().map(|(number, messages)| of(number, messages)).collect()
}
