//! The tree of files and directories: inodes, the names that lead to them, and the space they occupy.
//!
//! # Invariants
//! 1. `names` of an inode is how many names a reader sees lead to it.
//! 2. `used_blocks` is the sum of the blocks of all inodes that have a name or are open. One that has neither is kept
//!    only because a power loss may bring its name back, and occupies nothing.
//! 3. An inode without a name is in `orphans`.

mod contents;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo};

use crate::blocks::BLOCK_BYTES;
use crate::file::{File, SECTOR_BYTES};
use crate::names::{Listing, Names};

pub(crate) use tree::MAX_NAME_BYTES;

/// The inode of the mounted directory itself.
pub(crate) const ROOT: u64 = INodeNo::ROOT.0;

/// The tree of files and directories.
pub(crate) struct Inodes {
    inodes: BTreeMap<u64, Inode>,
    names: Names,
    last_inode: u64,
    space: Space,
    orphans: BTreeSet<u64>,
    sweep_above: usize,
}

/// How much can be stored.
#[derive(Clone, Copy, Default)]
pub(crate) struct Space {
    /// The blocks there are; without a limit if there is no number.
    pub(crate) capacity_blocks: Option<u64>,
    /// The blocks that are occupied.
    pub(crate) used_blocks: u64,
}

/// What to make under a new name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewNode {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
}

struct Inode {
    kind: Kind,
    permissions: u16,
    names: u32,
    opens: u32,
}

enum Kind {
    File(Box<File>),
    Directory,
}

impl Inodes {
    /// An empty tree whose inodes are numbered above `last_inode`.
    pub(crate) fn new(last_inode: u64, permissions: u16) -> Self {
        let mut names = Names::default();
        names.add_directory(ROOT);
        let root = Inode { kind: Kind::Directory, permissions, names: 1, opens: 0 };
        Self {
            inodes: BTreeMap::from([(ROOT, root)]),
            names,
            last_inode: last_inode.max(ROOT),
            space: Space::default(),
            orphans: BTreeSet::new(),
            sweep_above: 0,
        }
    }

    /// How much can be stored.
    pub(crate) fn space(&self) -> Space {
        self.space
    }

    /// Limits what can be stored.
    pub(crate) fn set_capacity(&mut self, capacity_blocks: Option<u64>) {
        self.space.capacity_blocks = capacity_blocks;
    }

    /// How many inodes a name leads to.
    pub(crate) fn count(&self) -> u64 {
        (self.inodes.len() - self.orphans.len()) as u64
    }

    /// Whether an inode is a directory.
    pub(crate) fn is_directory(&self, inode: u64) -> bool {
        matches!(self.inodes.get(&inode), Some(Inode { kind: Kind::Directory, .. }))
    }

    /// The names of a directory.
    pub(crate) fn listing(&self, directory: u64) -> Result<&Listing, Errno> {
        if !self.inodes.contains_key(&directory) {
            return Err(Errno::ESTALE);
        }
        self.names.listing(directory).ok_or(Errno::ENOTDIR)
    }

    /// The inode a path below the root leads to.
    pub(crate) fn find_path(&self, path: &Path) -> Result<u64, Errno> {
        let mut inode = ROOT;
        for component in path.components() {
            inode = match component {
                Component::Normal(name) => *self.listing(inode)?.get(name).ok_or(Errno::ENOENT)?,
                Component::RootDir | Component::CurDir => inode,
                Component::ParentDir | Component::Prefix(_) => return Err(Errno::EINVAL),
            };
        }
        Ok(inode)
    }

