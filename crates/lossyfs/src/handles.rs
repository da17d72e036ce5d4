//! The files and directories that processes have open.

use std::collections::BTreeMap;
use std::ffi::OsString;

use fuser::Errno;

/// Open files and directories by handle number. A number is never used again, so one from before a power loss is known
/// to be stale.
#[derive(Default)]
pub(crate) struct Handles {
    open: BTreeMap<u64, Handle>,
    last: u64,
}

/// What one open file or directory leads to.
pub(crate) struct Handle {
    /// The inode.
    pub(crate) inode: u64,
    /// The names as they were when the listing began, so that one which removes as it reads misses none.
    pub(crate) entries: Vec<Entry>,
}

/// One line of a listing.
pub(crate) struct Entry {
    /// The inode the name leads to.
    pub(crate) inode: u64,
    /// Whether that is a directory.
    pub(crate) is_directory: bool,
    /// The name.
    pub(crate) name: OsString,
}

impl Handles {
    /// Gives out a handle.
    pub(crate) fn open(&mut self, inode: u64) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Handle { inode, entries: Vec::new() });
        self.last
    }

    /// The handle of a number; `ESTALE` after a power loss.
    pub(crate) fn find(&mut self, number: u64) -> Result<&mut Handle, Errno> {
        self.open.get_mut(&number).ok_or(Errno::ESTALE)
    }

    /// Takes a handle back.
    pub(crate) fn close(&mut self, number: u64) -> Option<Handle> {
        self.open.remove(&number)
    }

    /// Makes every handle stale.
    pub(crate) fn close_all(&mut self) {
        self.open.clear();
    }
}
