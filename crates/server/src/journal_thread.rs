//! The journal writer: one thread, one batch after the other, each written and fsynced before it is told.
//!
//! On a full disk it takes from the reserve. With that used up it waits for room: nothing is confirmed meanwhile, and
//! nothing lost (failure rule 8).

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mortarmq_node::drive::{JournalKeeper, Room};
use mortarmq_shard::command::Batch;
use mortarmq_storage::{JournalBatch, JournalEntry};

use crate::event::Event;
use crate::inbox::EventSender;
use crate::metrics::Metrics;
use crate::peers::Promise;
use crate::room::{self, FULL_PAUSE};
use crate::shared::Status;
use crate::threads::{end_after_disk_failure, spawn};

/// One thing for the journal to do.
pub(crate) enum JournalJob {
    /// Write a batch.
    Append {
        ready_number: u64,
        batch: JournalBatch,
    },
    /// Let files go that a checkpoint covers; spares too, but for one, when `frees_spares`.
    Release {
        log_index: u64,
        keep_bytes: u64,
        frees_spares: bool,
    },
    Membership {
        membership: Bytes,
    },
}

/// What the thread works with.
pub(crate) struct JournalWriter {
    pub(crate) journal: JournalKeeper,
    pub(crate) events: EventSender,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) room: Arc<Room>,
    pub(crate) status: Arc<Status>,
    /// Kept until the first batch is durable, on a node whose folder holds no more than that.
    pub(crate) promise: Option<Promise>,
}

/// Starts the journal writer. It ends when its channel is closed.
///
/// A full disk does not hold up a stop: what could not be written then was claimed to nobody.
pub(crate) fn start(writer: JournalWriter) -> io::Result<(Sender<JournalJob>, JoinHandle<()>)> {
    // Holds one batch at a time: the node has one write under way.
    let (sender, jobs) = mpsc::channel();
    let thread = spawn("journal", move || writer.write_all(&jobs))?;
    Ok((sender, thread))
}

impl JournalWriter {
    fn write_all(mut self, jobs: &Receiver<JournalJob>) {
        while let Ok(job) = jobs.recv() {
            match job {
                JournalJob::Append { ready_number, batch } => {
                    let Some(took) = self.append(&batch, jobs) else {
                        tracing::warn!("stopped without room for the last batch; nobody was told that it is stored");
                        // The loop hands over work until it ends, and may rely on somebody taking it.
                        jobs.iter().for_each(drop);
                        return;
                    };
                    self.events.send(Event::JournalWritten { ready_number, took });
                }
                JournalJob::Release { log_index, keep_bytes, frees_spares } => {
                    self.release(log_index, keep_bytes, frees_spares);
                }
                JournalJob::Membership { membership } => self.journal.set_membership(membership),
            }
        }
    }