    /// What `stat` says of an inode.
    pub(crate) fn attributes(&self, inode: u64) -> Result<FileAttr, Errno> {
        let found = self.inodes.get(&inode).ok_or(Errno::ESTALE)?;
        let (kind, size, blocks, links) = match &found.kind {
            Kind::File(file) => (FileType::RegularFile, file.len() as u64, file.blocks().count(), found.names),
            // One link means to `find` that the number says nothing of sub-directories.
            Kind::Directory => (FileType::Directory, 0, 0, found.names.min(1)),
        };
        Ok(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: blocks * (BLOCK_BYTES / SECTOR_BYTES) as u64,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind,
            perm: found.permissions,
            nlink: links,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_BYTES as u32,
            flags: 0,
        })
    }

    /// Sets an inode's permissions.
    pub(crate) fn set_permissions(&mut self, inode: u64, permissions: u16) -> Result<(), Errno> {
        self.inodes.get_mut(&inode).ok_or(Errno::ESTALE)?.permissions = permissions;
        Ok(())
    }

    /// Makes durable what is pending in a file or directory.
    pub(crate) fn sync(&mut self, inode: u64) -> Result<(), Errno> {
        match &mut self.inodes.get_mut(&inode).ok_or(Errno::ESTALE)?.kind {
            Kind::File(file) => file.sync(),
            Kind::Directory => {
                self.names.sync(inode);
                self.sweep();
            }
        }
        Ok(())
    }

    /// Forgets what is pending in a file or directory: readers still see it, and nothing makes it durable any more.
    pub(crate) fn forget_pending(&mut self, inode: u64) {
        match self.inodes.get_mut(&inode).map(|found| &mut found.kind) {
            Some(Kind::File(file)) => file.forget_pending(),
            Some(Kind::Directory) => {
                self.names.forget_pending(inode);
                self.sweep();
            }
            None => {}
        }
    }

    /// Counts an open handle.
    pub(crate) fn opened(&mut self, inode: u64) -> Result<(), Errno> {
        self.inodes.get_mut(&inode).ok_or(Errno::ESTALE)?.opens += 1;
        Ok(())
    }

    /// Counts an open handle less.
    pub(crate) fn closed(&mut self, inode: u64) {
        let Some(found) = self.inodes.get_mut(&inode) else { return };
        found.opens = found.opens.saturating_sub(1);
        if found.opens == 0 && found.names == 0 {
            self.space.used_blocks -= found.blocks();
            // Looking through all names for each file closed after its removal would cost the square of their number.
            if self.orphans.len() > self.sweep_above {
                self.sweep();
            }
        }
    }

    /// Panics if an invariant does not hold.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut names = BTreeMap::from([(ROOT, 1)]);
        for inode in self.inodes.keys().filter_map(|inode| self.names.listing(*inode)).flat_map(Listing::values) {
            *names.entry(*inode).or_default() += 1;
        }
        for (inode, found) in &self.inodes {
            assert_eq!(found.names, names.get(inode).copied().unwrap_or(0), "1: names of inode {inode}");
            assert_eq!(found.names == 0, self.orphans.contains(inode), "3: inode {inode}");
        }
        let occupied = self.inodes.values().filter(|found| found.occupies_space()).map(Inode::blocks).sum::<u64>();
        assert_eq!(self.space.used_blocks, occupied, "2: blocks in use");
    }

    /// Drops inodes that have no name, are not open, and that no power loss can bring back.
    fn sweep(&mut self) {
        let mut is_done = self.orphans.is_empty();
        while !is_done {
            let mentioned = self.names.mentioned();
            let is_open = |inode: &u64| self.inodes.get(inode).is_some_and(|found| found.opens > 0);
            let (kept, dropped): (BTreeSet<u64>, BTreeSet<u64>) =
                self.orphans.iter().partition(|inode| mentioned.contains(inode) || is_open(inode));
            for inode in &dropped {
                self.inodes.remove(inode);
                self.names.remove_directory(*inode);
            }
            // A directory dropped may have been the last to mention a file.
            is_done = dropped.is_empty();
            self.orphans = kept;
        }
        self.sweep_above = 2 * self.orphans.len() + SWEEP_AT_LEAST;
    }
}

/// Orphans that may wait before a closed file is a reason to look for what can go.
const SWEEP_AT_LEAST: usize = 16;

impl Inode {
    fn blocks(&self) -> u64 {
        match &self.kind {
            Kind::File(file) => file.blocks().count(),
            Kind::Directory => 0,
        }
    }

    fn occupies_space(&self) -> bool {
        self.names > 0 || self.opens > 0
    }
}

impl Space {
    /// The blocks that are free.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.capacity_blocks.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used_blocks))
    }
}

#[cfg(test)]
mod tests;
