//! A disk in memory that has an end.

use std::io;

use super::{Change, MemoryDisk, MemoryFile, Node, State, in_memory, lock};

impl MemoryDisk {
    /// How much all files together may hold; `None` for no bound. What does not fit is refused with `StorageFull`, a
    /// write after what fits of it was written, as a real disk does.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity_bytes = bytes;
    }
}

impl State {
    /// How much the files may still grow.
    pub(super) fn room_bytes(&self) -> u64 {
        if self.full {
            return 0;
        }
        let Some(capacity_bytes) = self.capacity_bytes else { return BOUNDLESS_BYTES };
        let names = self.directories.values().flat_map(|directory| directory.current.values());
        let held: u64 = names
            .map(|node| match node {
                Node::File(image) => lock(image).current().len() as u64,
                Node::Directory => 0,
            })
            .sum();
        capacity_bytes.saturating_sub(held)
    }
}

impl MemoryFile {
    /// Whether there is room for a write; what fits of it is written if not.
    pub(super) fn check_room(&self, state: &State, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let growth = (offset + bytes.len()).saturating_sub(lock(&self.image).current().len()) as u64;
        let room = state.room_bytes();
        if growth <= room {
            return Ok(());
        }
        let fits = (bytes.len() as u64).saturating_sub(growth - room);
        if room > 0 && fits > 0 {
            lock(&self.image).change(Change::Write { offset, bytes: bytes[..in_memory(fits)?].to_vec() });
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Whether the file is shorter than this, and there is room for the rest.
    pub(super) fn grows_to(&self, bytes: u64) -> io::Result<bool> {
        let state = lock(&self.state);
        state.check_power()?;
        let growth = bytes.saturating_sub(lock(&self.image).current().len() as u64);
        if growth > state.room_bytes() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(growth > 0) }
    }
}

/// What is free on a disk without a bound.
const BOUNDLESS_BYTES: u64 = 1 << 62;
