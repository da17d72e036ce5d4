//! Room among the entries of the shard (failure rule 9): what goes when it keeps as many as it may, and what is refused.
//!
//! How many it keeps is looked at before and after the command, which then stands in a batch of its own: that the count is right
//! is an invariant which the shard asserts. What follows from it is the contract's.

use super::{Model, Obligation, Path, Verdict, allowed};
use mortarmq_shard::{Refusal, State};
use mortarmq_types::PathId;
use std::collections::BTreeMap;

/// Inside these times nothing is forgotten for the sake of room (P3, P6).
const IDLE_LEAST_MS: u64 = 600_000;
const KEY_LEAST_MS: u64 = 60_000;
/// A producer is filed once a minute, and settles within ten seconds are kept together: so much longer they may stay.
const FILED_EVERY_MS: u64 = 60_000;
const RUN_MS: u64 = 70_000;

/// What a shard kept around one command.
#[derive(Clone, Debug, Default)]
pub(super) struct Bound {
    /// Entries before it, and behind it.
    before: u64,
    after: u64,
    /// Those of `after` that are delayed messages or lie on paths.
    of_paths_and_delays: u64,
    /// Positions behind it.
    positions: BTreeMap<(PathId, usize), u64>,
    /// Whether more than facts would have had to go.
    is_pressed: bool,
}

impl Model {
    /// Notes what the shard keeps around the one command that is to be applied.
    pub(crate) fn observe_bound(&mut self, before: &State, after: &State) {
        let of_path = |(id, path): (&PathId, &mortarmq_shard::Path)| {
            let all = path.partitions_of(&after.topics[&path.topic]);
            let positions: Vec<_> = all.map(|(it, _)| it.position().get()).collect();
            let id = *id;
            positions.into_iter().enumerate().map(move |(number, position)| ((id, number), position))
        };
        let paths: u64 =
            after.paths.values().flat_map(|path| path.partitions.made()).map(|(_, it)| it.kept_entries()).sum();
        let delayed: usize = after.topics.values().flat_map(|it| &it.partitions).map(|it| it.schedule.len()).sum();
        self.bound = Some(Bound {
            before: before.entries(),
            after: after.entries(),
            of_paths_and_delays: paths + delayed as u64,
            positions: after.paths.iter().flat_map(of_path).collect(),
            is_pressed: false,
        });
    }

    fn limit(&self) -> u64 {
        self.defaults().state_entries_max
    }

    /// Facts go until there is room for so many more, those of the oldest topics first, a partition at a time. If that is not
    /// enough, what is past its promised time may be forgotten.
    pub(super) fn make_room(&mut self, needed: u64) {
        let Some(mut bound) = self.bound.take() else { return };
        let limit = self.limit();
        let is_short = |kept: u64| kept + needed > limit;
        let mut kept = bound.before;
        let mut gone = false;
        for messages in self.topics.values_mut().flat_map(|topic| &mut topic.partitions) {
            let facts = messages.last() + 1 - messages.known_from;
            if is_short(kept) && facts > 0 {
                messages.known_from = messages.last() + 1;
                kept -= facts;
                gone = true;
            }
        }
        bound.before = kept;
        bound.is_pressed = is_short(kept);
        self.bound = Some(bound.clone());
        if gone {
            self.reach("facts that go for room");
        }
        if !bound.is_pressed {
            return;
        }
        let now = self.time;
        for topic in self.topics.values_mut() {
            for line in topic.lines.values_mut() {
                line.may_be_gone |= now - line.used >= IDLE_LEAST_MS;
            }
            for first in topic.keys.values_mut() {
                first.may_be_gone |= now - first.at >= KEY_LEAST_MS;
            }
        }
    }

