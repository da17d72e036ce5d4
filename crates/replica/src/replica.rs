//! One replica of one shard: inputs in, outputs out.
//!
//! # Invariants
//! 1. The term never goes back, nor does the commit index (P10).
//! 2. `applied <= delivered <= committed`, and each entry is delivered once, in order.
//! 3. What promises durable state leaves only once that state is persisted (P1, failure rule 1).
//! 4. The library's members are those that the applied log says.
//! 5. This replica counts as leader only in a term that is durable here, and the epoch it shows is durable (P10).

mod change;
mod install;
mod office;
mod steps;

use std::collections::VecDeque;

use bytes::Bytes;
use mortarmq_types::{Epoch, Mutant};
use raft::RawNode;
use raft::eraftpb::{self, MessageType};
use slog::{Discard, Logger, o};
use thiserror::Error;

use crate::config::ReplicaConfig;
use crate::entry::HardState;
use crate::handover::Handover;
use crate::log_tail::LogTail;
use crate::membership::{Change, Membership};
use crate::output::Output;
use crate::peer_message::PeerMessage;
use crate::reads::Reads;
use crate::ready_queue::ReadyQueue;
use crate::recovery::{Recovery, RecoveryError};

pub use change::ChangeError;
pub use office::{Follower, HandOverError};

/// A member of one shard's Raft group.
///
/// A driver calls, in any order, the inputs [`Replica::handle_tick`] every 50 ms, [`Replica::handle_message`],
/// [`Replica::propose`], [`Replica::request_read`], [`Replica::handle_persisted`] after an fsync and
/// [`Replica::handle_applied`] after applying; and after one or several of them [`Replica::poll_output`] until it
/// returns `None`. Inputs handled together share one append: that is how batches form.
pub struct Replica {
    raw: RawNode<LogTail>,
    members: Membership,
    /// The last applied entry that changed the members; 0 if that was before what this process has seen.
    changed_at: u64,
    /// Who became a voter by it, if anybody did.
    promoted: Option<u64>,
    /// Changes that were handed out and are not applied yet, with their log indexes.
    changes: VecDeque<(u64, Change)>,
    /// From this entry on what is sent in this office says that the last change is committed.
    told_from: u64,
    place: usize,
    places: usize,
    unsynced_limit_bytes: u64,
    uncommitted_limit_bytes: u64,
    tick: u64,
    outputs: VecDeque<Output>,
    ready_queue: ReadyQueue,
    reads: Reads,
    handover: Handover,
    /// Whether this replica is about to stop, and wants no office.
    stands_aside: bool,
    /// For how many ticks no leader is known.
    leaderless_ticks: u64,
    /// Whether this node's disk is nearly full.
    is_short_of_room: bool,
    /// The term that is persisted here.
    durable_term: u64,
    /// What was last put out, or is known from the start.
    office: Office,
    /// The last log index handed out as committed, entries without payload included.
    delivered: u64,
    /// The last log index handed out in an [`Output::Committed`].
    delivered_payload: u64,
    applied: u64,
    /// The snapshot that the library was given and that is not durable yet.
    installing: Option<u64>,
    highest_term: u64,
    highest_commit: u64,
}

/// A proposal that entered the leader's log. It is committed, or lost to another epoch's entry at the same log index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposed {
    /// The log index it will have if it is committed.
    pub log_index: u64,
    /// The epoch it was proposed in.
    pub epoch: Epoch,
}

/// Why a proposal did not enter the log: nothing is stored, so it may be called refused (P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProposeError {
    /// This replica is not the leader, or its election is not yet durable.
    #[error("this replica is not the leader")]
    NotLeader {
        /// The leader, if known.
        leader: Option<u64>,
    },
    /// Too much is uncommitted, or the office is being handed over: back-pressure.
    #[error("the log takes no proposal now")]
    Dropped,
}

/// A read was asked of a replica that is not the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this replica is not the leader")]
pub struct NotLeader {
    /// The leader, if known.
    pub leader: Option<u64>,
}

/// What a recovery ends with.
pub(crate) struct Started {
    pub(crate) hard_state: HardState,
    pub(crate) applied: u64,
    pub(crate) members: Membership,
    pub(crate) changed_at: u64,
    pub(crate) promoted: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Office {
    leader: Option<u64>,
    epoch: Epoch,
    is_leader: bool,
}

impl Replica {
    /// Begins to rebuild a replica from what is durable.
    ///
    /// # Errors
    /// [`RecoveryError::Config`] when the configuration cannot be used.
    pub fn recover_begin(config: ReplicaConfig) -> Result<Recovery, RecoveryError> {
        Recovery::begin(config)
    }

