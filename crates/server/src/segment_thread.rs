//! The segment writer: appends records and ledger events behind the journal, and makes checkpoints. No publish waits for
//! it.
//!
//! On a full disk it takes from the reserve. With its part used up it keeps what it was given in memory, goes on taking
//! work and tries again; a checkpoint is put off (failure rule 8). It never waits for room inside a job: the next one
//! may be the checkpoint that makes some.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mortarmq_node::drive::{Checkpointed, Flushed, Room, SegmentKeeper, Segments, UnreadableCopy, Waiting};
use mortarmq_node::{CatchUpDone, CatchUpWork, SegmentWork};
use mortarmq_shard::Image;
use mortarmq_storage::{CheckpointMeta, RepairOutcome, StagingStep, Stretch};

use crate::event::Event;
use crate::inbox::EventSender;
use crate::room::{self, FULL_PAUSE};
use crate::threads::{end_after_disk_failure, spawn};

/// One thing for the segment writer to do.
pub(crate) enum SegmentJob {
    /// Work of one committed batch.
    Work { ticket: u64, work: Vec<SegmentWork> },
    /// A checkpoint of everything before it.
    Checkpoint { meta: CheckpointMeta, image: Box<Image>, holds: Option<u64> },
    /// Something for a snapshot of another node, behind everything before it.
    CatchUp { work: CatchUpWork },
}

/// Starts the segment writer. It ends when its channel is closed, after all that was in it. `unwritten` names what the
/// recovery left in `segments`.
///
/// The channel needs no bound of its own: the node stops leasing when 64 MiB of effects are unwritten.
/// A full disk does not hold up a stop: what could not be written then is in the journal, and written at the next start.
pub(crate) fn start(
    segments: Segments,
    unwritten: Option<u64>,
    events: EventSender,
    room: Arc<Room>,
) -> io::Result<(Sender<SegmentJob>, JoinHandle<()>)> {
    let (sender, jobs) = mpsc::channel();
    let keeper = SegmentKeeper::new(segments, unwritten, Arc::clone(&room));
    let behind = Behind { keeper, events, room, waiting: None, rests_until: None, told: None };
    let thread = spawn("segments", move || behind.run(&jobs))?;
    Ok((sender, thread))
}

/// The writer, and what it has taken and not written.
struct Behind {
    keeper: SegmentKeeper,
    events: EventSender,
    room: Arc<Room>,
    /// There was no room for what waits in memory; when to try again.
    waiting: Option<(Waiting, Instant)>,
    /// Before that nothing is written again, so that many batches share one write to a file.
    rests_until: Option<Instant>,
    /// The damage that was told last as one that is waited for.
    told: Option<Stretch>,
}

