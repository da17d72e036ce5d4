//! Each path's pairs, counted: what was acked when, what died, and what is unfinished.
//!
//! Rules about one message cannot know whether a path's counters cover a message that was not seen again; that is decided
//! here, when everything has been read.

use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::HashSet;

use crate::context::{Context, PathInfo};
use crate::finding::Found;
use crate::operation::{MsgId, Name, OperateKind, Settle, is_brought_back};
use crate::pair::{Case, Pair};
use crate::rules::dead_letter::{Letter, exhausted, is_of, letters, places};
use crate::rules::{Rule, loss};
use crate::span::{NEVER, Span};

/// The books of all paths.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// By path.
    pub paths: BTreeMap<Name, PathBook>,
}

/// What is known of one path's pairs.
#[derive(Debug, Default)]
pub(crate) struct PathBook {
    /// Pairs published ok or delivered.
    pub pairs: u64,
    /// The acks of pairs, each a pair's that was or may have been acked.
    pub acks: Acks,
    /// Dead letters seen, and pairs that died for certain: who was told to die without an answer may have been acked since.
    pub dead: u64,
    /// Pairs that nothing finished.
    pub open: Vec<Open>,
}

/// The acks of a path. They are many, and kept in pieces: none is moved when there are more.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    pieces: Vec<Vec<Acked>>,
}

impl Acks {
    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Acked> {
        self.pieces.iter().flatten()
    }

    /// Those that are not of some messages stay.
    fn forget(&mut self, msgs: &HashSet<MsgId>) {
        self.pieces.iter_mut().for_each(|piece| piece.retain(|acked| !msgs.contains(&acked.msg)));
    }

    /// Where those of the next pair go, all together.
    fn room(&mut self) -> &mut Vec<Acked> {
        if self.pieces.last().is_none_or(|last| last.len() >= PIECE) {
            // Most paths have few; whoever filled one piece will fill another.
            let room = if self.pieces.is_empty() { 0 } else { PIECE };
            self.pieces.push(Vec::with_capacity(room));
        }
        self.pieces.last_mut().expect("one was pushed above")
    }
}

/// So many acks are in a piece: some megabytes.
const PIECE: usize = 65_536;

/// When a pair was acked; [`NEVER`] where it was not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acked {
    pub msg: MsgId,
    /// Of the first ack that was answered ok.
    pub ok_call: u64,
    pub ok_ret: u64,
    pub ok_commit: u64,
    /// Whether the pair had been acked before, and an operator brought it back.
    pub is_again: bool,
    /// When the first ack that was answered neither ok nor refused was called.
    pub open_call: u64,
}

impl Acked {
    fn new(msg: MsgId, is_again: bool) -> Self {
        Self { msg, is_again, ok_call: NEVER, ok_ret: NEVER, ok_commit: NEVER, open_call: NEVER }
    }

    fn take(&mut self, settle: &Settle) {
        if !settle.is_ok_ack() {
            self.open_call = self.open_call.min(settle.span.call);
        } else if settle.span.ret < self.ok_ret {
            self.ok_call = settle.span.call;
            self.ok_ret = settle.span.ret;
            self.ok_commit = settle.span.commit.unwrap_or(NEVER);
        }
    }

    /// When its ok ack happened, if there is one.
    pub(crate) fn ok(&self) -> Option<Span> {
        let commit = Some(self.ok_commit).filter(|commit| *commit != NEVER);
        (self.ok_ret != NEVER).then_some(Span { call: self.ok_call, ret: self.ok_ret, commit })
    }
}

/// A pair that nothing finished.
#[derive(Debug)]
pub(crate) struct Open {
    pub msg: MsgId,
    /// What is found if the path's books do not cover it; without, it is backlog.
    pub found: Option<Box<Found>>,
}

impl Books {
    /// Takes a message into the books.
    pub(crate) fn add(&mut self, case: &Case<'_>) {
        let letters: Vec<Letter<'_>> = letters(case).collect();
        for pair in &case.pairs {
            self.add_pair(case, pair, &letters);
        }
        let Some(publish) = case.ok_publishes().next() else { return };
        for path in case.context.paths_of(publish.topic) {
            if !case.pairs.iter().any(|pair| pair.path == path) {
                self.add_unseen(case, path, &letters);
            }
        }
    }

    /// Forgets what was taken of some messages, which are looked at a second time.
    pub(crate) fn forget(&mut self, msgs: &HashSet<MsgId>) {
        for book in self.paths.values_mut() {
            // Only messages whose pairs are all acked are ever taken before everything has been read.
            let is_pair = |acked: &&Acked| !acked.is_again && msgs.contains(&acked.msg);
            book.pairs -= book.acks.iter().filter(is_pair).count() as u64;
            book.acks.forget(msgs);
        }
    }

