//! From a data directory to a node: the journal is replayed, and the segments are written anew on the way.

use std::sync::Arc;
use std::time::Instant;

use mortarmq_node::{Node, NodeConfig, NodeRecovery};
use mortarmq_storage::{
    Covered, Disk, Identity, Journal, JournalOptions, RealDisk, RecoverStop, SegmentOptions, SegmentWriter, TornTail,
    load_checkpoint,
};
use mortarmq_types::ShardId;

use crate::clock::{NodeClock, boot_id};
use crate::config::Config;
use crate::identity;
use crate::segment_thread::{FLUSH_BYTES, Patience, flush, take};
use crate::server::StartError;
use crate::threads::chain;

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

/// A node with the storage it needs.
pub(crate) struct Recovered {
    pub(crate) node: Node,
    pub(crate) journal: Journal,
    pub(crate) segments: SegmentWriter,
    pub(crate) is_new: bool,
    pub(crate) begun: Instant,
    pub(crate) torn: Option<TornTail>,
}

/// Recovers the node of a data directory that is locked.
pub(crate) fn recover(config: &Config) -> Result<Recovered, StartError> {
    let begun = Instant::now();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let data_dir = &config.data_dir;
    let identity = identity::claim(&*disk, data_dir, config.node_id).map_err(StartError::ForeignData)?;
    let is_new =
        !Journal::exists(&*disk, data_dir).map_err(|source| StartError::DataDir { path: data_dir.clone(), source })?;
    let loaded = load_checkpoint(&*disk, data_dir).map_err(StartError::Checkpoint)?;
    let mut segments =
        SegmentWriter::open(Arc::clone(&disk), data_dir, SegmentOptions::default()).map_err(StartError::Folder)?;
    let covered = loaded.as_ref().map(|loaded| Covered { log_index: loaded.meta.log_index });
    if !is_new {
        tracing::debug!(checkpoint = covered.map(|covered| covered.log_index), "recovery begun");
    }
    let mut recovery = match loaded {
        Some(loaded) => {
            segments.restore(&loaded.files).map_err(StartError::Checkpoint)?;
            NodeRecovery::from_checkpoint(node_config(config, &identity)?, &loaded.meta, loaded.image)
        }
        None => {
            segments.reset().map_err(StartError::Folder)?;
            NodeRecovery::new(node_config(config, &identity)?)
        }
    }
    .map_err(StartError::Node)?;
    if let Some(bytes) = recovery.segment_max_bytes() {
        segments.set_segment_bytes(bytes);
    }
    let options = JournalOptions { file_bytes: config.journal_file_bytes, ..JournalOptions::new(ShardId::ZERO) };
    let membership = recovery.membership();
    if !is_new {
        tracing::debug!("replaying the journal");
    }
    let (journal, found) = Journal::recover(disk, data_dir, options, membership, covered, &mut |batch| {
        let work = recovery.handle_batch(batch).map_err(|error| stop(&error))?;
        take(&mut segments, work, WAITS).map_err(|error| stop(&error))?;
        if segments.buffered_bytes() >= FLUSH_BYTES {
            flush(&mut segments, WAITS).map_err(|error| stop(&error))?;
        }
        Ok(())
    })
    .map_err(StartError::Journal)?;
    flush(&mut segments, WAITS).map_err(StartError::Segments)?;
    if let Some(bytes) = recovery.segment_max_bytes().filter(|bytes| *bytes != config.segment_max_bytes) {
        let configured = config.segment_max_bytes;
        tracing::info!(
            bytes,
            configured,
            "segment_max_bytes is what the catalog says, not what the configuration does"
        );
    }
    let node = recovery.finish(NodeClock.now()).map_err(StartError::Node)?;
    if !is_new {
        tell(&found, begun);
    }
    Ok(Recovered { node, journal, segments, is_new, begun, torn: found.torn })
}

/// Tells the operator what the journal held, and what a crash had left in it.
fn tell(found: &mortarmq_storage::Recovered, begun: Instant) {
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
    node.max_pending_bytes = config.max_pending_bytes;
    node.publish_timeout_ms = config.publish_timeout_ms;
    node.checkpoint_after_bytes = config.snapshot_journal_bytes;
    node.journal_keep_bytes = config.journal_keep_bytes;
    node.initial.segment_max_bytes = config.segment_max_bytes;
    Ok(node)
}

fn stop(error: &dyn std::error::Error) -> RecoverStop {
    RecoverStop { reason: chain(error) }
}

/// What a start does while the disk is full.
const WAITS: Patience<'_> = Patience { meanwhile: "the start goes on then", gives_up: &|| false };