    /// Starts on a recovered log, of which everything up to `applied` is applied.
    pub(crate) fn start(config: &ReplicaConfig, mut tail: LogTail, started: Started) -> raft::Result<Self> {
        let Started { hard_state, applied, members, changed_at, promoted } = started;
        tail.set_start(hard_state.into_raft(), members.conf_state());
        let raw = RawNode::new(&config.raft_config(applied), tail, &Logger::root(Discard, o!()))?;
        let mut replica = Self {
            raw,
            members,
            changed_at,
            promoted,
            changes: VecDeque::new(),
            told_from: 0,
            place: config.place,
            places: config.places,
            unsynced_limit_bytes: config.limits.unsynced_bytes,
            uncommitted_limit_bytes: config.limits.uncommitted_bytes,
            tick: 0,
            outputs: VecDeque::new(),
            ready_queue: ReadyQueue::default(),
            reads: Reads::default(),
            handover: Handover::default(),
            stands_aside: false,
            leaderless_ticks: 0,
            is_short_of_room: false,
            durable_term: hard_state.term,
            office: Office { leader: None, epoch: Epoch::new(hard_state.term), is_leader: false },
            delivered: applied,
            delivered_payload: applied,
            applied,
            installing: None,
            highest_term: hard_state.term,
            highest_commit: hard_state.commit,
        };
        replica.after_input();
        replica.campaign_now();
        Ok(replica)
    }

    /// Lets 50 ms pass.
    pub fn handle_tick(&mut self) {
        self.tick += 1;
        self.raw.tick();
        self.give_way_if_the_disk_hangs();
        let is_leaderless = self.raw.raft.leader_id == raft::INVALID_ID;
        self.leaderless_ticks = if is_leaderless { self.leaderless_ticks + 1 } else { 0 };
        self.decline_office();
        self.after_input();
    }

    /// Takes a peer's message. One that is not meant for this replica is dropped, as the network might have done.
    /// Says whether it was a word of the present leader, and nothing that leader says is dropped for want of room.
    ///
    /// # Panics
    /// When a peer proves that this replica has forgotten what it promised: it must not go on (failure rule 4).
    pub fn handle_message(&mut self, message: PeerMessage) -> bool {
        let (is_a_leaders, is_short_of_room) = (message.is_a_leaders(), message.is_short_of_room());
        let message = message.into_raft();
        if message.to != self.id() || message.from == self.id() || !self.members.may_speak(message.from) {
            return false;
        }
        let is_behind = self.ready_queue.unsynced_bytes() > self.unsynced_limit_bytes;
        if is_behind && !message.entries.is_empty() {
            return false;
        }
        let is_of_the_leader = is_a_leaders && message.term >= self.raw.raft.term && !is_behind;
        let acknowledges = message.get_msg_type() == MessageType::MsgAppendResponse
            && message.term == self.raw.raft.term
            && !message.reject;
        self.handover.heard(message.from, self.tick, acknowledges);
        self.handover.note_room(message.from, is_short_of_room);
        if self.stands_aside && message.get_msg_type() == MessageType::MsgTimeoutNow {
            // Whoever offers its office keeps it, and offers it to somebody else.
            return is_of_the_leader;
        }
        // The errors are those of messages that no longer fit; the sender will try again if it matters.
        let _ = self.raw.step(message);
        self.after_input();
        is_of_the_leader
    }

    /// The disk of this node is nearly full, or is so no longer: the others are told with every message.
    pub fn handle_room(&mut self, is_short_of_room: bool) {
        self.is_short_of_room = is_short_of_room;
    }

    /// Everything up to this append is durable.
    ///
    /// # Panics
    /// When no append has this number: something would be acknowledged that nobody wrote.
    pub fn handle_persisted(&mut self, ready_number: u64) {
        if let Some(released) = self.ready_queue.persisted(ready_number) {
            self.release(released);
        }
        if Mutant::AckBeforeMajority.is_on() && self.is_leader() {
            let persisted = self.raw.raft.raft_log.persisted;
            self.raw.raft.raft_log.commit_to(persisted);
        }
        self.after_input();
    }

    /// Puts bytes into the log if this replica is the leader. The bytes are shared, not copied.
    ///
    /// # Durability
    /// Nothing yet: the proposal is safe once it comes out as committed.
    /// # Errors
    /// [`ProposeError`]: it did not enter the log and never will.
    /// # Panics
    /// On empty data: an empty entry is how a leader begins its office, and is never handed out.
    pub fn propose(&mut self, data: Bytes) -> Result<Proposed, ProposeError> {
        assert!(!data.is_empty(), "a proposal is never empty");
        // Checked here because a follower of the library would forward it without a word.
        if !self.is_leader() {
            return Err(ProposeError::NotLeader { leader: self.leader() });
        }
        self.propose_entry(eraftpb::Entry { data, ..eraftpb::Entry::default() })
    }

