//! The segment writer: appends records and ledger events behind the journal. No publish waits for it.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use mortarmq_node::SegmentWork;
use mortarmq_storage::{AppendError, FlushError, FolderError, SegmentWriter};

use crate::event::Event;
use crate::threads::{chain, end_after_disk_failure, spawn};

/// Work of one committed batch.
pub(crate) struct SegmentJob {
    pub(crate) ticket: u64,
    pub(crate) work: Vec<SegmentWork>,
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
    /// The files of a topic could not be removed.
    #[error("files of a topic could not be removed")]
    Folder(#[source] FolderError),
}

/// Starts the segment writer. It ends when its channel is closed, after all that was in it.
///
/// The channel needs no bound of its own: the node stops leasing when 64 MiB of effects are unwritten.
pub(crate) fn start(writer: SegmentWriter, events: Sender<Event>) -> io::Result<(Sender<SegmentJob>, JoinHandle<()>)> {
    let (sender, jobs) = mpsc::channel();
    let thread = spawn("segments", move || write_all(writer, &jobs, &events))?;
    Ok((sender, thread))
}

fn write_all(mut writer: SegmentWriter, jobs: &Receiver<SegmentJob>, events: &Sender<Event>) {
    while let Ok(first) = jobs.recv() {
        let mut ticket = first.ticket;
        let mut result = take(&mut writer, first.work);
        // What came meanwhile joins the same writes, within bounds.
        while result.is_ok() && writer.buffered_bytes() < FLUSH_BYTES {
            let Ok(next) = jobs.try_recv() else { break };
            ticket = next.ticket;
            result = take(&mut writer, next.work);
        }
        if let Err(error) = result.and_then(|()| flush(&mut writer)) {
            end_after_disk_failure("the segment writer", &error);
        }
        // The loop is gone only at a stop, when nobody waits for this any more.
        let _ = events.send(Event::SegmentsWritten { ticket });
    }
}

/// Gives work to the writer, in order.
pub(crate) fn take(writer: &mut SegmentWriter, work: Vec<SegmentWork>) -> Result<(), SegmentError> {
    for item in work {
        match item {
            SegmentWork::Append(record) => {
                writer.append(std::slice::from_ref(&record)).map_err(SegmentError::Append)?;
            }
            SegmentWork::Ledger(event) => {
                writer.append_ledger(std::slice::from_ref(&event)).map_err(SegmentError::Append)?;
            }
            SegmentWork::DropTopic(topic) => writer.drop_topic(topic).map_err(SegmentError::Folder)?,
        }
    }
    Ok(())
}

/// Writes what waits. A full disk is no failed write: nothing is lost, and the writer waits for room (failure rule 8).
pub(crate) fn flush(writer: &mut SegmentWriter) -> Result<(), SegmentError> {
    let mut is_told = false;
    loop {
        match writer.flush() {
            Ok(()) => return Ok(()),
            Err(error @ FlushError::DiskFull { .. }) => {
                if !is_told {
                    tracing::warn!(
                        "{}; waiting for room, publishes go on until the journal is full too",
                        chain(&error)
                    );
                    is_told = true;
                }
                std::thread::sleep(DISK_FULL_PAUSE);
            }
            Err(error) => return Err(SegmentError::Flush(error)),
        }
    }
}

/// One flush writes about this much at most before it is told, so that memory stays small and readers near.
pub(crate) const FLUSH_BYTES: u64 = 8 << 20;
const DISK_FULL_PAUSE: Duration = Duration::from_millis(200);
