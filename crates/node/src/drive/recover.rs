//! From a data directory to a node: the journal is replayed, and the segments are written anew on the way.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mortarmq_storage::{
    CheckpointError, Covered, Disk, FolderError, Journal, JournalError, JournalOptions, RecoverStop, Recovered,
    Repairing, RepairingError, SegmentOptions, SegmentWriter, StagingError, finish_install, load_checkpoint,
    resume_install,
};

use super::room::{Room, Use};
use super::segments::{SegmentError, Segments, Stuck};
use super::{FLUSH_BYTES, chain, rejoin};
use crate::config::{NodeConfig, Now};
use crate::node::Node;
use crate::output::SegmentWork;
use crate::recovery::{NodeError, NodeRecovery};

/// How the files of a node are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveOptions {
    /// The journal's.
    pub journal: JournalOptions,
    /// The segments'.
    pub segments: SegmentOptions,
}

/// A node with the storage it needs.
pub struct RecoveredNode {
    /// The node; it leads after the driver has carried out its first outputs.
    pub node: Node,
    /// Its journal.
    pub journal: Journal,
    /// Its segments.
    pub segments: Segments,
    /// Names what could not be written to the segments, because the disk is full.
    pub unwritten: Option<u64>,
    /// Whether there was no journal before.
    pub is_new: bool,
    /// The last entry of the checkpoint that it went on from.
    pub checkpoint: Option<u64>,
    /// What the journal held.
    pub found: Recovered,
}

/// How far the recovery of a node is that was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoverStage {
    /// The checkpoint is read.
    Begun {
        /// Its last entry, if there is one.
        checkpoint: Option<u64>,
    },
    /// The segments are as the checkpoint lists them, and the journal is read.
    Replaying,
    /// The journal or the checkpoint has rotted: it is set aside, and the others bring the node up.
    Rotten {
        /// What is damaged, with file and offset.
        reason: String,
    },
}

/// What a recovery asks of its driver.
pub trait RecoverWatch {
    /// The clocks.
    fn now(&self) -> Now;

    /// The recovery came to a stage.
    fn note(&mut self, stage: RecoverStage);
}

