//! The follower's half: it asks for what it lacks of a snapshot, piece by piece.
//!
//! # Invariants
//! 1. One [`CatchUpWork`] is under way at a time.
//! 2. At most [`WINDOW_BYTES`] are asked for, or here and not written.

use std::collections::BTreeMap;

use bytes::Bytes;
use mortarmq_replica::{CatchUpWord, Membership, Snapshot};
use mortarmq_shard::Shard;
use mortarmq_storage::{CheckpointMeta, StagingStep};
use mortarmq_types::MonotonicTime;

use super::{CatchUpDone, CatchUpWork};
use crate::config::Now;
use crate::node::Node;
use crate::output::Output;

/// What a follower knows of the snapshot that it fetches.
#[derive(Debug, Default)]
pub(crate) struct Fetching {
    goal: Option<Snapshot>,
    /// When that was offered first.
    pub(super) offered: MonotonicTime,
    /// Whether the segment writer is at work for it.
    is_busy: bool,
    wanted: Option<Wanted>,
    /// What is asked for: offset, and when it was asked for last.
    asked: BTreeMap<u64, MonotonicTime>,
    /// What came and is not written yet.
    arrived: BTreeMap<u64, Bytes>,
    /// All of it is there.
    pub(super) whole: Option<Box<Whole>>,
    pub(super) phase: Phase,
    /// Before that nothing is begun: there was no room.
    not_before: MonotonicTime,
    /// The snapshot of which something may be staged.
    staged: Option<u64>,
    pub(crate) installed: u64,
}

/// The state that the snapshot holds.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) meta: CheckpointMeta,
    pub(super) members: Membership,
    pub(super) shard: Shard,
}

/// How far the install is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not begun.
    #[default]
    Fetching,
    /// The files take their places.
    Files,
    /// The journal is to say so.
    Journal { log_index: u64 },
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    file: String,
    /// The next byte to be written.
    from: u64,
    to: u64,
}

impl Fetching {
    pub(super) fn is_under_way(&self) -> bool {
        self.goal.is_some()
    }

    /// Whether all is there and nothing is asked of the segment writer.
    pub(super) fn is_whole(&self) -> bool {
        self.whole.is_some() && !self.is_busy && self.phase == Phase::Fetching
    }

    /// How long the checkpoint's file is.
    pub(super) fn goal_bytes(&self) -> u64 {
        self.goal.map_or(0, |goal| goal.bytes)
    }

    pub(super) fn end(&mut self) {
        let Self { is_busy, not_before, staged, installed, .. } = *self;
        *self = Self { is_busy, not_before, staged, installed, ..Self::default() };
    }

    fn forget_pieces(&mut self) {
        self.wanted = None;
        self.asked.clear();
        self.arrived.clear();
    }
}

impl Node {
    /// The leader has a snapshot for this node.
    pub(super) fn take_offer(&mut self, now: Now, snapshot: Snapshot) {
        if !self.replica.lacks(snapshot.log_index, snapshot.term) {
            // The leader does not know: a snapshot that was installed before a crash is acknowledged like this.
            let members = self.replica.members().clone();
            self.replica.install(snapshot.log_index, snapshot.term, &members);
            return self.abandon_snapshot();
        }
        let fetching = &mut self.catch_up.fetching;
        let is_known = fetching.goal == Some(snapshot);
        if is_known || fetching.is_busy || now.monotonic < fetching.not_before {
            return;
        }
        fetching.end();
        (fetching.goal, fetching.offered) = (Some(snapshot), now.monotonic);
        fetching.staged = Some(snapshot.log_index);
        self.ask_writer(CatchUpWork::Begin { log_index: snapshot.log_index, bytes: snapshot.bytes });
    }

    /// What was fetched is of no use: the log brought this node up.
    fn abandon_snapshot(&mut self) {
        let fetching = &mut self.catch_up.fetching;
        if fetching.goal.is_some() && !fetching.is_busy {
            fetching.end();
            self.ask_writer(CatchUpWork::Abandon);
        }
    }

    /// The leader has a snapshot no more. What is staged serves the next.
    pub(super) fn forget_snapshot(&mut self, snapshot: Snapshot) {
        let fetching = &mut self.catch_up.fetching;
        // What is whole needs no leader.
        if fetching.goal == Some(snapshot) && fetching.whole.is_none() {
            fetching.end();
        }
    }

    /// Bytes of a file came.
    pub(super) fn take_piece(&mut self, now: Now, snapshot: Snapshot, file: &str, offset: u64, data: Bytes) {
        let fetching = &mut self.catch_up.fetching;
        let Some(wanted) = fetching.wanted.as_ref().filter(|wanted| wanted.file == file) else { return };
        if fetching.goal != Some(snapshot) || data.len() as u64 != piece_bytes(offset, wanted.to) {
            return;
        }
        if fetching.asked.remove(&offset).is_some() {
            fetching.arrived.insert(offset, data);
        }
        self.go_on(now);
    }

    /// The segment writer is done.
    pub(super) fn fetched(&mut self, now: Now, done: CatchUpDone) {
        let fetching = &mut self.catch_up.fetching;
        assert!(
            std::mem::replace(&mut fetching.is_busy, false),
            "invariant 1: nothing was asked of the segment writer"
        );
        match done {
            CatchUpDone::Finished => {
                fetching.staged = None;
                return self.end_rejoin();
            }
            CatchUpDone::Abandoned => {
                fetching.staged = None;
                return;
            }
            CatchUpDone::Installed => return self.go_on_from_snapshot(),
            CatchUpDone::Step(_) if fetching.goal.is_none() => return,
            CatchUpDone::Step(step) => self.take_step(now, step),
            CatchUpDone::Repaired { .. } | CatchUpDone::GivenUp => unreachable!("that is no work for a snapshot"),
        }
        self.go_on(now);
    }

