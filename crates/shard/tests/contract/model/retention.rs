//! `Trim`: the oldest messages of a partition go. Which ones may, and at the latest when they must; how far it came in between is
//! the shard's choice.

use super::{Fate, Model, Seen, Stands, Told, Topic, Verdict, allowed};
use mortarmq_shard::command::Trim;
use mortarmq_shard::ledger::LedgerKind;
use mortarmq_shard::{Outcome, Refusal, Setting};
use mortarmq_types::{DropReason, PathId, TopicIncarnation};
use std::collections::BTreeMap;

/// Of what a limit keeps, so much may stay longer, about: a 64th, and no less than that many bytes.
const COARSE: u64 = 64;
const COARSE_LEAST_BYTES: u64 = 256;

/// Settled messages go with those that come, or after so long.
const IDLE_MS: u64 = 60_000;

impl Model {
    pub(super) fn trim(&mut self, trim: &Trim, seen: &Seen<'_>) -> Verdict {
        let Some(topic) = self.topics.get(&trim.topic) else {
            return seen.expect(&Outcome::Refused(Refusal::UnknownTopic));
        };
        let number = trim.partition.index();
        let Some(messages) = topic.partitions.get(number) else {
            let partitions = u16::try_from(topic.partitions.len()).expect("small");
            return seen.expect(&Outcome::Refused(Refusal::UnknownPartition { requested: trim.partition, partitions }));
        };
        seen.expect(&Outcome::Done)?;
        let kept = self.kept_after.get(&(trim.topic, number)).copied().ok_or("the topic went in the same batch")?;
        let (may, must) = self.limits(trim.topic, number);
        let (before, asked) = (messages.kept_from, trim.below.get());
        allowed!(kept >= before, "P10: {kept} is kept, and it was {before}");
        allowed!(
            kept == before || kept <= may.min(asked),
            "P4: {kept} is kept; gone may be what is below {may}, {asked}"
        );
        allowed!(kept >= must.min(asked), "P4: {kept} is kept; what is below {must} had to go, asked for {asked}");
        if kept > before {
            self.reach("trim");
            self.topics.get_mut(&trim.topic).expect("looked up above").partitions[number].kept_from = kept;
            let paths: Vec<_> =
                self.paths.iter().filter(|(_, path)| path.topic == trim.topic).map(|(id, _)| *id).collect();
            for id in paths {
                self.drop_trimmed(id, number, kept);
            }
        }
        Ok(())
    }

    /// Up to where the messages of a partition may go now, and up to where they have to.
    fn limits(&self, id: TopicIncarnation, number: usize) -> (u64, u64) {
        let (topic, source) = (&self.topics[&id], self.keeper_of(id));
        let messages = &topic.partitions[number];
        let end = messages.last() + 1;
        let get = |setting: Setting| source.settings.get(setting);
        let (ms, bytes, keep_settled) =
            (get(Setting::RetentionMs), get(Setting::RetentionBytes), get(Setting::KeepSettled) != 0);
        let (mut may, mut must) = (1, 1);
        let first_from = |test: &dyn Fn(u64) -> bool| (messages.kept_from..end).find(|seq| test(*seq)).unwrap_or(end);
        if ms > 0 {
            let old = |seq: u64| messages.get(seq).stored_at + ms <= self.time;
            may = may.max(first_from(&|seq| !old(seq)));
            let last = messages.list.last().map_or(0, |message| message.stored_at);
            if end > 1 && old(end - 1) {
                must = end;
            } else if let Some(time) = self.time.checked_sub(ms).filter(|_| source.is_steady) {
                // What was stored within a step of the last message may stay until that goes.
                let late = |seq: u64| messages.get(seq).stored_at + (ms / COARSE).max(1) <= time.min(last);
                must = must.max(first_from(&|seq| !late(seq)));
            }
        }
        if bytes > 0 {
            let from = |first: u64| (first..end).map(|seq| messages.get(seq).bytes).sum::<u64>();
            let largest = messages.list.iter().map(|message| message.bytes).max().unwrap_or(0);
            may = may.max((1..=end).rev().find(|first| from(*first) >= bytes).unwrap_or(1));
            if source.is_steady {
                let coarse = (bytes / COARSE).max(COARSE_LEAST_BYTES) + largest;
                must = must.max((1..=end).rev().find(|first| from(*first) >= bytes + coarse).unwrap_or(1));
            }
        }
        let paths = self.paths.values().filter(|path| path.topic == id);
        // A redriven message has its bytes in its dead letter, and stays whatever goes.
        let open = |path: &super::Path| {
            let mut own = path.partitions[number].unsettled().filter(|(_, open)| open.source.is_none());
            own.next().map_or(end, |(seq, _)| seq)
        };
        if let Some(settled) = paths.map(open).min().filter(|_| !keep_settled) {
            may = may.max(settled);
            let stored_at = messages.list.last().map_or(0, |message| message.stored_at);
            // Of what an operator took out one by one the shard may not know yet that all before it is settled.
            let is_behind = self.lowest_position(id, number) == Some(end);
            if settled == end && is_behind && self.time >= stored_at + IDLE_MS {
                must = end;
            }
        }
        (may, must)
    }

