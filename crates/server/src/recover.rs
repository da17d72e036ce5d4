//! From a data directory to a node: the journal is replayed, and the segments are written anew on the way.

use std::sync::Arc;
use std::time::Instant;

use mortarmq_node::{Node, NodeConfig, NodeRecovery, SegmentWork};
use mortarmq_storage::{
    Covered, Disk, Identity, Journal, JournalOptions, RecoverStop, SegmentOptions, SegmentWriter, TornTail,
    load_checkpoint,
};
use mortarmq_types::ShardId;

use crate::clock::{NodeClock, boot_id};
use crate::config::Config;
use crate::room::{Room, Use};
use crate::segment_thread::{FLUSH_BYTES, SegmentError};
use crate::segments::Segments;
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
    pub(crate) segments: Segments,
    /// Names what could not be written to the segments, because the disk is full.
    pub(crate) unwritten: Option<u64>,
    pub(crate) is_new: bool,
    pub(crate) begun: Instant,
    pub(crate) torn: Option<TornTail>,
}

/// Recovers the node of a data directory that is locked. On a full disk the segments are written with room from the
/// reserve, and what it is not enough for stays in memory, within bounds (failure rule 8).
pub(crate) fn recover(
    config: &Config,
    identity: &Identity,
    disk: &Arc<dyn Disk>,
    room: &Room,
) -> Result<Recovered, StartError> {
    let begun = Instant::now();
    let data_dir = &config.data_dir;
    let is_new =
        !Journal::exists(&**disk, data_dir).map_err(|source| StartError::DataDir { path: data_dir.clone(), source })?;
    let loaded = load_checkpoint(&**disk, data_dir).map_err(StartError::Checkpoint)?;
    let mut segments =
        SegmentWriter::open(Arc::clone(disk), data_dir, SegmentOptions::default()).map_err(StartError::Folder)?;
    let covered = loaded.as_ref().map(|loaded| Covered { log_index: loaded.meta.log_index });
    if !is_new {
        tracing::debug!(checkpoint = covered.map(|covered| covered.log_index), "recovery begun");
    }
    let mut recovery = match loaded {
        Some(loaded) => {
            segments.restore(&loaded.files).map_err(StartError::Checkpoint)?;
            NodeRecovery::from_checkpoint(node_config(config, identity)?, &loaded.meta, loaded.image)
        }
        None => {
            segments.reset().map_err(StartError::Folder)?;
            NodeRecovery::new(node_config(config, identity)?)
        }
    }
    .map_err(StartError::Node)?;
    if let Some(bytes) = recovery.segment_max_bytes() {
        segments.set_segment_bytes(bytes);
    }
    let file_bytes = config.journal_file_bytes;
    // A checkpoint frees about as many files as the journal had to reach it: kept, they need never be filled again.
    let between_checkpoints = u32::try_from(config.snapshot_journal_bytes.div_ceil(file_bytes)).unwrap_or(u32::MAX);
    let spare_files = between_checkpoints.saturating_add(1);
    let options = JournalOptions { file_bytes, spare_files, ..JournalOptions::new(ShardId::ZERO) };
    let membership = recovery.membership();
    if !is_new {
        tracing::debug!("replaying the journal");
    }
    let segments = Segments::new(segments);
    let mut behind = Behind { segments, flush_at_bytes: FLUSH_BYTES, is_out_of_room: false };
    let recovered = Journal::recover(Arc::clone(disk), data_dir, options, membership, covered, &mut |batch| {
        let work = recovery.handle_batch(batch).map_err(|error| stop(&error))?;
        behind.take(work, room, &mut recovery).map_err(|error| stop(&error))
    });
    if behind.is_out_of_room {
        let (path, bytes) = (data_dir.clone(), behind.segments.unwritten_bytes());
        return Err(StartError::NoRoom { path, bytes });
    }
    let (journal, found) = recovered.map_err(StartError::Journal)?;
    let Behind { mut segments, .. } = behind;
    let now = NodeClock.now();
    let (node, unwritten) = match segments.flush(room, Use::Segments).map_err(StartError::Segments)? {
        None => (recovery.finish(now).map_err(StartError::Node)?, None),
        Some(full) => {
            tracing::warn!(bytes = segments.unwritten_bytes(), "{full}: started with segments that wait in memory");
            let (node, ticket) = recovery.finish_unwritten(now).map_err(StartError::Node)?;
            (node, Some(ticket))
        }
    };
    if !is_new {
        tell(&found, begun);
    }
    Ok(Recovered { node, journal, segments, unwritten, is_new, begun, torn: found.torn })
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

/// The segments while the journal is replayed.
struct Behind {
    segments: Segments,
    /// They are written when so much waits: a disk that is full need not be asked with every batch.
    flush_at_bytes: u64,
    /// More waits than may be kept in memory.
    is_out_of_room: bool,
}

impl Behind {
    fn take(&mut self, work: Vec<SegmentWork>, room: &Room, recovery: &mut NodeRecovery) -> Result<(), SegmentError> {
        self.segments.take(work, room)?;
        if self.segments.unwritten_bytes() < self.flush_at_bytes {
            return Ok(());
        }
        if let Some(full) = self.segments.flush(room, Use::Segments)? {
            self.flush_at_bytes = self.segments.unwritten_bytes() + FLUSH_BYTES;
            self.is_out_of_room = self.segments.unwritten_bytes() > UNWRITTEN_BYTES_MAX;
            return if self.is_out_of_room { Err(SegmentError::Flush(full)) } else { Ok(()) };
        }
        self.flush_at_bytes = FLUSH_BYTES;
        recovery.handle_segments_written();
        Ok(())
    }
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
    node.initial = config.initial.clone();
    node.initial_set = config.initial_set.clone();
    Ok(node)
}

fn stop(error: &dyn std::error::Error) -> RecoverStop {
    RecoverStop { reason: chain(error) }
}

/// What a start on a full disk keeps in memory at most, as a node that runs does.
const UNWRITTEN_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::{Behind, FLUSH_BYTES, Segments, UNWRITTEN_BYTES_MAX};
    use crate::inbox::inbox;
    use crate::room::Room;
    use crate::server::StartError;
    use mortarmq_node::{NodeConfig, NodeRecovery, SegmentWork};
    use mortarmq_storage::{Disk, LedgerRecord, MemoryDisk, SegmentOptions, SegmentWriter};
    use mortarmq_types::{NodeId, Partition, Seq, TopicIncarnation};
    use std::path::Path;
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    /// About a MiB of work.
    fn work() -> Vec<SegmentWork> {
        let (topic, partition) = (TopicIncarnation::new(1), Partition::ZERO);
        let payload = vec![7; 1 << 20].into();
        vec![SegmentWork::Ledger(LedgerRecord { topic, partition, first_seq: Seq::FIRST, count: 1, payload })]
    }

    #[test]
    fn rule_8_a_start_without_room_keeps_so_much_in_memory_and_then_says_what_it_needs() {
        let (disk, data) = (MemoryDisk::new(), Path::new("data"));
        disk.create_dir_all(data).expect("a folder");
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (events, _told) = inbox();
        let room = Room::open(Arc::clone(&shared), data, 16 * MIB, 0, events).expect("opened");
        let segments = SegmentWriter::open(shared, data, SegmentOptions::default()).expect("an empty folder");
        let mut recovery = NodeRecovery::new(NodeConfig::new(NodeId::ZERO, [1; 16], 1)).expect("a new node");
        disk.set_capacity(Some(16 * MIB));
        let segments = Segments::new(segments);
        let mut behind = Behind { segments, flush_at_bytes: FLUSH_BYTES, is_out_of_room: false };
        let mut taken = 0;
        let error = loop {
            match behind.take(work(), &room, &mut recovery) {
                Ok(()) => taken += MIB,
                Err(error) => break error,
            }
        };
        // Three quarters of the reserve are written, and the bound and one flush more are in memory.
        let (least, most) =
            (12 * MIB - FLUSH_BYTES + UNWRITTEN_BYTES_MAX, 12 * MIB + UNWRITTEN_BYTES_MAX + FLUSH_BYTES);
        assert!((least..=most).contains(&taken), "{} MiB", taken / MIB);
        assert!(behind.is_out_of_room && error.to_string().contains("could not be written"), "{error}");
        assert!(behind.segments.unwritten_bytes() > UNWRITTEN_BYTES_MAX);
        let told =
            StartError::NoRoom { path: data.to_path_buf(), bytes: behind.segments.unwritten_bytes() }.to_string();
        assert!(told.contains("data needs at least 65 MiB more"), "{told}");
        // With room, all of it is written.
        disk.set_capacity(None);
        for _ in 0..9 {
            behind.take(work(), &room, &mut recovery).expect("there is room");
        }
        assert!(behind.segments.unwritten_bytes() < FLUSH_BYTES);
    }
}
