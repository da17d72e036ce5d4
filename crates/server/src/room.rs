//! Room on the disk: who meets a full disk gets some from the reserve, and the loop is told when room is short.
//!
//! Nothing here is on the way of a request: the reserve is touched when a write was refused for lack of room, and by a
//! look once a second.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mortarmq_node::DiskState;
use mortarmq_storage::{Disk, Reserve, ReserveOptions};

use crate::event::Event;
use crate::inbox::EventSender;

/// The room of one data directory. Threads share it.
pub(crate) struct Room {
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    reserve: Reserve,
    events: EventSender,
    /// How the disk stands, as the loop was told.
    told: Mutex<Option<DiskState>>,
    /// How many threads wait for room with the reserve used up.
    waiting: AtomicU32,
}

/// What room is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A batch that is to be confirmed: an ack, a delivery, a delete.
    Journal,
    /// What frees journal and the files of deleted topics.
    Checkpoint,
    /// What is in the journal already. The last quarter of the reserve is not for it: without that, nothing could be
    /// confirmed and nothing freed any more.
    Segments,
}

impl Room {
    /// Opens the reserve. Call it before anything else is written to the directory.
    ///
    /// # Errors
    /// The disk's; lack of room is none.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        reserve_bytes: u64,
        journal_file_bytes: u64,
        events: EventSender,
    ) -> io::Result<Self> {
        let margin_bytes = LOW_BYTES_MAX.min(journal_file_bytes.max(reserve_bytes / 4));
        let options = ReserveOptions { bytes: reserve_bytes, margin_bytes };
        let reserve = Reserve::open(Arc::clone(&disk), data_dir, options)?;
        let (told, waiting) = (Mutex::new(None), AtomicU32::new(0));
        Ok(Self { disk, data_dir: data_dir.to_path_buf(), reserve, events, told, waiting })
    }

    /// Gives room from the reserve, and says whether it gave any: then the write that was refused may be repeated.
    /// `bytes` is what is wanted, as far as it is known.
    pub(crate) fn make(&self, wanted_for: Use, bytes: u64) -> bool {
        // What would not be enough for a checkpoint is better kept for what can be written in parts.
        let free_bytes = self.disk.free_bytes(&self.data_dir).unwrap_or(0);
        if wanted_for == Use::Checkpoint && self.reserve.held_bytes().saturating_add(free_bytes) < bytes {
            return false;
        }
        let keep_bytes = if wanted_for == Use::Segments { self.reserve.options().bytes / 4 } else { 0 };
        let given = self.reserve.give(bytes.max(STEP_BYTES), keep_bytes).unwrap_or_else(|error| {
            tracing::error!(%error, "the disk reserve cannot be cut");
            0
        });
        if given > 0 {
            tracing::debug!(
                bytes = given,
                left_bytes = self.reserve.held_bytes(),
                ?wanted_for,
                "given from the reserve"
            );
            self.tell();
        }
        given > 0
    }

    /// A thread waits for room until what this returns is dropped. The operator is told what waits with it.
    pub(crate) fn wait(self: &Arc<Self>, refused: &str, meanwhile: &str) -> Waiting {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let data_dir = self.data_dir.display();
        tracing::warn!(
            "{refused}, and what was held in reserve for it is used up; {meanwhile}; free space where {data_dir} lies"
        );
        Waiting(Arc::clone(self))
    }

    /// Lets the reserve grow again where room allows, and tells the loop how the disk stands.
    pub(crate) fn check(&self) {
        match self.reserve.refill() {
            Ok(true) => tracing::debug!(held_bytes = self.reserve.held_bytes(), "the reserve grew"),
            Ok(false) => {}
            // The next look tries again; a disk that fails ends the process where it matters.
            Err(error) => tracing::debug!(%error, "the disk reserve cannot grow"),
        }
        self.tell();
    }

    fn tell(&self) {
        let Ok(free_bytes) = self.disk.free_bytes(&self.data_dir) else { return };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let was_low = told.is_some_and(|told| told.is_low);
        let low_bytes = self.reserve.options().margin_bytes;
        // Back to normal well above the bound only, so that what is refused is not taken and refused in turns.
        let enough_bytes = if was_low { low_bytes * 2 } else { low_bytes };
        let is_low = free_bytes < enough_bytes || !self.reserve.is_whole();
        let state = DiskState { is_low, free_bytes };
        let has_news = is_low || told.is_none_or(|told| told.is_low);
        if has_news && *told != Some(state) {
            *told = Some(state);
            // The loop is gone only at a stop.
            self.events.send(Event::Disk { state });
        }
        drop(told);
        let (held_bytes, data_dir) = (self.reserve.held_bytes(), self.data_dir.display());
        match (was_low, is_low) {
            (false, true) => tracing::warn!(
                free_bytes,
                held_bytes,
                "the disk is nearly full: publishes are refused, acks and deliveries go on; free space where {data_dir} \
                 lies, or delete topics"
            ),
            (true, false) => tracing::info!(free_bytes, held_bytes, "the disk has room again: publishes go on"),
            _ => {}
        }
    }

    /// Whether publishes are refused for lack of room.
    pub(crate) fn is_low(&self) -> bool {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|told| told.is_low)
    }

    /// Whether something waits for room with the reserve used up.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// What is held in reserve.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.reserve.held_bytes()
    }
}

/// Somebody waits for room.
pub(crate) struct Waiting(Arc<Room>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Looks at the disk once a second, until the other end of `ended` is gone.
pub(crate) fn watch(room: &Room, ended: &Receiver<()>) {
    while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        room.check();
    }
}

/// Room is short below this at the latest, however large the reserve is.
const LOW_BYTES_MAX: u64 = 64 << 20;
/// As much as a journal file is filled ahead.
pub(crate) const STEP_BYTES: u64 = 4 << 20;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long who waits for room waits before the next try.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
