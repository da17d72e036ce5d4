//! A disk in memory that loses power on command.
//!
//! Every file has two images, what a power loss leaves for certain (`synced`) and what a reader sees (`current`), and
//! the changes between them; every directory has the same for its names. Each changing operation has a number, the
//! first is 1; reads have none. A test plays a script once to learn how many operations it takes, then plays it again
//! for each number with the power cut there, and looks at what the power loss may leave: everything
//! ([`MemoryDisk::power_loss_outcomes`]) or, where that is too much, some of it ([`MemoryDisk::after_power_loss`]).
//!
//! Its faults: lost, torn and reordered writes and names (`memory/power_loss.rs`); operations that fail once, writes that
//! end short, places that cannot be read, flipped bits, slow syncs (`memory/faults.rs`); a full disk.

mod faults;
mod power_loss;

mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::image::{Change, Image};
use super::random::Random;
use super::{Disk, DiskFile, SECTOR_BYTES};
pub use power_loss::PowerLossOutcomes;

/// A handle to a disk in memory; clones share the disk.
#[derive(Clone, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    directories: BTreeMap<PathBuf, Directory>,
    operations: u64,
    syncs: u64,
    crash_at: Option<u64>,
    fail_at: BTreeSet<u64>,
    /// Operations that write so many bytes and then fail.
    short_at: BTreeMap<u64, ShortWrite>,
    sync_latency: Duration,
    full: bool,
    capacity_bytes: Option<u64>,
    power_lost: bool,
}

#[derive(Default)]
struct Directory {
    synced: BTreeMap<String, Node>,
    current: BTreeMap<String, Node>,
    pending: Vec<NameChange>,
    /// The change during which the power went, if no reader saw it any more: it may still survive.
    caught: Option<NameChange>,
}

#[derive(Clone)]
enum Node {
    File(Arc<Mutex<Image>>),
    Directory,
}

impl Node {
    /// Whether both are the same file.
    fn is(&self, other: &Self) -> bool {
        matches!((self, other), (Self::File(one), Self::File(other)) if Arc::ptr_eq(one, other))
    }
}

#[derive(Clone)]
enum NameChange {
    Put(String, Node),
    Remove(String),
    Rename(String, String, Node),
}

/// How far a write comes that ends early.
#[derive(Clone, Copy)]
struct ShortWrite {
    bytes: usize,
    /// Whether it never ends within the last sector of what is to be written.
    spares_last_sector: bool,
}

impl ShortWrite {
    /// How many bytes of a write of so many at an offset.
    fn of(self, offset: usize, bytes: usize) -> usize {
        let last = ((offset + bytes).saturating_sub(1) / SECTOR_BYTES * SECTOR_BYTES).saturating_sub(offset);
        let written = self.bytes.min(bytes);
        if self.spares_last_sector && written > last { last } else { written }
    }
}

/// What becomes of a numbered operation.
enum Fate {
    /// It is carried out.
    Done,
    /// It fails and all later ones work.
    Failed,
    /// As `Failed`, but a write writes so many bytes first.
    Short(ShortWrite),
    /// The power goes while it runs; the generator says how far it came.
    PowerLost(Random),
}

