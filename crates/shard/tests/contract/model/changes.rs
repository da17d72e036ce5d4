//! Settings change: of a topic, of a group, of the cluster. A topic grows; a group that nobody uses goes.

use super::{Messages, Model, Obligation, Seen, Stands, Verdict, allowed};
use mortarmq_shard::command::{ChangeGroup, ChangeTopic};
use mortarmq_shard::{
    Applied, DefaultsPatch, Effect, GroupSettings, Outcome, Refusal, Setting, SettingsPatch, TopicSettings,
};
use mortarmq_types::{PathId, TopicIncarnation};

impl Model {
    pub(super) fn change_topic(&mut self, change: &ChangeTopic, seen: &Seen<'_>) -> Verdict {
        let Some(topic) = self.topics.get(&change.topic) else {
            return seen.expect(&Outcome::Refused(Refusal::UnknownTopic));
        };
        let have = topic.partitions.len() as u64;
        let wanted = change.settings.get(Setting::Partitions).unwrap_or(have);
        let has_limit = change.settings.get(Setting::MaxAttempts).is_some_and(|most| most != 0);
        let mut reasons = Vec::new();
        if change.settings.get(Setting::Type).is_some() {
            reasons.push(Refusal::Fixed { key: "type" });
        }
        if topic.holds_dead_letters() && wanted != have {
            reasons.push(Refusal::DeadLetterPartitions);
        } else if wanted < have {
            reasons.push(Refusal::FewerPartitions { have, asked: wanted });
        }
        if topic.holds_dead_letters() && has_limit {
            reasons.push(Refusal::DeadLetterAttempts);
        }
        if !reasons.is_empty() {
            return refused(seen, &reasons);
        }
        let name = format!("$dlq.{}", topic.name);
        let dead_letters = self.topics.iter().find(|(_, topic)| topic.name == name).map(|(id, _)| *id);
        let topic = self.topics.get_mut(&change.topic).expect("looked up above");
        topic.settings = TopicSettings::new(&topic.settings, &change.settings);
        let by = [Setting::RetentionMs, Setting::RetentionBytes, Setting::KeepSettled];
        topic.is_steady &= by.iter().all(|setting| change.settings.get(*setting).is_none());
        for id in [Some(change.topic), dead_letters].into_iter().flatten() {
            self.grow(id, wanted);
        }
        seen.expect(&Outcome::Changed)
    }

    /// Every group owes the new partitions from their first message on.
    fn grow(&mut self, id: TopicIncarnation, wanted: u64) {
        let count = usize::try_from(wanted).expect("small");
        let topic = self.topics.get_mut(&id).expect("the caller found it");
        if count == topic.partitions.len() {
            return;
        }
        let patch = SettingsPatch { values: vec![(Setting::Partitions, wanted)] };
        topic.settings = TopicSettings::new(&topic.settings, &patch);
        topic.partitions.resize(count, Messages::new());
        let (mut under_load, mut has_groups) = (false, false);
        for path in self.paths.values_mut().filter(|path| path.topic == id) {
            under_load |= path.partitions.iter().any(|it| it.unsettled().next().is_some());
            has_groups = true;
            path.partitions.resize(count, Obligation::new(1, 0));
        }
        if has_groups && under_load {
            self.reach("partition added under load");
        }
    }

