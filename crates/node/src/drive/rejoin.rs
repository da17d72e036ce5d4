//! A start that finds the journal or the checkpoint of one of several nodes rotten: what rotted is set aside, and the node begins with
//! nothing but its vote (failure rule 3). Alone, a node has nobody who could bring it up, and stops by name.

use std::path::Path;
use std::sync::Arc;

use mortarmq_storage::{
    CheckpointError, Disk, Journal, JournalBatch, JournalError, ReadError, Recovered, Repairing, SegmentWriter,
    StagingError,
};

use super::chain;
use super::recover::{DriveOptions, RecoverError, RecoverStage, RecoverWatch, RecoveredNode};
use super::segments::Segments;
use crate::config::NodeConfig;
use crate::recovery::{NodeError, NodeRecovery};

/// Sets aside what rotted, if that is what the error says and the vote is left; the error otherwise.
pub(super) fn begin(
    disk: &dyn Disk,
    data_dir: &Path,
    config: &NodeConfig,
    found: Option<Repairing>,
    error: RecoverError,
    watch: &mut dyn RecoverWatch,
) -> Result<Repairing, RecoverError> {
    if !config.has_peers() || !is_rot(&error) {
        return Err(error);
    }
    // One that is brought up anew has not voted since.
    let known = found.map(|found| found.hard_state);
    let Some(hard_state) = known.or_else(|| Journal::salvage(disk, data_dir, config.shard)) else {
        return Err(RecoverError::VoteLost { source: Box::new(error) });
    };
    watch.note(RecoverStage::Rotten { reason: chain(&error) });
    Repairing::begin(disk, data_dir, hard_state).map_err(RecoverError::Repairing)
}

/// A node that has nothing but its vote. What is in the folders of the topics is left alone: what is sound of it need not be fetched.
pub(super) fn start(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    config: NodeConfig,
    options: DriveOptions,
    mark: Repairing,
    watch: &mut dyn RecoverWatch,
) -> Result<RecoveredNode, RecoverError> {
    let writer = SegmentWriter::open(Arc::clone(disk), data_dir, options.segments).map_err(RecoverError::Folder)?;
    let mut recovery = NodeRecovery::new(config).map_err(RecoverError::Node)?;
    let (mut journal, found) = open(disk, data_dir, options, &mut recovery)?;
    recovery.check_journal(&found.membership).map_err(RecoverError::Node)?;
    if found.batches == 0 {
        let batch = JournalBatch { hard_state: mark.hard_state, ..JournalBatch::default() };
        journal.append(&batch).map_err(RecoverError::Journal)?;
        recovery.handle_batch(batch).map_err(RecoverError::Node)?;
    }
    let mut segments = Segments::new(writer);
    segments.wait_for_repairs(true);
    segments.begin_rejoin(Arc::clone(disk), data_dir);
    let mut node = recovery.finish(watch.now()).map_err(RecoverError::Node)?;
    node.begin_rejoin();
    Ok(RecoveredNode { node, journal, segments, unwritten: None, is_new: false, checkpoint: None, found })
}

fn open(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    options: DriveOptions,
    recovery: &mut NodeRecovery,
) -> Result<(Journal, Recovered), RecoverError> {
    let membership = recovery.membership();
    let opened = Journal::recover(Arc::clone(disk), data_dir, options.journal, membership, None, &mut |batch| {
        recovery.handle_batch(batch).map(drop).map_err(|error| super::recover::stop(&error))
    });
    opened.map_err(RecoverError::Journal)
}

/// Whether a start failed because bytes have changed or are gone. What this build does not know, and a disk that fails, are none.
fn is_rot(error: &RecoverError) -> bool {
    match error {
        RecoverError::Checkpoint(error) | RecoverError::Install(StagingError::Checkpoint(error)) => is_rotten(error),
        RecoverError::Journal(error) => matches!(
            error,
            JournalError::Rotten { .. } | JournalError::Unreadable { .. } | JournalError::Missing { .. }
        ),
        RecoverError::Node(NodeError::Image(_)) | RecoverError::Damaged { .. } => true,
        RecoverError::DataDir { .. }
        | RecoverError::NoRoom { .. }
        | RecoverError::Install(_)
        | RecoverError::Folder(_)
        | RecoverError::Segments(_)
        | RecoverError::Node(_)
        | RecoverError::VoteLost { .. }
        | RecoverError::Repairing(_) => false,
    }
}

fn is_rotten(error: &CheckpointError) -> bool {
    matches!(
        error,
        CheckpointError::Damaged { .. }
            | CheckpointError::Unreadable { .. }
            | CheckpointError::Rotten { .. }
            | CheckpointError::Reopen(ReadError::Corrupt { .. } | ReadError::Io { .. })
    )
}
