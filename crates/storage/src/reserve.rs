//! The disk reserve: room that the broker holds for the time when the disk is full.
//!
//! It is the file `data_dir/reserve`, on real blocks; nothing in it counts. Cutting it gives room to the journal, the
//! segments and the checkpoints, so that acks, deliveries and deletes go on on a full disk (failure rule 8).
//!
//! # Invariants
//! 1. The file is never longer than was asked for, and `held_bytes` is its length.
//! 2. It grows only into room beyond what must stay free, so that growing it never fills the disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile, is_full};

/// The reserve of one data directory. Threads share it; nobody touches it before the disk is full, but for a look once a
/// second.
pub struct Reserve {
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    options: ReserveOptions,
    held: Mutex<Held>,
}

/// How large a reserve is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOptions {
    /// How much it holds when it is whole; 0 for no reserve.
    pub bytes: u64,
    /// What stays free beside it when it grows.
    pub margin_bytes: u64,
}

/// What is held now.
struct Held {
    /// None without a reserve, and as long as there was no room even for its name.
    file: Option<Arc<dyn DiskFile>>,
    bytes: u64,
}

impl Reserve {
    /// Opens the reserve of a data directory and makes it as large as room allows: no lack of room is an error. Call it
    /// before anything else is written.
    ///
    /// # Durability
    /// None, and none is needed: what a crash leaves of it is made whole at the next start.
    /// # Errors
    /// The disk's.
    pub fn open(disk: Arc<dyn Disk>, data_dir: &Path, options: ReserveOptions) -> io::Result<Self> {
        let path = data_dir.join(RESERVE_FILE);
        let reserve =
            Self { disk, data_dir: data_dir.to_path_buf(), options, held: Mutex::new(Held { file: None, bytes: 0 }) };
        let is_there = reserve.disk.exists(&path)?;
        if options.bytes == 0 {
            if is_there {
                reserve.disk.remove(&path)?;
            }
            return Ok(reserve);
        }
        if is_there {
            let file = reserve.disk.open(&path)?;
            let bytes = file.len()?.min(options.bytes);
            file.set_len(bytes)?;
            // Who copied the folder may have left holes: what is held must be on real blocks.
            let bytes = if allocated(&*file, bytes, 0)? { bytes } else { 0 };
            *reserve.lock() = Held { file: Some(file), bytes };
        }
        reserve.refill()?;
        Ok(reserve)
    }

    /// Gives up to `bytes` of what is held to whoever writes next, and leaves `keep_bytes`. Says how much it gave: with 0
    /// there is nothing left.
    ///
    /// # Errors
    /// The disk's.
    pub fn give(&self, bytes: u64, keep_bytes: u64) -> io::Result<u64> {
        let mut held = self.lock();
        let given = bytes.min(held.bytes.saturating_sub(keep_bytes));
        if given > 0
            && let Some(file) = &held.file
        {
            file.set_len(held.bytes - given)?;
            held.bytes -= given;
        }
        Ok(given)
    }

    /// Grows back into room that is free beyond the margin, and says whether it grew. Crumbs are left where they are: a
    /// disk that is full to a few bytes would be asked again and again.
    ///
    /// # Errors
    /// The disk's; no lack of room is one.
    pub fn refill(&self) -> io::Result<bool> {
        let mut held = self.lock();
        let missing_bytes = self.options.bytes - held.bytes;
        if missing_bytes == 0 {
            return Ok(false);
        }
        let room_bytes = self.disk.free_bytes(&self.data_dir)?.saturating_sub(self.options.margin_bytes);
        let step_bytes = missing_bytes.min(room_bytes);
        if step_bytes < missing_bytes.min(GROW_BYTES_MIN) {
            return Ok(false);
        }
        let file = match &held.file {
            Some(file) => Arc::clone(file),
            None => match self.disk.create_new(&self.data_dir.join(RESERVE_FILE)) {
                Ok(file) => Arc::clone(held.file.insert(file)),
                Err(error) if is_full(&error) => return Ok(false),
                Err(error) => return Err(error),
            },
        };
        if !allocated(&*file, held.bytes + step_bytes, held.bytes)? {
            return Ok(false);
        }
        held.bytes += step_bytes;
        Ok(true)
    }

