//! The node: its parts, its inputs, and the order in which outputs leave.
//!
//! # Invariants
//! 1. One journal write is under way at a time; what arrives meanwhile joins the next batch (failure rule 3).
//! 2. Every command of a proposed batch has someone who waits for its outcome, or nobody by intent.
//! 3. Answers to writes rest on applied commands; answers to questions on a read index of the present epoch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mortarmq_replica::{EntryKind, Replica};
use mortarmq_shard::Shard;
use mortarmq_types::{ClusterTime, ConnectionId, Epoch, MonotonicTime, Mutant, PathId, Position};

use crate::ages::Ages;
use crate::catch_up::CatchUp;
use crate::clock::{ClusterClock, Ticks};
use crate::config::{NodeConfig, Now, node_of};
use crate::connections::Connections;
use crate::duties::checkpoint::{Checkpoints, journal_bytes};
use crate::duties::retain::Retaining;
use crate::duties::room::DiskState;
use crate::forward::asks::Asks;
use crate::forward::is_streams;
use crate::forward::streams::Streams;
use crate::hand_over::HandOvers;
use crate::journal_queue::JournalQueue;
use crate::office::Office;
use crate::open_batch::{BATCH_MAX_BYTES, OpenBatch, Waiter};
use crate::output::{Output, ReadJob, ReadResult};
use crate::pulls::Pulls;
use crate::queries::Queries;
use crate::read_ahead::ReadAhead;
use crate::readmission::Readmissions;
use crate::recent::Recent;
use crate::redrives::Redrives;
use crate::repair::Repairs;
use crate::request::Request;
use crate::sends::Sends;
use crate::sessions::Sessions;
use crate::stretches::{FailedRead, Stretches};
use crate::unreadable::{Retries, index_of};

/// One shard on one node.
///
/// A driver calls any `handle_*`, then [`Node::poll_output`] until it returns `None`; [`Node::handle_tick`] every
/// [`TICK_MS`], and no later than [`Node::next_wake`].
#[derive(Debug)]
pub struct Node {
    pub(crate) config: NodeConfig,
    pub(crate) shard: Shard,
    pub(crate) replica: Replica,
    pub(crate) clock: ClusterClock,
    pub(crate) ticks: Ticks,
    pub(crate) connections: Connections,
    pub(crate) sessions: Sessions,
    pub(crate) pulls: Pulls,
    pub(crate) recent: Recent,
    pub(crate) sends: Sends,
    pub(crate) stretches: Stretches,
    pub(crate) ahead: ReadAhead,
    pub(crate) queries: Queries,
    pub(crate) redrives: Redrives,
    pub(crate) hand_overs: HandOvers,
    pub(crate) readmissions: Readmissions,
    /// What this node forwards, and what it answers for others.
    pub(crate) asks: Asks,
    pub(crate) streams: Streams,
    pub(crate) open: OpenBatch,
    /// Whether more is waited for: a batch is not closed before those have published that are expected to.
    gathers: bool,
    /// Requests that did not fit the open batch.
    pub(crate) overflow: VecDeque<Parked>,
    pub(crate) overflow_bytes: u64,
    /// Proposed batches that are not applied yet.
    pub(crate) proposed: VecDeque<ProposedBatch>,
    /// Paths where something may be deliverable.
    pub(crate) attention: BTreeSet<PathId>,
    /// Paths where nothing was deliverable while batches were not applied yet: what those publish is.
    pub(crate) looked_early: BTreeSet<PathId>,
    /// Whose turn it is to be given messages first, by path.
    pub(crate) turns: BTreeMap<PathId, u64>,
    pub(crate) outputs: VecDeque<Output>,
    /// What the replica says of the office.
    pub(crate) office: Office,
    /// Whether this node holds it.
    pub(crate) leads: bool,
    /// Whether the first batch of this leadership is applied: only then do answers rest on the present epoch.
    pub(crate) settled_in: bool,
    pub(crate) first_batch_due: bool,
    pub(crate) journal_writes: u32,
    /// Appends that wait until the journal is done with one.
    pub(crate) journal_queue: JournalQueue,
    /// When the write that is under way was begun.
    pub(crate) journal_since: MonotonicTime,
    pub(crate) next_raft_tick: MonotonicTime,
    pub(crate) last_ticket: u64,
    pub(crate) written_ticket: u64,
    pub(crate) unwritten: VecDeque<(u64, u64)>,
    pub(crate) unwritten_bytes: u64,
    last_read: u64,
    /// Reads that wait until the segment writer has written a ticket's work.
    pub(crate) deferred_reads: VecDeque<(u64, u64, ReadJob)>,
    pub(crate) unreadable: u64,
    pub(crate) retries: Retries,
    pub(crate) refused_back_pressure: u64,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) disk: DiskState,
    /// Whether this office was offered to others for want of room.
    pub(crate) has_given_way: bool,
    pub(crate) retention: Retaining,
    pub(crate) ages: Ages,
    pub(crate) catch_up: CatchUp,
    pub(crate) repairs: Repairs,
    /// The state as it will be if all that is proposed commits; only [`Mutant::DedupBeforeCommit`] makes it.
    pub(crate) staged: Option<Box<Shard>>,
}