    /// Whether facts of new messages may be missing, as the shard keeps as much as it may.
    pub(crate) fn may_lack_facts(&self, new: u64) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.before.max(bound.after) + new >= self.limit())
    }

    /// A refusal for want of room is right if there is none for this, and nothing is left that could go.
    pub(super) fn check_quota(&mut self, refusal: &Refusal, keys: u64, delayed: u64, is_new_line: bool) -> Verdict {
        let (what, named, wants) = match refusal {
            Refusal::ProducerQuota { limit } => ("new producer refused at the bound", *limit, u64::from(is_new_line)),
            Refusal::KeyQuota { limit } => ("new key refused at the bound", *limit, keys),
            Refusal::DelayQuota { limit } => {
                ("new delay refused at the bound", *limit, if delayed > 0 { keys + delayed } else { 0 })
            }
            _ => return Ok(()),
        };
        let limit = self.limit();
        let Some(bound) = &self.bound else { return Err(format!("P2: refused for want of room, of {limit}")) };
        allowed!(named == limit, "the bound is {limit}, and not {named}");
        allowed!(
            wants > 0 && bound.after + wants > limit,
            "P2: {} entries of {limit}, {wants} more refused",
            bound.after
        );
        let facts: u64 =
            self.topics.values().flat_map(|topic| &topic.partitions).map(|it| it.last() + 1 - it.known_from).sum();
        allowed!(facts == 0, "{facts} facts stay, and {wants} entries are refused");
        let rest = bound.after - bound.of_paths_and_delays;
        let protected = self.protected();
        allowed!(
            rest <= protected,
            "{rest} publishes and keys stay, {protected} of them inside their time, and {wants} are refused"
        );
        self.reach(what);
        Ok(())
    }

    /// At most so many publishes of producers and keys are inside the time in which they are not forgotten.
    fn protected(&self) -> u64 {
        let now = self.time;
        let lines = self.topics.values().flat_map(|topic| topic.lines.values());
        let used = lines.filter(|line| now - line.used < IDLE_LEAST_MS + FILED_EVERY_MS).map(|line| line.stored.len());
        let keys = self.topics.values().flat_map(|topic| topic.keys.values());
        used.sum::<usize>() as u64 + keys.filter(|first| now - first.at < KEY_LEAST_MS).count() as u64
    }

    /// What was stored found room, or needed none.
    pub(super) fn check_room_of_stored(&self, more: u64, is_new: bool) -> Verdict {
        let Some(bound) = &self.bound else { return Ok(()) };
        let limit = self.limit();
        // Numbers of a line that is known go on: they push out older ones of a small window.
        let most = if is_new { limit } else { bound.before.max(limit) } + more;
        allowed!(bound.after <= most, "rule 9: {} entries of {limit}, and it was stored", bound.after);
        Ok(())
    }

    /// What of the entries may have been forgotten by a command that was pressed for room.
    fn forgettable(&self) -> u64 {
        let now = self.time;
        let topics = || self.topics.values();
        let lines = topics().flat_map(|it| it.lines.values()).filter(|line| now - line.used >= IDLE_LEAST_MS);
        let keys = topics().flat_map(|it| it.keys.values()).filter(|first| now - first.at >= KEY_LEAST_MS);
        let obligations = || self.paths.values().flat_map(|path| &path.partitions);
        let settles = obligations().flat_map(|it| it.pairs.values()).flat_map(|pair| &pair.settles);
        let old = settles.filter(|settled| now - settled.at >= RUN_MS - 10_000).count() as u64;
        lines.map(|line| line.stored.len() as u64).sum::<u64>() + keys.count() as u64 + old
    }

    /// Which choices of a `Deliver` whether to pass something over are right, for each partition it looks at: at the bound
    /// nothing is. Without a bound there is one choice.
    pub(super) fn passing_choices(&self, partitions: usize) -> Vec<Vec<bool>> {
        if self.bound.as_ref().is_none_or(|bound| bound.before + 1 + STEPS_MAX < self.limit()) {
            return vec![vec![true; partitions]];
        }
        let choice = |mask: usize| (0..partitions).map(|number| mask & (1 << number) == 0).collect();
        (0..1_usize << partitions).map(choice).collect()
    }

    /// Whether a partition may, or must not, pass anything over when its turn comes, with so many entries more and less than
    /// before; of `due` messages some may have left the schedule.
    pub(super) fn may_pass(&self, choice: bool, (added, gone): (u64, u64), due: u64) -> bool {
        let Some(bound) = &self.bound else { return choice };
        let most = (bound.before + added).saturating_sub(gone);
        let gone = due + if bound.is_pressed { self.forgettable() } else { 0 };
        if choice { most.saturating_sub(gone) < self.limit() } else { most >= self.limit() }
    }

    /// Whether a path is where the shard says it is now.
    pub(super) fn stands_as_seen(&self, id: PathId, path: &Path) -> bool {
        let is_there = |(number, it): (usize, &Obligation)| {
            self.bound.as_ref().is_none_or(|bound| bound.positions.get(&(id, number)) == Some(&it.position))
        };
        path.partitions.iter().enumerate().all(is_there)
    }
}

/// What a path's messages take of the entries.
pub(super) fn entries_of(path: &Path) -> u64 {
    let of = |it: &Obligation| {
        let packed = it.unsettled().filter(|(_, open)| open.packed).count() as u64;
        it.passed_over() + packed.div_ceil(16)
    };
    path.partitions.iter().map(of).sum()
}

/// One `Deliver` adds no more.
const STEPS_MAX: u64 = 1024;
