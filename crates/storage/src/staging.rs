//! Bringing a data directory to another's checkpoint: files come in pieces, wait beside the place they go to, and take it at once.
//!
//! A file that is fetched is `NAME.staged` in the folder it goes to, the checkpoint `N.checkpoint.staged`. None of them means
//! anything to a start, which leaves them alone, so that what was fetched need not be fetched again. How they take their places,
//! and what a crash leaves, is in `staging/install.rs`.
//!
//! # Invariants
//! 1. Nothing that the present state needs is touched before the install's durable step.
//! 2. A file counts as there only if all its bytes are, and have the checksum that the checkpoint lists.

mod install;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::checkpoint::{
    CHECKPOINTS_DIR, CheckpointError, CheckpointFile, CheckpointMeta, LoadedCheckpoint, checkpoint_name,
    parse_checkpoint,
};
use crate::disk::{Disk, DiskFile, is_full};
use crate::segment::FileIdentity;

pub use install::{finish_install, resume_install};

/// What is fetched of a checkpoint of another node's.
pub struct Staging {
    disk: Arc<dyn Disk>,
    data_dir: PathBuf,
    open: Option<Open>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StagingStep {
    /// These bytes of a file are wanted, in order.
    Wants {
        /// Its path in the data directory.
        file: String,
        /// The first byte.
        from: u64,
        /// The end.
        to: u64,
    },
    /// There is more to look at: call [`Staging::check`].
    Checking,
    /// Everything is there.
    Whole {
        /// What the checkpoint says of the state.
        meta: CheckpointMeta,
        /// The state.
        image: Bytes,
    },
    /// No room on disk; what was fetched stays. Begin again later (failure rule 8).
    NoRoom,
    /// What came is not what the checkpoint lists, or what was there has gone. Begin again.
    Lost,
}

/// The disk failed: the process says why and ends (failure rule 2).
#[derive(Debug, thiserror::Error)]
pub enum StagingError {
    /// A call failed.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The files could not be taken over.
    #[error("the checkpoint that was fetched cannot be taken over")]
    Checkpoint(#[source] CheckpointError),
}

struct Open {
    log_index: u64,
    bytes: u64,
    loaded: Option<LoadedCheckpoint>,
    /// The next file of the list to look at.
    place: usize,
    wanted: Option<Wanted>,
}

/// The file that is being fetched.
struct Wanted {
    file: CheckpointFile,
    handle: Arc<dyn DiskFile>,
    path: PathBuf,
    have_bytes: u64,
}

impl Staging {
    /// Nothing is fetched yet.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, data_dir: &Path) -> Self {
        Self { disk, data_dir: data_dir.to_path_buf(), open: None }
    }

    /// Begins with a checkpoint of so many bytes at a log entry, or goes on with it.
    ///
    /// # Errors
    /// The disk's; no lack of room is one.
    pub fn begin(&mut self, log_index: u64, bytes: u64) -> Result<StagingStep, StagingError> {
        self.open = Some(Open { log_index, bytes, loaded: None, place: 0, wanted: None });
        self.make_room(&format!("{CHECKPOINTS_DIR}/{}", checkpoint_name(log_index)), |staging| staging.check())
    }

    /// Looks at what is there, a bounded part of it.
    ///
    /// # Errors
    /// The disk's; no lack of room is one.
    pub fn check(&mut self) -> Result<StagingStep, StagingError> {
        let Some(open) = &self.open else { return Ok(StagingStep::Lost) };
        if open.wanted.is_some() {
            return Ok(self.wants());
        }
        let Some(loaded) = &open.loaded else { return self.look_at_checkpoint() };
        let (place, mut looked_at_bytes) = (open.place, 0);
        let list: Vec<CheckpointFile> = loaded.files.list().iter().skip(place).cloned().collect();
        for file in list {
            if looked_at_bytes > CHECK_BYTES {
                return Ok(StagingStep::Checking);
            }
            looked_at_bytes += file.bytes;
            if !self.has(&file)? {
                return self.want(file);
            }
            if let Some(open) = &mut self.open {
                open.place += 1;
            }
        }
        Ok(self.open.as_ref().and_then(|open| open.loaded.as_ref()).map_or(StagingStep::Lost, |loaded| {
            StagingStep::Whole { meta: loaded.meta.clone(), image: loaded.image.clone() }
        }))
    }