    /// Whose settings say how long a topic's messages stay.
    fn keeper_of(&self, id: TopicIncarnation) -> &Topic {
        let topic = &self.topics[&id];
        let source = topic.name.strip_prefix("$dlq.").unwrap_or(&topic.name);
        self.topics.values().find(|topic| topic.name == source).expect("a dead-letter topic has a source")
    }

    /// What a path owes below goes, but for what is leased or redriven.
    fn drop_trimmed(&mut self, id: PathId, number: usize, below: u64) {
        let open: Vec<u64> = self.paths[&id].partitions[number].unsettled().map(|(seq, _)| seq).collect();
        for seq in open.into_iter().take_while(|seq| *seq < below) {
            let open = self.paths[&id].partitions[number].open(seq).expect("it was open above");
            if matches!(open.stands, Stands::Leased(_)) {
                self.reach("trim while leased");
                continue;
            }
            if open.source.is_some() {
                self.reach("trim over a redriven message");
                continue;
            }
            if !open.offered && seq < self.paths[&id].partitions[number].position {
                self.reach("trim of what is delayed");
            }
            self.end_life(id, number, seq, Fate::Dropped(DropReason::Retention));
            self.told.push(Told::new(id, number, LedgerKind::Dropped(DropReason::Retention), seq, 0));
        }
        let obligation = &mut self.paths.get_mut(&id).expect("the caller knows it").partitions[number];
        obligation.advance(below.max(obligation.position));
    }

    /// The lowest position of all groups of a topic.
    pub(crate) fn lowest_position(&self, id: TopicIncarnation, number: usize) -> Option<u64> {
        let paths = self.paths.values().filter(|path| path.topic == id);
        paths.map(|path| path.partitions[number].position).min()
    }

    /// Whether retention has passed a leased message, so that it goes when its lease ends.
    pub(super) fn goes_with_its_lease(&self, id: PathId, number: usize, seq: u64) -> bool {
        let kept = self.topic_of(id).partitions[number].kept_from;
        seq < kept && self.paths[&id].partitions[number].open(seq).is_some_and(|open| open.source.is_none())
    }

    /// The lowest record of a partition that somebody may still need: of what is kept, of what is under its last lease, or of
    /// the dead letter of a message that was redriven.
    pub(crate) fn needed_from(&self, id: TopicIncarnation, number: usize) -> u64 {
        let topic = &self.topics[&id];
        let of_path = |path: &super::Path| {
            let open = path.partitions[number].unsettled().find(|(_, open)| open.offered && open.source.is_none());
            open.map(|(seq, _)| seq)
        };
        let offered = self.paths.values().filter(|path| path.topic == id).filter_map(of_path);
        let source = topic.name.strip_prefix("$dlq.");
        let of_source = |path: &&super::Path| Some(self.topics[&path.topic].name.as_str()) == source;
        let pins = self.paths.values().filter(of_source).flat_map(|path| {
            let open = path.partitions[number].unsettled();
            open.filter_map(|(_, open)| open.source)
        });
        offered.chain(pins).fold(topic.partitions[number].kept_from, u64::min)
    }

    /// The same of every partition.
    pub(crate) fn needed(&self) -> BTreeMap<(TopicIncarnation, usize), u64> {
        let places = self.topics.iter().flat_map(|(id, topic)| (0..topic.partitions.len()).map(|number| (*id, number)));
        places.map(|(id, number)| ((id, number), self.needed_from(id, number))).collect()
    }
}
