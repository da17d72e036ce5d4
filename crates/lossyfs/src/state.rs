//! Everything the file system is, behind one lock.

use std::ffi::OsStr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fuser::{Errno, FileAttr};

use crate::faults::Faults;
use crate::handles::{Entry, Handles};
use crate::inodes::{Inodes, NewNode};
use crate::power::{Loss, lose_power};

/// What the threads of the file system and its handle share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Woken when the power is lost or the file system goes, so that a delayed sync ends.
    pub(crate) woken: Condvar,
}

/// The file system.
pub(crate) struct State {
    /// Files and directories.
    pub(crate) inodes: Inodes,
    /// What is open.
    pub(crate) handles: Handles,
    /// What is to fail.
    pub(crate) faults: Faults,
    /// How often the power was lost.
    pub(crate) losses: u64,
    /// Whether the file system is going.
    pub(crate) is_unmounted: bool,
}

impl Shared {
    /// An empty file system.
    pub(crate) fn new() -> Self {
        let state = State {
            inodes: Inodes::new(0, 0o755),
            handles: Handles::default(),
            faults: Faults::default(),
            losses: 0,
            is_unmounted: false,
        };
        Self { state: Mutex::new(state), woken: Condvar::new() }
    }

    /// The state. A panic of another thread does not make it less true to look at: a test has failed already.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loses the power and wakes whoever waits for a sync.
    pub(crate) fn lose_power(&self, seed: u64) -> Loss {
        let mut state = self.lock();
        let inodes = std::mem::replace(&mut state.inodes, Inodes::new(0, 0o755));
        let (inodes, loss) = lose_power(inodes, seed);
        state.inodes = inodes;
        state.losses += 1;
        state.handles.close_all();
        self.woken.notify_all();
        loss
    }
}

impl State {
    /// Makes a file and opens it. The kernel has looked for the name before it asks, under the directory's lock.
    pub(crate) fn create(&mut self, parent: u64, name: &OsStr, permissions: u16) -> Result<(FileAttr, u64), Errno> {
        let inode = self.inodes.make(parent, name, NewNode::File, permissions)?;
        let handle = self.open(inode)?;
        Ok((self.inodes.attributes(inode)?, handle))
    }

    /// Opens a file or directory.
    pub(crate) fn open(&mut self, inode: u64) -> Result<u64, Errno> {
        self.inodes.opened(inode)?;
        Ok(self.handles.open(inode))
    }

    /// Closes what a handle had open.
    pub(crate) fn close(&mut self, handle: u64) {
        if let Some(closed) = self.handles.close(handle) {
            self.inodes.closed(closed.inode);
        }
    }

    /// Bytes of an open file.
    pub(crate) fn read(&mut self, handle: u64, offset: u64, size: usize) -> Result<Vec<u8>, Errno> {
        let inode = self.handles.find(handle)?.inode;
        self.inodes.read(inode, offset, size)
    }

    /// Writes to an open file.
    pub(crate) fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let inode = self.handles.find(handle)?.inode;
        if self.faults.next_write_fails() {
            return Err(Errno::EIO);
        }
        self.inodes.write(inode, offset, bytes)
    }

    /// The lines of an open directory from `first` on. A listing that starts anew sees the names of now.
    pub(crate) fn entries(&mut self, handle: u64, first: usize) -> Result<(u64, &[Entry]), Errno> {
        let opened = self.handles.find(handle)?;
        if first == 0 {
            let listing = self.inodes.listing(opened.inode)?;
            opened.entries = listing
                .iter()
                .map(|(name, inode)| Entry {
                    inode: *inode,
                    is_directory: self.inodes.is_directory(*inode),
                    name: name.clone(),
                })
                .collect();
        }
        Ok((opened.inode, &opened.entries))
    }
}