impl MemoryDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of the last changing operation; 0 before the first.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// How many syncs, of files and directories, were asked for.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// Cuts the power during the operation of this number: it is carried out in part, wholly or not at all, and fails,
    /// as does everything after it, reads included.
    pub fn crash_at(&self, operation: u64) {
        self.lock().crash_at = Some(operation);
    }

    /// Makes the one operation of this number fail. A failed sync forgets the writes it should have kept, as Linux
    /// does: they still read back, and no later sync makes them durable.
    pub fn fail_at(&self, operation: u64) {
        self.lock().fail_at.insert(operation);
    }

    /// Takes back every fault that is to come at an operation.
    pub fn clear_faults(&self) {
        let mut state = self.lock();
        state.crash_at = None;
        state.fail_at.clear();
        state.short_at.clear();
    }

    /// Whether the disk is full: then nothing can be created and no file grown (`StorageFull`), all else works.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Disk for MemoryDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let dir = normal(dir)?;
        let mut state = self.lock();
        let mut ancestors: Vec<&Path> = dir.ancestors().collect();
        ancestors.reverse();
        for path in ancestors {
            match state.node(path)? {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    let (parent, name) = split(path)?;
                    // First, so that a name that survives a crash of the next line leads somewhere.
                    state.directories.insert(path.to_path_buf(), Directory::default());
                    state.change_name(&parent, NameChange::Put(name, Node::Directory))?;
                }
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = normal(dir)?;
        faults::wait(&self.state);
        let mut state = self.lock();
        state.directory(&dir)?;
        state.syncs += 1;
        match state.begin()? {
            Fate::Done => {
                let directory = state.directory(&dir)?;
                directory.synced = directory.current.clone();
                directory.pending.clear();
                Ok(())
            }
            Fate::Failed | Fate::Short(_) => Err(failed_once()),
            Fate::PowerLost(_) => Err(power_lost()),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let dir = normal(dir)?;
        let mut state = self.lock();
        state.check_power()?;
        Ok(state.directory(&dir)?.current.keys().cloned().collect())
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let (parent, name) = split(&normal(path)?)?;
        let mut state = self.lock();
        if state.directory(&parent)?.current.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let image = Arc::new(Mutex::new(Image::default()));
        state.change_name(&parent, NameChange::Put(name, Node::File(image.clone())))?;
        Ok(Arc::new(MemoryFile { state: self.state.clone(), image }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.lock();
        state.check_power()?;
        match state.node(&normal(path)?)? {
            Some(Node::File(image)) => Ok(Arc::new(MemoryFile { state: self.state.clone(), image })),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let path = normal(path)?;
        let (parent, name) = split(&path)?;
        let mut state = self.lock();
        match state.node(&path)? {
            Some(Node::File(_)) => state.change_name(&parent, NameChange::Remove(name)),
            Some(Node::Directory) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let dir = normal(dir)?;
        let (parent, name) = split(&dir)?;
        let mut state = self.lock();
        if !state.directory(&dir)?.current.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.change_name(&parent, NameChange::Remove(name))?;
        state.directories.remove(&dir);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (normal(from)?, normal(to)?);
        let ((parent, from_name), (to_parent, to_name)) = (split(&from)?, split(&to)?);
        if parent != to_parent {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a rename stays in its directory"));
        }
        let mut state = self.lock();
        match state.node(&from)? {
            Some(node @ Node::File(_)) => state.change_name(&parent, NameChange::Rename(from_name, to_name, node)),
            Some(Node::Directory) => Err(io::Error::new(io::ErrorKind::InvalidInput, "only files are renamed")),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.lock();
        state.check_power()?;
        Ok(state.node(&normal(path)?)?.is_some())
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        let state = self.lock();
        state.check_power()?;
        Ok(state.room_bytes())
    }
}

impl State {
    fn check_power(&self) -> io::Result<()> {
        if self.power_lost { Err(power_lost()) } else { Ok(()) }
    }

    /// Numbers a changing operation and says what becomes of it.
    fn begin(&mut self) -> io::Result<Fate> {
        self.check_power()?;
        self.operations += 1;
        if self.crash_at.is_some_and(|operation| self.operations >= operation) {
            self.power_lost = true;
            return Ok(Fate::PowerLost(Random::new(self.operations)));
        }
        if let Some(bytes) = self.short_at.remove(&self.operations) {
            return Ok(Fate::Short(bytes));
        }
        Ok(if self.fail_at.remove(&self.operations) { Fate::Failed } else { Fate::Done })
    }

    fn directory(&mut self, dir: &Path) -> io::Result<&mut Directory> {
        if is_root(dir) {
            return Ok(self.directories.entry(dir.to_path_buf()).or_default());
        }
        self.directories.get_mut(dir).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn node(&self, path: &Path) -> io::Result<Option<Node>> {
        if is_root(path) {
            return Ok(Some(Node::Directory));
        }
        let (parent, name) = split(path)?;
        Ok(self.directories.get(&parent).and_then(|directory| directory.current.get(&name)).cloned())
    }

    fn change_name(&mut self, parent: &Path, change: NameChange) -> io::Result<()> {
        self.directory(parent)?;
        if matches!(change, NameChange::Put(..)) && self.room_bytes() == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (apply, result) = match self.begin()? {
            Fate::Done => (true, Ok(())),
            Fate::Failed | Fate::Short(_) => return Err(failed_once()),
            Fate::PowerLost(mut random) => (random.coin(), Err(power_lost())),
        };
        let directory = self.directory(parent)?;
        if apply {
            change.apply(&mut directory.current);
            directory.pending.push(change);
        } else {
            directory.caught = Some(change);
        }
        result
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, Node>) {
        match self {
            Self::Put(name, node) => {
                names.insert(name.clone(), node.clone());
            }
            Self::Remove(name) => {
                names.remove(name);
            }
            Self::Rename(_, to, node) => {
                // Whatever changes before it were lost, a renamed file has one name.
                names.retain(|_, other| !node.is(other));
                names.insert(to.clone(), node.clone());
            }
        }
    }

    fn copied(&self, copy: &mut impl FnMut(&Node) -> Node) -> Self {
        match self {
            Self::Put(name, node) => Self::Put(name.clone(), copy(node)),
            Self::Remove(name) => Self::Remove(name.clone()),
            Self::Rename(from, to, node) => Self::Rename(from.clone(), to.clone(), copy(node)),
        }
    }
}

struct MemoryFile {
    state: Arc<Mutex<State>>,
    image: Arc<Mutex<Image>>,
}

impl DiskFile for MemoryFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        lock(&self.state).check_power()?;
        let image = lock(&self.image);
        let end = in_memory(offset)?.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        let range = end - buffer.len()..end;
        let bytes = image.current().get(range.clone()).ok_or(io::ErrorKind::UnexpectedEof)?;
        if image.is_unreadable(&range) {
            return Err(failed_once());
        }
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = in_memory(offset)?;
        let mut state = lock(&self.state);
        self.check_room(&state, offset, bytes)?;
        match state.begin()? {
            Fate::Done => {
                lock(&self.image).change(Change::Write { offset, bytes: bytes.to_vec() });
                Ok(())
            }
            Fate::Failed => Err(failed_once()),
            Fate::Short(written) => {
                let bytes = bytes[..written.of(offset, bytes.len())].to_vec();
                lock(&self.image).change(Change::Write { offset, bytes });
                Err(failed_once())
            }
            Fate::PowerLost(mut random) => {
                // Nothing, a prefix that ends at a sector, or all of it was seen by readers; any of it may survive.
                let sectors = bytes.len().div_ceil(SECTOR_BYTES) + 1;
                let end = (offset / SECTOR_BYTES + random.below(sectors as u64 + 1) as usize) * SECTOR_BYTES;
                let kept = end.saturating_sub(offset).min(bytes.len());
                let mut image = lock(&self.image);
                image.change(Change::Write { offset, bytes: bytes[..kept].to_vec() });
                image.catch(Change::Write { offset, bytes: bytes.to_vec() });
                Err(power_lost())
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        faults::wait(&self.state);
        let mut state = lock(&self.state);
        state.syncs += 1;
        match state.begin()? {
            Fate::Done => {
                lock(&self.image).sync();
                Ok(())
            }
            Fate::Failed | Fate::Short(_) => {
                lock(&self.image).forget_pending();
                Err(failed_once())
            }
            Fate::PowerLost(_) => Err(power_lost()),
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let bytes = in_memory(bytes)?;
        let mut state = lock(&self.state);
        match state.begin()? {
            Fate::Done => {
                lock(&self.image).change(Change::Length(bytes));
                Ok(())
            }
            Fate::Failed | Fate::Short(_) => Err(failed_once()),
            Fate::PowerLost(mut random) => {
                let mut image = lock(&self.image);
                if random.coin() {
                    image.change(Change::Length(bytes))
                } else {
                    image.catch(Change::Length(bytes))
                }
                Err(power_lost())
            }
        }
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        if self.grows_to(bytes)? { self.set_len(bytes) } else { Ok(()) }
    }

    fn len(&self) -> io::Result<u64> {
        lock(&self.state).check_power()?;
        Ok(lock(&self.image).current().len() as u64)
    }
}

/// A panic of another test thread does not make the images less true: each change is whole once the lock is free.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}

fn normal(path: &Path) -> io::Result<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::RootDir | Component::Normal(_) => normal.push(component),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path in memory goes downwards only"));
            }
        }
    }
    Ok(normal)
}

fn split(path: &Path) -> io::Result<(PathBuf, String)> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok((parent.to_path_buf(), name.to_owned()))
}

fn in_memory(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn power_lost() -> io::Error {
    io::Error::other("power lost")
}

fn failed_once() -> io::Error {
    io::Error::other("input/output error")
}

#[cfg(test)]
mod tests;
