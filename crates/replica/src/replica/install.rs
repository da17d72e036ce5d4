//! A replica that goes on from a snapshot: what it lacks of the log is in a checkpoint that was installed here.
//!
//! The library is told last: the checkpoint is durable, then the journal says that the log begins anew behind it, then the library
//! hears that this is persisted, and only then that all up to there is applied.

use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::{Message, MessageType, Snapshot, SnapshotMetadata};

use super::Replica;
use crate::entry::{Entry, EntryKind};
use crate::membership::Membership;
use crate::peer_message::PeerMessage;

impl Replica {
    /// Whether a snapshot that stands at this entry would bring this replica up: the log here does not hold the entry, and less
    /// than it is committed.
    #[must_use]
    pub fn lacks(&self, log_index: u64, term: u64) -> bool {
        let log = &self.raw.raft.raft_log;
        log.committed < log_index && !log.match_term(log_index, term)
    }

    /// Whether this replica follows a known leader, and nothing of what it was told is under way: not on the disk, not in an
    /// output, not in the library.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        let raft = &self.raw.raft;
        let follows = raft.state == StateRole::Follower && raft.leader_id != raft::INVALID_ID;
        let is_applied = self.applied == self.delivered && self.ready_queue.unsynced_bytes() == 0;
        follows
            && is_applied
            && self.ready_queue.oldest_tick().is_none()
            && self.outputs.is_empty()
            && !self.raw.has_ready()
    }

    /// Tells the library of a snapshot, as if its leader had sent it; the leader is answered where this replica stands. Says
    /// whether the log begins anew: then an [`crate::Output::Append`] with an entry of [`EntryKind::Snapshot`] follows, and with its
    /// durability everything up to `log_index` counts as applied. `members` are those at that entry, this replica among them. The state at
    /// that entry must be durable before this is called.
    ///
    /// # Source
    /// Failure rule 1. The entry is committed: a leader has it in a checkpoint, whoever leads now.
    pub fn install(&mut self, log_index: u64, term: u64, members: &Membership) -> bool {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Follower || raft.leader_id == raft::INVALID_ID || self.installing.is_some() {
            return false;
        }
        let mut metadata = SnapshotMetadata { index: log_index, term, ..SnapshotMetadata::default() };
        metadata.set_conf_state(members.conf_state());
        let mut snapshot = Snapshot::default();
        snapshot.set_metadata(metadata);
        let mut message = Message { from: raft.leader_id, to: raft.id, term: raft.term, ..Message::default() };
        message.set_msg_type(MessageType::MsgSnapshot);
        message.set_snapshot(snapshot);
        // Its term is the present one, and its sender a voter: nothing of it can be refused.
        let _ = self.raw.step(message);
        self.after_input();
        let begins_anew = self.raw.snap().is_some();
        if begins_anew {
            self.members = members.clone();
            self.changes.clear();
            self.promoted = None;
        }
        begins_anew
    }

    /// Takes note of who leads, of a message of that leader, and nothing else of it; says whether it is one, of no epoch that is over here.
    /// What the library answers is for the caller to hold back.
    pub fn follow(&mut self, message: &PeerMessage) -> bool {
        if !message.is_a_leaders() || message.to() != self.id() || message.epoch() < self.epoch() {
            return false;
        }
        if (self.leader(), self.epoch()) != (Some(message.from()), message.epoch()) {
            let (term, to) = (message.epoch().get(), message.to());
            // Commits nothing: the log here is not the one that the leader remembers.
            let mut heartbeat = Message { from: message.from(), to, term, ..Message::default() };
            heartbeat.set_msg_type(MessageType::MsgHeartbeat);
            let _ = self.raw.step(heartbeat);
            self.after_input();
        }
        self.leader() == Some(message.from())
    }

    /// While a follower fetches a snapshot that stands at an entry, what follows that entry stays in memory, within bounds.
    pub fn hold_log_from(&mut self, log_index: Option<u64>) {
        self.raw.mut_store().hold(log_index);
    }

    /// The entry before the first one that is in memory: a snapshot that stands before it would not meet the log.
    #[must_use]
    pub fn base_log_index(&self) -> u64 {
        self.raw.store().base_index()
    }

    /// The log in memory begins anew behind a snapshot that the library has taken; what the journal is to hold for it.
    pub(super) fn begin_behind(&mut self, (log_index, term): (u64, u64)) -> Option<Entry> {
        if log_index == 0 {
            return None;
        }
        self.raw.mut_store().begin_behind(log_index, term);
        self.installing = Some(log_index);
        Some(Entry { log_index, term, kind: EntryKind::Snapshot, data: Bytes::new() })
    }

    /// The journal has it: the library may hear that all up to the snapshot is applied.
    pub(super) fn end_install(&mut self) {
        if let Some(log_index) = self.installing.take() {
            (self.delivered, self.delivered_payload) = (log_index, log_index);
            self.set_applied(log_index);
        }
    }
}
