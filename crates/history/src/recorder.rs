//! Writes a history while it happens.
//!
//! A call to [`Recorder::record`] puts one line into a bounded buffer; a thread of its own packs what is there and writes
//! it. What was written is whole lines: each zstd frame and each gzip member holds whole lines, and one is finished at
//! least every [`Options::flush_every`]. A process that is killed loses what it recorded since, and tears at most the last
//! line or frame.
//!
//! # Invariants
//! 1. `pending` holds whole lines, at most [`Options::buffer_bytes`] and one line.
//! 2. No record is dropped while the file can be written: one that is missing would make the judge see a loss that never
//!    was. A caller that is faster than the disk waits.
//! 3. After the first error of the disk nothing more is written, and every `flush` and `finish` says so.

mod file;

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::record::Record;
use crate::source::Packing;
use file::PackedFile;

/// How a recorder buffers.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much may wait to be written before a caller of [`Recorder::record`] waits.
    pub buffer_bytes: usize,
    /// The longest time a record stays in memory.
    pub flush_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { buffer_bytes: 8 << 20, flush_every: Duration::from_millis(500) }
    }
}

/// The history could not be written; what is on the disk is a part of it.
#[derive(Clone, Debug, Error)]
#[error("cannot write the history {}", path.display())]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// What the system says. Shared, because every later call gives it again.
    #[source]
    pub source: Arc<io::Error>,
}

/// Writes a history. Clones write to the same file; any thread may hold one.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
    writer: Arc<Writer>,
}

struct Shared {
    path: PathBuf,
    options: Options,
    state: Mutex<State>,
    /// The writer waits here for work.
    work: Condvar,
    /// Callers wait here for room, for a flush or for the end.
    room: Condvar,
}

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    /// When the oldest line of `pending` was recorded.
    since: Option<Instant>,
    /// Bytes of lines recorded and written since the start; a flush waits until the second reaches the first.
    recorded: u64,
    written: u64,
    flush_to: u64,
    is_finished: bool,
    error: Option<Arc<io::Error>>,
}

/// Ends the thread when the last recorder is gone.
struct Writer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Makes the file, packed as its name says; one that is there is replaced.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, options: Options) -> Result<Self, RecordError> {
        let failed = |source| RecordError { path: path.to_owned(), source: Arc::new(source) };
        let file = PackedFile::create(path, Packing::from_name(path)).map_err(failed)?;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            options,
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            room: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("history".to_owned()).spawn(move || of_thread.write_all(file));
        let thread = Mutex::new(Some(thread.map_err(failed)?));
        Ok(Self { writer: Arc::new(Writer { shared: Arc::clone(&shared), thread }), shared })
    }

    /// Records a line. Waits only while the buffer is full; after an error of the disk it does nothing, and
    /// [`Recorder::flush`] and [`Recorder::finish`] say so.
    ///
    /// # Durability
    /// In the file after [`Options::flush_every`], on the disk after [`Recorder::flush`].
    pub fn record(&self, record: &Record<'_>) {
        LINE.with_borrow_mut(|line| {
            line.clear();
            write_line(line, record);
            self.shared.append(line);
        });
    }

    /// Waits until everything recorded before is on the disk.
    ///
    /// # Durability
    /// Everything recorded before is synced when it returns.
    /// # Errors
    /// When it could not be written, now or before.
    pub fn flush(&self) -> Result<(), RecordError> {
        self.shared.flush()
    }

    /// Ends the file: as [`Recorder::flush`], and what other clones record afterwards is left out.
    ///
    /// # Errors
    /// When something could not be written, now or before.
    pub fn finish(self) -> Result<(), RecordError> {
        let result = self.shared.flush();
        self.writer.stop();
        result
    }
}

/// Appends a record as one line, with its newline.
pub fn write_line(line: &mut Vec<u8>, record: &Record<'_>) {
    serde_json::to_writer(&mut *line, record)
        .expect("no map of a record has keys that are no text, and memory takes every byte");
    line.push(b'\n');
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nobody panics while holding it: a poisoned lock is as good as another.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is written without waiting for the time: large enough to pack well, and never more than callers may fill.
    fn batch_bytes(&self) -> usize {
        BATCH_BYTES.min(self.options.buffer_bytes)
    }

    fn append(&self, line: &[u8]) {
        let mut state = self.lock();
        while state.pending.len() >= self.options.buffer_bytes && state.error.is_none() && !state.is_finished {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.error.is_some() || state.is_finished {
            return;
        }
        state.pending.extend_from_slice(line);
        state.recorded += line.len() as u64;
        // The writer is woken by the first line, to start its watch, and when there is enough for a batch.
        let is_first = state.since.is_none();
        if is_first {
            state.since = Some(Instant::now());
        }
        if is_first || state.pending.len() >= self.batch_bytes() {
            self.work.notify_one();
        }
    }

    fn flush(&self) -> Result<(), RecordError> {
        let mut state = self.lock();
        let target = state.recorded;
        state.flush_to = state.flush_to.max(target);
        self.work.notify_one();
        while state.error.is_none() && state.written < target && !state.is_finished {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &state.error {
            Some(source) => Err(RecordError { path: self.path.clone(), source: Arc::clone(source) }),
            None => Ok(()),
        }
    }

    /// The thread.
    fn write_all(&self, mut file: PackedFile) {
        let mut batch = Vec::new();
        while let Some(is_flush) = self.take_batch(&mut batch) {
            let result = file.append(&batch).and_then(|()| if is_flush { file.sync() } else { Ok(()) });
            let mut state = self.lock();
            match result {
                Ok(()) => state.written += batch.len() as u64,
                Err(error) => {
                    state.error = Some(Arc::new(error));
                    state.pending = Vec::new();
                }
            }
            let has_failed = state.error.is_some();
            drop(state);
            self.room.notify_all();
            if has_failed {
                return;
            }
        }
    }

    /// Waits until there is something to write, and takes it; none at the end. Says whether somebody waits for the disk.
    fn take_batch(&self, batch: &mut Vec<u8>) -> Option<bool> {
        let mut state = self.lock();
        loop {
            let is_flush = state.flush_to > state.written;
            let waits = state.since.map(|since| self.options.flush_every.saturating_sub(since.elapsed()));
            let is_due = waits.is_some_and(|wait| wait.is_zero());
            if is_flush || is_due || state.pending.len() >= self.batch_bytes() || (state.is_finished && waits.is_some())
            {
                batch.clear();
                std::mem::swap(batch, &mut state.pending);
                state.since = None;
                // Room was made.
                self.room.notify_all();
                return Some(is_flush);
            }
            if state.is_finished {
                return None;
            }
            state = match waits {
                Some(wait) => self.work.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Writer {
    fn stop(&self) {
        self.shared.lock().is_finished = true;
        self.shared.work.notify_one();
        self.shared.room.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panic was printed; there is nothing to add while dropping.
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A batch that packs well.
const BATCH_BYTES: usize = 256 << 10;

thread_local! {
    /// The line being made, outside the lock and without an allocation each.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
mod tests;
