//! The journal writer: one thread, one batch after the other, each written and fsynced before it is told.

use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use mortarmq_shard::command::Batch;
use mortarmq_storage::{Journal, JournalBatch, JournalEntry};

use crate::event::Event;
use crate::metrics::Metrics;
use crate::threads::{end_after_disk_failure, spawn};

/// One thing for the journal to do.
pub(crate) enum JournalJob {
    /// Write a batch.
    Append { ready_number: u64, batch: JournalBatch },
    /// Let files go that a checkpoint covers.
    Release { log_index: u64, keep_bytes: u64 },
}

/// Starts the journal writer. It ends when its channel is closed.
pub(crate) fn start(
    journal: Journal,
    events: Sender<Event>,
    metrics: Arc<Metrics>,
) -> io::Result<(Sender<JournalJob>, JoinHandle<()>)> {
    // Holds one job at a time: the node has one write under way.
    let (sender, jobs) = mpsc::channel();
    let thread = spawn("journal", move || write_all(journal, &jobs, &events, &metrics))?;
    Ok((sender, thread))
}

fn write_all(mut journal: Journal, jobs: &Receiver<JournalJob>, events: &Sender<Event>, metrics: &Metrics) {
    for job in jobs {
        match job {
            JournalJob::Append { ready_number, batch } => {
                let begun = Instant::now();
                if let Err(error) = journal.append(&batch) {
                    end_after_disk_failure("the journal", &error);
                }
                let (bytes, commands) = size(&batch);
                metrics.count_journal_write(begun.elapsed(), bytes, commands);
                // The loop is gone only at a stop, when nobody waits for this any more.
                let _ = events.send(Event::JournalWritten { ready_number });
            }
            JournalJob::Release { log_index, keep_bytes } => match journal.release(log_index, keep_bytes) {
                Ok(released) => tracing::debug!(log_index, files = released.files, "journal files let go"),
                Err(error) => end_after_disk_failure("the journal", &error),
            },
        }
    }
}

/// Bytes of a batch's entries, and how many commands they carry.
fn size(batch: &JournalBatch) -> (u64, u64) {
    let bytes = batch.entries.iter().map(|entry| entry.data.len() as u64).sum();
    let commands = |entry: &JournalEntry| Batch::open(entry.data.clone()).map_or(0, |batch| u64::from(batch.left));
    (bytes, batch.entries.iter().map(commands).sum())
}