    /// Whether it holds all that was asked for.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.held_bytes() == self.options.bytes
    }

    /// What it holds now.
    ///
    /// # Units
    /// Bytes.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// How it was opened.
    #[must_use]
    pub fn options(&self) -> ReserveOptions {
        self.options
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // The length is noted right after it was changed: a panic elsewhere leaves nothing half-done.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes room for all of a file; without it the file is left with `else_bytes`.
fn allocated(file: &dyn DiskFile, bytes: u64, else_bytes: u64) -> io::Result<bool> {
    match file.allocate(bytes) {
        Ok(()) => Ok(true),
        Err(error) if is_full(&error) => file.set_len(else_bytes).map(|()| false),
        Err(error) => Err(error),
    }
}

/// The file's name in the data directory.
const RESERVE_FILE: &str = "reserve";
/// It grows by no less, unless less is missing.
const GROW_BYTES_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::{Reserve, ReserveOptions};
    use crate::disk::{Disk, MemoryDisk, RealDisk};
    use std::path::Path;
    use std::sync::Arc;

    const MIB: u64 = 1 << 20;
    const OPTIONS: ReserveOptions = ReserveOptions { bytes: 8 * MIB, margin_bytes: 2 * MIB };

    fn data() -> &'static Path {
        Path::new("data")
    }

    fn disk(capacity_bytes: u64) -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.create_dir_all(data()).expect("a folder");
        disk.set_capacity(Some(capacity_bytes));
        disk
    }

    fn open(disk: &MemoryDisk, options: ReserveOptions) -> Reserve {
        Reserve::open(Arc::new(disk.clone()), data(), options).expect("no lack of room is an error")
    }

    fn length(disk: &MemoryDisk) -> u64 {
        disk.open(&data().join("reserve")).and_then(|file| file.len()).expect("it is there")
    }

    /// Fills what is free but for so many bytes.
    fn fill(disk: &MemoryDisk, name: &str, left_bytes: u64) {
        let bytes = disk.free_bytes(data()).expect("looked") - left_bytes;
        disk.create_new(&data().join(name)).and_then(|file| file.allocate(bytes)).expect("it fits");
    }

    #[test]
    fn rule_8_what_is_given_can_be_written_by_others() {
        let disk = disk(20 * MIB);
        let reserve = open(&disk, OPTIONS);
        assert!(reserve.is_whole() && length(&disk) == 8 * MIB);
        fill(&disk, "filler", 0);
        let file = disk.open(&data().join("filler")).expect("it is there");
        let end = file.len().expect("length");
        file.write_all_at(&[1; 4096], end).expect_err("the disk is full");
        assert_eq!(reserve.give(3 * MIB, 0).expect("given"), 3 * MIB);
        file.write_all_at(&[1; 4096], end).expect("there is room now");
        assert_eq!((reserve.held_bytes(), reserve.is_whole(), length(&disk)), (5 * MIB, false, 5 * MIB));
        assert_eq!(reserve.give(9 * MIB, MIB).expect("given"), 4 * MIB, "what is to be kept stays");
        assert_eq!(reserve.give(9 * MIB, MIB).expect("given"), 0);
        assert_eq!(reserve.give(9 * MIB, 0).expect("given"), MIB);
        assert_eq!(reserve.give(9 * MIB, 0).expect("given"), 0, "nothing is left");
    }

    #[test]
    fn it_grows_back_into_what_is_free_beyond_the_margin() {
        let disk = disk(20 * MIB);
        let reserve = open(&disk, OPTIONS);
        fill(&disk, "a", 0);
        reserve.give(8 * MIB, 0).expect("given");
        fill(&disk, "b", 2 * MIB);
        assert!(!reserve.refill().expect("looked"), "what must stay free stays");
        disk.remove(&data().join("b")).expect("removed");
        fill(&disk, "b", 2 * MIB + MIB / 2);
        assert!(!reserve.refill().expect("looked"), "no crumbs");
        disk.remove(&data().join("b")).expect("removed");
        fill(&disk, "b", 5 * MIB);
        assert!(reserve.refill().expect("looked"));
        assert_eq!((reserve.held_bytes(), disk.free_bytes(data()).expect("looked")), (3 * MIB, 2 * MIB));
        disk.remove(&data().join("a")).expect("removed");
        assert!(reserve.refill().expect("looked") && reserve.is_whole());
        assert!(!reserve.refill().expect("looked"), "it is whole");
    }

    #[test]
    fn a_start_takes_what_there_is_and_never_fails_for_lack_of_room() {
        for (capacity_bytes, held_bytes) in [(0, 0), (2 * MIB, 0), (6 * MIB, 4 * MIB), (10 * MIB, 8 * MIB)] {
            let reserve = open(&disk(capacity_bytes), OPTIONS);
            assert_eq!(reserve.held_bytes(), held_bytes, "{capacity_bytes}");
        }
        let disk = disk(20 * MIB);
        drop(open(&disk, OPTIONS));
        fill(&disk, "filler", 0);
        let reserve = open(&disk, OPTIONS);
        assert!(reserve.is_whole(), "what was held is held again on a full disk");
        reserve.give(5 * MIB, 0).expect("given");
        fill(&disk, "more", 0);
        assert_eq!(open(&disk, OPTIONS).held_bytes(), 3 * MIB, "and no more than that");
    }

    #[test]
    fn another_size_is_taken_over_at_the_next_start() {
        let disk = disk(20 * MIB);
        drop(open(&disk, OPTIONS));
        let smaller = open(&disk, ReserveOptions { bytes: 3 * MIB, ..OPTIONS });
        assert!(smaller.is_whole() && length(&disk) == 3 * MIB);
        let none = open(&disk, ReserveOptions { bytes: 0, ..OPTIONS });
        assert!(none.is_whole() && !disk.exists(&data().join("reserve")).expect("looked"));
        assert_eq!((none.give(MIB, 0).expect("given"), none.refill().expect("looked")), (0, false));
        assert!(open(&disk, OPTIONS).is_whole());
    }

    #[test]
    fn what_it_holds_is_on_real_blocks_also_after_somebody_copied_it_with_holes() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("reserve");
        let blocks = || std::fs::metadata(&path).expect("it is there").blocks() * 512;
        let options = ReserveOptions { bytes: 4 * MIB, margin_bytes: 0 };
        std::fs::File::create(&path).and_then(|file| file.set_len(4 * MIB)).expect("a file with a hole");
        let reserve = Reserve::open(Arc::new(RealDisk), folder.path(), options).expect("opened");
        assert!(reserve.is_whole() && blocks() >= 4 * MIB, "{} bytes on disk", blocks());
        reserve.give(3 * MIB, 0).expect("given");
        assert!(blocks() < 2 * MIB, "{} bytes on disk", blocks());
    }
}