    /// Writes a batch, when there is room; says how long the write took. None if it was not written, at a stop.
    fn append(&mut self, batch: &JournalBatch, jobs: &Receiver<JournalJob>) -> Option<Duration> {
        let mut waiting = None;
        loop {
            let begun = Instant::now();
            let full = match self.journal.append(batch) {
                Ok(None) => {
                    let (bytes, commands) = size(batch);
                    let took = begun.elapsed();
                    self.metrics.count_journal_write(took, bytes, commands);
                    if let Some(Err(error)) = self.promise.take().map(Promise::fulfil) {
                        end_after_disk_failure("the identity of the data", &error);
                    }
                    return Some(took);
                }
                Ok(Some(full)) => full,
                Err(error) => end_after_disk_failure("the journal", &error),
            };
            if self.status.is_stopping.load(Ordering::Relaxed) {
                return None;
            }
            waiting.get_or_insert_with(|| {
                room::wait(&self.room, &full.to_string(), "nothing is confirmed until there is room")
            });
            match jobs.recv_timeout(FULL_PAUSE) {
                // What a checkpoint lets go is room.
                Ok(JournalJob::Release { log_index, keep_bytes, frees_spares }) => {
                    self.release(log_index, keep_bytes, frees_spares);
                }
                Ok(JournalJob::Membership { membership }) => self.journal.set_membership(membership),
                Ok(JournalJob::Append { .. }) => unreachable!("the node has one write under way"),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn release(&mut self, log_index: u64, keep_bytes: u64, frees_spares: bool) {
        match self.journal.release(log_index, keep_bytes, frees_spares) {
            Ok(released) => tracing::debug!(log_index, files = released.files, "journal files let go"),
            Err(error) => end_after_disk_failure("the journal", &error),
        }
    }
}

/// Bytes of a batch's entries, and how many commands they carry.
fn size(batch: &JournalBatch) -> (u64, u64) {
    let bytes = batch.entries.iter().map(|entry| entry.data.len() as u64).sum();
    let commands = |entry: &JournalEntry| Batch::open(entry.data.clone()).map_or(0, |batch| u64::from(batch.left));
    (bytes, batch.entries.iter().map(commands).sum())
}

#[cfg(test)]
mod tests {
    use super::{JournalJob, JournalWriter, start};
    use crate::event::Event;
    use crate::inbox::{Inbox, inbox};
    use crate::metrics::Metrics;
    use crate::room;
    use crate::shared::Status;
    use mortarmq_node::drive::{JournalKeeper, Room};
    use mortarmq_storage::{Covered, Disk, Journal, JournalBatch, JournalEntry, JournalOptions, MemoryDisk};
    use mortarmq_types::ShardId;
    use std::path::Path;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::Sender;
    use std::sync::{Arc, Mutex};
    use std::thread::JoinHandle;
    use std::time::Duration;

    const MIB: u64 = 1 << 20;
    const FILE_BYTES: u64 = 64 << 10;

    struct Bench {
        disk: MemoryDisk,
        status: Arc<Status>,
        room: Arc<Room>,
        jobs: Sender<JournalJob>,
        thread: JoinHandle<()>,
        events: Inbox,
        sent: u64,
    }

    fn options() -> JournalOptions {
        JournalOptions { shard: ShardId::ZERO, file_bytes: FILE_BYTES, zero_step_bytes: FILE_BYTES / 4, spare_files: 2 }
    }

    fn bench(reserve_bytes: u64) -> Bench {
        let (disk, data) = (MemoryDisk::new(), Path::new("data"));
        disk.create_dir_all(data).expect("a folder");
        disk.set_capacity(Some(32 * MIB));
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let (sender, events) = inbox();
        let room = room::open(Arc::clone(&shared), data, reserve_bytes, 0, sender.clone()).expect("opened");
        let room = Arc::new(room);
        let found = Journal::recover(shared, data, options(), bytes::Bytes::new(), None, &mut |_| Ok(()));
        let status = Arc::new(Status::new());
        let writer = JournalWriter {
            journal: JournalKeeper::new(found.expect("a new journal").0, Arc::clone(&room)),
            events: sender,
            metrics: Arc::new(Metrics::new()),
            room: Arc::clone(&room),
            status: Arc::clone(&status),
            promise: None,
        };
        let (jobs, thread) = start(writer).expect("a thread");
        Bench { disk, status, room, jobs, thread, events, sent: 0 }
    }

    impl Bench {
        /// Takes all room but what is held in reserve.
        fn fill(&self) {
            let held: u64 = 32 * MIB - self.disk.free_bytes(Path::new("data")).expect("looked");
            self.disk.set_capacity(Some(held));
        }

        /// Gives a batch of 8 blocks, half a file, to the writer.
        fn send(&mut self) -> u64 {
            self.sent += 1;
            let data = vec![7; 28_000].into();
            let entries = vec![JournalEntry { index: self.sent, term: 1, kind: 1, data }];
            let batch = JournalBatch { entries, ..JournalBatch::default() };
            self.jobs.send(JournalJob::Append { ready_number: self.sent, batch }).expect("the thread runs");
            self.sent
        }

        /// Whether the batch is told to be written within a time.
        fn is_written(&mut self, number: u64, within: Duration) -> bool {
            loop {
                match self.events.next_within(within) {
                    Some(Event::JournalWritten { ready_number, .. }) => return ready_number == number,
                    Some(_) => {}
                    None => return false,
                }
            }
        }
    }

    const LONG: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(300);

    #[test]
    fn rule_8_a_journal_without_room_goes_on_from_the_reserve_and_then_waits() {
        let mut bench = bench(8 * MIB);
        bench.fill();
        let mut confirmed = 0;
        loop {
            let number = bench.send();
            if !bench.is_written(number, SHORT) {
                break;
            }
            confirmed = number;
        }
        // A file holds one batch, and three of the four steps of a file are filled for it.
        let used_bytes = confirmed * FILE_BYTES / 4 * 3;
        assert!((7 * MIB..=9 * MIB).contains(&used_bytes), "all of the reserve was used: {used_bytes}");
        assert!(bench.room.is_full() && bench.room.is_low() && bench.room.reserve_bytes() == 0);
        bench.disk.set_capacity(None);
        assert!(bench.is_written(confirmed + 1, LONG), "it goes on when there is room");
        assert!(!bench.room.is_full());
        // What was confirmed is there.
        let found = Mutex::new(0);
        let shared: Arc<dyn Disk> = Arc::new(bench.disk.after_power_loss(7));
        Journal::recover(shared, Path::new("data"), options(), bytes::Bytes::new(), None, &mut |_| {
            *found.lock().expect("one thread") += 1;
            Ok(())
        })
        .expect("recovered");
        assert_eq!(found.into_inner().expect("one thread"), confirmed + 1);
    }

    #[test]
    fn rule_8_what_a_checkpoint_frees_lets_a_waiting_journal_go_on() {
        let mut bench = bench(0);
        for _ in 0..6 {
            let number = bench.send();
            assert!(bench.is_written(number, LONG));
        }
        bench.fill();
        while {
            let number = bench.send();
            bench.is_written(number, SHORT)
        } {}
        let waits_for = bench.sent;
        bench.jobs.send(JournalJob::Release { log_index: 4, keep_bytes: 0, frees_spares: true }).expect("it runs");
        assert!(bench.is_written(waits_for, LONG), "room was made behind its back");
        let shared: Arc<dyn Disk> = Arc::new(bench.disk.clone());
        let covered = Some(Covered { log_index: 4 });
        Journal::recover(shared, Path::new("data"), options(), bytes::Bytes::new(), covered, &mut |_| Ok(()))
            .expect("nothing else went");
    }

    #[test]
    fn rule_8_a_full_disk_does_not_hold_up_a_stop() {
        let mut bench = bench(0);
        bench.fill();
        while {
            let number = bench.send();
            bench.is_written(number, SHORT)
        } {}
        assert!(bench.room.is_full());
        bench.status.is_stopping.store(true, Ordering::Relaxed);
        let begun = std::time::Instant::now();
        while bench.room.is_full() {
            assert!(begun.elapsed() < LONG, "it gives up although the loop is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(bench.jobs);
        bench.thread.join().expect("it ends");
        assert!(
            std::iter::from_fn(|| bench.events.pop()).all(|event| !matches!(event, Event::JournalWritten { .. })),
            "and claims nothing"
        );
    }
}