    /// Takes bytes of the file that is wanted. What is not the next is left.
    ///
    /// # Durability
    /// None before [`Staging::install`].
    /// # Errors
    /// The disk's; no lack of room is one.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<StagingStep, StagingError> {
        let Some(wanted) = self.open.as_mut().and_then(|open| open.wanted.as_mut()) else {
            return Ok(StagingStep::Lost);
        };
        let fits = offset == wanted.have_bytes && data.len() as u64 <= wanted.file.bytes - offset;
        if !fits {
            return Ok(self.wants());
        }
        match wanted.handle.write_all_at(data, offset) {
            Ok(()) => wanted.have_bytes += data.len() as u64,
            Err(error) if is_full(&error) => {
                self.open = None;
                return Ok(StagingStep::NoRoom);
            }
            Err(source) => return Err(failed("write", &wanted.path)(source)),
        }
        if wanted.have_bytes < wanted.file.bytes {
            return Ok(self.wants());
        }
        let Some(wanted) = self.open.as_mut().and_then(|open| open.wanted.take()) else { return Ok(StagingStep::Lost) };
        if self.open.as_ref().is_some_and(|open| open.loaded.is_none()) {
            return self.look_at_checkpoint();
        }
        if crc_of(&*wanted.handle, &wanted.path, wanted.file.bytes)? != wanted.file.crc {
            wanted.handle.set_len(0).map_err(failed("cut", &wanted.path))?;
            self.open = None;
            return Ok(StagingStep::Lost);
        }
        if let Some(open) = &mut self.open {
            open.place += 1;
        }
        self.check()
    }

    /// As [`finish_install`], of this data directory.
    ///
    /// # Errors
    /// The disk's.
    pub fn finish(&mut self, log_index: u64) -> Result<(), StagingError> {
        finish_install(&*self.disk, &self.data_dir, log_index)
    }

    /// Removes what was fetched: it is of no use any more.
    ///
    /// # Errors
    /// The disk's.
    pub fn abandon(&mut self) -> Result<(), StagingError> {
        self.open = None;
        install::sweep(&*self.disk, &self.data_dir)
    }

    /// Whether all bytes of a listed file are here, in its place or beside it.
    fn has(&self, file: &CheckpointFile) -> Result<bool, StagingError> {
        let path = self.data_dir.join(&file.path);
        let is_sound = |path: &Path, may_be_longer: bool| {
            let Some(handle) = self.opened(path)? else { return Ok(false) };
            let found = handle.len().map_err(failed("read", path))?;
            let fits = found == file.bytes || (may_be_longer && found > file.bytes);
            Ok(fits && crc_of(&*handle, path, file.bytes)? == file.crc)
        };
        let beside = staged(&path);
        if !is_sound(&path, true)? {
            return is_sound(&beside, false);
        }
        // Nobody has looked at what is beside it: it must not take its place.
        if self.opened(&beside)?.is_some() {
            self.disk.remove(&beside).map_err(failed("remove", &beside))?;
        }
        Ok(true)
    }

    /// What of a file is to be fetched: behind what is staged of it.
    fn want(&mut self, file: CheckpointFile) -> Result<StagingStep, StagingError> {
        let path = staged(&self.data_dir.join(&file.path));
        let name = file.path.clone();
        let Some(handle) = self.opened(&path)? else {
            return self.make_room(&name, |staging| staging.want(file));
        };
        let mut have_bytes = handle.len().map_err(failed("read", &path))?;
        if have_bytes >= file.bytes {
            // As long as it should be and not what it should be, or of another life.
            handle.set_len(0).map_err(failed("cut", &path))?;
            have_bytes = 0;
        }
        if let Some(open) = &mut self.open {
            open.wanted = Some(Wanted { file, handle, path, have_bytes });
        }
        Ok(self.wants())
    }

