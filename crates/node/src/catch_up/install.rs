//! The install: a follower that has a snapshot whole goes on from it.
//!
//! It begins when nothing is under way, and until it is over the node hears nobody: what comes in between would speak of a log that
//! is no longer there. Peers see a node that stands still for a moment.

use mortarmq_types::{ClusterTime, MonotonicTime, Mutant};

use super::CatchUpWork;
use super::fetch::{Phase, Whole};
use crate::ages::Ages;
use crate::duties::checkpoint::Checkpoints;
use crate::duties::retain::Retaining;
use crate::node::Node;
use crate::output::{Output, SegmentWork};
use crate::recent::Recent;
use crate::stretches::Stretches;
use crate::unreadable::Retries;

impl Node {
    /// Whether a snapshot is being installed.
    pub(crate) fn is_installing(&self) -> bool {
        self.catch_up.fetching.phase != Phase::Fetching
    }

    /// Begins the install, if all is there and nothing is under way; says whether it did.
    pub(crate) fn begin_install(&mut self) -> bool {
        if !self.catch_up.fetching.is_whole() || self.leads || !self.is_at_rest() {
            return false;
        }
        let Some(whole) = &self.catch_up.fetching.whole else { return false };
        if !self.replica.lacks(whole.meta.log_index, whole.meta.term) {
            self.catch_up.fetching.end();
            self.ask_writer(CatchUpWork::Abandon);
            return true;
        }
        self.catch_up.fetching.phase = Phase::Files;
        self.ask_writer(CatchUpWork::Install);
        true
    }

    /// Nothing is on its way to the journal, the segment writer or the checkpoint, nor in the replica.
    fn is_at_rest(&self) -> bool {
        let is_written = self.unwritten.is_empty() && self.checkpoints.writing.is_none() && self.proposed.is_empty();
        is_written && self.is_journal_at_rest() && self.replica.is_at_rest()
    }

    /// A start finds the new state: this node goes on from it, too.
    pub(super) fn go_on_from_snapshot(&mut self) {
        let whole = self.catch_up.fetching.whole.take().expect("the phase says so");
        let offered = self.catch_up.fetching.offered;
        let Whole { meta, members, mut shard } = *whole;
        if Mutant::DedupLostInSnapshot.is_on() {
            shard.forget_producers();
        }
        self.shard = shard;
        self.recent = Recent::new(self.config.recent_bytes);
        self.stretches = Stretches::default();
        self.retention = Retaining::default();
        self.ages = Ages::default();
        self.retries = Retries::default();
        self.staged = None;
        self.attention.clear();
        self.looked_early.clear();
        self.turns.clear();
        let bytes = self.catch_up.fetching.goal_bytes();
        self.checkpoints = Checkpoints::at(meta.log_index, meta.term);
        self.checkpoints.last_bytes = bytes;
        self.go_on_with_segments();
        // The leader gave that stamp before it offered the snapshot; what was heard since is no word of one who had this node.
        let stamped = self.shard.state().position().epoch;
        self.clock.go_on_from((ClusterTime::new(meta.last_stamp_ms), stamped), offered);
        let began = self.replica.install(meta.log_index, meta.term, &members);
        assert!(began, "P1: the log here holds entry {} or is no follower's", meta.log_index);
        self.tell_members();
        self.catch_up.fetching.phase = Phase::Journal { log_index: meta.log_index };
    }

    /// The command that said how large segments are may lie in what was skipped.
    fn go_on_with_segments(&mut self) {
        let Some(bytes) = self.shard.state().defaults.as_ref().map(|defaults| defaults.segment_max_bytes) else {
            return;
        };
        self.last_ticket += 1;
        let (ticket, work) = (self.last_ticket, vec![SegmentWork::SegmentBytes(bytes)]);
        self.unwritten.push_back((ticket, 0));
        self.outputs.push_back(Output::Segments { ticket, work });
    }

    /// The journal wrote something: if that was what an install waited for, it is over.
    pub(crate) fn end_install(&mut self) {
        let Phase::Journal { log_index } = self.catch_up.fetching.phase else { return };
        if self.replica.applied_log_index() < log_index {
            return;
        }
        self.catch_up.fetching.end();
        self.catch_up.fetching.installed += 1;
        self.ask_writer(CatchUpWork::Finish { log_index });
        self.release_journal();
    }

    /// Lets time pass for the replica, which hears nobody while a snapshot is installed.
    pub(crate) fn tick_replica(&mut self, now: MonotonicTime) {
        if now >= self.next_raft_tick {
            if !self.is_installing() && !self.is_rejoining() {
                self.replica.handle_tick();
                self.ticks.note(now);
            }
            self.next_raft_tick = now.after_ms(crate::node::TICK_MS);
        }
    }
}
