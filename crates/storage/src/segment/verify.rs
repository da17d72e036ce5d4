//! Checking the files of every partition: the listed bytes against the checkpoint, every entry by its own checksums, and
//! the index against its segment.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use mortarmq_types::Seq;

use super::layout::{
    FILE_HEADER_BYTES, FileIdentity, HeaderCheck, INDEX_ENTRY_BYTES, IndexLine, Kind, POSITION_BYTES, PositionHeader,
    TOPICS_DIR, VERSION, record_is_sound,
};
use crate::checkpoint::CheckpointFile;
use crate::disk::{Disk, Window};
use crate::ledger;
use crate::verify::{List, Report, VerifyError, list as list_names};

/// Checks the files that a checkpoint lists, and those that are there without.
pub(crate) fn verify(
    disk: &dyn Disk,
    data_dir: &Path,
    list: List<'_>,
    report: &mut Report<'_>,
) -> Result<(), VerifyError> {
    let (files, is_list_lost) = match list {
        List::Absent => (&[][..], false),
        List::Lost => (&[][..], true),
        List::There(files) => (files.list(), false),
    };
    let listed: BTreeMap<FileIdentity, &CheckpointFile> =
        files.iter().filter_map(|file| Some((FileIdentity::of_relative_path(&file.path)?, file))).collect();
    let mut identities = find(disk, data_dir, report)?;
    identities.extend(listed.keys());
    for identity in &identities {
        let file = listed.get(identity).copied();
        let Some(mut checked) = Checked::open(disk, data_dir, *identity, (file, is_list_lost), report) else {
            continue;
        };
        report.read(checked.file_bytes());
        let walked = match identity.kind {
            Kind::Segment => {
                let index = FileIdentity { kind: Kind::Index, ..*identity };
                let lines = Lines::open(disk, data_dir, index, listed.get(&index).copied());
                walk_segment(&mut checked, lines, report)
            }
            Kind::Index => walk_index(&mut checked, report),
            Kind::Ledger => ledger::walk(&mut checked, report),
        };
        if let Err(source) = walked.and_then(|()| checked.compare(file, report)) {
            report.damage(&checked.path, checked.at, format!("the bytes here cannot be read: {source}"));
        }
    }
    Ok(())
}

/// The files of all partitions, listed or not.
fn find(disk: &dyn Disk, data_dir: &Path, report: &mut Report<'_>) -> Result<BTreeSet<FileIdentity>, VerifyError> {
    let mut found = BTreeSet::new();
    let topics = data_dir.join(TOPICS_DIR);
    for topic in list_names(disk, &topics)? {
        for partition in list_names(disk, &topics.join(&topic))? {
            let folder = topics.join(&topic).join(&partition);
            for name in list_names(disk, &folder)? {
                match FileIdentity::of_relative_path(&format!("{TOPICS_DIR}/{topic}/{partition}/{name}")) {
                    Some(identity) => _ = found.insert(identity),
                    None => report.note(&folder.join(name), 0, "no file of this version; it was not read"),
                }
            }
        }
    }
    Ok(found)
}

/// A file that is being checked.
pub(crate) struct Checked {
    pub(crate) identity: FileIdentity,
    path: PathBuf,
    window: Window,
    /// What stands behind was not synced, and is written anew by the next start.
    listed_bytes: u64,
    /// How much of it is listed is not known.
    is_list_lost: bool,
    is_damaged: bool,
    /// Where it was read last.
    at: u64,
}

