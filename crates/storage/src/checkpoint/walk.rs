//! Checking one checkpoint piece by piece, so that its image is never in memory as a whole.

use std::io;
use std::path::{Path, PathBuf};

use super::layout::{Header, MAX_HEADER_BYTES};
use super::{CHECKPOINTS_DIR, CheckpointError, CheckpointFiles, checkpoint_numbers, checkpoint_path, newest_install};
use crate::disk::{Disk, Window};
use crate::verify::{VerifyError, list};

/// A check of a checkpoint that can pause between two reads.
pub(crate) struct CheckpointWalk {
    path: PathBuf,
    window: Window,
    header: Header,
    /// Which of the header's pieces is read.
    piece: usize,
    /// Up to where it was read.
    offset: u64,
    /// CRC32C of what was read of it.
    crc: u32,
    /// What was read of the list of files.
    list: Vec<u8>,
    files: Option<CheckpointFiles>,
}

/// A checkpoint that was opened, or one that was refused, with its path.
pub(crate) type Opened = Result<CheckpointWalk, (PathBuf, CheckpointError)>;

/// Opens the newest checkpoint; none if there never was one. One that goes meanwhile has made room for a newer one. While another
/// node's is being installed none tells which files have to be where.
pub(crate) fn open_newest(disk: &dyn Disk, data_dir: &Path) -> Result<Option<Opened>, VerifyError> {
    let dir = data_dir.join(CHECKPOINTS_DIR);
    let mut gone = None;
    loop {
        let names = list(disk, &dir)?;
        let Some(newest) = checkpoint_numbers(&names).last().copied() else { return Ok(None) };
        if newest_install(&names).is_some_and(|(_, is_under_way)| is_under_way) {
            return Ok(None);
        }
        match CheckpointWalk::open(disk, &dir, newest) {
            Err(CheckpointError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound && gone.is_none_or(|gone| gone < newest) =>
            {
                gone = Some(newest);
            }
            opened => return Ok(Some(opened.map_err(|error| (checkpoint_path(&dir, newest), error)))),
        }
    }
}

impl CheckpointWalk {
    /// Opens a checkpoint and checks its header and its length.
    pub(crate) fn open(disk: &dyn Disk, dir: &Path, log_index: u64) -> Result<Self, CheckpointError> {
        Self::open_at(disk, checkpoint_path(dir, log_index), log_index)
    }

    /// The same, of a checkpoint under another name.
    pub(crate) fn open_at(disk: &dyn Disk, path: PathBuf, log_index: u64) -> Result<Self, CheckpointError> {
        let failed = |source| CheckpointError::Io { doing: "read", path: path.clone(), source };
        let mut window = disk.open(&path).and_then(Window::open).map_err(failed)?;
        let file_bytes = window.file_bytes();
        let start = window.read(0, file_bytes.min(MAX_HEADER_BYTES as u64) as usize).map_err(|source| {
            let path = path.clone();
            CheckpointError::Unreadable { path, offset: 0, source }
        })?;
        let header = Header::of_file(&path, log_index, start, file_bytes)?;
        let offset = header.pieces()[0].start;
        Ok(Self { path, window, header, piece: 0, offset, crc: 0, list: Vec::new(), files: None })
    }

    /// Checks the next bytes and says how many; none at the end.
    pub(crate) fn step(&mut self) -> Result<Option<u64>, CheckpointError> {
        let Some(piece) = self.header.pieces().get(self.piece).copied() else { return Ok(None) };
        let bytes = (piece.end - self.offset).min(STEP_BYTES);
        // An empty piece is not read: it may lie at the file's end.
        if bytes > 0 {
            let read = self.window.read(self.offset, bytes as usize).map_err(|source| {
                let (path, offset) = (self.path.clone(), self.offset);
                CheckpointError::Unreadable { path, offset, source }
            })?;
            self.crc = crc32c::crc32c_append(self.crc, read);
            if self.piece == LIST_PIECE {
                self.list.extend_from_slice(read);
            }
        }
        self.offset += bytes;
        if self.offset == piece.end {
            piece.check(&self.path, self.crc)?;
            if self.piece == LIST_PIECE {
                self.files = Some(self.header.files(&self.path, &std::mem::take(&mut self.list))?);
            }
            (self.piece, self.crc) = (self.piece + 1, 0);
        }
        Ok(Some(bytes))
    }

    /// The checkpoint's file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the checkpoint's file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.window.file_bytes()
    }

    /// The files it lists, once the list was checked. They can be taken once.
    pub(crate) fn take_files(&mut self) -> Option<CheckpointFiles> {
        self.files.take()
    }
}

/// The list of files is the second piece behind the header.
const LIST_PIECE: usize = 1;
/// A part of what a window reads at once.
const STEP_BYTES: u64 = 256 << 10;
