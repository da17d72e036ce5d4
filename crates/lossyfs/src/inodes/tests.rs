//! The books of the tree hold after any operations.

use std::ffi::OsStr;

use super::{Inodes, NewNode, ROOT};
use crate::blocks::BLOCK_BYTES;
use crate::power::lose_power;
use crate::random::Random;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 400;
const CAPACITY_BLOCKS: u64 = 40;

/// A tree that is changed at random, and what is open in it.
struct Player {
    inodes: Inodes,
    random: Random,
    open: Vec<u64>,
}

impl Player {
    fn pick(&mut self, count: usize) -> usize {
        self.random.below(count as u64) as usize
    }

    fn name(&mut self) -> &'static OsStr {
        OsStr::new(NAMES[self.pick(NAMES.len())])
    }

    /// The root or a directory somewhere in it.
    fn directory(&mut self) -> u64 {
        let mut directory = ROOT;
        while self.random.coin() {
            let name = self.name();
            match self.inodes.names.find(directory, name) {
                Some(below) if self.inodes.is_directory(below) => directory = below,
                Some(_) | None => {}
            }
        }
        directory
    }

    /// A step that fails is a step all the same: the books must hold then too.
    fn step(&mut self) {
        let (directory, name) = (self.directory(), self.name());
        let node = if self.random.coin() { NewNode::File } else { NewNode::Directory };
        match self.random.below(9) {
            0 | 1 => drop(self.inodes.make(directory, name, node, 0o644)),
            2 => drop(self.inodes.remove(directory, name, node)),
            3 => {
                // The kernel lets no directory be moved into itself; staying in one directory is enough to be sure.
                let target = self.name();
                let _ = self.inodes.rename((directory, name), (directory, target), self.random.coin());
            }
            4 => {
                if let Some(inode) = self.inodes.names.find(directory, name)
                    && self.inodes.opened(inode).is_ok()
                {
                    self.open.push(inode);
                }
            }
            5 => {
                if !self.open.is_empty() {
                    let at = self.pick(self.open.len());
                    self.inodes.closed(self.open.swap_remove(at));
                }
            }
            6 => drop(self.inodes.sync(directory)),
            _ => self.change_contents(),
        }
    }

    fn change_contents(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.pick(self.open.len());
        let inode = self.open[at];
        let offset = self.random.below(5 * BLOCK_BYTES as u64);
        match self.random.below(4) {
            0 => drop(self.inodes.set_len(inode, offset)),
            1 => drop(self.inodes.sync(inode)),
            2 => drop(self.inodes.reserve(inode, offset..offset + 1, self.random.coin())),
            _ => drop(self.inodes.write(inode, offset, &[1; 2 * BLOCK_BYTES])),
        }
    }
}

#[test]
fn names_space_and_orphans_add_up_after_every_step_and_every_power_loss() {
    for seed in 0..60 {
        let mut inodes = Inodes::new(0, 0o755);
        inodes.set_capacity(Some(CAPACITY_BLOCKS));
        let mut player = Player { inodes, random: Random::new(seed), open: Vec::new() };
        for step in 0..STEPS {
            player.step();
            player.inodes.check();
            if step % 100 == 99 {
                let inodes = std::mem::replace(&mut player.inodes, Inodes::new(0, 0o755));
                player.inodes = lose_power(inodes, seed).0;
                player.open.clear();
                player.inodes.check();
            }
        }
    }
}

#[test]
fn a_removed_file_is_dropped_when_no_power_loss_can_bring_it_back_and_nobody_has_it_open() {
    let mut inodes = Inodes::new(0, 0o755);
    let file = inodes.make(ROOT, OsStr::new("file"), NewNode::File, 0o644).expect("made");
    inodes.opened(file).expect("opened");
    inodes.remove(ROOT, OsStr::new("file"), NewNode::File).expect("removed");
    inodes.closed(file);
    assert!(inodes.attributes(file).is_ok(), "its name may come back");
    inodes.sync(ROOT).expect("synced");
    assert!(inodes.attributes(file).is_err());
}