    fn take_step(&mut self, now: Now, step: StagingStep) {
        let fetching = &mut self.catch_up.fetching;
        match step {
            StagingStep::Wants { file, from, to } => {
                if fetching.wanted.as_ref().is_none_or(|wanted| wanted.file != file || wanted.from > from) {
                    fetching.forget_pieces();
                }
                fetching.wanted = Some(Wanted { file, from, to });
            }
            StagingStep::Checking => self.ask_writer(CatchUpWork::Check),
            StagingStep::Whole { meta, image } => self.take_whole(meta, image),
            StagingStep::NoRoom => {
                fetching.end();
                fetching.not_before = now.monotonic.after_ms(NO_ROOM_MS);
            }
            StagingStep::Lost => {
                // Bytes that rotted at the leader, of something that nobody else has any more, would come again for ever.
                let goal = fetching.goal;
                fetching.end();
                if let (Some(goal), Some(leader)) = (goal, self.replica.leader().filter(|_| !self.leads)) {
                    self.say(leader, goal, CatchUpWord::Gone);
                }
            }
        }
    }

    /// Everything is there; what cannot be this node's, or not be read, is never installed (P11).
    fn take_whole(&mut self, meta: CheckpointMeta, image: Bytes) {
        let fetching = &mut self.catch_up.fetching;
        fetching.forget_pieces();
        let goal = fetching.goal.unwrap_or_default();
        let members = Membership::decode(&meta.membership).filter(|members| self.config.is_among(members));
        let members = members.filter(|_| meta.shard == self.config.shard);
        let is_it = (meta.log_index, meta.term) == (goal.log_index, goal.term);
        match (Shard::from_image(image), members) {
            (Ok(shard), Some(members)) if is_it => fetching.whole = Some(Box::new(Whole { meta, members, shard })),
            _ => fetching.end(),
        }
    }

    /// Writes what is next, and asks for what the window has room for.
    fn go_on(&mut self, now: Now) {
        let fetching = &mut self.catch_up.fetching;
        let (Some(goal), Some(wanted)) = (fetching.goal, fetching.wanted.as_ref()) else { return };
        let (from, to, file) = (wanted.from, wanted.to, wanted.file.clone());
        if !fetching.is_busy
            && let Some(data) = fetching.arrived.remove(&from)
        {
            self.ask_writer(CatchUpWork::Write { offset: from, data });
        }
        let Some(leader) = self.replica.leader() else { return };
        let fetching = &mut self.catch_up.fetching;
        let end = to.min(from.saturating_add(WINDOW_BYTES));
        let mut wanted = Vec::new();
        // While a piece is written, it is not asked for again.
        let mut offset = if fetching.is_busy { from + piece_bytes(from, to) } else { from };
        while offset < end {
            if !fetching.asked.contains_key(&offset) && !fetching.arrived.contains_key(&offset) {
                fetching.asked.insert(offset, now.monotonic);
                wanted.push(offset);
            }
            offset += piece_bytes(offset, to);
        }
        for offset in wanted {
            self.fetch(leader, goal, (&file, offset, to));
        }
    }

    fn fetch(&mut self, leader: u64, goal: Snapshot, (file, offset, to): (&str, u64, u64)) {
        let bytes = u32::try_from(piece_bytes(offset, to)).expect("at most a piece");
        self.say(leader, goal, CatchUpWord::Fetch { file: file.to_owned(), offset, bytes });
    }

    /// Asks again for what did not come.
    pub(crate) fn fetch_again(&mut self, now: Now) {
        let applied = self.replica.applied_log_index();
        let fetching = &mut self.catch_up.fetching;
        if fetching.goal.is_none() && !fetching.is_busy && fetching.staged.is_some_and(|staged| staged <= applied) {
            // The log brought this node up after all.
            return self.ask_writer(CatchUpWork::Abandon);
        }
        let (Some(goal), Some(wanted), Some(leader)) = (fetching.goal, &fetching.wanted, self.replica.leader()) else {
            return;
        };
        if self.leads {
            return fetching.end();
        }
        let (file, to) = (wanted.file.clone(), wanted.to);
        let mut late = Vec::new();
        for (offset, asked_at) in &mut fetching.asked {
            if now.monotonic.since_ms(*asked_at) >= RETRY_MS {
                *asked_at = now.monotonic;
                late.push(*offset);
            }
        }
        for offset in late {
            self.fetch(leader, goal, (&file, offset, to));
        }
        self.go_on(now);
    }

    /// Asks the segment writer for something, if it is idle.
    pub(super) fn ask_writer(&mut self, work: CatchUpWork) {
        let is_busy = std::mem::replace(&mut self.catch_up.fetching.is_busy, true);
        assert!(!is_busy, "invariant 1: the segment writer is at work for a snapshot");
        self.outputs.push_back(Output::CatchUp { work });
    }
}

/// How many bytes the piece at an offset has, in a file that ends at `to`. Pieces begin where they are asked for.
fn piece_bytes(offset: u64, to: u64) -> u64 {
    to.saturating_sub(offset).min(PIECE_BYTES)
}

/// As much is asked for at once.
const PIECE_BYTES: u64 = 128 << 10;
/// As much is asked for, or here and not written.
const WINDOW_BYTES: u64 = 1 << 20;
const RETRY_MS: u64 = 400;
/// Without room, somebody has to make some first.
const NO_ROOM_MS: u64 = 5000;
