//! Which keys need a close look: a few numbers per message of a key, and none once it is sure that nothing overtook it.
//!
//! What is kept of a message is enough to be sure that nothing was overtaken, not to be sure that something was. A key that
//! is not sure is looked at exactly, by [`crate::rules::order`], with all records of its messages.

use hashbrown::{HashMap, HashSet};

use crate::names::join;
use crate::operation::{Name, Position};
use crate::pair::{Case, Pair};
use crate::rules::order::{Latest, place_of};
use crate::span::{NEVER, Span};

/// A key on a path, in one partition where partitions are known.
pub(crate) type Group = u64;

/// The keys of all ordered paths.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    groups: HashMap<Group, Known>,
    /// Keys that need a close look.
    pub suspects: HashSet<Group>,
    /// Messages that were sure to be in order without one.
    pub judged: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// Of all messages that are no longer kept: the highest sequence, and the latest event.
    highest: u64,
    latest: Latest,
    members: Vec<Member>,
    /// How many members may gather before they are looked at again.
    room: usize,
}

/// What is kept of a message.
#[derive(Debug)]
struct Member {
    seq: u64,
    latest: Latest,
    /// When the first ack, or nack to the dead letters, was called, and its index.
    done_call: u64,
    done_commit: u64,
    first: Given,
    /// Its further deliveries, where there are any.
    further: Vec<Given>,
}

/// A delivery, and what it has in common with others of the same Deliver.
#[derive(Debug, Clone, Copy)]
struct Given {
    call: u64,
    ret: u64,
    commit: u64,
    deliver: u64,
}

/// The group of a key on a path.
pub(crate) fn group(path: Name, key: u64, place: Option<Position>) -> Group {
    let partition = place.map_or(u64::MAX, |(partition, _)| u64::from(partition));
    join(join(u64::from(path), key), partition)
}

/// The groups of a message, with the pair each is of.
pub(crate) fn groups<'c, 'a>(case: &'c Case<'a>) -> impl Iterator<Item = (Group, &'c Pair<'a>)> {
    let key = case.key;
    let ordered = case.pairs.iter().filter(|pair| pair.info.is_ordered && pair.is_one && !pair.deliveries.is_empty());
    ordered.filter_map(move |pair| Some((group(pair.path, key?, place_of(case, pair)), pair)))
}

impl Keys {
    /// Takes a message of which nothing more is expected.
    pub(crate) fn add(&mut self, case: &Case<'_>) {
        for (group, pair) in groups(case) {
            if self.suspects.contains(&group) {
                continue;
            }
            let Some((_, seq)) = place_of(case, pair) else {
                // Without sequences the order is that of the publishes: all of them are needed.
                self.suspect(group);
                continue;
            };
            self.judged += 1;
            let known = self.groups.entry(group).or_default();
            known.members.push(Member::new(pair, seq));
            if known.members.len() >= known.room.max(FOLDED_AT) {
                let is_sure = known.fold();
                // Where nothing can be dropped, the next look waits for twice as many: no look costs more than its share.
                known.room = known.members.len() * 2;
                if !is_sure {
                    self.suspect(group);
                }
            }
        }
    }

    /// A key of which something is not sure.
    pub(crate) fn suspect(&mut self, group: Group) {
        if let Some(known) = self.groups.remove(&group) {
            self.judged -= known.members.len() as u64;
        }
        self.suspects.insert(group);
    }

    /// Everything has been taken: suspects what is not sure.
    pub(crate) fn finish(&mut self) {
        let mut unsure: Vec<Group> = Vec::new();
        for (group, known) in &mut self.groups {
            if !known.is_sure() {
                unsure.push(*group);
            }
        }
        unsure.into_iter().for_each(|group| self.suspect(group));
    }
}

