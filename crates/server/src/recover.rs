//! From a configuration to a node, and what the operator is told on the way. How a data directory becomes a node,
//! `mortarmq_node::drive` decides.

use std::sync::Arc;
use std::time::Instant;

use mortarmq_node::drive::{self, DriveOptions, RecoverError, RecoverStage, RecoverWatch, RecoveredNode, Room};
use mortarmq_node::{Node, NodeConfig, Now, Peer};
use mortarmq_storage::{Disk, Identity, JournalOptions, SegmentOptions, TornTail};
use mortarmq_types::{NodeId, ShardId};

use crate::clock::{NodeClock, boot_id};
use crate::config::Config;
use crate::segment_thread::tell_unreadable;
use crate::server::StartError;

/// What a start found in its data directory.
#[derive(Clone, Debug, PartialEq)]
pub struct RecoverySummary {
    /// Whether there was no journal before.
    pub is_new: bool,
    /// Messages of all topics.
    pub messages: u64,
    /// How long it took until the node led.
    pub seconds: f64,
    /// The half-written batch that was cut, if there was one. Nobody was told that it was stored.
    pub torn: Option<TornTail>,
}

/// A node with the storage it needs, and when its recovery began.
pub(crate) struct Recovered {
    pub(crate) drive: RecoveredNode,
    pub(crate) begun: Instant,
}

/// Recovers the node of a data directory that is locked.
pub(crate) fn recover(
    config: &Config,
    identity: &Identity,
    disk: &Arc<dyn Disk>,
    room: &Room,
) -> Result<Recovered, StartError> {
    let begun = Instant::now();
    let file_bytes = config.journal_file_bytes;
    // A checkpoint frees about as many files as the journal had to reach it: kept, they need never be filled again.
    let between_checkpoints = u32::try_from(config.snapshot_journal_bytes.div_ceil(file_bytes)).unwrap_or(u32::MAX);
    let spare_files = between_checkpoints.saturating_add(1);
    let journal = JournalOptions { file_bytes, spare_files, ..JournalOptions::new(ShardId::ZERO) };
    let options = DriveOptions { journal, segments: SegmentOptions::default() };
    let node = node_config(config, identity)?;
    let mut drive = drive::recover(disk, &config.data_dir, node, options, room, &mut Watch)?;
    tell_unreadable(&drive.segments.take_unreadable());
    if drive.unwritten.is_some() {
        let bytes = drive.segments.unwritten_bytes();
        tracing::warn!(bytes, "started with segments that wait in memory, for room or for a repair");
    }
    if !drive.is_new {
        tell(&drive, begun);
    }
    Ok(Recovered { drive, begun })
}

/// Tells the log how far it is.
struct Watch;

impl RecoverWatch for Watch {
    fn now(&self) -> Now {
        NodeClock.now()
    }

    fn note(&mut self, stage: RecoverStage) {
        match stage {
            RecoverStage::Begun { checkpoint } => tracing::debug!(checkpoint, "recovery begun"),
            RecoverStage::Replaying => tracing::debug!("replaying the journal"),
            RecoverStage::Rotten { reason } => tracing::error!(
                "{reason}; this is set aside, and the other nodes bring this one up: until then it neither votes nor acknowledges"
            ),
        }
    }
}

impl From<RecoverError> for StartError {
    fn from(error: RecoverError) -> Self {
        match error {
            RecoverError::NoRoom { path, bytes } => Self::NoRoom { path, bytes },
            error => Self::Recover(error),
        }
    }
}

/// Tells the operator what the journal held, and what a crash had left in it.
fn tell(drive: &RecoveredNode, begun: Instant) {
    let found = &drive.found;
    if let Some(file) = &found.unfinished_file {
        tracing::info!(file = %file.display(), "removed a journal file that a crash left before its first batch");
    }
    if let Some(torn) = &found.torn {
        tracing::warn!(
            file = %torn.file.display(), offset = torn.offset, bytes = torn.bytes,
            "cut a batch that a crash left half-written; nobody was told that it was stored"
        );
    }
    tracing::info!(
        batches = found.batches,
        entries = found.entries,
        bytes = found.bytes,
        ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        "journal replayed"
    );
}

/// Messages of all topics that a node knows.
pub(crate) fn messages(node: &Node) -> u64 {
    let topics = node.shard().state().topics.values();
    topics.flat_map(|topic| &topic.partitions).map(|partition| partition.last_seq.get()).sum()
}

fn node_config(config: &Config, identity: &Identity) -> Result<NodeConfig, StartError> {
    let boot_id = boot_id().map_err(StartError::Boot)?;
    let incarnation = getrandom::u64().map_err(|error| StartError::Random(error.to_string()))?;
    let mut node = NodeConfig::new(config.node_id, boot_id, incarnation);
    node.data_incarnation = identity.incarnation;
    let peers = config.cluster.iter().flat_map(|cluster| &cluster.peers);
    node.peers = peers
        .map(|peer| Peer { node_id: NodeId::new(peer.id), data_incarnation: Identity::FIRST_INCARNATION })
        .collect();
    node.max_pending_bytes = config.max_pending_bytes;
    node.publish_timeout_ms = config.publish_timeout_ms;
    node.checkpoint_after_bytes = config.snapshot_journal_bytes;
    node.journal_keep_bytes = config.journal_keep_bytes;
    node.initial = config.initial.clone();
    node.initial_set = config.initial_set.clone();
    Ok(node)
}

#[cfg(test)]
mod tests {
    use crate::server::StartError;
    use mortarmq_node::drive::RecoverError;

    #[test]
    fn rule_8_a_start_without_room_says_what_it_needs() {
        let error = RecoverError::NoRoom { path: "data".into(), bytes: (64 << 20) + 1 };
        let told = StartError::from(error).to_string();
        assert!(told.contains("data needs at least 65 MiB more"), "{told}");
    }
}
