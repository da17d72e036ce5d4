//! Room on the disk: who meets a full disk gets some from the reserve, and the loop is told when room is short.
//!
//! Nothing here is on the way of a request: the reserve is touched when a write was refused for lack of room, and by a
//! look once a second.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mortarmq_storage::{Disk, Reserve, ReserveOptions};

use super::STEP_BYTES;
use crate::duties::room::DiskState;

/// The room of one data directory. Threads share it.
pub struct Room {
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    reserve: Reserve,
    teller: Teller,
    /// How the disk stands, as the loop was told.
    told: Mutex<Option<DiskState>>,
    /// How many wait for room with the reserve used up.
    waiting: AtomicU32,
}

/// Takes the news of a room.
type Teller = Box<dyn Fn(RoomNews<'_>) + Send + Sync>;

/// What is worth saying about the room.
#[derive(Debug)]
pub enum RoomNews<'a> {
    /// The loop must hear it: call `handle_disk`.
    State(DiskState),
    /// Room became short, with so much held in reserve.
    Short {
        /// How the disk stands.
        state: DiskState,
        /// What the reserve holds.
        held_bytes: u64,
    },
    /// There is enough room again, with so much held in reserve.
    Enough {
        /// How the disk stands.
        state: DiskState,
        /// What the reserve holds.
        held_bytes: u64,
    },
    /// The reserve gave something.
    Given {
        /// How much.
        bytes: u64,
        /// What it still holds.
        left_bytes: u64,
        /// What for.
        wanted_for: Use,
    },
    /// The reserve grew.
    Grew {
        /// What it holds.
        held_bytes: u64,
    },
    /// The reserve could not be cut.
    CannotCut(&'a io::Error),
    /// The reserve could not grow; the next look tries again.
    CannotGrow(&'a io::Error),
}

/// What room is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
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
    pub fn open(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        reserve_bytes: u64,
        journal_file_bytes: u64,
        teller: impl Fn(RoomNews<'_>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let margin_bytes = LOW_BYTES_MAX.min(journal_file_bytes.max(reserve_bytes / 4));
        let options = ReserveOptions { bytes: reserve_bytes, margin_bytes };
        let reserve = Reserve::open(Arc::clone(&disk), data_dir, options)?;
        let (told, waiting) = (Mutex::new(None), AtomicU32::new(0));
        let teller = Box::new(teller);
        Ok(Self { disk, data_dir: data_dir.to_path_buf(), reserve, teller, told, waiting })
    }

    /// The directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Gives room from the reserve, and says whether it gave any: then the write that was refused may be repeated.
    /// `bytes` is what is wanted, as far as it is known.
    pub fn make(&self, wanted_for: Use, bytes: u64) -> bool {
        // What would not be enough for a checkpoint is better kept for what can be written in parts.
        let free_bytes = self.disk.free_bytes(&self.data_dir).unwrap_or(0);
        if wanted_for == Use::Checkpoint && self.reserve.held_bytes().saturating_add(free_bytes) < bytes {
            return false;
        }
        let keep_bytes = if wanted_for == Use::Segments { self.reserve.options().bytes / 4 } else { 0 };
        let given = self.reserve.give(bytes.max(STEP_BYTES), keep_bytes).unwrap_or_else(|error| {
            (self.teller)(RoomNews::CannotCut(&error));
            0
        });
        if given > 0 {
            let left_bytes = self.reserve.held_bytes();
            (self.teller)(RoomNews::Given { bytes: given, left_bytes, wanted_for });
            self.tell();
        }
        given > 0
    }

    /// Somebody waits for room until what this returns is dropped.
    #[must_use]
    pub fn wait(self: &Arc<Self>) -> Waiting {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(Arc::clone(self))
    }

    /// Lets the reserve grow again where room allows, and tells the loop how the disk stands. To be called once a second.
    pub fn check(&self) {
        match self.reserve.refill() {
            Ok(true) => (self.teller)(RoomNews::Grew { held_bytes: self.reserve.held_bytes() }),
            Ok(false) => {}
            // The next look tries again; a disk that fails ends the process where it matters.
            Err(error) => (self.teller)(RoomNews::CannotGrow(&error)),
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
            (self.teller)(RoomNews::State(state));
        }
        drop(told);
        let held_bytes = self.reserve.held_bytes();
        match (was_low, is_low) {
            (false, true) => (self.teller)(RoomNews::Short { state, held_bytes }),
            (true, false) => (self.teller)(RoomNews::Enough { state, held_bytes }),
            _ => {}
        }
    }

    /// Whether publishes are refused for lack of room.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|told| told.is_low)
    }

    /// Whether something waits for room with the reserve used up.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// What is held in reserve.
    ///
    /// # Units
    /// Bytes.
    #[must_use]
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve.held_bytes()
    }
}

/// Somebody waits for room.
pub struct Waiting(Arc<Room>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Room is short below this at the latest, however large the reserve is.
const LOW_BYTES_MAX: u64 = 64 << 20;