impl Checked {
    /// Opens a file and checks its length and header; nothing if it is not to be read.
    fn open(
        disk: &dyn Disk,
        data_dir: &Path,
        identity: FileIdentity,
        (listed, is_list_lost): (Option<&CheckpointFile>, bool),
        report: &mut Report<'_>,
    ) -> Option<Self> {
        let path = identity.path(&data_dir.join(TOPICS_DIR));
        let window = match disk.open(&path).and_then(Window::open) {
            Ok(window) => window,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                report.damage(&path, 0, "the file is missing, but the checkpoint lists it");
                return None;
            }
            Err(error) => {
                report.damage(&path, 0, format!("the file cannot be opened: {error}"));
                return None;
            }
        };
        let listed_bytes = listed.map_or(0, |file| file.bytes);
        let mut checked = Self { identity, path, window, listed_bytes, is_list_lost, is_damaged: false, at: 0 };
        if checked.file_bytes() < listed_bytes {
            let what = format!("the file was cut short: the checkpoint lists {listed_bytes} bytes");
            checked.found(checked.file_bytes(), what, report);
        }
        let mut header = [0; FILE_HEADER_BYTES];
        match checked.read(0, FILE_HEADER_BYTES) {
            Ok(bytes) => header.copy_from_slice(bytes),
            Err(error) => {
                report.damage(&checked.path, 0, format!("the file cannot be read: {error}"));
                return None;
            }
        }
        match identity.check(&header) {
            HeaderCheck::Good => Some(checked),
            HeaderCheck::Damaged(what) => {
                checked.found(0, what, report);
                Some(checked)
            }
            HeaderCheck::UnknownVersion(found) => {
                let what = format!("the file has version {found}; this build reads version {VERSION}");
                checked.found(0, what, report);
                report.read(checked.file_bytes());
                None
            }
        }
    }

    /// The file's length, in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.window.file_bytes()
    }

    /// The bytes at a place; what lies behind the file's end reads as zero.
    pub(crate) fn read(&mut self, offset: u64, bytes: usize) -> io::Result<&[u8]> {
        self.at = offset;
        self.window.read(offset, bytes)
    }

    /// Tells what is wrong, and whether it is worth reading on: what no checkpoint lists need not be whole.
    pub(crate) fn found(&mut self, offset: u64, what: impl Into<String>, report: &mut Report<'_>) -> bool {
        if offset < self.listed_bytes {
            self.is_damaged = true;
            report.damage(&self.path, offset, what);
            return true;
        }
        if self.is_list_lost {
            let what = format!("{}; the checkpoint that may list it is damaged", what.into());
            report.damage(&self.path, offset, what);
            return true;
        }
        let what = format!("{}; no checkpoint lists it, so the next start writes it anew", what.into());
        report.note(&self.path, offset, what);
        false
    }

    /// Compares the listed bytes as a whole, which also finds what no entry's checksum covers.
    fn compare(&mut self, listed: Option<&CheckpointFile>, report: &mut Report<'_>) -> io::Result<()> {
        let Some(listed) = listed.filter(|_| !self.is_damaged) else { return Ok(()) };
        let (mut crc, mut offset) = (0, 0);
        while offset < listed.bytes {
            let bytes = (listed.bytes - offset).min(COMPARED_BYTES);
            crc = crc32c::crc32c_append(crc, self.read(offset, bytes as usize)?);
            offset += bytes;
        }
        if crc != listed.crc {
            let what = format!("the first {} bytes fail the checksum that the checkpoint lists", listed.bytes);
            self.found(0, what, report);
        }
        Ok(())
    }
}

/// The lines of an index, as the walk through its segment needs them. Damage in them is found by [`walk_index`].
struct Lines {
    identity: FileIdentity,
    path: PathBuf,
    window: Window,
    listed_bytes: u64,
}

impl Lines {
    fn open(disk: &dyn Disk, data_dir: &Path, identity: FileIdentity, listed: Option<&CheckpointFile>) -> Option<Self> {
        let path = identity.path(&data_dir.join(TOPICS_DIR));
        let window = disk.open(&path).and_then(Window::open).ok()?;
        Some(Self { identity, path, window, listed_bytes: listed.map_or(0, |file| file.bytes) })
    }

    /// Where in the index the line of a sequence stands; nothing if it has none.
    fn place(&self, seq: Seq) -> Option<u64> {
        let above = seq.get().checked_sub(self.identity.number)?.checked_mul(INDEX_ENTRY_BYTES as u64)?;
        let place = above.checked_add(FILE_HEADER_BYTES as u64)?;
        (place.checked_add(INDEX_ENTRY_BYTES as u64)? <= self.window.file_bytes()).then_some(place)
    }

