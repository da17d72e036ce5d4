//! The names in all directories: which are durable, which a reader sees, and the changes between the two.
//!
//! A change says what each name it touches leads to afterwards, so it can be kept whatever becomes of those before it. A
//! rename is one change of two names: both happen or neither.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};

use crate::power::Loss;
use crate::random::Random;

/// Pending changes of names above which the oldest becomes durable unasked, as a file system commits now and then. Bounds
/// memory.
const MAX_PENDING_CHANGES: usize = 65_536;

/// The names of one directory and the inodes they lead to.
pub(crate) type Listing = BTreeMap<OsString, u64>;

/// The names in all directories.
#[derive(Default)]
pub(crate) struct Names {
    directories: BTreeMap<u64, Directory>,
    /// Oldest first.
    pending: VecDeque<Change>,
}

/// What one name leads to from now on; no inode means that it is gone.
#[derive(Clone)]
pub(crate) struct Step {
    /// The directory's inode.
    pub(crate) directory: u64,
    /// The name in it.
    pub(crate) name: OsString,
    /// The inode it leads to.
    pub(crate) target: Option<u64>,
}

#[derive(Default)]
struct Directory {
    synced: Listing,
    current: Listing,
}

/// Names that change together; none once newer changes have overtaken them all.
struct Change {
    steps: Vec<Step>,
}

impl Names {
    /// Adds an empty directory.
    pub(crate) fn add_directory(&mut self, inode: u64) {
        self.directories.insert(inode, Directory::default());
    }

    /// Forgets a directory that nothing leads to, and all that was pending in it.
    pub(crate) fn remove_directory(&mut self, inode: u64) {
        self.directories.remove(&inode);
        self.drop_steps(|step| step.directory == inode);
    }

    /// The names of a directory as a reader sees them; none if it is no directory.
    pub(crate) fn listing(&self, directory: u64) -> Option<&Listing> {
        self.directories.get(&directory).map(|directory| &directory.current)
    }

    /// The inode a name leads to as a reader sees it.
    pub(crate) fn find(&self, directory: u64, name: &OsStr) -> Option<u64> {
        self.listing(directory)?.get(name).copied()
    }

    /// Makes one change of one or more names, for readers only yet.
    pub(crate) fn change(&mut self, steps: Vec<Step>) {
        for step in &steps {
            self.apply(step, |directory| &mut directory.current);
        }
        self.pending.push_back(Change { steps });
        if self.pending.len() > MAX_PENDING_CHANGES {
            self.settle_at(0);
        }
    }

    /// Puts a name in a directory, durable at once.
    pub(crate) fn put_durable(&mut self, step: &Step) {
        self.apply(step, |directory| &mut directory.current);
        self.apply(step, |directory| &mut directory.synced);
    }

    /// Makes every change in a directory durable, those that also touch another one included.
    pub(crate) fn sync(&mut self, directory: u64) {
        let mut at = 0;
        while let Some(change) = self.pending.get(at) {
            if change.touches(directory) {
                self.settle_at(at);
            } else {
                at += 1;
            }
        }
    }

    /// Forgets the pending changes in a directory: they stay visible, and nothing makes them durable any more.
    pub(crate) fn forget_pending(&mut self, directory: u64) {
        self.pending.retain(|change| !change.touches(directory));
    }

    /// Every inode that a durable name or a pending change leads to.
    pub(crate) fn mentioned(&self) -> BTreeSet<u64> {
        let synced = self.directories.values().flat_map(|directory| directory.synced.values().copied());
        let pending = self.pending.iter().flat_map(|change| change.steps.iter().filter_map(|step| step.target));
        synced.chain(pending).collect()
    }

    /// What a power loss leaves of every directory.
    pub(crate) fn survivors(mut self, random: &mut Random, loss: &mut Loss) -> BTreeMap<u64, Listing> {
        for change in std::mem::take(&mut self.pending) {
            if change.steps.is_empty() {
                continue;
            }
            if random.coin() {
                loss.names_kept += 1;
                for step in &change.steps {
                    self.apply(step, |directory| &mut directory.synced);
                }
            } else {
                loss.names_dropped += 1;
            }
        }
        self.directories.into_iter().map(|(inode, directory)| (inode, directory.synced)).collect()
    }

    fn settle_at(&mut self, at: usize) {
        let Some(change) = self.pending.remove(at) else { return };
        for step in &change.steps {
            self.apply(step, |directory| &mut directory.synced);
        }
        // An older change of another directory's name must not come true after this newer one.
        if at > 0 && change.steps.len() > 1 {
            let is_overtaken = |step: &Step| change.steps.iter().any(|newer| step.is_same_name(newer));
            for older in self.pending.range_mut(..at) {
                older.steps.retain(|step| !is_overtaken(step));
            }
        }
    }

    fn drop_steps(&mut self, is_dropped: impl Fn(&Step) -> bool) {
        for change in &mut self.pending {
            change.steps.retain(|step| !is_dropped(step));
        }
        self.pending.retain(|change| !change.steps.is_empty());
    }

    fn apply(&mut self, step: &Step, listing: impl Fn(&mut Directory) -> &mut Listing) {
        let Some(directory) = self.directories.get_mut(&step.directory) else { return };
        match step.target {
            Some(inode) => listing(directory).insert(step.name.clone(), inode),
            None => listing(directory).remove(&step.name),
        };
    }
}

impl Change {
    fn touches(&self, directory: u64) -> bool {
        self.steps.iter().any(|step| step.directory == directory)
    }
}

impl Step {
    fn is_same_name(&self, other: &Self) -> bool {
        self.directory == other.directory && self.name == other.name
    }
}

#[cfg(test)]
mod tests;