/// A request that waits for room in a batch.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) connection: ConnectionId,
    pub(crate) slot: u64,
    pub(crate) request: Request,
    pub(crate) bytes: u64,
    pub(crate) since: MonotonicTime,
}

/// A batch that was proposed and is not applied yet.
#[derive(Debug)]
pub(crate) struct ProposedBatch {
    pub(crate) log_index: u64,
    pub(crate) epoch: Epoch,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) proposed_at: MonotonicTime,
    /// The gap of its stamp.
    pub(crate) gap_ms: u64,
    pub(crate) bytes: u64,
}

/// What a full batch gets beyond its size, at most: the last command of each duty, and those of dead letters.
const DUTIES_BYTES: usize = 1 << 20;

/// Before a batch is held back, at most so many paths are looked at for who waits.
const PATHS_LOOKED_AT: usize = 16;

/// The driver ticks this often.
pub const TICK_MS: u64 = 50;

impl Node {
    pub(crate) fn new(
        config: NodeConfig,
        shard: Shard,
        replica: Replica,
        clock: ClusterClock,
        checkpoints: Checkpoints,
    ) -> Self {
        let recent = Recent::new(config.recent_bytes);
        let journal_queue = JournalQueue::behind(replica.committed_log_index());
        Self {
            config,
            shard,
            replica,
            clock,
            ticks: Ticks::default(),
            connections: Connections::default(),
            sessions: Sessions::default(),
            pulls: Pulls::default(),
            recent,
            sends: Sends::default(),
            stretches: Stretches::default(),
            ahead: ReadAhead::default(),
            queries: Queries::default(),
            redrives: Redrives::default(),
            hand_overs: HandOvers::default(),
            readmissions: Readmissions::default(),
            asks: Asks::default(),
            streams: Streams::default(),
            open: OpenBatch::default(),
            gathers: false,
            overflow: VecDeque::new(),
            overflow_bytes: 0,
            proposed: VecDeque::new(),
            attention: BTreeSet::new(),
            looked_early: BTreeSet::new(),
            turns: BTreeMap::new(),
            outputs: VecDeque::new(),
            office: Office::default(),
            leads: false,
            settled_in: false,
            first_batch_due: false,
            journal_writes: 0,
            journal_queue,
            journal_since: MonotonicTime::ZERO,
            next_raft_tick: MonotonicTime::ZERO,
            last_ticket: 0,
            written_ticket: 0,
            unwritten: VecDeque::new(),
            unwritten_bytes: 0,
            last_read: 0,
            deferred_reads: VecDeque::new(),
            unreadable: 0,
            retries: Retries::default(),
            refused_back_pressure: 0,
            checkpoints,
            disk: DiskState::default(),
            has_given_way: false,
            retention: Retaining::default(),
            ages: Ages::default(),
            catch_up: CatchUp::default(),
            repairs: Repairs::default(),
            staged: None,
        }
    }

