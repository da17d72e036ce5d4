//! From the journal to a running node: every batch is replayed, and the segments are written anew by what it sets off.

use std::collections::VecDeque;

use bytes::Bytes;
use mortarmq_replica::{Entry, EntryKind, HardState, Membership, Recovery, Replica, ReplicaConfig};
use mortarmq_shard::command::Batch;
use mortarmq_shard::{CommandError, Effect, ImageError, Shard};
use mortarmq_storage::{CheckpointMeta, Clock, JournalBatch, JournalEntry, LoadedCheckpoint};
use mortarmq_types::{ClusterTime, Epoch, MonotonicTime, Mutant, ShardId, WallTime, mutants};

use crate::clock::ClusterClock;
use crate::commit::{self, LEDGER_EVENT_BYTES};
use crate::config::{NodeConfig, Now, PeersError};
use crate::duties::checkpoint::{Checkpoints, journal_bytes};
use crate::node::Node;
use crate::output::SegmentWork;
use crate::recent::Recent;

/// Why a node cannot go on. The process says so and ends; a stopped node is better than a lying one.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The configured peers cannot be the voters of the shard.
    #[error("the peers cannot be the voters of this shard")]
    Peers(#[source] PeersError),
    /// The journal does not fit together.
    #[error("the journal does not fit together")]
    Recovery(#[source] mortarmq_replica::RecoveryError),
    /// The image in the checkpoint is not what was written, or of another version.
    #[error("the state in the checkpoint cannot be read")]
    Image(#[source] ImageError),
    /// The checkpoint or the journal belongs to another node, shard or set of voters.
    #[error("the {of} belongs to {found}, not to {expected}: is this the right data folder?")]
    Foreign {
        /// What of it.
        of: &'static str,
        /// Whose it is.
        found: String,
        /// Who starts.
        expected: String,
    },
    /// A log entry was written by another version.
    #[error("log entry {log_index} cannot be read: start the version that wrote it")]
    Command {
        /// The entry.
        log_index: u64,
        /// What is wrong with it.
        #[source]
        source: CommandError,
    },
}

/// A node that is being recovered: feed it the journal's batches in order, then [`NodeRecovery::finish`].
#[derive(Debug)]
pub struct NodeRecovery {
    config: NodeConfig,
    recovery: Recovery,
    shard: Shard,
    /// The stamps of the log's entries that are not known to be committed.
    stamps: VecDeque<(u64, ClusterTime)>,
    /// The latest epoch of a leader that stamped.
    stamped: Epoch,
    /// For [`Mutant::DelayByWallClock`] alone.
    last_wall: WallTime,
    last_clock: Option<Clock>,
    checkpoints: Checkpoints,
    unwritten: Unwritten,
    /// Whether files wait for a checkpoint that takes them away.
    has_freed: bool,
}

/// What was handed to the segment writer and not said to be written.
#[derive(Debug)]
struct Unwritten {
    /// Its records: what cannot be read from a segment must be here.
    recent: Recent,
    bytes: u64,
}

impl Unwritten {
    fn nothing(config: &NodeConfig) -> Self {
        Self { recent: Recent::new(config.recent_bytes), bytes: 0 }
    }
}

impl NodeRecovery {
    /// A node with nothing recovered yet.
    ///
    /// # Errors
    /// When the configuration cannot be used.
    pub fn new(config: NodeConfig) -> Result<Self, NodeError> {
        mutants::leak_config(config.recent_bytes);
        let replica = config.replica().map_err(NodeError::Peers)?;
        Self::begin(config, replica, Shard::default(), Checkpoints::default())
    }

    /// A node that goes on from a checkpoint; the journal's batches follow, from wherever the journal begins.
    ///
    /// # Errors
    /// When the image cannot be read, or belongs to another node (P11).
    pub fn from_checkpoint(config: NodeConfig, meta: &CheckpointMeta, image: Bytes) -> Result<Self, NodeError> {
        mutants::leak_config(config.recent_bytes);
        let mut replica = config.replica().map_err(NodeError::Peers)?;
        let members = Membership::decode(&meta.membership).filter(|members| config.is_among(members));
        let Some(members) = members.filter(|_| meta.shard == config.shard) else {
            let own = config.first_members().encode();
            let (found, expected) = (named(meta.shard, &meta.membership), named(config.shard, &own));
            return Err(NodeError::Foreign { of: "checkpoint", found, expected });
        };
        replica.members = members;
        replica.applied = meta.log_index;
        replica.applied_epoch = Epoch::new(meta.term);
        let shard = Shard::from_image(image).map_err(NodeError::Image)?;
        Self::begin(config, replica, shard, Checkpoints::at(meta.log_index, meta.term))
    }

    fn begin(
        config: NodeConfig,
        replica: ReplicaConfig,
        shard: Shard,
        checkpoints: Checkpoints,
    ) -> Result<Self, NodeError> {
        let recovery = Replica::recover_begin(replica).map_err(NodeError::Recovery)?;
        let unwritten = Unwritten::nothing(&config);
        let (last_wall, last_clock, has_freed) = (shard.state().wall, None, false);
        // A leader's first entry is no stamp of it.
        let stamped = shard.state().position().epoch;
        Ok(Self {
            config,
            recovery,
            shard,
            stamps: VecDeque::new(),
            stamped,
            last_wall,
            last_clock,
            checkpoints,
            unwritten,
            has_freed,
        })
    }

    /// As [`Self::from_checkpoint`], of a file whose length is known: another node can be offered it.
    pub(crate) fn from_loaded(config: NodeConfig, loaded: LoadedCheckpoint) -> Result<Self, NodeError> {
        let mut recovery = Self::from_checkpoint(config, &loaded.meta, loaded.image)?;
        recovery.checkpoints.last_bytes = loaded.bytes;
        Ok(recovery)
    }

    /// The checkpoint was installed and the install not finished: what the journal has to say before the node starts, if it does
    /// not say it yet.
    ///
    /// # Errors
    /// When the journal is of another node.
    pub(crate) fn begin_at_checkpoint(&mut self, now: Now) -> Result<Option<JournalBatch>, NodeError> {
        let begun = self.recovery.begin_at_checkpoint().map_err(NodeError::Recovery)?;
        let clock = Clock { boot_id: self.config.boot_id, boot_ms: now.monotonic.get() };
        Ok(begun.map(|(hard_state, entry)| {
            let hard_state =
                mortarmq_storage::HardState { term: hard_state.term, vote: hard_state.vote, commit: hard_state.commit };
            JournalBatch { number: 0, hard_state, clock, entries: vec![to_journal(entry)] }
        }))
    }

    /// The size at which segments and ledger files are begun anew, once the cluster's initial values are known.
    ///
    /// # Units
    /// Bytes.
    #[must_use]
    pub fn segment_max_bytes(&self) -> Option<u64> {
        self.shard.state().defaults.as_ref().map(|defaults| defaults.segment_max_bytes)
    }

    /// The membership that opens each journal file that is begun now: by the checkpoint, and by what was replayed.
    #[must_use]
    pub fn membership(&self) -> Bytes {
        self.recovery.members().encode()
    }

    /// Looks at the members that stand at the head of the newest journal file. They may have changed since; other nodes than the configured
    /// ones, or another life of this one, make it another's.
    ///
    /// # Errors
    /// [`NodeError::Foreign`].
    pub fn check_journal(&self, membership: &Bytes) -> Result<(), NodeError> {
        if Membership::decode(membership).is_some_and(|members| self.config.is_among(&members)) {
            return Ok(());
        }
        let (found, expected) = (named(self.config.shard, membership), named(self.config.shard, &self.membership()));
        Err(NodeError::Foreign { of: "journal", found, expected })
    }

    /// Takes one batch of the journal; the driver gives the work to the segment writer.
    ///
    /// # Errors
    /// When the batch does not follow the ones before, or holds a command that this build does not know.
    pub fn handle_batch(&mut self, batch: JournalBatch) -> Result<Vec<SegmentWork>, NodeError> {
        let hard_state =
            HardState { term: batch.hard_state.term, vote: batch.hard_state.vote, commit: batch.hard_state.commit };
        let entries = batch.entries.into_iter().map(from_journal).collect::<Vec<_>>();
        let mut brings_stamp = false;
        for entry in &entries {
            // A stamp that another leader replaced never was.
            while self.stamps.pop_back_if(|(last, _)| *last >= entry.log_index).is_some() {}
            if entry.kind != EntryKind::Normal || entry.data.is_empty() {
                continue;
            }
            let stamp = Batch::open(entry.data.clone())
                .map_err(|source| NodeError::Command { log_index: entry.log_index, source })?
                .stamp;
            if entry.log_index > self.checkpoints.applied.0 {
                self.stamps.push_back((entry.log_index, stamp.time));
                (self.stamped, brings_stamp) = (self.stamped.max(Epoch::new(entry.term)), true);
            }
            self.last_wall = stamp.wall;
        }
        // One of several may have stood for election since it last heard its leader, in vain; that is no word of a leader.
        if brings_stamp || !self.config.has_peers() {
            self.last_clock = Some(batch.clock);
        }
        let committed = self.recovery.handle_batch(hard_state, entries).map_err(NodeError::Recovery)?;
        let mut work = Vec::new();
        for entry in committed {
            self.checkpoints.applied = (entry.log_index, entry.term);
            while self.stamps.pop_front_if(|(first, _)| *first <= entry.log_index).is_some() {}
            self.checkpoints.journal_bytes += journal_bytes(&entry);
            self.apply(entry, &mut work)?;
        }
        Ok(work)
    }

    fn apply(&mut self, entry: Entry, work: &mut Vec<SegmentWork>) -> Result<(), NodeError> {
        if entry.kind != EntryKind::Normal || entry.data.is_empty() {
            return Ok(());
        }
        let (epoch, log_index) = (Epoch::new(entry.term), entry.log_index);
        let applied = self.shard.apply(entry.data, epoch).map_err(|source| NodeError::Command { log_index, source })?;
        for effect in applied.effects {
            match effect {
                Effect::Append(append) => {
                    let wall = applied.stamp.wall;
                    work.push(commit::append_work(&append, epoch, wall));
                    self.unwritten.bytes += append.record.len() as u64;
                    commit::keep(&mut self.unwritten.recent, append, epoch, wall, RECOVERY_TICKET);
                }
                Effect::Copy(copy) => {
                    self.unwritten.bytes += u64::from(copy.payload_bytes);
                    self.unwritten.recent.note_copy(copy.to.topic, copy.to.partition, RECOVERY_TICKET);
                    work.push(commit::copy_work(*copy, epoch, applied.stamp.wall));
                }
                Effect::Ledger(ledger) => {
                    work.push(commit::ledger_work(&ledger));
                    self.unwritten.bytes += LEDGER_EVENT_BYTES;
                }
                Effect::SegmentBytes(bytes) => work.push(SegmentWork::SegmentBytes(bytes)),
                Effect::TopicDeleted(topic) => {
                    work.push(SegmentWork::DropTopic(topic));
                    self.unwritten.recent.drop_topic(topic);
                }
                Effect::Trim { topic, partition, below } => {
                    self.has_freed = true;
                    work.push(SegmentWork::Trim { topic, partition, below });
                }
                // Nobody was connected to the process that is gone: what it had to send and tell is void.
                Effect::Deliver(_)
                | Effect::PathDeleted(_)
                | Effect::MemberEnded { .. }
                | Effect::PathMoved(_)
                | Effect::PathChanged(_)
                | Effect::GroupExpired { .. }
                | Effect::TopicMoved(_) => {}
            }
        }
        Ok(())
    }

    /// The segment writer has written all work so far. Call it now and then: what is not written is kept in memory.
    pub fn handle_segments_written(&mut self) {
        self.unwritten = Unwritten::nothing(&self.config);
    }

    /// The recovered node, when all work is written. A voter that is alone stands for election at once.
    ///
    /// # Errors
    /// When the journal's end does not fit its beginning.
    pub fn finish(mut self, now: Now) -> Result<Node, NodeError> {
        self.handle_segments_written();
        self.into_node(now)
    }

    /// As [`Self::finish`], when the disk is full and the segment writer still has work: it is done when
    /// [`Node::handle_segments_written`] is called with the ticket that comes with the node (failure rule 8).
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_unwritten(mut self, now: Now) -> Result<(Node, u64), NodeError> {
        let Unwritten { recent, bytes } = std::mem::replace(&mut self.unwritten, Unwritten::nothing(&self.config));
        let mut node = self.into_node(now)?;
        node.recent = recent;
        node.last_ticket = RECOVERY_TICKET;
        node.unwritten.push_back((RECOVERY_TICKET, bytes));
        node.unwritten_bytes = bytes;
        Ok((node, RECOVERY_TICKET))
    }

    fn into_node(self, now: Now) -> Result<Node, NodeError> {
        let received = match self.last_clock {
            // Within one boot the boot clock tells how long the process was gone; across a boot nothing does.
            Some(clock) if clock.boot_id == self.config.boot_id => MonotonicTime::new(clock.boot_ms),
            _ => now.monotonic,
        };
        let received = if Mutant::DelayByWallClock.is_on() && self.last_wall > WallTime::ZERO {
            let down_ms = now.wall.get().saturating_sub(self.last_wall.get());
            MonotonicTime::new(now.monotonic.get().saturating_sub(down_ms))
        } else {
            received
        };
        let mut clock = ClusterClock::after((self.shard.state().time, self.stamped), received, now.monotonic);
        let replica = self.recovery.finish().map_err(NodeError::Recovery)?;
        if replica.last_log_index() > replica.committed_log_index() {
            let stamp = self.stamps.back().map_or(clock.last_stamp(), |(_, stamp)| *stamp);
            clock.waits(replica.last_log_index(), stamp, received.min(now.monotonic));
        }
        let mut node = Node::new(self.config, self.shard, replica, clock, self.checkpoints);
        node.retention.has_freed = self.has_freed;
        if node.config.has_peers() {
            node.tell_members();
        }
        Ok(node)
    }
}

/// A shard with its voters, each as node and incarnation.
fn named(shard: ShardId, membership: &[u8]) -> String {
    let voter = |id: &[u8]| {
        let (node, incarnation) = id.split_at(id.len() / 2);
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte));
        format!("node {}.{}", number(node), number(incarnation))
    };
    let voters: Vec<String> = membership.chunks(size_of::<u64>()).map(voter).collect();
    format!("shard {shard} of {}", voters.join(", "))
}

fn from_journal(entry: JournalEntry) -> Entry {
    let kind = match entry.kind {
        KIND_NORMAL => EntryKind::Normal,
        KIND_SNAPSHOT => EntryKind::Snapshot,
        _ => EntryKind::ConfChange,
    };
    Entry { log_index: entry.index, term: entry.term, kind, data: entry.data }
}

pub(crate) fn to_journal(entry: Entry) -> JournalEntry {
    let kind = match entry.kind {
        EntryKind::Normal => KIND_NORMAL,
        EntryKind::Snapshot => KIND_SNAPSHOT,
        EntryKind::ConfChange => KIND_CONF_CHANGE,
    };
    JournalEntry { index: entry.log_index, term: entry.term, kind, data: entry.data }
}

/// Names what the recovery left to the segment writer.
const RECOVERY_TICKET: u64 = 1;

const KIND_NORMAL: u8 = 0;
const KIND_CONF_CHANGE: u8 = 1;
const KIND_SNAPSHOT: u8 = 2;
