//! The other members: what they say, how this node stands with them, and handing the office over to one of them.

use mortarmq_replica::{Entry, Follower, HandOverError, PeerMessage};
use mortarmq_shard::command::Batch;
use mortarmq_types::{Epoch, MonotonicTime, Mutant, NodeId};
use mortarmq_wire::ErrorCode;

use crate::clock::STALL_MS;
use crate::config::{Now, node_of};
use crate::node::{Node, TICK_MS};
use crate::refusal::not_leading;
use crate::reply::Failure;

/// How a follower stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// It has, or will soon have, all there is.
    Current,
    /// It lacks a lot, and no write waits for it.
    Lagging,
    /// It is not heard.
    Silent,
    /// It lacks what the leader has no longer in memory: it is brought up by files. It goes on to vote and serves nothing.
    CatchUpRequired,
}

/// A follower as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The node.
    pub node_id: NodeId,
    /// Whether it is being readmitted, and neither votes nor counts.
    pub learns: bool,
    /// How it stands.
    pub state: PeerState,
    /// What it lacks of the log; `None` where that is more than is in memory for it.
    ///
    /// # Units
    /// Bytes.
    pub lag_bytes: Option<u64>,
    /// How many entries of the log it has not acknowledged.
    pub lag_entries: u64,
    /// How long it said nothing; `None` if it never said anything to this leader's process.
    ///
    /// # Units
    /// Milliseconds, in steps of the replica's clock.
    pub silent_ms: Option<u64>,
}

impl PeerState {
    /// As routes and metrics name it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Lagging => "lagging",
            Self::Silent => "silent",
            Self::CatchUpRequired => "catching_up",
        }
    }
}

impl Node {
    /// A message of another voter. One that is not for this node is dropped.
    ///
    /// # Panics
    /// When a peer proves that this node has forgotten what it promised: it must not go on (failure rule 4).
    pub fn handle_peer(&mut self, now: Now, message: PeerMessage) {
        self.turn(now);
        if self.is_installing() {
            return;
        }
        if self.is_rejoining() && !Mutant::RejoinVotes.is_on() {
            return self.hear_while_rejoining(now, &message);
        }
        // What is applied here has to be written here: memory is bounded on each node, and the leader sends it again.
        let is_behind = self.unwritten_bytes > self.unwritten_bytes_of_deliveries();
        if is_behind && message.has_entries() {
            return;
        }
        self.hear_of_its_log(message.from());
        let epoch = message.epoch();
        // Whoever drops what the leader says is no witness that others could settle.
        if self.replica.handle_message(message) && !is_behind {
            self.clock.heard(epoch, now.monotonic);
        }
    }

    /// A leader's entries came in: what they say of the time is known from now on, whether they are committed or not.
    pub(crate) fn note_stamps(&mut self, now: Now, entries: &[Entry]) {
        if let Some(first) = entries.first() {
            self.clock.replaced(first.log_index);
        }
        for entry in entries.iter().filter(|entry| !entry.data.is_empty()) {
            // One that this build cannot read stops it when it is committed.
            if let Ok(batch) = Batch::open(entry.data.clone()) {
                let (time, epoch) = (batch.stamp.time, Epoch::new(entry.term));
                self.clock.received(entry.log_index, time, epoch, now.monotonic);
            }
        }
    }

    /// Asks another node to take the office: the one that is named, or the one that could soonest. Nothing is proposed until it
    /// has, or 500 ms are over; the end comes as [`crate::Output::Role`].
    ///
    /// # Errors
    /// [`HandOverError`]: nothing has changed.
    pub fn handle_hand_over(&mut self, now: Now, to: Option<NodeId>) -> Result<NodeId, HandOverError> {
        self.turn(now);
        self.hand_over_now(to)
    }

