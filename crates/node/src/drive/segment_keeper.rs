//! The segment writer as a driver uses it: what it has taken and not written, and when that is told.
//!
//! On a full disk it takes from the reserve. With its part used up it keeps what it was given in memory, goes on taking
//! work and is to be flushed again later; a checkpoint is put off (failure rule 8). It never waits for room: the next job
//! may be the checkpoint that makes some.

use std::sync::Arc;

use mortarmq_storage::{
    CheckpointError, CheckpointMeta, CheckpointWritten, FlushError, SegmentReader, Staging, Stretch,
};

use super::FLUSH_BYTES;
use super::room::{Room, Use};
use super::segments::{SegmentError, Segments, Stuck, UnreadableCopy};
use crate::catch_up::{CatchUpDone, CatchUpWork};
use crate::output::SegmentWork;

/// The writer, and the last ticket that it has taken and not written.
pub struct SegmentKeeper {
    segments: Segments,
    room: Arc<Room>,
    ticket: Option<u64>,
    staging: Staging,
}

/// What came of a flush.
#[derive(Debug)]
pub enum Flushed {
    /// Nothing waited.
    Nothing,
    /// All work up to a ticket is written: call `handle_segments_written`.
    Written {
        /// The ticket.
        ticket: u64,
    },
    /// There was no room, and the writer's part of the reserve is used up. Nothing is lost; flush again later.
    NoRoom(FlushError),
    /// A copy waits until its source is repaired: call `handle_damage`, and flush again later. Nothing is lost.
    Damaged {
        /// The source.
        stretch: Stretch,
        /// What is wrong with it, with file and offset.
        reason: String,
    },
}

/// What came of a checkpoint.
#[derive(Debug)]
pub enum Checkpointed {
    /// It is durable: call `handle_segments_written` with the ticket, if there is one, then `handle_checkpoint_written`.
    Written {
        /// What waited before it is written up to here.
        ticket: Option<u64>,
        /// The checkpoint.
        checkpoint: CheckpointWritten,
    },
    /// It could not be made: call `handle_checkpoint_put_off`. The one before stays good.
    PutOff(PutOff),
}

/// Why a checkpoint was put off.
#[derive(Debug, thiserror::Error)]
pub enum PutOff {
    /// There was no room for it.
    #[error(transparent)]
    NoRoom(CheckpointError),
    /// What came before it waits for the repair of what it copies.
    #[error("a dead letter waits for the repair of its message: {reason}")]
    Damaged {
        /// What is wrong with it, with file and offset.
        reason: String,
    },
}

impl SegmentKeeper {
    /// A writer that was recovered; `unwritten` names what the recovery left in it.
    #[must_use]
    pub fn new(segments: Segments, unwritten: Option<u64>, room: Arc<Room>) -> Self {
        let staging = segments.writer.staging();
        Self { segments, room, ticket: unwritten, staging }
    }

    /// Reads what is written; clones serve any number of threads.
    #[must_use]
    pub fn reader(&self) -> SegmentReader {
        self.segments.reader()
    }

    /// Whether something waits to be written.
    #[must_use]
    pub fn has_unwritten(&self) -> bool {
        self.ticket.is_some()
    }

