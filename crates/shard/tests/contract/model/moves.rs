//! An operator purges a path, or moves it.

use super::{Fate, Model, Open, Seen, Stands, Told, Verdict, allowed};
use mortarmq_shard::ledger::LedgerKind;
use mortarmq_shard::{Outcome, Refusal, SeekTarget};
use mortarmq_types::{Cause, DropReason, Partition, PathId};
use std::collections::BTreeMap;

/// A move looks at no more messages in one batch.
const STEPS_MAX: usize = 1024;

impl Model {
    /// Everything that is owed is dropped, leased or not.
    pub(super) fn purge(&mut self, id: PathId, seen: &Seen<'_>) -> Verdict {
        let Some(path) = self.paths.get(&id) else { return seen.expect(&Outcome::Refused(Refusal::UnknownGroup)) };
        let mut dropped = 0;
        for number in 0..path.partitions.len() {
            let last = self.topic_of(id).partitions[number].last();
            if self.paths[&id].partitions[number].leases().next().is_some() {
                self.reach("purge while leased");
            }
            dropped += self.skip_to(id, number, last + 1, DropReason::Purge);
        }
        seen.expect(&Outcome::Moved { replayed: 0, dropped, is_partial: false })
    }

    pub(super) fn seek(&mut self, id: PathId, target: &SeekTarget, seen: &Seen<'_>) -> Verdict {
        let Some(path) = self.paths.get(&id) else { return seen.expect(&Outcome::Refused(Refusal::UnknownGroup)) };
        let count = path.partitions.len();
        let all = |seq: u64| (0..count).map(|number| (number, seq)).collect::<BTreeMap<_, _>>();
        let places = match target {
            SeekTarget::Earliest => all(1),
            SeekTarget::Latest => all(u64::MAX),
            SeekTarget::At(places) => places.iter().map(|(number, seq)| (number.index(), seq.get())).collect(),
        };
        if let Some(unknown) = places.keys().find(|number| **number >= count) {
            let (requested, partitions) = (Partition::from_index(*unknown), u16::try_from(count).expect("small"));
            return seen.expect(&Outcome::Refused(Refusal::UnknownPartition { requested, partitions }));
        }
        let offered = path.partitions.iter().map(|it| it.unsettled().count()).sum::<usize>();
        let (mut replayed, mut dropped) = (0, 0);
        for (number, to) in places {
            let messages = &self.topic_of(id).partitions[number];
            let to = to.min(messages.last() + 1).max(messages.kept_from);
            if to < self.paths[&id].partitions[number].position {
                replayed += self.go_back(id, number, to);
            } else {
                dropped += self.skip_to(id, number, to, DropReason::Seek);
            }
        }
        // How many messages a move of thousands concerns is not known before each was looked at: it tells what it did so far.
        if let Outcome::Moved { replayed: so_far, dropped: dropped_so_far, is_partial: true } = *seen.outcome {
            let is_large = offered >= STEPS_MAX / 2;
            allowed!(is_large && so_far <= replayed && dropped_so_far <= dropped, "expected {replayed} and {dropped}");
            return Ok(());
        }
        seen.expect(&Outcome::Moved { replayed, dropped, is_partial: false })
    }

    /// Drops what is owed below a place. A seek leaves what is leased alone; a purge ends it.
    fn skip_to(&mut self, id: PathId, number: usize, to: u64, reason: DropReason) -> u64 {
        let (mut dropped, mut ended) = (0, Vec::new());
        let all: Vec<u64> = self.paths[&id].partitions[number].pairs.range(..to).map(|(seq, _)| *seq).collect();
        for seq in &all {
            let pair = self.pair_mut(id, number, *seq);
            let Some(open) = &pair.open else { continue };
            let lease = pair.lease();
            if lease.is_some() && reason == DropReason::Seek {
                continue;
            }
            ended.extend(lease.map(|lease| (*seq, lease, open.attempt)));
            self.end_life(id, number, *seq, Fate::Dropped(reason));
            dropped += 1;
            self.told.push(Told::new(id, number, LedgerKind::Dropped(reason), *seq, 0));
        }
        let obligation = &mut self.paths.get_mut(&id).expect("the caller knows it").partitions[number];
        obligation.advance(to.max(obligation.position));
        for (seq, lease, attempt) in ended {
            self.tell_end(id, number, seq, lease, attempt, LedgerKind::LeaseEnded(Cause::Released));
        }
        if reason == DropReason::Seek && dropped > 0 {
            self.reach("seek forwards that drops");
        }
        dropped
    }

    /// Owes once more what is settled, from a place up to what was ever offered.
    fn go_back(&mut self, id: PathId, number: usize, to: u64) -> u64 {
        let obligation = &mut self.paths.get_mut(&id).expect("the caller knows it").partitions[number];
        let mut replayed = 0;
        let above = obligation.position;
        let mut settled_above = false;
        // What an operator took out before it was ever offered is among them.
        for (seq, pair) in obligation.pairs.range_mut(to..) {
            if pair.open.is_none() {
                pair.open = Some(Open::new());
                settled_above |= *seq >= above;
                replayed += 1;
                self.told.push(Told::new(id, number, LedgerKind::Replayed, *seq, 0));
            }
        }
        obligation.position = to;
        let is_leased = obligation.unsettled().any(|(_, open)| matches!(open.stands, Stands::Leased(_)));
        if settled_above {
            self.reach("seek backwards with messages settled above");
        }
        if replayed > 0 {
            self.reach("seek backwards that replays");
            if is_leased {
                self.reach("seek backwards while leased");
            }
        }
        replayed
    }
}
