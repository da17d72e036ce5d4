//! What a power loss and a kill leave of the disk in memory.
//!
//! A power loss leaves what was synced, and of all else any part: each name change of a directory is kept or dropped for
//! itself (a rename as a whole), so is each sector of each write, and a file that grew has any length in between, with
//! zeros where nothing arrived. What is kept takes effect in the order in which it was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use xxhash_rust::xxh3::Xxh3;

use super::super::image::{Image, ImageOutcomes};
use super::super::random::Random;
use super::{Directory, MemoryDisk, NameChange, Node, State, is_root, lock};

impl MemoryDisk {
    /// The disk as it is found after a power loss, as the seed decides: the same seed loses the same.
    #[must_use]
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let state = self.lock();
        let mut random = Random::new(seed);
        let mut found = State::default();
        let mut unvisited = roots();
        while let Some(path) = unvisited.pop() {
            let names = state.directories.get(&path).map(|dir| dir.survivors(&mut random)).unwrap_or_default();
            unvisited.extend(children(&path, &names));
            let survivor = |image: &Mutex<Image>| lock(image).survivor(&mut random);
            found.directories.insert(path, Directory::found(&names, survivor));
        }
        Self { state: Arc::new(Mutex::new(found)) }
    }

    /// Every disk that a power loss may leave, each once, if there are at most `limit`; none if there are more.
    #[must_use]
    pub fn power_loss_outcomes(&self, limit: usize) -> Option<PowerLossOutcomes> {
        let state = self.lock();
        let trees = state.surviving_trees(limit)?;
        let mut files = BTreeMap::new();
        let mut left = 0_usize;
        let mut counted = Vec::new();
        for tree in trees {
            let mut count = 1_usize;
            for image in tree.values().flat_map(|names| names.values()).filter_map(Node::file) {
                let outcomes = match files.get(&address(image)) {
                    Some(outcomes) => outcomes,
                    None => files.entry(address(image)).or_insert(lock(image).outcomes(limit)?),
                };
                count = count.checked_mul(outcomes.count())?;
            }
            left = left.checked_add(count)?;
            counted.push((tree, count));
        }
        (left <= limit).then_some(PowerLossOutcomes { trees: counted, files, position: 0, left })
    }

    /// Disks that a power loss may leave: all of them if they are at most `limit`, else what each of the seeds leaves. Says
    /// which.
    #[must_use]
    pub fn power_losses(&self, limit: usize, seeds: Range<u64>) -> (bool, Box<dyn Iterator<Item = Self> + '_>) {
        match self.power_loss_outcomes(limit) {
            Some(outcomes) => (true, Box::new(outcomes)),
            None => (false, Box::new(seeds.map(|seed| self.after_power_loss(seed)))),
        }
    }

    /// The disk as a new process finds it after the old one was killed: everything written is there, and what was not
    /// synced may still be lost to a later power loss.
    #[must_use]
    pub fn after_process_kill(&self) -> Self {
        let state = self.lock();
        let mut copies: BTreeMap<usize, Arc<Mutex<Image>>> = BTreeMap::new();
        let mut copy = |node: &Node| match node {
            Node::Directory => Node::Directory,
            Node::File(image) => {
                let copied =
                    copies.entry(address(image)).or_insert_with(|| Arc::new(Mutex::new(lock(image).as_seen())));
                Node::File(copied.clone())
            }
        };
        let mut found = State::default();
        for (path, directory) in &state.directories {
            let mut copy_all =
                |names: &Names| names.iter().map(|(name, node)| (name.clone(), copy(node))).collect::<Names>();
            let (synced, current) = (copy_all(&directory.synced), copy_all(&directory.current));
            let pending = directory.pending.iter().map(|change| change.copied(&mut copy)).collect();
            found.directories.insert(path.clone(), Directory { synced, current, pending, caught: None });
        }
        Self { state: Arc::new(Mutex::new(found)) }
    }

    /// A hash of all names and bytes as a reader sees them: disks with the same one recover alike.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let state = self.lock();
        let mut hash = Xxh3::new();
        let mut unvisited = roots();
        while let Some(path) = unvisited.pop() {
            let Some(directory) = state.directories.get(&path) else { continue };
            unvisited.extend(children(&path, &directory.current));
            for (name, node) in &directory.current {
                hash.update(path.join(name).to_string_lossy().as_bytes());
                let Node::File(image) = node else { continue };
                let image = lock(image);
                hash.update(&(image.current().len() as u64).to_le_bytes());
                hash.update(image.current());
            }
        }
        hash.digest()
    }
}

type Names = BTreeMap<String, Node>;

/// The names that survived, by directory.
type Tree = BTreeMap<PathBuf, Names>;

