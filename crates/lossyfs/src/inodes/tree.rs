//! Making, removing and renaming, and what a power loss leaves of it all.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use fuser::Errno;

use super::{Inode, Inodes, Kind, NewNode, ROOT};
use crate::names::Step;
use crate::power::Loss;
use crate::random::Random;

/// The longest name, as in most file systems.
///
/// # Units
/// Bytes.
pub(crate) const MAX_NAME_BYTES: usize = 255;

impl Inodes {
    /// Makes an empty file or directory; a file system without a free block makes nothing.
    pub(crate) fn make(&mut self, parent: u64, name: &OsStr, node: NewNode, permissions: u16) -> Result<u64, Errno> {
        if name.len() > MAX_NAME_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.listing(parent)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        if self.space.free_blocks() == 0 {
            return Err(Errno::ENOSPC);
        }
        self.last_inode += 1;
        let inode = self.last_inode;
        self.insert(inode, node, permissions);
        self.change_names(vec![Step { directory: parent, name: name.to_owned(), target: Some(inode) }]);
        Ok(inode)
    }

    /// Removes a file's name, or that of an empty directory.
    pub(crate) fn remove(&mut self, parent: u64, name: &OsStr, node: NewNode) -> Result<(), Errno> {
        let inode = *self.listing(parent)?.get(name).ok_or(Errno::ENOENT)?;
        self.check_replaceable(inode, node)?;
        self.change_names(vec![Step { directory: parent, name: name.to_owned(), target: None }]);
        Ok(())
    }

    /// Gives a file or directory another name, replacing what had it, in one change.
    pub(crate) fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr), replaces: bool) -> Result<(), Errno> {
        let inode = *self.listing(from.0)?.get(from.1).ok_or(Errno::ENOENT)?;
        if to.1.len() > MAX_NAME_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        match self.listing(to.0)?.get(to.1) {
            Some(_) if !replaces => return Err(Errno::EEXIST),
            Some(replaced) if *replaced == inode => return Ok(()),
            Some(replaced) => {
                let node = if self.is_directory(inode) { NewNode::Directory } else { NewNode::File };
                self.check_replaceable(*replaced, node)?;
            }
            None => {}
        }
        // The new name first: an inode without a name for a moment would be taken for removed.
        self.change_names(vec![
            Step { directory: to.0, name: to.1.to_owned(), target: Some(inode) },
            Step { directory: from.0, name: from.1.to_owned(), target: None },
        ]);
        Ok(())
    }

    /// What a power loss leaves: files and directories that a surviving name leads to, under new inode numbers, so that
    /// nothing a process or the kernel still holds can reach them.
    pub(crate) fn after_power_loss(mut self, random: &mut Random, loss: &mut Loss) -> Self {
        let root_permissions = self.inodes.get(&ROOT).map_or(0o755, |root| root.permissions);
        let mut found = Self::new(self.last_inode, root_permissions);
        found.space.capacity_blocks = self.space.capacity_blocks;
        let mut listings = std::mem::take(&mut self.names).survivors(random, loss);
        let mut renumbered = BTreeMap::from([(ROOT, ROOT)]);
        let mut unvisited = vec![(ROOT, ROOT)];
        while let Some((old_directory, directory)) = unvisited.pop() {
            for (name, old) in listings.remove(&old_directory).unwrap_or_default() {
                let inode = match (renumbered.get(&old), self.inodes.remove(&old)) {
                    // Two names of one directory would make a loop: the first one found has it.
                    (Some(inode), _) if found.is_directory(*inode) => continue,
                    (Some(inode), _) => *inode,
                    (None, None) => continue,
                    (None, Some(survivor)) => {
                        let inode = found.adopt(survivor, random, loss);
                        renumbered.insert(old, inode);
                        unvisited.push((old, inode));
                        inode
                    }
                };
                found.names.put_durable(&Step { directory, name, target: Some(inode) });
                found.gained_name(inode);
            }
        }
        found
    }

    fn adopt(&mut self, survivor: Inode, random: &mut Random, loss: &mut Loss) -> u64 {
        self.last_inode += 1;
        match survivor.kind {
            Kind::Directory => self.insert(self.last_inode, NewNode::Directory, survivor.permissions),
            Kind::File(file) => {
                let kind = Kind::File(Box::new(file.survivor(random, loss)));
                let permissions = survivor.permissions;
                self.inodes.insert(self.last_inode, Inode { kind, permissions, names: 0, opens: 0 });
            }
        }
        self.last_inode
    }

    fn insert(&mut self, inode: u64, node: NewNode, permissions: u16) {
        let kind = match node {
            NewNode::File => Kind::File(Box::default()),
            NewNode::Directory => {
                self.names.add_directory(inode);
                Kind::Directory
            }
        };
        self.inodes.insert(inode, Inode { kind, permissions, names: 0, opens: 0 });
    }

    /// Whether a name that leads to `inode` may be removed, or be given to something of the kind `node`.
    fn check_replaceable(&self, inode: u64, node: NewNode) -> Result<(), Errno> {
        match (node, self.names.listing(inode)) {
            (NewNode::File, None) => Ok(()),
            (NewNode::File, Some(_)) => Err(Errno::EISDIR),
            (NewNode::Directory, None) => Err(Errno::ENOTDIR),
            (NewNode::Directory, Some(listing)) if listing.is_empty() => Ok(()),
            (NewNode::Directory, Some(_)) => Err(Errno::ENOTEMPTY),
        }
    }

    fn change_names(&mut self, steps: Vec<Step>) {
        for step in &steps {
            if let Some(inode) = step.target {
                self.gained_name(inode);
            }
        }
        let replaced: Vec<u64> = steps.iter().filter_map(|step| self.names.find(step.directory, &step.name)).collect();
        self.names.change(steps);
        for inode in replaced {
            self.lost_name(inode);
        }
    }

    fn gained_name(&mut self, inode: u64) {
        let Some(found) = self.inodes.get_mut(&inode) else { return };
        if !found.occupies_space() {
            self.space.used_blocks += found.blocks();
        }
        found.names += 1;
        self.orphans.remove(&inode);
    }

    fn lost_name(&mut self, inode: u64) {
        let Some(found) = self.inodes.get_mut(&inode) else { return };
        assert!(found.names > 0, "inode {inode} lost a name and had none");
        found.names -= 1;
        if found.names == 0 {
            self.orphans.insert(inode);
            if found.opens == 0 {
                self.space.used_blocks -= found.blocks();
            }
        }
    }
}
