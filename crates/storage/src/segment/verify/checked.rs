//! A file of a partition while it is checked: how much of it counts, and what is said of damage in it.

use std::io;
use std::path::{Path, PathBuf};

use mortarmq_types::Seq;

use crate::checkpoint::CheckpointFile;
use crate::disk::{Disk, SECTOR_BYTES, Window};
use crate::segment::layout::{FILE_HEADER_BYTES, FileIdentity, HeaderCheck, TOPICS_DIR, VERSION};
use crate::staging::staged;
use crate::verify::{FindingAt, Report};

/// How much of a file is checked.
#[derive(Clone, Copy)]
pub(crate) enum Extent<'a> {
    /// All of it. What no checkpoint lists is written anew by the next start, if the list is not lost.
    Whole {
        /// What the checkpoint lists of it.
        listed: Option<&'a CheckpointFile>,
        /// Whether there is a checkpoint and its list cannot be read.
        is_list_lost: bool,
        /// Whether it may still wait beside its place.
        is_installing: bool,
    },
    /// What the checkpoint lists of it, while a node writes behind that.
    Listed(&'a CheckpointFile),
}

impl<'a> Extent<'a> {
    /// What the checkpoint lists.
    pub(super) fn listed(self) -> Option<&'a CheckpointFile> {
        match self {
            Self::Whole { listed, .. } => listed,
            Self::Listed(file) => Some(file),
        }
    }

    /// Where the bytes are that count for this path: an install that was interrupted gives a file its name once it is finished.
    pub(super) fn place(self, disk: &dyn Disk, path: PathBuf) -> PathBuf {
        let Self::Whole { listed: Some(file), is_installing: true, .. } = self else { return path };
        let beside = staged(&path);
        let is_whole = disk.open(&beside).and_then(|found| found.len()).is_ok_and(|bytes| bytes == file.bytes);
        if is_whole { beside } else { path }
    }

    /// Opens a file as far as it is checked.
    pub(super) fn open(self, disk: &dyn Disk, path: &Path) -> io::Result<Window> {
        let window = Window::open(disk.open(path)?)?;
        Ok(match self {
            Self::Whole { .. } => window,
            Self::Listed(file) => Window::over(window.file().clone(), window.file_bytes().min(file.bytes)),
        })
    }
}

/// A file that is listed and not there.
pub(crate) struct Missing {
    identity: FileIdentity,
    path: PathBuf,
}

impl Missing {
    /// Tells it as damage.
    pub(crate) fn tell(&self, report: &mut Report<'_>) {
        let at = Some(at(&self.identity, None));
        report.damage_at(&self.path, 0, at, "the file is missing, but the checkpoint lists it");
    }
}

/// A file that is being checked.
pub(crate) struct Checked {
    pub(crate) identity: FileIdentity,
    pub(super) path: PathBuf,
    window: Window,
    /// What stands behind was not synced, and is written anew by the next start.
    listed_bytes: u64,
    /// The checksum of the listed bytes, if the file is listed.
    listed_crc: Option<u32>,
    /// CRC32C of the bytes up to the next offset, of the listed ones only.
    crc: u32,
    crc_end: u64,
    /// How much of it is listed is not known.
    is_list_lost: bool,
    is_damaged: bool,
    /// Where it was read last.
    pub(super) at: u64,
}