/// Why a data directory makes no node.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The data directory cannot be looked at.
    #[error("cannot read {}", .path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk is full and the reserve used up, and more than may stay in memory has to be written.
    #[error("the disk that holds {} is full, and {bytes} bytes of segments wait", .path.display())]
    NoRoom {
        /// The data directory.
        path: PathBuf,
        /// What had to be written when the start gave up.
        bytes: u64,
    },
    /// A dead letter is to be made of a message that is damaged here, and more than may stay in memory has to be written behind it.
    #[error("a dead letter waits for the repair of its message, and {bytes} bytes of segments behind it: {reason}")]
    Damaged {
        /// What is wrong with the message, with file and offset.
        reason: String,
        /// What had to be written when the start gave up.
        bytes: u64,
    },
    /// The checkpoint, or a file that it lists, is damaged or cannot be read.
    #[error("the checkpoint cannot be used")]
    Checkpoint(#[source] CheckpointError),
    /// A snapshot whose install a crash interrupted cannot be taken over.
    #[error("the install of a snapshot cannot be finished")]
    Install(#[source] StagingError),
    /// The folder of the segments cannot be used.
    #[error("cannot prepare the segments")]
    Folder(#[source] FolderError),
    /// The journal cannot be recovered.
    #[error("cannot recover the journal")]
    Journal(#[source] JournalError),
    /// The segments cannot be written anew.
    #[error("cannot write the segments anew")]
    Segments(#[source] SegmentError),
    /// The journal has rotted, and with it perhaps what this node voted for last.
    #[error(
        "the end of the journal is damaged, and with it perhaps this node's last vote: it must not vote again as the node it was; \
         start it with an empty folder, and have it readmitted: mortarmq members readmit"
    )]
    VoteLost {
        /// What is damaged.
        #[source]
        source: Box<RecoverError>,
    },
    /// That the node is brought up anew cannot be said or read.
    #[error("cannot repair the data directory from the other nodes")]
    Repairing(#[source] RepairingError),
    /// What the journal holds makes no node.
    #[error("cannot recover the node")]
    Node(#[source] NodeError),
}

/// Recovers the node of a data directory that is locked and whose identity is known. One of several whose journal or checkpoint has
/// rotted begins with nothing but its vote, and is brought up by the others ([`Node::is_rejoining`]); where that may be lost too, it is
/// refused.
///
/// # Errors
/// Whatever keeps the data from being a node's. A torn tail is none.
/// # Source
/// Failure rule 3; docs/decisions/018-repair.md.
pub fn recover(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    config: NodeConfig,
    options: DriveOptions,
    room: &Room,
    watch: &mut dyn RecoverWatch,
) -> Result<RecoveredNode, RecoverError> {
    let found = Repairing::read(&**disk, data_dir).map_err(RecoverError::Repairing)?;
    let found = found.map(|found| found.set_aside(&**disk, data_dir)).transpose().map_err(RecoverError::Repairing)?;
    let is_over = found.map(|found| found.is_over(&**disk, data_dir)).transpose().map_err(RecoverError::Repairing)?;
    let mark = match found.filter(|_| is_over == Some(false)) {
        Some(mark) => mark,
        None => match recover_whole(disk, data_dir, config.clone(), options, room, watch) {
            Ok(node) => {
                if config.has_peers() {
                    Repairing::end(&**disk, data_dir).map_err(RecoverError::Repairing)?;
                }
                return Ok(node);
            }
            Err(error) => rejoin::begin(&**disk, data_dir, &config, found, error, watch)?,
        },
    };
    match rejoin::start(disk, data_dir, config.clone(), options, mark, watch) {
        Err(error) => {
            // The journal that was begun since has rotted too.
            let mark = rejoin::begin(&**disk, data_dir, &config, Some(mark), error, watch)?;
            rejoin::start(disk, data_dir, config, options, mark, watch)
        }
        started => started,
    }
}

/// Recovers a node that has all it had. On a full disk the segments are
/// written with room from the reserve, and what it is not enough for stays in memory, within bounds (failure rule 8).
/// The clocks are read when all is replayed.
///
/// # Errors
/// Whatever keeps the data from being a node's. A torn tail is none.
fn recover_whole(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    config: NodeConfig,
    options: DriveOptions,
    room: &Room,
    watch: &mut dyn RecoverWatch,
) -> Result<RecoveredNode, RecoverError> {
    let path = data_dir.to_path_buf();
    let has_peers = config.has_peers();
    let exists = Journal::exists(&**disk, data_dir);
    let is_new = !exists.map_err(|source| RecoverError::DataDir { path: path.clone(), source })?;
    let installed = resume_install(&**disk, data_dir).map_err(RecoverError::Install)?;
    let is_installed = installed.is_some();
    let loaded = match installed {
        Some(loaded) => Some(loaded),
        None => load_checkpoint(&**disk, data_dir).map_err(RecoverError::Checkpoint)?,
    };
    let mut segments =
        SegmentWriter::open(Arc::clone(disk), data_dir, options.segments).map_err(RecoverError::Folder)?;
    let covered = loaded.as_ref().map(|loaded| Covered { log_index: loaded.meta.log_index });
    let checkpoint = covered.map(|covered| covered.log_index);
    if !is_new {
        watch.note(RecoverStage::Begun { checkpoint });
    }
    let mut recovery = match loaded {
        Some(loaded) => {
            segments.restore(&loaded.files).map_err(RecoverError::Checkpoint)?;
            NodeRecovery::from_loaded(config, loaded)
        }
        None => {
            segments.reset().map_err(RecoverError::Folder)?;
            NodeRecovery::new(config)
        }
    }
    .map_err(RecoverError::Node)?;
    if let Some(bytes) = recovery.segment_max_bytes() {
        segments.set_segment_bytes(bytes);
    }
    let membership = recovery.membership();
    if !is_new {
        watch.note(RecoverStage::Replaying);
    }
    let mut behind = Behind::new(Segments::new(segments));
    behind.segments.wait_for_repairs(has_peers);
    let recovered = Journal::recover(Arc::clone(disk), data_dir, options.journal, membership, covered, &mut |batch| {
        let work = recovery.handle_batch(batch).map_err(|error| stop(&error))?;
        behind.take(work, room, &mut recovery).map_err(|error| stop(&error))
    });
    behind.check_room(path)?;
    let (mut journal, found) = recovered.map_err(RecoverError::Journal)?;
    recovery.check_journal(&found.membership).map_err(RecoverError::Node)?;
    journal.set_membership(recovery.membership());
    let Behind { mut segments, .. } = behind;
    if let Some(covered) = covered.filter(|_| is_installed) {
        if let Some(batch) = recovery.begin_at_checkpoint(watch.now()).map_err(RecoverError::Node)? {
            journal.append(&batch).map_err(RecoverError::Journal)?;
        }
        finish_install(&**disk, data_dir, covered.log_index).map_err(RecoverError::Install)?;
    }
    let full = segments.flush(room, Use::Segments).map_err(RecoverError::Segments)?;
    let (node, unwritten) = if full.is_none() {
        (recovery.finish(watch.now()).map_err(RecoverError::Node)?, None)
    } else {
        let (node, ticket) = recovery.finish_unwritten(watch.now()).map_err(RecoverError::Node)?;
        (node, Some(ticket))
    };
    Ok(RecoveredNode { node, journal, segments, unwritten, is_new, checkpoint, found })
}

/// The segments while the journal is replayed.
struct Behind {
    segments: Segments,
    /// They are written when so much waits: a disk that is full need not be asked with every batch.
    flush_at_bytes: u64,
    /// More waits than may be kept in memory.
    is_out_of_room: bool,
    /// What it waits for, if that is a repair.
    damaged: Option<String>,
}

impl Behind {
    fn new(segments: Segments) -> Self {
        Self { segments, flush_at_bytes: FLUSH_BYTES, is_out_of_room: false, damaged: None }
    }

    /// Says why the start must be given up, if it must.
    fn check_room(&self, path: PathBuf) -> Result<(), RecoverError> {
        let bytes = self.segments.unwritten_bytes();
        match &self.damaged {
            _ if !self.is_out_of_room => Ok(()),
            Some(reason) => Err(RecoverError::Damaged { reason: reason.clone(), bytes }),
            None => Err(RecoverError::NoRoom { path, bytes }),
        }
    }

    fn take(&mut self, work: Vec<SegmentWork>, room: &Room, recovery: &mut NodeRecovery) -> Result<(), SegmentError> {
        self.segments.take(work, room)?;
        if self.segments.unwritten_bytes() < self.flush_at_bytes {
            return Ok(());
        }
        if let Some(stuck) = self.segments.flush(room, Use::Segments)? {
            self.flush_at_bytes = self.segments.unwritten_bytes() + FLUSH_BYTES;
            self.is_out_of_room = self.segments.unwritten_bytes() > UNWRITTEN_BYTES_MAX;
            if !self.is_out_of_room {
                return Ok(());
            }
            return Err(match stuck {
                Stuck::NoRoom(full) => SegmentError::Flush(full),
                Stuck::Damaged { reason, .. } => {
                    self.damaged = Some(reason.clone());
                    SegmentError::Waits { reason }
                }
            });
        }
        self.flush_at_bytes = FLUSH_BYTES;
        recovery.handle_segments_written();
        Ok(())
    }
}

pub(super) fn stop(error: &dyn std::error::Error) -> RecoverStop {
    RecoverStop { reason: chain(error) }
}

/// What a start on a full disk keeps in memory at most, as a node that runs does.
const UNWRITTEN_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::{Behind, FLUSH_BYTES, NodeConfig, NodeRecovery, Room, Segments, UNWRITTEN_BYTES_MAX};
    use crate::output::SegmentWork;
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
        let room = Room::open(Arc::clone(&shared), data, 16 * MIB, 0, |_| {}).expect("opened");
        let segments = SegmentWriter::open(shared, data, SegmentOptions::default()).expect("an empty folder");
        let mut recovery = NodeRecovery::new(NodeConfig::new(NodeId::ZERO, [1; 16], 1)).expect("a new node");
        disk.set_capacity(Some(16 * MIB));
        let mut behind = Behind::new(Segments::new(segments));
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
        // With room, all of it is written.
        disk.set_capacity(None);
        for _ in 0..9 {
            behind.take(work(), &room, &mut recovery).expect("there is room");
        }
        assert!(behind.segments.unwritten_bytes() < FLUSH_BYTES);
    }
}