impl Behind {
    fn run(mut self, jobs: &Receiver<SegmentJob>) {
        self.flush();
        loop {
            // Whoever has something to write again does not wait for ever for something to do.
            let job = if self.keeper.has_unwritten() {
                jobs.recv_timeout(FULL_PAUSE)
            } else {
                jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            let mut next = match job {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            while let Some(job) = next.take() {
                match job {
                    SegmentJob::Work { ticket, work } => {
                        self.rest();
                        next = self.gather(ticket, work, jobs);
                    }
                    SegmentJob::Checkpoint { meta, image, holds } => {
                        self.keeper.hold(holds);
                        self.checkpoint(&meta, &image);
                    }
                    SegmentJob::CatchUp { work } => self.catch_up(work),
                }
                self.flush();
            }
            self.flush();
        }
        if self.keeper.has_unwritten() {
            tracing::warn!("stopped before all segments were written; the next start writes them from the journal");
        }
    }

    /// Sleeps until the next write is due. What comes meanwhile wakes nobody. A delivery does not wait for it: the node has
    /// in memory what is not written, but for copies, whose bytes are made here.
    fn rest(&mut self) {
        if let Some(until) = self.rests_until.take() {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Takes work, and what came meanwhile, within bounds: it joins the same writes. Hands back a checkpoint, which waits
    /// for its turn.
    fn gather(&mut self, ticket: u64, work: Vec<SegmentWork>, jobs: &Receiver<SegmentJob>) -> Option<SegmentJob> {
        self.take(ticket, work);
        while self.keeper.takes_more() {
            match jobs.try_recv() {
                Ok(SegmentJob::Work { ticket, work }) => self.take(ticket, work),
                Ok(checkpoint) => return Some(checkpoint),
                Err(_) => break,
            }
        }
        None
    }

    fn take(&mut self, ticket: u64, work: Vec<SegmentWork>) {
        if let Err(error) = self.keeper.take(ticket, work) {
            end_after_disk_failure("the segment writer", &error);
        }
        self.tell_unreadable();
    }

    /// Writes what waits, if there is room for it.
    fn flush(&mut self) {
        if self.waiting.as_ref().is_some_and(|(_, again_at)| Instant::now() < *again_at) {
            return;
        }
        match self.keeper.flush() {
            Ok(Flushed::Nothing) => {}
            Ok(Flushed::Written { ticket }) => {
                self.tell_written(ticket);
                self.rests_until = Some(Instant::now() + PACE);
            }
            Ok(Flushed::NoRoom(full)) => {
                let meanwhile = "segments wait in memory, and deliveries stop when 64 MiB do";
                let waiting = match self.waiting.take() {
                    Some((waiting, _)) => waiting,
                    None => room::wait(&self.room, &full.to_string(), meanwhile),
                };
                self.waiting = Some((waiting, Instant::now() + FULL_PAUSE));
            }
            Ok(Flushed::Damaged { stretch, reason }) => {
                if self.told.replace(stretch) != Some(stretch) {
                    tracing::error!("a dead letter waits for the repair of its message: {reason}");
                }
                self.events.send(Event::Damaged { stretch, is_waited_for: true });
            }
            Err(error) => end_after_disk_failure("the segment writer", &error),
        }
        self.tell_unreadable();
    }

    fn tell_written(&mut self, ticket: u64) {
        self.waiting = None;
        self.events.send(Event::SegmentsWritten { ticket });
    }

    fn tell_unreadable(&mut self) {
        tell_unreadable(&self.keeper.take_unreadable());
    }

    fn catch_up(&mut self, work: CatchUpWork) {
        if let CatchUpWork::Begin { log_index, bytes } = work {
            tracing::info!(
                log_index,
                bytes,
                "the log does not bring this node up: it fetches the leader's checkpoint and files"
            );
        }
        match self.keeper.catch_up(work) {
            Ok(done) => {
                match &done {
                    CatchUpDone::Step(StagingStep::Whole { meta, .. }) => {
                        tracing::info!(log_index = meta.log_index, "the leader's checkpoint and files are here");
                    }
                    CatchUpDone::Finished => {
                        tracing::info!("the leader's checkpoint is installed; the log goes on from it")
                    }
                    CatchUpDone::Step(StagingStep::NoRoom) => {
                        tracing::warn!("no room for the leader's files; it goes on when there is")
                    }
                    CatchUpDone::Repaired { stretch, outcome } => tell_repaired(stretch, outcome),
                    CatchUpDone::GivenUp => tracing::error!("no other node has what a dead letter waits for"),
                    CatchUpDone::Step(StagingStep::Wants { .. } | StagingStep::Checking | StagingStep::Lost)
                    | CatchUpDone::Installed
                    | CatchUpDone::Abandoned => {}
                }
                self.events.send(Event::CatchUpDone { done });
            }
            Err(error) => end_after_disk_failure("the segment writer", &error),
        }
    }

    /// Encodes the image here, not on the loop, and makes the checkpoint durable. Without room for it the one before stays
    /// good.
    fn checkpoint(&mut self, meta: &CheckpointMeta, image: &Image) {
        let begun = Instant::now();
        tracing::debug!(log_index = meta.log_index, "checkpoint begun");
        let mut bytes = BytesMut::new();
        image.encode(&mut bytes);
        let log_index = meta.log_index;
        let event = match self.keeper.checkpoint(meta, &bytes) {
            Ok(Checkpointed::Written { ticket, checkpoint }) => {
                tracing::info!(
                    log_index,
                    commit_index = meta.commit_index.get(),
                    bytes = checkpoint.bytes,
                    files = checkpoint.files,
                    ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
                    "checkpoint written"
                );
                self.waiting = None;
                ticket.into_iter().for_each(|ticket| self.tell_written(ticket));
                Event::CheckpointWritten { log_index, bytes: checkpoint.bytes }
            }
            Ok(Checkpointed::PutOff(full)) => {
                tracing::warn!("{full}: the checkpoint is put off, the one before stays good");
                Event::CheckpointPutOff { log_index }
            }
            Err(error) => end_after_disk_failure("the segment writer", &error),
        };
        self.tell_unreadable();
        self.events.send(event);
    }
}

/// Tells the operator what came of a repair.
fn tell_repaired(stretch: &Stretch, outcome: &RepairOutcome) {
    let (file, at) = stretch.name();
    match outcome {
        RepairOutcome::Repaired { bytes } => {
            tracing::info!(file, at, bytes, "damage was repaired from another node");
        }
        RepairOutcome::Sound => tracing::info!(file, at, "what was damaged is sound"),
        RepairOutcome::Refused { what } => {
            tracing::warn!(file, at, "what another node has does not repair the damage: {what}");
        }
    }
}

/// Tells the operator of dead letters whose message could not be read.
pub(crate) fn tell_unreadable(copies: &[UnreadableCopy]) {
    for copy in copies {
        tracing::error!(
            topic = copy.from.topic.to_hex(), partition = %copy.from.partition, seq = %copy.from.seq,
            "a dead message cannot be read; its dead letter tells of the damage only: {}", copy.reason
        );
    }
}

/// Between two writes: a batch of the journal is due about every 0.1 ms, and has a few records for each of many files.
const PACE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests;