impl Known {
    /// Whether nothing kept was overtaken. Leaves the members sorted.
    fn is_sure(&mut self) -> bool {
        self.members.sort_by_key(|member| member.seq);
        let mut so_far: Vec<Latest> = Vec::with_capacity(self.members.len());
        for (index, later) in self.members.iter().enumerate() {
            let is_out_of_turn = later.seq <= self.highest && self.highest > 0;
            let may_pass_folded = later.given().any(|given| self.latest.is_after(&given.span()));
            if is_out_of_turn || may_pass_folded {
                return false;
            }
            let overtook = later.given().any(|given| {
                let earlier = (0..index).rev().take_while(|earlier| so_far[*earlier].is_after(&given.span()));
                earlier.map(|earlier| &self.members[earlier]).any(|earlier| earlier.may_be_overtaken_by(&given))
            });
            if overtook {
                return false;
            }
            let before = so_far.last().copied().unwrap_or_default();
            so_far.push(before.max(later.latest));
        }
        true
    }

    /// Drops the members that nothing of the rest can have overtaken; whether all is sure.
    fn fold(&mut self) -> bool {
        if !self.is_sure() {
            return false;
        }
        let mut earliest = (NEVER, NEVER);
        let mut so_far = Latest::default();
        let latest: Vec<Latest> = self
            .members
            .iter()
            .map(|member| {
                so_far = so_far.max(member.latest);
                so_far
            })
            .collect();
        // The highest cut with every delivery behind it after every event before it. The newest stay: more may come
        // that was given together with them.
        let mut cut = 0;
        for index in (1..self.members.len()).rev() {
            for given in self.members[index].given() {
                earliest = (earliest.0.min(given.ret), earliest.1.min(given.commit));
            }
            let before = latest[index - 1];
            let is_clean = before.call <= earliest.0 && before.commit <= earliest.1;
            if is_clean && index <= self.members.len() - FOLDED_AT / 4 {
                cut = index;
                break;
            }
        }
        if cut > 0 {
            self.highest = self.members[cut - 1].seq;
            self.latest = self.latest.max(latest[cut - 1]);
            self.members.drain(..cut);
        }
        true
    }
}

impl Member {
    fn new(pair: &Pair<'_>, seq: u64) -> Self {
        let done = pair.settles.iter().filter(|settle| settle.may_ack() || settle.may_kill());
        let done = done.min_by_key(|settle| settle.span.call);
        let mut given = pair.deliveries.iter().map(|delivery| {
            let commit = delivery.span.commit;
            let common = commit.map_or(join(delivery.span.call, 0), |commit| join(commit, 1));
            Given {
                call: delivery.span.call,
                ret: delivery.span.ret,
                commit: commit.unwrap_or(NEVER),
                deliver: join(u64::from(delivery.client), common),
            }
        });
        let first = given.next().expect("groups() gives pairs that have a delivery");
        Self {
            seq,
            latest: Latest::of(pair),
            done_call: done.map_or(NEVER, |settle| settle.span.call),
            done_commit: done.and_then(|settle| settle.span.commit).unwrap_or(NEVER),
            first,
            further: given.collect(),
        }
    }

    fn given(&self) -> impl Iterator<Item = Given> + '_ {
        std::iter::once(self.first).chain(self.further.iter().copied())
    }

    /// Whether a delivery of a later message may have come too early for this one.
    fn may_be_overtaken_by(&self, given: &Given) -> bool {
        let is_together = self.given().any(|mine| mine.deliver == given.deliver);
        let is_done = given.ret >= self.done_call && (self.done_commit == NEVER || given.commit >= self.done_commit);
        self.latest.is_after(&given.span()) && !is_together && !is_done
    }
}

impl Given {
    fn span(&self) -> Span {
        Span { call: self.call, ret: self.ret, commit: Some(self.commit).filter(|commit| *commit != NEVER) }
    }
}

/// A key's messages are looked at when there are so many: often enough to keep few, seldom enough to cost little.
const FOLDED_AT: usize = 32;