    /// A client connected.
    pub fn handle_connected(&mut self, connection: ConnectionId) {
        self.connections.open(connection);
    }

    /// A connection is gone. Its members live on with what they hold until their session time is over; what was not sent
    /// is sent again when they resume.
    pub fn handle_disconnected(&mut self, now: Now, connection: ConnectionId) {
        self.turn(now);
        let Some(closed) = self.connections.close(connection) else { return };
        for key in closed.subscriptions.values() {
            if let Some(session) = self.sessions.get_mut(*key)
                && session.connection.is_some_and(|(held, _)| held == connection)
            {
                session.connection = None;
            }
        }
        for id in self.pulls.matching(|pull| pull.connection == connection) {
            self.pulls.remove(id);
        }
        self.sends.drop_connection(connection);
    }

    /// A connection asks nothing more and closes once it is answered: its pulls wait no longer. Nobody may be left to take
    /// what would come later.
    pub fn handle_no_more_requests(&mut self, now: Now, connection: ConnectionId) {
        self.turn(now);
        self.pulls.wait_no_longer(connection, now.monotonic);
    }

    /// Requests of a connection, in the order in which they came.
    pub fn handle_requests(&mut self, now: Now, connection: ConnectionId, requests: Vec<Request>) {
        self.turn(now);
        for request in requests {
            self.admit(now, connection, request);
        }
    }

    /// The journal wrote and synced everything up to a number.
    pub fn handle_journal_written(&mut self, now: Now, ready_number: u64) {
        self.turn(now);
        self.journal_writes = self.journal_writes.checked_sub(1).expect("invariant 1: a write was under way");
        if !self.config.has_peers() {
            // Nothing was committed meanwhile, so nobody could settle.
            self.clock.journal_took(now.monotonic.since_ms(self.journal_since));
        }
        self.replica.handle_persisted(ready_number);
        self.end_install();
        self.write_journal(now);
    }

    /// A read is done.
    pub fn handle_read(&mut self, now: Now, ticket: u64, result: ReadResult) {
        self.turn(now);
        let Some(result) = self.served(ticket, result) else { return };
        let Some(result) = self.stretch_read(ticket, result) else { return };
        match result {
            ReadResult::Index(entries) => {
                if let Some((path, _)) = self.stretches.read_done(ticket, &entries) {
                    self.attention.insert(path);
                }
            }
            ReadResult::Records(records) if self.stretches.is_of_records(ticket) => {
                if let Some((path, _)) = self.stretches.read_done(ticket, &index_of(&records)) {
                    self.attention.insert(path);
                }
            }
            ReadResult::Failed(reason) => match self.stretches.read_failed(ticket) {
                Some(FailedRead::OfIndex(place)) => self.read_facts_from_records(place),
                // Neither index nor record says what key it has, so nothing may pass it (P8, P11).
                Some(FailedRead::OfRecords(place, from)) => {
                    self.unreadable += 1;
                    self.want_place_repaired(place, from);
                }
                Some(FailedRead::Moved(path)) => {
                    self.attention.insert(path);
                }
                None => self.handle_read_records(now, ticket, ReadResult::Failed(reason)),
            },
            other => self.handle_read_records(now, ticket, other),
        }
    }

    /// The driver waits for more, or does so no longer, before the next batch is written.
    ///
    /// # Source
    /// DESIGN section 2: the writer may wait until about as many requests are there as the last batch answered; decision 013
    /// says for whom and how long.
    pub const fn handle_gathering(&mut self, gathers: bool) {
        self.gathers = gathers;
    }

