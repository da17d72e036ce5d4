//! A follower that lacks more of the log than its leader has in memory is brought up by files.
//!
//! The leader's half is in `serve.rs`: what it offers, and what stays for it. The follower's is in `fetch.rs` and, once all is there,
//! `install.rs`. Neither works with the disk: what is to be done there goes out as [`CatchUpWork`] and comes back as
//! [`CatchUpDone`]; what the leader reads is a [`crate::ReadJob::File`].
//!
//! # Source
//! DESIGN "Catch-up"; docs/decisions/016-catch-up.md.

mod fetch;
mod install;
mod serve;

use bytes::Bytes;
use mortarmq_replica::{CatchUpMessage, CatchUpWord, Snapshot};
use mortarmq_storage::{RepairOutcome, StagingStep, Stretch};
use mortarmq_types::NodeId;

use crate::config::{Now, node_of};
use crate::node::Node;
use crate::output::Output;
use crate::rejoin::Rejoin;
use fetch::Fetching;
use serve::Serving;

/// One thing for the segment writer to do for a snapshot, behind all work before it; then call `handle_catch_up_done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatchUpWork {
    /// See what there is of a checkpoint, and what is wanted first.
    Begin {
        /// Its log index.
        log_index: u64,
        /// How long its file is.
        bytes: u64,
    },
    /// Go on looking.
    Check,
    /// Write bytes of the file that is wanted.
    Write {
        /// Where in it.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Install what is whole.
    Install,
    /// The journal has its entry: give the checkpoint its name.
    Finish {
        /// Its log index.
        log_index: u64,
    },
    /// Remove what was fetched.
    Abandon,
    /// Put another node's bytes in place of damaged ones.
    Repair {
        /// Where the damage begins.
        stretch: Stretch,
        /// What the other node has there.
        data: Bytes,
    },
    /// No node has it sound: what waits for it goes on without.
    GiveUp {
        /// Where the damage begins.
        stretch: Stretch,
    },
}

/// What came of it.
#[derive(Clone, Debug)]
pub enum CatchUpDone {
    /// How far the fetching is.
    Step(StagingStep),
    /// The checkpoint's files are in place, and a start finds the new state.
    Installed,
    /// The checkpoint has its name.
    Finished,
    /// Nothing is staged any more.
    Abandoned,
    /// What came of a repair.
    Repaired {
        /// Where the damage began.
        stretch: Stretch,
        /// What came of it.
        outcome: RepairOutcome,
    },
    /// What waited for a repair goes on without.
    GivenUp,
}

/// What a node does about snapshots.
#[derive(Debug, Default)]
pub(crate) struct CatchUp {
    pub(crate) serving: Serving,
    pub(crate) fetching: Fetching,
    /// Whether, and how far, this node is brought up anew.
    pub(crate) rejoin: Option<Rejoin>,
}

impl Node {
    /// Another node says something about a snapshot or about damage. What is not of the present leader, or not for this node, is dropped.
    pub fn handle_catch_up(&mut self, now: Now, message: CatchUpMessage) {
        self.turn(now);
        let is_of_member = self.replica.members().may_speak(message.from);
        let is_for_me = is_of_member && message.to == self.replica.id() && message.epoch == self.replica.epoch();
        if !is_for_me || self.is_installing() {
            return;
        }
        let (from, snapshot) = (message.from, message.snapshot);
        let Some(word) = self.hear_of_damage(now, from, message.word) else { return };
        match word {
            CatchUpWord::Fetch { file, offset, bytes } => {
                return self.serve(now, from, snapshot, (file, offset, bytes));
            }
            CatchUpWord::Lost => return self.serve_all(now, from),
            CatchUpWord::Gone if self.leads => return self.renew_offer(snapshot),
            _ => {}
        }
        if self.leads || self.replica.leader() != Some(from) {
            return;
        }
        match word {
            CatchUpWord::Offer if self.may_take(snapshot) => self.take_offer(now, snapshot),
            CatchUpWord::Reaches { log_index } => self.hear_reach(from, log_index),
            CatchUpWord::Piece { file, offset, data } => self.take_piece(now, snapshot, &file, offset, data),
            CatchUpWord::Gone => self.forget_snapshot(snapshot),
            CatchUpWord::Offer
            | CatchUpWord::Fetch { .. }
            | CatchUpWord::Lost
            | CatchUpWord::Ask { .. }
            | CatchUpWord::Sound { .. }
            | CatchUpWord::None { .. } => {}
        }
    }

    /// What the segment writer was asked to do for a snapshot is done.
    ///
    /// # Panics
    /// When nothing was asked of it.
    pub fn handle_catch_up_done(&mut self, now: Now, done: CatchUpDone) {
        self.turn(now);
        match done {
            CatchUpDone::Repaired { stretch, outcome } => self.repair_done(now, stretch, &outcome),
            CatchUpDone::GivenUp => {}
            done => self.fetched(now, done),
        }
    }

    /// How many snapshots this node has installed since its start.
    #[must_use]
    pub fn installed_snapshots(&self) -> u64 {
        self.catch_up.fetching.installed
    }

    /// Whether this node fetches or installs a snapshot.
    #[must_use]
    pub fn is_catching_up(&self) -> bool {
        self.catch_up.fetching.is_under_way()
    }

    pub(crate) fn say(&mut self, to: u64, snapshot: Snapshot, word: CatchUpWord) {
        let (from, epoch) = (self.replica.id(), self.replica.epoch());
        let message = CatchUpMessage { from, to, epoch, snapshot, word };
        let to: NodeId = node_of(to);
        self.outputs.push_back(Output::SendCatchUp { to, message: Box::new(message) });
    }
}