    pub(super) fn change_group(&mut self, change: &ChangeGroup, seen: &Seen<'_>) -> Verdict {
        let Some(path) = self.paths.get(&change.path) else {
            return seen.expect(&Outcome::Refused(Refusal::UnknownGroup));
        };
        let holds_dead_letters = self.topics[&path.topic].holds_dead_letters();
        let given = |setting: Setting| change.settings.get(setting);
        let mut reasons = Vec::new();
        for fixed in [Setting::Type, Setting::Partitions] {
            if given(fixed).is_some() {
                reasons.push(Refusal::Fixed { key: fixed.key() });
            }
        }
        if holds_dead_letters && given(Setting::MaxAttempts).is_some_and(|most| most != 0) {
            reasons.push(Refusal::DeadLetterAttempts);
        }
        if holds_dead_letters && path.group == "default" && given(Setting::ExpireIdleMs).is_some_and(|ms| ms != 0) {
            reasons.push(Refusal::DeadLetterGroup);
        }
        if !reasons.is_empty() {
            return refused(seen, &reasons);
        }
        let path = self.paths.get_mut(&change.path).expect("looked up above");
        let keeps_order = path.keeps_order();
        let value = |setting: &Setting| (*setting, given(*setting).unwrap_or_else(|| path.get(*setting)));
        let values = Setting::ALL.iter().map(value).collect();
        path.settings = GroupSettings::new(&TopicSettings::BUILD, &SettingsPatch { values });
        let (mut leases, mut retries) = (false, false);
        for open in
            path.partitions.iter_mut().flat_map(|it| it.pairs.values_mut()).filter_map(|pair| pair.open.as_mut())
        {
            leases |= matches!(open.stands, Stands::Leased(_));
            retries |= matches!(open.stands, Stands::Scheduled { .. });
        }
        let gives_up_order = keeps_order && !path.keeps_order();
        let changes_order = keeps_order != path.keeps_order();
        if gives_up_order {
            path.give_up_order();
        }
        for (is_met, what) in [
            (leases, "setting changed while leases are live"),
            (retries, "setting changed while retries wait"),
            (leases && changes_order, "order changed while leases are live"),
        ] {
            if is_met {
                self.reach(what);
            }
        }
        seen.expect(&Outcome::Changed)
    }

    pub(super) fn change_defaults(&mut self, patch: &DefaultsPatch, seen: &Seen<'_>) -> Verdict {
        let mut defaults = self.defaults().clone();
        for (key, value) in &patch.values {
            defaults.set(*key, *value);
        }
        self.defaults = Some(defaults);
        self.note_idle_ms();
        self.reach("initial values changed");
        seen.expect(&Outcome::Changed)
    }

    /// A producer that was forgotten under a shorter time stays forgotten under a longer one.
    pub(super) fn note_idle_ms(&mut self) {
        let now = self.defaults().producer_idle_ms;
        self.idle_least_ms = Some(self.idle_least_ms.map_or(now, |least| least.min(now)));
    }

    /// When a group goes because nobody uses it.
    pub(crate) fn expires_at(&self, id: PathId) -> Option<u64> {
        let path = &self.paths[&id];
        let after_ms = path.get(Setting::ExpireIdleMs);
        let is_book = path.group == "default" && self.topics[&path.topic].holds_dead_letters();
        (path.members.is_empty() && after_ms != 0 && !is_book).then(|| path.idle_since + after_ms)
    }

    /// Of the groups that nobody used for as long as they allow, one goes.
    pub(super) fn expire_idle(&mut self, applied: &Applied) -> Verdict {
        let due = self.paths.keys().filter_map(|id| Some((self.expires_at(*id)?, *id))).min();
        let mut expected = Vec::new();
        if let Some((_, id)) = due.filter(|(due, _)| *due <= self.time) {
            let (topic, group) = (self.paths[&id].topic, self.paths[&id].group.clone());
            let dropped = self.end_group(id);
            expected.push(Effect::GroupExpired { topic, group, dropped });
            self.reach("group that nobody uses expires");
        }
        let found: Vec<_> = applied.effects.iter().filter(|it| matches!(it, Effect::GroupExpired { .. })).collect();
        allowed!(found == expected.iter().collect::<Vec<_>>(), "P4: expired {found:?}, expected {expected:?}");
        Ok(())
    }
}

impl super::Path {
    /// From now on nothing waits for another of its key; what is leased is ended by nothing that happens to another.
    fn give_up_order(&mut self) {
        for open in
            self.partitions.iter_mut().flat_map(|it| it.pairs.values_mut()).filter_map(|pair| pair.open.as_mut())
        {
            open.packed = false;
            if let Stands::Leased(lease) = &mut open.stands {
                lease.ordered = false;
            }
        }
    }
}

/// One of these reasons is named, and nothing changes.
fn refused(seen: &Seen<'_>, reasons: &[Refusal]) -> Verdict {
    let is_one = matches!(seen.outcome, Outcome::Refused(refusal) if reasons.contains(refusal));
    allowed!(is_one, "P2: had to be refused for one of {reasons:?}");
    Ok(())
}