    /// This node is about to stop: it stands for election only where nobody else could be elected, and asks others to take its
    /// office until one has. A driver calls this before it lets go of its clients, and once.
    pub fn handle_stand_aside(&mut self, now: Now) {
        self.turn(now);
        match self.leads {
            // What is under way is seen through first.
            true => self.begin_giving(now, None),
            false => self.replica.stand_aside(),
        }
    }

    /// Who leads, if it is known.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.office.leader
    }

    /// How the others stand, on the node that leads; nothing elsewhere.
    #[must_use]
    pub fn peers(&self) -> Vec<PeerView> {
        let view = |follower: Follower| {
            let is_silent = follower.silent_ticks.is_none_or(|ticks| ticks >= NO_MAJORITY_TICKS);
            let state = match follower.lag_bytes {
                _ if is_silent => PeerState::Silent,
                None => PeerState::CatchUpRequired,
                Some(bytes) if bytes > self.config.peer_lag_bytes => PeerState::Lagging,
                Some(_) => PeerState::Current,
            };
            PeerView {
                node_id: node_of(follower.id),
                learns: follower.learns,
                state,
                lag_bytes: follower.lag_bytes,
                lag_entries: follower.lag_entries,
                silent_ms: follower.silent_ticks.map(|ticks| ticks * TICK_MS),
            }
        };
        self.replica.followers().into_iter().map(view).collect()
    }

    /// 0 healthy, 1 soft, 2 read-only.
    #[must_use]
    pub fn quorum_state(&self) -> u8 {
        if !self.leads {
            return if self.office.leader.is_some() { 0 } else { 2 };
        }
        if !self.has_majority() || self.is_halted(self.clock.last_turn()) {
            return 2;
        }
        let lags = |follower: &Follower| follower.lag_bytes.is_none_or(|bytes| bytes > self.config.peer_lag_bytes);
        u8::from(self.replica.followers().iter().any(lags))
    }

    /// Whether a majority that can acknowledge was heard lately.
    pub(crate) fn has_majority(&self) -> bool {
        !self.config.has_peers() || self.replica.ticks_without_majority() < NO_MAJORITY_TICKS
    }

    /// Whether a majority, with this node or without it, has room for more.
    pub(crate) fn has_majority_with_room(&self, with_this_node: bool) -> bool {
        self.replica.has_majority_with_room(NO_MAJORITY_TICKS, with_this_node)
    }

    /// Whether what was proposed waits for its majority for so long that members cannot be blamed for being silent.
    pub(crate) fn is_halted(&self, now: MonotonicTime) -> bool {
        let waits = |since: MonotonicTime| now.since_ms(since) > STALL_MS;
        self.config.has_peers() && self.leads && self.proposed.front().is_some_and(|batch| waits(batch.proposed_at))
    }

    /// Until when members could settle, as far as this leader knows.
    pub(crate) fn last_heard(&self) -> MonotonicTime {
        let heard = self.ticks.ago(self.replica.ticks_without_majority());
        self.proposed.front().map_or(heard, |batch| heard.min(batch.proposed_at))
    }

    /// Why this node takes nothing that the log would have to take: it does not lead, leads no majority, or what it
    /// proposed waits for too long for one.
    pub(crate) fn refusal_to_serve(&self) -> Option<Failure> {
        if !self.leads {
            return Some(not_leading(self.office.leader));
        }
        let text = if !self.has_majority() {
            "too few of the other nodes answer this one and can take what is written; nothing was stored: retry in a moment"
        } else if self.is_halted(self.clock.last_turn()) {
            "too few of the other nodes confirm what was written before; nothing was stored: retry in a moment"
        } else {
            return None;
        };
        Some(Failure { retry_after_ms: RETRY_AFTER_MS, ..Failure::new(ErrorCode::InSyncReplicasNotEnough, text) })
    }
}

/// A majority that said nothing for so long is missing: three heartbeats, 300 ms. The replica gives up its office later.
pub(crate) const NO_MAJORITY_TICKS: u64 = 6;
/// About as long as it takes to elect somebody else.
const RETRY_AFTER_MS: u32 = 500;