/// All that a power loss may leave, one disk after the other.
pub struct PowerLossOutcomes {
    /// What may be left of the names, each with the number of disks that have these names.
    trees: Vec<(Tree, usize)>,
    /// What may be left of each file, by the address of its image.
    files: BTreeMap<usize, ImageOutcomes>,
    /// The next disk, within the last of the trees.
    position: usize,
    left: usize,
}

impl Iterator for PowerLossOutcomes {
    type Item = MemoryDisk;

    fn next(&mut self) -> Option<MemoryDisk> {
        let (tree, count) = self.trees.last()?;
        let mut choice = self.position;
        let mut found = State::default();
        for (path, names) in tree {
            let survivor = |image: &Mutex<Image>| {
                let outcomes = &self.files[&address(image)];
                let survivor = outcomes.nth(choice % outcomes.count());
                choice /= outcomes.count();
                survivor
            };
            found.directories.insert(path.clone(), Directory::found(names, survivor));
        }
        self.left -= 1;
        self.position += 1;
        if self.position == *count {
            self.position = 0;
            self.trees.pop();
        }
        Some(MemoryDisk { state: Arc::new(Mutex::new(found)) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for PowerLossOutcomes {}

impl State {
    /// What may be left of all names, each once; none if there is more than `limit`.
    fn surviving_trees(&self, limit: usize) -> Option<Vec<Tree>> {
        let mut complete = Vec::new();
        let mut begun = vec![(Tree::new(), roots())];
        while let Some((tree, mut unvisited)) = begun.pop() {
            let Some(path) = unvisited.pop() else {
                complete.push(tree);
                continue;
            };
            let variants = match self.directories.get(&path) {
                Some(directory) => directory.all_survivors(limit)?,
                None => vec![Names::new()],
            };
            for names in variants {
                let (mut tree, mut unvisited) = (tree.clone(), unvisited.clone());
                unvisited.extend(children(&path, &names));
                tree.insert(path.clone(), names);
                begun.push((tree, unvisited));
            }
            if begun.len() + complete.len() > limit {
                return None;
            }
        }
        Some(complete)
    }
}

impl Directory {
    /// A directory with these names, all durable, and of each file what survived.
    fn found(names: &Names, mut survivor: impl FnMut(&Mutex<Image>) -> Image) -> Self {
        let survive = |(name, node): (&String, &Node)| {
            let node = match node {
                Node::File(image) => Node::File(Arc::new(Mutex::new(survivor(image)))),
                Node::Directory => Node::Directory,
            };
            (name.clone(), node)
        };
        let names: Names = names.iter().map(survive).collect();
        Self { synced: names.clone(), current: names, ..Self::default() }
    }

    /// Changes that may be lost.
    fn unsynced(&self) -> impl Iterator<Item = &NameChange> {
        self.pending.iter().chain(&self.caught)
    }

    fn survivors(&self, random: &mut Random) -> Names {
        let mut names = self.synced.clone();
        for change in self.unsynced() {
            if random.coin() {
                change.apply(&mut names);
            }
        }
        names
    }

    /// What every subset of the changes leaves, each once; none if that is more than `limit`.
    fn all_survivors(&self, limit: usize) -> Option<Vec<Names>> {
        let mut all = vec![self.synced.clone()];
        for change in self.unsynced() {
            let mut seen: BTreeSet<_> = all.iter().map(identity).collect();
            for names in all.clone() {
                let mut changed = names;
                change.apply(&mut changed);
                if seen.insert(identity(&changed)) {
                    all.push(changed);
                }
            }
            if all.len() > limit {
                return None;
            }
        }
        Some(all)
    }
}

impl Node {
    fn file(&self) -> Option<&Arc<Mutex<Image>>> {
        match self {
            Self::File(image) => Some(image),
            Self::Directory => None,
        }
    }
}

/// What tells names apart: which file each leads to; 0 for a directory.
fn identity(names: &Names) -> Vec<(String, usize)> {
    let leads_to = |node: &Node| node.file().map_or(0, |image| address(image));
    names.iter().map(|(name, node)| (name.clone(), leads_to(node))).collect()
}

fn address(image: &Mutex<Image>) -> usize {
    std::ptr::from_ref(image).addr()
}

/// Relative and absolute paths have a root each.
fn roots() -> Vec<PathBuf> {
    let roots = vec![PathBuf::new(), PathBuf::from("/")];
    debug_assert!(roots.iter().all(|root| is_root(root)));
    roots
}

/// The directories among these names.
fn children(path: &std::path::Path, names: &Names) -> Vec<PathBuf> {
    let is_directory = |node: &Node| node.file().is_none();
    names.iter().filter(|(_, node)| is_directory(node)).map(|(name, _)| path.join(name)).collect()
}