    fn add_pair(&mut self, case: &Case<'_>, pair: &Pair<'_>, letters: &[Letter<'_>]) {
        let book = self.paths.entry(pair.path).or_default();
        let is_published = case.ok_publishes().any(|publish| pair.info.owes(publish.topic) == Some(true));
        if pair.deliveries.is_empty() && pair.settles.is_empty() && !is_published {
            return;
        }
        book.pairs += 1;
        book.add_acks(case, pair);
        let mine: Vec<&Letter<'_>> = letters.iter().filter(|letter| is_of(case, letter, pair)).collect();
        let is_dead = !mine.is_empty();
        book.dead +=
            (places(&mine).len() as u64).max(u64::from(is_dead || pair.settles.iter().any(|s| s.is_ok_kill())));
        if !pair.is_finished() && !is_dead && !is_taken_back(case, pair) {
            let found = match exhausted(pair) {
                Some(last) if can_tell(pair.context, pair.path, pair.info) => {
                    let text = "Its last attempt ended, and it is neither a dead letter nor counted as dropped.";
                    let found = Found::new(Rule::DeadLetter, text.to_owned()).of(pair.msg).on(pair.path);
                    let settles = pair.settles_of(last).map(|settle| settle.at);
                    Some(Box::new(found.by([last.at]).by(settles)))
                }
                _ if pair.deliveries.is_empty() => loss::candidate(case, pair.path).map(Box::new),
                _ => None,
            };
            book.open.push(Open { msg: pair.msg, found });
        }
    }

    fn add_unseen(&mut self, case: &Case<'_>, path: Name, letters: &[Letter<'_>]) {
        let book = self.paths.entry(path).or_default();
        book.pairs += 1;
        let is_dead = letters.iter().any(|letter| match letter.delivery.origin {
            Some(origin) => origin == path,
            None => true,
        });
        if is_dead {
            book.dead += 1;
        } else if !loss::is_purged(case, path) {
            book.open.push(Open { msg: case.msg, found: loss::candidate(case, path).map(Box::new) });
        }
    }
}

impl PathBook {
    /// Once for the pair, and once more for each time an operator brought it back and it was acked again.
    fn add_acks(&mut self, case: &Case<'_>, pair: &Pair<'_>) {
        // What an operator brought back may have been granted and never arrived, and come again for another cause.
        let asked: usize = [OperateKind::Redrive, OperateKind::Replay]
            .into_iter()
            .map(|kind| pair.context.operates(kind, pair.path, pair.msg).count())
            .sum();
        let limit = if pair.is_one { 1 + pair.brought_back().max(asked) } else { usize::MAX };
        let mut ids: Vec<Option<u64>> = Vec::new();
        let acks = self.acks.room();
        let start = acks.len();
        for settle in pair.settles.iter().filter(|settle| settle.may_ack()) {
            if settle.delivery_id.is_none() && limit > 1 {
                add_nameless_ack(case, pair, settle, acks, start..start.saturating_add(limit));
                continue;
            }
            let known = ids.iter().position(|id| *id == settle.delivery_id);
            let index = known.unwrap_or_else(|| ids.len().min(limit - 1));
            if index == ids.len() {
                ids.push(settle.delivery_id);
                acks.push(Acked::new(pair.msg, acks.len() > start));
            }
            acks[start + index].take(settle);
        }
    }

    /// How many of the open pairs the counters at the end cover: all of them, or as many as are left.
    pub(crate) fn covered(&self, context: &Context, path: Name) -> u64 {
        let Some(counters) = context.end_counters(path) else { return 0 };
        counters.dlq.saturating_add(counters.dropped).saturating_sub(self.dead)
    }
}

/// An ack that does not say of which delivery, where there may be several to ack: each may be one of its own, and one
/// certainly is, if its message stands only once on the path.
fn add_nameless_ack(case: &Case<'_>, pair: &Pair<'_>, settle: &Settle, acks: &mut Vec<Acked>, room: Range<usize>) {
    let is_again = acks.len() > room.start;
    let is_shared = case.pairs.iter().filter(|other| other.path == pair.path).count() > 1;
    if acks.len() < room.end {
        let open_call = if is_again || is_shared { settle.span.call } else { NEVER };
        acks.push(Acked { open_call, ..Acked::new(pair.msg, is_again) });
    }
    if !is_shared {
        acks[room.start].take(settle);
    }
}

/// Whether the run has any way to tell that a message died on this path.
fn can_tell(context: &Context, path: Name, info: &PathInfo) -> bool {
    info.dlq.is_some() || context.end_counters(path).is_some()
}

/// Whether a dead letter left its topic because it was redriven.
fn is_taken_back(case: &Case<'_>, pair: &Pair<'_>) -> bool {
    let is_letter = pair.info.is_dead_letters || pair.deliveries.iter().any(|delivery| delivery.origin.is_some());
    if !is_letter {
        return loss::is_purged(case, pair.path) && pair.deliveries.is_empty();
    }
    case.pairs.iter().any(|origin| {
        origin.path != pair.path
            && (origin.deliveries.iter().any(|delivery| is_brought_back(delivery.cause))
                || case.context.operates(OperateKind::Redrive, origin.path, case.msg).next().is_some())
    })
}