    /// Whether more work may join what waits before it is flushed.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        self.segments.unwritten_bytes() < FLUSH_BYTES
    }

    /// Takes the work of a batch.
    ///
    /// # Errors
    /// The process says why and ends (failure rule 2).
    pub fn take(&mut self, ticket: u64, work: Vec<SegmentWork>) -> Result<(), SegmentError> {
        self.segments.take(work, &self.room)?;
        self.ticket = Some(ticket);
        Ok(())
    }

    /// Writes what waits, if there is room for it.
    ///
    /// # Errors
    /// The process says why and ends (failure rule 2).
    pub fn flush(&mut self) -> Result<Flushed, SegmentError> {
        if self.ticket.is_none() {
            return Ok(Flushed::Nothing);
        }
        Ok(match self.segments.flush(&self.room, Use::Segments)? {
            Some(Stuck::NoRoom(full)) => Flushed::NoRoom(full),
            Some(Stuck::Damaged { stretch, reason }) => Flushed::Damaged { stretch, reason },
            None => self.ticket.take().map_or(Flushed::Nothing, |ticket| Flushed::Written { ticket }),
        })
    }

    /// Makes a checkpoint of everything that was taken before it. Without room for it the one before stays good.
    ///
    /// # Durability
    /// When it says `Written`, the checkpoint and all files that it lists.
    /// # Errors
    /// The process says why and ends (failure rule 2).
    pub fn checkpoint(&mut self, meta: &CheckpointMeta, image: &[u8]) -> Result<Checkpointed, SegmentError> {
        if self.segments.has_backlog() {
            // It came before the image, so it goes before the checkpoint.
            match self.segments.flush(&self.room, Use::Checkpoint)? {
                None => {}
                Some(Stuck::NoRoom(FlushError::DiskFull { path })) => {
                    return Ok(Checkpointed::PutOff(PutOff::NoRoom(CheckpointError::DiskFull { path })));
                }
                Some(Stuck::NoRoom(error)) => return Err(SegmentError::Flush(error)),
                Some(Stuck::Damaged { reason, .. }) => return Ok(Checkpointed::PutOff(PutOff::Damaged { reason })),
            }
        }
        loop {
            let wanted_bytes = self.segments.unwritten_bytes() + image.len() as u64;
            match self.segments.writer.checkpoint(meta, image) {
                // It begins with all that waits.
                Ok(checkpoint) => return Ok(Checkpointed::Written { ticket: self.ticket.take(), checkpoint }),
                Err(CheckpointError::DiskFull { .. }) if self.room.make(Use::Checkpoint, wanted_bytes) => {}
                Err(full @ CheckpointError::DiskFull { .. }) => return Ok(Checkpointed::PutOff(PutOff::NoRoom(full))),
                Err(error) => return Err(SegmentError::Checkpoint(error)),
            }
        }
    }

    /// Holds a checkpoint for another node that fetches it, or none any more.
    pub fn hold(&mut self, log_index: Option<u64>) {
        self.segments.writer.hold(log_index);
    }

    /// Does something for a snapshot, or a repair. What it says is for `handle_catch_up_done`.
    ///
    /// # Errors
    /// The process says why and ends (failure rule 2).
    pub fn catch_up(&mut self, work: CatchUpWork) -> Result<CatchUpDone, SegmentError> {
        let step = match work {
            CatchUpWork::Begin { log_index, bytes } => self.staging.begin(log_index, bytes),
            CatchUpWork::Check => self.staging.check(),
            CatchUpWork::Write { offset, data } => self.staging.write(offset, &data),
            CatchUpWork::Install => match self.staging.install(&mut self.segments.writer) {
                Ok(None) => return Ok(CatchUpDone::Installed),
                Ok(Some(step)) => Ok(step),
                Err(error) => Err(error),
            },
            CatchUpWork::Finish { log_index } => {
                self.staging.finish(log_index).map_err(SegmentError::CatchUp)?;
                self.segments.end_rejoin()?;
                return Ok(CatchUpDone::Finished);
            }
            CatchUpWork::Abandon => {
                self.staging.abandon().map_err(SegmentError::CatchUp)?;
                return Ok(CatchUpDone::Abandoned);
            }
            CatchUpWork::Repair { stretch, data } => {
                let outcome = self.segments.writer.repair(&stretch, &data).map_err(SegmentError::Repair)?;
                return Ok(CatchUpDone::Repaired { stretch, outcome });
            }
            CatchUpWork::GiveUp { stretch } => {
                self.segments.give_up(stretch);
                return Ok(CatchUpDone::GivenUp);
            }
        };
        step.map(CatchUpDone::Step).map_err(SegmentError::CatchUp)
    }

    /// Copies whose source could not be read, since the last call: an operator is to be told.
    pub fn take_unreadable(&mut self) -> Vec<UnreadableCopy> {
        self.segments.take_unreadable()
    }
}