impl Checked {
    /// Opens a file and checks its length and header; nothing if it is not to be read.
    pub(super) fn open(
        disk: &dyn Disk,
        data_dir: &Path,
        identity: FileIdentity,
        extent: Extent<'_>,
        report: &mut Report<'_>,
    ) -> Result<Option<Self>, Missing> {
        let path = extent.place(disk, identity.path(&data_dir.join(TOPICS_DIR)));
        let window = match extent.open(disk, &path) {
            Ok(window) => window,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Missing { identity, path }),
            Err(error) => {
                let what = format!("the file cannot be opened: {error}");
                report.damage_at(&path, 0, Some(at(&identity, None)), what);
                return Ok(None);
            }
        };
        report.read(window.file_bytes());
        let (listed_bytes, listed_crc) = extent.listed().map_or((0, None), |file| (file.bytes, Some(file.crc)));
        let is_list_lost = matches!(extent, Extent::Whole { is_list_lost: true, .. });
        let (crc, crc_end, is_damaged, at) = (0, 0, false, 0);
        let mut checked =
            Self { identity, path, window, listed_bytes, listed_crc, crc, crc_end, is_list_lost, is_damaged, at };
        if checked.file_bytes() < listed_bytes {
            let what = format!("the file was cut short: the checkpoint lists {listed_bytes} bytes");
            checked.found(checked.file_bytes(), None, what, report);
        }
        Ok(checked.check_header(report).then_some(checked))
    }

    /// Checks the header, and says whether what follows it can be read.
    fn check_header(&mut self, report: &mut Report<'_>) -> bool {
        let mut header = [0; FILE_HEADER_BYTES];
        match self.read(0, FILE_HEADER_BYTES) {
            Ok(bytes) => header.copy_from_slice(bytes),
            Err(error) => {
                let at = Some(at(&self.identity, None));
                report.damage_at(&self.path, 0, at, format!("the file cannot be read: {error}"));
                return false;
            }
        }
        match self.identity.check(&header) {
            HeaderCheck::Good => true,
            HeaderCheck::Damaged(what) => {
                self.found(0, None, what, report);
                true
            }
            HeaderCheck::UnknownVersion(found) => {
                let what = format!("the file has version {found}; this build reads version {VERSION}");
                self.found(0, None, what, report);
                false
            }
        }
    }

    /// How much of the file is checked, in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.window.file_bytes()
    }

    /// The bytes at a place; what lies behind the file's end reads as zero.
    pub(crate) fn read(&mut self, offset: u64, bytes: usize) -> io::Result<&[u8]> {
        self.at = offset;
        // In whole sectors: a window fills up the last one that it was asked for with zeros, and hands those out for what
        // stands there.
        let read = &self.window.read(offset, bytes.next_multiple_of(SECTOR_BYTES))?[..bytes];
        let end = (offset + bytes as u64).min(self.listed_bytes);
        // Whoever reads from front to back has the checksum of the whole at the end, without reading it again.
        if offset <= self.crc_end && self.crc_end < end {
            let new = &read[(self.crc_end - offset) as usize..(end - offset) as usize];
            (self.crc, self.crc_end) = (crc32c::crc32c_append(self.crc, new), end);
        }
        Ok(read)
    }

    /// Tells what is wrong, and whether it is worth reading on: what no checkpoint lists need not be whole. `seq` is
    /// the record whose bytes they are.
    pub(crate) fn found(
        &mut self,
        offset: u64,
        seq: Option<Seq>,
        what: impl Into<String>,
        report: &mut Report<'_>,
    ) -> bool {
        let at = Some(at(&self.identity, seq));
        if offset < self.listed_bytes {
            self.is_damaged = true;
            report.damage_at(&self.path, offset, at, what);
            return true;
        }
        if self.is_list_lost {
            let what = format!("{}; the checkpoint that may list it is damaged", what.into());
            report.damage_at(&self.path, offset, at, what);
            return true;
        }
        let what = format!("{}; no checkpoint lists it, so the next start writes it anew", what.into());
        report.note(&self.path, offset, what);
        false
    }

    /// The bytes cannot be read where they were wanted last.
    pub(super) fn unreadable(&mut self, error: &io::Error, report: &mut Report<'_>) {
        let at = Some(at(&self.identity, None));
        report.damage_at(&self.path, self.at, at, format!("the bytes here cannot be read: {error}"));
    }

    /// Compares the listed bytes as a whole, which also finds what no entry's checksum covers. Reads what was not read
    /// yet, a piece in each call, and says how much; none once it is done.
    pub(super) fn compare(&mut self, report: &mut Report<'_>) -> io::Result<Option<u64>> {
        let Some(listed_crc) = self.listed_crc.filter(|_| !self.is_damaged) else { return Ok(None) };
        let bytes = (self.listed_bytes - self.crc_end).min(COMPARED_BYTES);
        if bytes > 0 {
            self.read(self.crc_end, bytes as usize)?;
            return Ok(Some(bytes));
        }
        if self.crc != listed_crc {
            let what = format!("the first {} bytes fail the checksum that the checkpoint lists", self.listed_bytes);
            self.found(0, None, what, report);
        }
        Ok(None)
    }
}

pub(super) fn at(identity: &FileIdentity, seq: Option<Seq>) -> FindingAt {
    FindingAt { topic: identity.topic, partition: identity.partition, seq }
}

/// A part of what a window reads at once.
const COMPARED_BYTES: u64 = 256 << 10;