    /// Where a record begins, by its line; nothing if the line is not sound.
    fn offset(&mut self, seq: Seq) -> Option<u64> {
        let place = self.place(seq)?;
        let line = self.window.read(place, INDEX_ENTRY_BYTES).ok()?;
        IndexLine::parse(line, seq, self.identity.topic, self.identity.partition).map(|line| u64::from(line.offset))
    }

    /// The next record behind a damaged one, by the index.
    fn next_behind(&mut self, seq: Seq, offset: u64, file_bytes: u64) -> Option<(Seq, u64)> {
        let mut next = seq.next();
        while self.place(next).is_some() {
            if let Some(begin) = self.offset(next).filter(|begin| *begin > offset && *begin < file_bytes) {
                return Some((next, begin));
            }
            next = next.next();
        }
        None
    }
}

/// Checks every record of a segment, and that the index says where it begins.
fn walk_segment(checked: &mut Checked, mut lines: Option<Lines>, report: &mut Report<'_>) -> io::Result<()> {
    let file_bytes = checked.file_bytes();
    let mut offset = FILE_HEADER_BYTES as u64;
    let mut seq = Seq::new(checked.identity.number);
    while offset < file_bytes {
        if let Some(lines) = &mut lines
            && let (Some(place), Some(begin)) = (lines.place(seq), lines.offset(seq))
            && begin != offset
            && place < lines.listed_bytes
        {
            let what = format!("the line of record {seq} says {begin}, but the record begins at {offset}");
            report.damage(&lines.path, place, what);
        }
        let (end, wrong) = read_record(checked, offset, seq)?;
        if let Some(what) = wrong
            && !checked.found(offset, format!("record {seq}: {what}"), report)
        {
            return Ok(());
        }
        let next = match end {
            Some(end) => Some((seq.next(), end)),
            None => lines.as_mut().and_then(|lines| lines.next_behind(seq, offset, file_bytes)),
        };
        let Some(next) = next else { return Ok(()) };
        (seq, offset) = next;
    }
    Ok(())
}

/// Where a record ends, if that can be told, and what is wrong with it.
fn read_record(checked: &mut Checked, offset: u64, seq: Seq) -> io::Result<(Option<u64>, Option<&'static str>)> {
    let (identity, file_bytes) = (checked.identity, checked.file_bytes());
    let header = checked.read(offset, POSITION_BYTES)?;
    let Some(position) = PositionHeader::parse(header, identity.topic, identity.partition) else {
        return Ok((None, Some("its position fails its checksum")));
    };
    if position.seq != seq {
        return Ok((None, Some("another sequence stands in its place")));
    }
    let begin = offset + POSITION_BYTES as u64;
    let end = begin + u64::from(position.record_bytes);
    if end > file_bytes {
        return Ok((None, Some("it is longer than the file")));
    }
    let is_sound = record_is_sound(checked.read(begin, position.record_bytes as usize)?);
    Ok((Some(end), (!is_sound).then_some("it fails its checksum")))
}

/// Checks every line of an index.
fn walk_index(checked: &mut Checked, report: &mut Report<'_>) -> io::Result<()> {
    let (identity, file_bytes) = (checked.identity, checked.file_bytes());
    let mut offset = FILE_HEADER_BYTES as u64;
    let mut seq = Seq::new(identity.number);
    while offset < file_bytes {
        let line = checked.read(offset, INDEX_ENTRY_BYTES)?;
        if IndexLine::parse(line, seq, identity.topic, identity.partition).is_none()
            && !checked.found(offset, format!("the line of record {seq} fails its checksum"), report)
        {
            return Ok(());
        }
        (seq, offset) = (seq.next(), offset + INDEX_ENTRY_BYTES as u64);
    }
    Ok(())
}

/// As much as a window reads at once.
const COMPARED_BYTES: u64 = 1 << 20;
