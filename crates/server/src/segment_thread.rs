//! The segment writer: appends records and ledger events behind the journal. No publish waits for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mortarmq_node::{CopyWork, SegmentWork};
use mortarmq_shard::{Image, MessagePlace};
use mortarmq_storage::{AppendError, CheckpointError, CheckpointMeta, FlushError, SegmentWriter};

use crate::event::Event;
use crate::shared::Status;
use crate::threads::{chain, end_after_disk_failure, spawn};

/// One thing for the segment writer to do.
pub(crate) enum SegmentJob {
    /// Work of one committed batch.
    Work { ticket: u64, work: Vec<SegmentWork> },
    /// A checkpoint of everything before it.
    Checkpoint { meta: CheckpointMeta, image: Box<Image> },
}

/// Why segment work could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// A record or an event was not taken.
    #[error("segment work was not taken")]
    Append(#[source] AppendError),
    /// The bytes could not be written.
    #[error("segments could not be written")]
    Flush(#[source] FlushError),
    /// The checkpoint could not be made.
    #[error("the checkpoint could not be made")]
    Checkpoint(#[source] CheckpointError),
}

impl SegmentError {
    /// Whether there was no room, which is no failed write.
    fn is_full(&self) -> bool {
        matches!(self, Self::Flush(FlushError::DiskFull { .. }) | Self::Checkpoint(CheckpointError::DiskFull { .. }))
    }
}

/// Starts the segment writer. It ends when its channel is closed, after all that was in it.
///
/// The channel needs no bound of its own: the node stops leasing when 64 MiB of effects are unwritten.
/// A full disk does not hold up a stop: what could not be written then is in the journal, and written at the next start.
pub(crate) fn start(
    writer: SegmentWriter,
    events: Sender<Event>,
    status: Arc<Status>,
) -> io::Result<(Sender<SegmentJob>, JoinHandle<()>)> {
    let (sender, jobs) = mpsc::channel();
    let thread = spawn("segments", move || write_all(writer, &jobs, &events, &status))?;
    Ok((sender, thread))
}

fn write_all(mut writer: SegmentWriter, jobs: &Receiver<SegmentJob>, events: &Sender<Event>, status: &Status) {
    let is_stopping = || status.is_stopping.load(Ordering::Relaxed);
    let mut next = None;
    while let Some(job) = next.take().or_else(|| jobs.recv().ok()) {
        let done = match job {
            SegmentJob::Work { ticket, work } => {
                let patience = Patience { meanwhile: MEANWHILE, gives_up: &is_stopping };
                let (ticket, taken) = gather(&mut writer, ticket, work, jobs, &mut next, patience);
                taken.and_then(|()| flush(&mut writer, patience)).map(|()| Event::SegmentsWritten { ticket })
            }
            SegmentJob::Checkpoint { meta, image } => checkpoint(&mut writer, &meta, &image, is_stopping)
                .map(|()| Event::CheckpointWritten { log_index: meta.log_index }),
        };
        match done {
            // The loop is gone only at a stop, when nobody waits for this any more.
            Ok(event) => drop(events.send(event)),
            Err(error) if error.is_full() => {
                tracing::warn!("stopped without room for all segments; the next start writes them from the journal");
                // The loop hands over work until it ends, and may rely on somebody taking it.
                jobs.iter().for_each(drop);
                return;
            }
            Err(error) => end_after_disk_failure("the segment writer", &error),
        }
    }
}

/// Takes work, and what came meanwhile, within bounds: it joins the same writes. A checkpoint waits for its turn in `next`.
fn gather(
    writer: &mut SegmentWriter,
    mut ticket: u64,
    work: Vec<SegmentWork>,
    jobs: &Receiver<SegmentJob>,
    next: &mut Option<SegmentJob>,
    patience: Patience<'_>,
) -> (u64, Result<(), SegmentError>) {
    let mut taken = take(writer, work, patience);
    while taken.is_ok() && writer.buffered_bytes() < FLUSH_BYTES {
        match jobs.try_recv() {
            Ok(SegmentJob::Work { ticket: later, work }) => {
                ticket = later;
                taken = take(writer, work, patience);
            }
            Ok(checkpoint) => {
                *next = Some(checkpoint);
                break;
            }
            Err(_) => break,
        }
    }
    (ticket, taken)
}

/// Encodes the image here, not on the loop, and makes the checkpoint durable. Without room for it the one before stays
/// good; the writer waits as in [`flush`].
fn checkpoint(
    writer: &mut SegmentWriter,
    meta: &CheckpointMeta,
    image: &Image,
    gives_up: impl Fn() -> bool,
) -> Result<(), SegmentError> {
    let begun = Instant::now();
    tracing::debug!(log_index = meta.log_index, "checkpoint begun");
    let mut bytes = BytesMut::new();
    image.encode(&mut bytes);
    let mut is_told = false;
    let written = loop {
        match writer.checkpoint(meta, &bytes) {
            Ok(written) => break written,
            Err(error @ CheckpointError::DiskFull { .. }) if !gives_up() => {
                if !is_told {
                    tracing::warn!("{}; waiting for room, the checkpoint before stays good", chain(&error));
                    is_told = true;
                }
                std::thread::sleep(DISK_FULL_PAUSE);
            }
            Err(error) => return Err(SegmentError::Checkpoint(error)),
        }
    };
    tracing::info!(
        log_index = meta.log_index,
        commit_index = meta.commit_index.get(),
        bytes = written.bytes,
        files = written.files,
        ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        "checkpoint written"
    );
    Ok(())
}

/// What a full disk holds up, and until when.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    /// Tells the operator what waits with it, or goes on without.
    pub(crate) meanwhile: &'a str,
    /// Whether waiting makes no sense any more.
    pub(crate) gives_up: &'a dyn Fn() -> bool,
}

/// Gives work to the writer, in order.
pub(crate) fn take(
    writer: &mut SegmentWriter,
    work: Vec<SegmentWork>,
    patience: Patience<'_>,
) -> Result<(), SegmentError> {
    for item in work {
        match item {
            SegmentWork::Append(record) => {
                writer.append(std::slice::from_ref(&record)).map_err(SegmentError::Append)?;
            }
            SegmentWork::Copy(copy) => append_copy(writer, *copy, patience)?,
            SegmentWork::Ledger(event) => {
                writer.append_ledger(std::slice::from_ref(&event)).map_err(SegmentError::Append)?;
            }
            SegmentWork::SegmentBytes(bytes) => writer.set_segment_bytes(bytes),
            SegmentWork::DropTopic(topic) => writer.drop_topic(topic),
        }
    }
    Ok(())
}

/// Makes a record of another one, which must be written before it can be read.
fn append_copy(writer: &mut SegmentWriter, copy: CopyWork, patience: Patience<'_>) -> Result<(), SegmentError> {
    let MessagePlace { topic, partition, seq } = copy.from;
    let reader = writer.reader();
    if reader.end_seq(topic, partition) <= seq {
        flush(writer, patience)?;
    }
    let read = reader.read_records(topic, partition, seq, seq.next(), usize::MAX);
    let source = read.map(|records| records.into_iter().find(|found| found.seq == seq).map(|found| found.record));
    let copied = copy.make(source.map_err(|error| chain(&error)));
    if let Some(reason) = &copied.unreadable {
        tracing::error!(
            topic = topic.to_hex(), %partition, %seq,
            "a dead message cannot be read; its dead letter tells of the damage only: {reason}"
        );
    }
    writer.append(std::slice::from_ref(&copied.record)).map_err(SegmentError::Append)
}

/// Writes what waits. A full disk is no failed write: nothing is lost, and the writer waits for room (failure rule 8), as
/// long as its patience lasts.
pub(crate) fn flush(writer: &mut SegmentWriter, patience: Patience<'_>) -> Result<(), SegmentError> {
    let mut is_told = false;
    loop {
        match writer.flush() {
            Ok(()) => return Ok(()),
            Err(error @ FlushError::DiskFull { .. }) if !(patience.gives_up)() => {
                if !is_told {
                    tracing::warn!("{}; waiting for room, {}", chain(&error), patience.meanwhile);
                    is_told = true;
                }
                std::thread::sleep(DISK_FULL_PAUSE);
            }
            Err(error) => return Err(SegmentError::Flush(error)),
        }
    }
}

/// What goes on while the disk is full.
const MEANWHILE: &str = "publishes go on until the journal is full too";
/// One flush writes about this much at most before it is told, so that memory stays small and readers near.
pub(crate) const FLUSH_BYTES: u64 = 8 << 20;
const DISK_FULL_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::{SegmentJob, start};
    use crate::event::Event;
    use crate::shared::Status;
    use bytes::BytesMut;
    use mortarmq_node::SegmentWork;
    use mortarmq_shard::record::{NewRecord, write_record};
    use mortarmq_storage::{MemoryDisk, SegmentOptions, SegmentRecord, SegmentWriter};
    use mortarmq_types::{
        CommitIndex, Epoch, KeyHash, Partition, ProducerId, ProducerSeq, Seq, TopicIncarnation, WallTime,
    };
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, mpsc};

    fn job() -> SegmentJob {
        let mut record = BytesMut::new();
        let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
        write_record(
            &mut record,
            &NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: &[0; 6] },
        );
        let record = SegmentRecord {
            topic: TopicIncarnation::new(1),
            partition: Partition::ZERO,
            seq: Seq::FIRST,
            commit_index: CommitIndex::new(1),
            epoch: Epoch::new(1),
            published_at: WallTime::ZERO,
            key_hash: KeyHash::default(),
            payload_bytes: 0,
            expires_at_ms: 0,
            record: record.freeze(),
        };
        SegmentJob::Work { ticket: 7, work: vec![SegmentWork::Append(record)] }
    }

    /// Starts a writer on a full disk and gives it a record.
    fn on_a_full_disk()
    -> (MemoryDisk, Arc<Status>, mpsc::Sender<SegmentJob>, std::thread::JoinHandle<()>, mpsc::Receiver<Event>) {
        let disk = MemoryDisk::new();
        let writer = SegmentWriter::open(Arc::new(disk.clone()), Path::new("/data"), SegmentOptions::default());
        let writer = writer.expect("an empty folder");
        disk.set_full(true);
        let (events, written) = mpsc::channel();
        let status = Arc::new(Status::new());
        let (jobs, thread) = start(writer, events, Arc::clone(&status)).expect("a thread");
        jobs.send(job()).expect("the thread runs");
        (disk, status, jobs, thread, written)
    }

    #[test]
    fn rule_8_a_full_disk_pauses_the_writer_until_there_is_room() {
        let (disk, _status, _jobs, _thread, written) = on_a_full_disk();
        assert!(written.recv_timeout(std::time::Duration::from_millis(300)).is_err(), "nothing is written");
        disk.set_full(false);
        assert!(matches!(written.recv(), Ok(Event::SegmentsWritten { ticket: 7 })));
    }

    #[test]
    fn rule_8_a_full_disk_does_not_hold_up_a_stop() {
        let (_disk, status, jobs, thread, written) = on_a_full_disk();
        status.is_stopping.store(true, Ordering::Relaxed);
        drop(jobs);
        thread.join().expect("it ends");
        assert!(written.recv().is_err(), "and claims nothing");
    }
}
