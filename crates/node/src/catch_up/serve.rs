//! The leader's half: which checkpoint it offers to those whom no append brings up, and what stays for them.
//!
//! # Invariants
//! 1. What is offered is a durable checkpoint of this node that its log in memory goes on from, when it is offered first.
//! 2. At most [`READS_MAX`] reads for followers are under way.

use std::collections::BTreeMap;

use bytes::Bytes;
use mortarmq_replica::{CatchUpWord, Snapshot};
use mortarmq_types::{MonotonicTime, Mutant};

use crate::config::Now;
use crate::node::Node;
use crate::output::{ReadJob, ReadResult};
use crate::peers::NO_MAJORITY_TICKS;

/// What a leader remembers of snapshots.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    offered: Option<Snapshot>,
    /// The last that was of no use: bytes of it cannot be read, or are not what it lists.
    unsound: u64,
    /// When it is offered next.
    next_offer: MonotonicTime,
    /// When somebody was last behind, or fetched something.
    used: MonotonicTime,
    /// Who has lost everything: how far the log reached when that was heard first, and when it was heard last.
    lost: BTreeMap<u64, (u64, MonotonicTime)>,
    /// Reads that are under way, by their ticket, with who asked.
    reads: BTreeMap<u64, Asked>,
}

#[derive(Debug)]
struct Asked {
    to: u64,
    snapshot: Snapshot,
    file: String,
    offset: u64,
}

impl Serving {
    /// The checkpoint that is held.
    pub(crate) fn held(&self) -> Option<u64> {
        self.offered.map(|snapshot| snapshot.log_index)
    }
}

impl Node {
    /// Offers a snapshot to those who need one, and ends the hold when nobody does.
    pub(crate) fn offer_snapshots(&mut self, now: Now) {
        let behind = self.replica.followers().into_iter().filter(|follower| {
            follower.lag_bytes.is_none() && follower.silent_ticks.is_some_and(|ticks| ticks < NO_MAJORITY_TICKS)
        });
        let mut behind: Vec<u64> = behind.map(|follower| follower.id).collect();
        let serving = &mut self.catch_up.serving;
        let leads = self.leads;
        serving.lost.retain(|_, (_, heard)| leads && now.monotonic.since_ms(*heard) < LOST_MS);
        behind.extend(serving.lost.keys());
        if !behind.is_empty() {
            serving.used = now.monotonic;
        }
        let is_over = !self.leads || now.monotonic.since_ms(serving.used) > HOLD_MS || self.disk.is_low;
        if is_over && serving.offered.is_some() {
            self.end_hold();
        }
        if behind.is_empty() || is_over || now.monotonic < self.catch_up.serving.next_offer {
            return;
        }
        let Some(snapshot) = self.snapshot_to_offer() else { return };
        self.catch_up.serving.next_offer = now.monotonic.after_ms(OFFER_MS);
        for to in behind {
            self.say(to, snapshot, CatchUpWord::Offer);
        }
    }

    /// The snapshot that the log in memory goes on from; if there is none, one is made.
    fn snapshot_to_offer(&mut self) -> Option<Snapshot> {
        // One that has lost everything waits for what is not committed yet; nobody else does, whose word may be needed for that.
        let applied = self.replica.applied_log_index();
        let reaches = self.catch_up.serving.lost.values().map(|(reach, _)| *reach);
        let reach = reaches.filter(|reach| *reach <= applied).max().unwrap_or(0);
        // One that does not know of the last change of members could not take whoever came by it for a member. Where nothing has happened
        // since one was of no use, the same one is all that there is: what it lists is repaired meanwhile.
        let newer = applied.min(self.catch_up.serving.unsound + 1);
        let base = self.replica.base_log_index().max(reach).max(self.replica.changed_at()).max(newer);
        if let Some(offered) = self.catch_up.serving.offered.filter(|offered| offered.log_index >= base) {
            return Some(offered);
        }
        // How long the file of one before this life is, nobody has said.
        let (log_index, term, bytes) = self.checkpoints.durable_as();
        if log_index < base || bytes == 0 {
            self.take_checkpoint();
            // By the time it is durable the log must still reach back to it.
            if let Some(writing) = self.checkpoints.writing {
                self.replica.hold_log_from(Some(writing));
            }
            return None;
        }
        let snapshot = Snapshot { log_index, term, bytes };
        self.catch_up.serving.offered = Some(snapshot);
        self.replica.hold_log_from(Some(log_index));
        Some(snapshot)
    }

    /// A snapshot cannot be had, wherever that was noticed: a newer one may be without what is damaged.
    pub(super) fn renew_offer(&mut self, snapshot: Snapshot) {
        let serving = &mut self.catch_up.serving;
        if serving.offered == Some(snapshot) && !Mutant::UnsoundOffered.is_on() {
            serving.unsound = snapshot.log_index;
            self.end_hold();
        }
    }

    fn end_hold(&mut self) {
        self.catch_up.serving.offered = None;
        self.replica.hold_log_from(None);
    }

    /// A node says that it has lost everything: it is told how far the log reaches, and gets a checkpoint that holds all of that.
    pub(super) fn serve_all(&mut self, now: Now, from: u64) {
        if !self.leads || self.replica.members().role(from).is_none() {
            return;
        }
        let reached = (self.replica.last_log_index(), now.monotonic);
        let known = self.catch_up.serving.lost.entry(from).or_insert(reached);
        known.1 = now.monotonic;
        let log_index = known.0;
        self.say(from, Snapshot::default(), CatchUpWord::Reaches { log_index });
    }

    /// A node says something of its log, as one that has lost everything does not: should that happen to it again, the log reaches further.
    pub(crate) fn hear_of_its_log(&mut self, from: u64) {
        self.catch_up.serving.lost.remove(&from);
    }

    /// A follower asks for bytes of a file.
    pub(super) fn serve(&mut self, now: Now, to: u64, snapshot: Snapshot, (file, offset, bytes): (String, u64, u32)) {
        if !self.leads {
            return;
        }
        if self.catch_up.serving.offered != Some(snapshot) {
            return self.say(to, snapshot, CatchUpWord::Gone);
        }
        self.catch_up.serving.used = now.monotonic;
        if self.catch_up.serving.reads.len() < READS_MAX {
            let ticket = self.read(0, ReadJob::File { file: file.clone(), offset, bytes });
            self.catch_up.serving.reads.insert(ticket, Asked { to, snapshot, file, offset });
        }
    }

    /// Takes the result of a read if it was one for a follower; else gives it back.
    pub(crate) fn served(&mut self, ticket: u64, result: ReadResult) -> Option<ReadResult> {
        let Some(Asked { to, snapshot, file, offset }) = self.catch_up.serving.reads.remove(&ticket) else {
            return Some(result);
        };
        let data: Option<Bytes> = if let ReadResult::File(data) = result { Some(data) } else { None };
        if self.leads && self.catch_up.serving.offered == Some(snapshot) {
            match data {
                Some(data) => self.say(to, snapshot, CatchUpWord::Piece { file, offset, data }),
                None => {
                    self.renew_offer(snapshot);
                    self.say(to, snapshot, CatchUpWord::Gone);
                }
            }
        }
        None
    }
}

/// Reads for followers at a time: a window of two of them.
const READS_MAX: usize = 16;
/// Whoever lost everything says so more often than that.
const LOST_MS: u64 = 3000;
/// How often it is offered.
const OFFER_MS: u64 = 500;
/// How long it is held after somebody last needed it.
const HOLD_MS: u64 = 10_000;