    /// For how many connections a batch waits while the driver gathers, before they publish; 0 if it is closed at once.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let missing = self.connections.missing();
        // The first batch of an office waits for nobody, and when nothing that could come would go into it, it is over.
        let is_over = self.open.is_full() || self.open.has_others() || !self.overflow.is_empty();
        if missing == 0 || self.first_batch_due || is_over || self.is_anyone_waiting() { 0 } else { missing }
    }

    /// Whether somebody with credit waits for messages that are there, or that an ack in the open batch lets go. An ack of a
    /// consumer that keeps up lets nothing go. More paths than a few are not looked at one by one.
    fn is_anyone_waiting(&self) -> bool {
        let mut moved = self.attention.iter().chain(self.open.settled.keys());
        self.attention.len() + self.open.settled.len() > PATHS_LOOKED_AT || moved.any(|id| self.is_awaited(*id))
    }

    /// Whether anything that was asked is not proposed yet: it is in the batch that is collected, or waits for room in one.
    #[must_use]
    pub fn is_collecting(&self) -> bool {
        !self.open.is_empty() || !self.overflow.is_empty()
    }

    /// Time passed.
    pub fn handle_tick(&mut self, now: Now) {
        self.turn(now);
        self.tick_replica(now.monotonic);
        self.ahead.sweep(now.monotonic);
        self.run_timed_duties(now);
    }

    /// When the next tick is due at the latest; `None` if only the regular ones are.
    #[must_use]
    pub fn next_wake(&self) -> Option<MonotonicTime> {
        // What needs a batch waits for the journal anyway.
        let can_propose = self.can_propose();
        // What is deleted is given back turn by turn, and everybody has a turn between.
        let remains = self.shard.has_remains().then_some(MonotonicTime::ZERO);
        let due = self.next_due().filter(|_| can_propose).map(|time| self.clock.monotonic(time));
        let lost = self.sessions.next_deadline().filter(|_| can_propose);
        let redriven = self.redrives.next_wake().filter(|_| can_propose);
        [remains, due, lost, redriven, self.pulls.next_deadline()].into_iter().flatten().min()
    }

    /// What to do next; `None` until the next input.
    pub fn poll_output(&mut self, now: Now) -> Option<Output> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            if self.poll_replica(now) {
                continue;
            }
            if let Some(output) = self.connections.poll() {
                if let Output::Replies { connection, replies } = output {
                    if is_streams(connection) {
                        self.keep_for_forwarder(connection, replies);
                        continue;
                    }
                    self.open_gates(connection);
                    return Some(Output::Replies { connection, replies });
                }
                return Some(output);
            }
            if let Some(output) = self.poll_forward() {
                return Some(output);
            }
            if self.poll_giving(now) || self.poll_change(now) {
                continue;
            }
            // What the leader looks for may be a read and no command.
            if !self.close_batch(now) && !self.poll_queries() && self.outputs.is_empty() && !self.begin_install() {
                return None;
            }
        }
    }

    /// Whether this node leads and its answers rest on its own epoch.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.leads && self.settled_in
    }

    /// The position that answers rest on now: the last applied command and the term it was applied in, which is not this
    /// leader's before its first command. So no commit index ever has two epochs.
    #[must_use]
    pub fn position(&self) -> Position {
        self.shard.state().position()
    }

    /// Notes that the loop turned; a turn that took too long excuses everybody who could not be heard.
    pub(crate) fn turn(&mut self, now: Now) {
        let stalled_ms = self.clock.turn(now.monotonic, self.is_halted(now.monotonic));
        if stalled_ms > 0 {
            self.sessions.excuse(stalled_ms);
        }
    }

    /// Begins a read once the work of a ticket is written.
    pub(crate) fn read(&mut self, needed_ticket: u64, job: ReadJob) -> u64 {
        self.last_read += 1;
        if needed_ticket <= self.written_ticket {
            self.outputs.push_back(Output::Read { ticket: self.last_read, job });
        } else {
            self.deferred_reads.push_back((needed_ticket, self.last_read, job));
        }
        self.last_read
    }

    /// Carries out one thing that the replica asks for; says whether there was one.
    fn poll_replica(&mut self, now: Now) -> bool {
        use mortarmq_replica::Output as Asked;
        let Some(asked) = self.replica.poll_output() else { return false };
        match asked {
            Asked::Append { ready_number, hard_state, entries } => {
                if self.config.has_peers() && !self.leads {
                    self.note_stamps(now, &entries);
                }
                self.journal_queue.push(ready_number, hard_state, entries);
                self.write_journal(now);
            }
            Asked::Committed { entries } => {
                for entry in entries {
                    let (log_index, term, bytes) = (entry.log_index, entry.term, journal_bytes(&entry));
                    let changes_members = entry.kind == EntryKind::ConfChange;
                    self.clock.committed(log_index);
                    self.handle_committed(now, entry);
                    self.replica.handle_applied(log_index);
                    if changes_members {
                        self.members_changed(log_index, term);
                    }
                    self.count_applied(log_index, term, bytes);
                }
            }
            Asked::ReadReady { token, .. } => self.answer_queries(token),
            Asked::Role { leader, epoch, is_leader } => {
                self.handle_role(now, Office { leader: leader.map(node_of), epoch, is_leader });
            }
            // What a node says that has lost what it had is no vote and no acknowledgement.
            Asked::Send { .. } if self.is_rejoining() && !Mutant::RejoinVotes.is_on() => {}
            Asked::Send { to, message } => self.outputs.push_back(Output::SendPeer { to: node_of(to), message }),
        }
        true
    }

    /// Whether a batch would enter the log now. The journal's completion, a peer's word and the tick are inputs of their own.
    pub(crate) fn can_propose(&self) -> bool {
        let is_idle = self.leads && self.journal_writes == 0;
        // With all that the duties may add: what they have taken up is gone from where it waited, whatever the log says.
        let most = self.open.len().max(BATCH_MAX_BYTES) + DUTIES_BYTES;
        is_idle && self.has_majority() && self.replica.takes_proposal(most)
    }

    /// The next moment that needs a stamp. What a stamp that is under way will end needs no second one, however long that takes.
    fn next_due(&self) -> Option<ClusterTime> {
        let due = self.shard.state().next_due()?;
        (self.proposed.is_empty() || due > self.clock.last_stamp()).then_some(due)
    }

    /// Proposes the open batch if the journal is idle and there is a reason to; says whether it did.
    fn close_batch(&mut self, now: Now) -> bool {
        if !self.can_propose() || (self.gathers && self.missing() > 0) {
            return false;
        }
        let gives_away = self.hand_overs.is_giving();
        if !gives_away {
            self.add_leader_commands(now);
        }
        let time = self.clock.time(now.monotonic);
        let is_due = self.first_batch_due || self.next_due().is_some_and(|due| due <= time);
        let stamp_due = is_due && !gives_away;
        if self.open.is_empty() && !stamp_due {
            return false;
        }
        self.first_batch_due = false;
        let bytes = self.open.len() as u64;
        let stamp = self.clock.stamp(now);
        let (data, waiters) = self.open.close(stamp);
        if Mutant::DedupBeforeCommit.is_on() {
            self.stage(&data);
        }
        match self.replica.propose(data) {
            Ok(proposed) => {
                let (log_index, epoch) = (proposed.log_index, proposed.epoch);
                let (proposed_at, gap_ms) = (now.monotonic, stamp.gap_ms);
                let batch = ProposedBatch { log_index, epoch, waiters, proposed_at, gap_ms, bytes };
                self.proposed.push_back(batch);
            }
            // Not for want of room: that was asked for before.
            Err(_) => self.refuse_waiters(waiters),
        }
        self.admit_overflow(now);
        true
    }
}
