//! The read pool: payloads for deliveries, peeks and traces are read here, never in the shard's loop.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use mortarmq_node::drive::read;
use mortarmq_node::{ReadJob, ReadResult};
use mortarmq_storage::SegmentReader;

use crate::event::Event;
use crate::inbox::EventSender;
use crate::threads::spawn;

/// One read.
pub(crate) struct ReadTask {
    pub(crate) ticket: u64,
    pub(crate) job: ReadJob,
}

/// Starts the pool. Its threads end when the channel is closed.
///
/// The channel needs no bound of its own: a subscription has one read under way, and each question has one.
pub(crate) fn start(
    reader: &SegmentReader,
    events: &EventSender,
) -> io::Result<(Sender<ReadTask>, Vec<JoinHandle<()>>)> {
    let (sender, tasks) = mpsc::channel();
    let tasks = Arc::new(Mutex::new(tasks));
    let mut threads = Vec::with_capacity(THREADS);
    for number in 0..THREADS {
        let (reader, events, tasks) = (reader.clone(), events.clone(), Arc::clone(&tasks));
        threads.push(spawn(&format!("read-{number}"), move || read_all(&reader, &tasks, &events))?);
    }
    Ok((sender, threads))
}

fn read_all(reader: &SegmentReader, tasks: &Mutex<Receiver<ReadTask>>, events: &EventSender) {
    loop {
        // A panic elsewhere ends the process, so a poisoned lock means nothing here.
        let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(ReadTask { ticket, job }) = next else { return };
        let result = read(reader, &job);
        if let ReadResult::Failed(reason) = &result {
            tracing::error!("a read failed and is not served: {reason}");
        }
        events.send(Event::ReadDone { ticket, result });
    }
}

/// Two, so that one slow read does not hold up every other.
const THREADS: usize = 2;