    /// Reads the checkpoint itself, if all of it is there.
    fn look_at_checkpoint(&mut self) -> Result<StagingStep, StagingError> {
        let Some(open) = &mut self.open else { return Ok(StagingStep::Lost) };
        let name = format!("{CHECKPOINTS_DIR}/{}", checkpoint_name(open.log_index));
        let path = staged(&self.data_dir.join(&name));
        let (log_index, bytes) = (open.log_index, open.bytes);
        let found = match self.opened(&path)? {
            Some(handle) if handle.len().map_err(failed("read", &path))? == bytes => {
                Some(read_whole(&*handle, &path, bytes)?)
            }
            _ => None,
        };
        if let Some(found) = found
            && let Ok(loaded) = parse_checkpoint(&path, log_index, &found)
            && let Some(open) = &mut self.open
        {
            open.loaded = Some(loaded);
            return Ok(StagingStep::Checking);
        }
        let seq = mortarmq_types::Seq::ZERO;
        self.want(CheckpointFile { path: name, bytes, crc: 0, first_seq: seq, end_seq: seq })
    }

    fn wants(&self) -> StagingStep {
        match self.open.as_ref().and_then(|open| open.wanted.as_ref()) {
            None => StagingStep::Lost,
            Some(wanted) => {
                StagingStep::Wants { file: wanted.file.path.clone(), from: wanted.have_bytes, to: wanted.file.bytes }
            }
        }
    }

    /// Makes the staged file of a name and its folder, if they are not there, and goes on.
    fn make_room(
        &mut self,
        name: &str,
        then: impl FnOnce(&mut Self) -> Result<StagingStep, StagingError>,
    ) -> Result<StagingStep, StagingError> {
        let path = staged(&self.data_dir.join(name));
        let folder = path.parent().expect("it lies in the data directory").to_path_buf();
        let made = self.disk.create_dir_all(&folder).and_then(|()| match self.disk.create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created.map(drop),
        });
        match made {
            Ok(()) => then(self),
            Err(error) if is_full(&error) => {
                self.open = None;
                Ok(StagingStep::NoRoom)
            }
            Err(source) => Err(failed("create", &path)(source)),
        }
    }

    fn opened(&self, path: &Path) -> Result<Option<Arc<dyn DiskFile>>, StagingError> {
        open_if_there(&*self.disk, path)
    }
}

fn open_if_there(disk: &dyn Disk, path: &Path) -> Result<Option<Arc<dyn DiskFile>>, StagingError> {
    match disk.open(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        opened => opened.map(Some).map_err(failed("open", path)),
    }
}

/// A piece of a file as another node may have it: of the topics' files and of checkpoints, nothing else.
pub(crate) fn is_shared(file: &str) -> bool {
    let number =
        file.strip_prefix(CHECKPOINTS_DIR).and_then(|name| name.strip_prefix('/')?.strip_suffix(".checkpoint"));
    let is_checkpoint = number.is_some_and(|digits| digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit()));
    is_checkpoint || FileIdentity::of_relative_path(file).is_some()
}

/// What a file's name is once it has its place, if it waits for that.
pub(crate) fn unstaged(name: &str) -> Option<&str> {
    name.strip_suffix(STAGED_SUFFIX)
}

/// Where a file waits for its place.
pub(crate) fn staged(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(STAGED_SUFFIX);
    PathBuf::from(name)
}

fn crc_of(file: &dyn DiskFile, path: &Path, bytes: u64) -> Result<u32, StagingError> {
    let (mut crc, mut offset, mut buffer) =
        (0, 0, vec![0; READ_BYTES.min(usize::try_from(bytes).unwrap_or(READ_BYTES))]);
    while offset < bytes {
        let part = buffer.len().min(usize::try_from(bytes - offset).unwrap_or(READ_BYTES));
        file.read_exact_at(&mut buffer[..part], offset).map_err(failed("read", path))?;
        crc = crc32c::crc32c_append(crc, &buffer[..part]);
        offset += part as u64;
    }
    Ok(crc)
}

fn read_whole(file: &dyn DiskFile, path: &Path, bytes: u64) -> Result<Bytes, StagingError> {
    let too_large = |_| failed("read", path)(io::ErrorKind::FileTooLarge.into());
    let mut buffer = vec![0; usize::try_from(bytes).map_err(too_large)?];
    file.read_exact_at(&mut buffer, 0).map_err(failed("read", path))?;
    Ok(buffer.into())
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StagingError {
    let path = path.to_path_buf();
    move |source| StagingError::Io { doing, path, source }
}

const STAGED_SUFFIX: &str = ".staged";
/// So much is looked at before other work has its turn, and the rest of a file.
const CHECK_BYTES: u64 = 64 << 20;
const READ_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests;