    fn propose_entry(&mut self, entry: eraftpb::Entry) -> Result<Proposed, ProposeError> {
        let mut message = eraftpb::Message { from: self.id(), ..eraftpb::Message::default() };
        message.set_msg_type(MessageType::MsgPropose);
        message.set_entries(vec![entry].into());
        let result = self.raw.raft.step(message);
        self.after_input();
        match result {
            Ok(()) => Ok(Proposed { log_index: self.last_log_index(), epoch: Epoch::new(self.raw.raft.term) }),
            Err(_) => Err(ProposeError::Dropped),
        }
    }

    /// Asks for a moment at which the state may answer a read; it comes as [`Output::ReadReady`], or not at all if the
    /// office ends first.
    ///
    /// # Errors
    /// [`NotLeader`]: ask the leader.
    pub fn request_read(&mut self, token: u64) -> Result<(), NotLeader> {
        if !self.is_leader() {
            return Err(NotLeader { leader: self.leader() });
        }
        // A new office forgets the reads of the last one: it must begin before this read is asked for.
        self.note_office();
        self.reads.request(token);
        Ok(())
    }

    /// Everything handed out up to this log index is applied. Entries without payload behind it count along.
    ///
    /// # Panics
    /// When it was not handed out yet: `applied <= delivered`.
    pub fn handle_applied(&mut self, log_index: u64) {
        assert!(log_index <= self.delivered, "applied {log_index} passes delivered {}", self.delivered);
        let applied = if log_index >= self.delivered_payload { self.delivered } else { log_index };
        self.apply_changes(applied);
        self.set_applied(applied);
        self.after_input();
    }

    /// Stands for election without waiting for the time-out, if nobody else has a vote. A single voter does this by
    /// itself when it starts.
    pub fn campaign_now(&mut self) {
        if self.is_alone() {
            self.raw.campaign().expect("a campaign is a local message, which the library never refuses");
            self.after_input();
        }
    }

    /// The next thing to do, until there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            self.note_office();
            if let Some((token, log_index)) = self.reads.pop_applied(self.applied) {
                return Some(Output::ReadReady { token, log_index });
            }
            self.begin_read_round();
            if self.raw.has_ready() {
                self.take_ready();
            } else if self.outputs.is_empty() {
                return None;
            }
        }
    }

    /// This replica's Raft id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.raw.raft.id
    }

    /// Whether this replica is the leader, in an epoch that is durable here.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.present_office().is_leader
    }

    /// The epoch, as far as it is durable here.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.present_office().epoch
    }

    /// The leader of the epoch, if known.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        self.present_office().leader
    }

    /// What it never forgets besides its entries, durable or not.
    #[must_use]
    pub fn hard_state(&self) -> HardState {
        let state = self.raw.raft.hard_state();
        HardState { term: state.term, vote: state.vote, commit: state.commit }
    }

    /// The last log index, durable or not.
    #[must_use]
    pub fn last_log_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// The log index known to be committed.
    #[must_use]
    pub fn committed_log_index(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// The log index up to which everything is applied; where a checkpoint stands.
    #[must_use]
    pub fn applied_log_index(&self) -> u64 {
        self.applied
    }

    /// The epoch of the entry at [`Replica::applied_log_index`], for [`ReplicaConfig::applied_epoch`].
    #[must_use]
    pub fn applied_epoch(&self) -> Epoch {
        let term = self.raw.store().term_at(self.applied);
        Epoch::new(term.expect("the log tail is never compacted above the applied index"))
    }

    /// Payload bytes put out to be written and not yet persisted.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        self.ready_queue.unsynced_bytes()
    }

    /// Asserts the numbered invariants of this crate; tests and the simulator call it after every step.
    pub fn check(&self) {
        self.assert_order();
        self.ready_queue.check();
        self.raw.store().check();
        self.check_members();
        assert!(self.durable_term <= self.raw.raft.term, "the durable term is ahead of the term");
        assert!(!self.office.is_leader || self.office.leader == Some(self.id()), "a leader that names another");
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("Replica");
        shown.field("id", &self.id()).field("office", &self.present_office());
        shown.field("last_log_index", &self.last_log_index()).field("committed", &self.committed_log_index());
        shown.field("delivered", &self.delivered).field("applied", &self.applied).finish_non_exhaustive()
    }
}
