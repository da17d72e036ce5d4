//! What each byte of a data folder belongs to, read from docs/formats.md and not by the code that is tested.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use mortarmq_storage::{MemoryDisk, load_checkpoint};

use super::folder::files;

/// What the bytes of a unit are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Identity,
    JournalHeader,
    JournalBatch,
    /// A sector of a journal file that no batch was written to yet; zero.
    Unwritten,
    /// The mark of a sector that an earlier use of the file left.
    OlderMark,
    /// Its payload.
    OlderPayload,
    Spare,
    CheckpointHeader,
    CheckpointMembership,
    CheckpointList,
    CheckpointImage,
    SegmentHeader,
    Record,
    IndexHeader,
    IndexLine,
    LedgerHeader,
    LedgerEntryHeader,
    LedgerEvent,
    /// Behind what the checkpoint lists: the next start writes it anew.
    NotListed,
}

impl Kind {
    /// Whether the byte counts: it is read by somebody, and damage to it must be named.
    pub(crate) fn is_used(self) -> bool {
        !matches!(self, Self::Unwritten | Self::OlderMark | Self::OlderPayload | Self::Spare | Self::NotListed)
    }

    /// Whether a start must be refused if it is damaged.
    pub(crate) fn stops_the_start(self) -> bool {
        use Kind::{
            CheckpointHeader, CheckpointImage, CheckpointList, CheckpointMembership, Identity, JournalBatch,
            JournalHeader,
        };
        matches!(
            self,
            Identity
                | JournalHeader
                | JournalBatch
                | CheckpointHeader
                | CheckpointMembership
                | CheckpointList
                | CheckpointImage
        )
    }
}

/// A piece of a file that is checked as a whole: damage to any of its bytes is named with an offset within it, at or before
/// the byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// The bytes that are of this kind.
    pub(crate) bytes: Range<u64>,
    /// Where what is checked begins.
    pub(crate) begin: u64,
    /// The message, by its place in its file, that it belongs to: of records and index lines.
    pub(crate) seq: Option<u64>,
}

/// Every byte of the folder, in units without a gap.
pub(crate) fn units(disk: &MemoryDisk) -> Vec<Unit> {
    let loaded = load_checkpoint(&disk.after_process_kill(), Path::new("data")).expect("sound").expect("a checkpoint");
    let listed: BTreeMap<PathBuf, u64> =
        loaded.files.list().iter().map(|file| (Path::new("data").join(&file.path), file.bytes)).collect();
    let mut units = Vec::new();
    for (path, bytes) in files(disk) {
        let mut file = File { path: path.clone(), bytes: &bytes, units: Vec::new() };
        let extension = path.extension().map(|kind| kind.to_string_lossy().into_owned());
        match extension.as_deref() {
            Some("journal") => file.journal(),
            Some("checkpoint") => file.checkpoint(),
            Some(kind @ ("segment" | "index" | "ledger")) => {
                file.of_a_topic(kind);
                file.cut_at(listed.get(&path).copied().unwrap_or(0));
            }
            None if path.ends_with("identity") => file.add(Kind::Identity, 0..bytes.len() as u64, 0),
            None if path.to_string_lossy().contains("spare-") => file.add(Kind::Spare, 0..bytes.len() as u64, 0),
            _ => panic!("{} is no file of docs/formats.md", path.display()),
        }
        let mut end = 0;
        for unit in &file.units {
            assert_eq!(unit.bytes.start, end, "{}: no gap before {unit:?}", path.display());
            end = unit.bytes.end;
        }
        assert_eq!(end, bytes.len() as u64, "{}: all of it is known", path.display());
        units.extend(file.units);
    }
    units
}

struct File<'a> {
    path: PathBuf,
    bytes: &'a [u8],
    units: Vec<Unit>,
}

const SECTOR: u64 = 512;
const BLOCK: u64 = 4096;
const MARK: u64 = 24;

impl File<'_> {
    fn add(&mut self, kind: Kind, bytes: Range<u64>, begin: u64) {
        if !bytes.is_empty() {
            self.units.push(Unit { path: self.path.clone(), kind, bytes, begin, seq: None });
        }
    }

    fn u64(&self, at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    fn u32(&self, at: u64) -> u64 {
        let at = at as usize;
        u64::from(u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes")))
    }

    fn length(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn journal(&mut self) {
        self.add(Kind::JournalHeader, 0..BLOCK, 0);
        let generation = self.u64(0);
        let mut offset = BLOCK;
        while offset < self.length() && self.u64(offset) == generation {
            // Behind the mark: the batch's header, whose length of header and entries stands at 40.
            let sectors = self.u64(offset + MARK + 40).div_ceil(SECTOR - MARK);
            let end = offset + (sectors * SECTOR).next_multiple_of(BLOCK);
            self.add(Kind::JournalBatch, offset..end, offset);
            offset = end;
        }
        for sector in (offset..self.length()).step_by(SECTOR as usize) {
            let end = sector + SECTOR;
            if self.bytes[sector as usize..end as usize].iter().all(|byte| *byte == 0) {
                self.add(Kind::Unwritten, sector..end, sector);
            } else {
                self.add(Kind::OlderMark, sector..sector + MARK, sector);
                self.add(Kind::OlderPayload, sector + MARK..end, sector);
            }
        }
    }

    fn checkpoint(&mut self) {
        let membership_end = 88 + self.u32(12);
        let list_end = membership_end + self.u64(56);
        self.add(Kind::CheckpointHeader, 0..88, 0);
        self.add(Kind::CheckpointMembership, 88..membership_end, 88);
        self.add(Kind::CheckpointList, membership_end..list_end, membership_end);
        self.add(Kind::CheckpointImage, list_end..self.length(), list_end);
    }

    fn of_a_topic(&mut self, kind: &str) {
        let header = match kind {
            "segment" => Kind::SegmentHeader,
            "index" => Kind::IndexHeader,
            _ => Kind::LedgerHeader,
        };
        self.add(header, 0..32, 0);
        let (mut offset, mut seq) = (32, self.u64(16));
        while offset < self.length() {
            let end = match kind {
                "segment" => offset + 44 + self.u32(offset),
                "index" => offset + 24,
                _ => offset + 24 + self.u32(offset),
            };
            match kind {
                "segment" => self.add(Kind::Record, offset..end, offset),
                "index" => self.add(Kind::IndexLine, offset..end, offset),
                _ => {
                    self.add(Kind::LedgerEntryHeader, offset..offset + 24, offset);
                    self.add(Kind::LedgerEvent, offset + 24..end, offset);
                }
            }
            if kind != "ledger" {
                self.units.last_mut().expect("just added").seq = Some(seq);
            }
            (offset, seq) = (end, seq + 1);
        }
    }

    /// What lies behind the listed bytes counts for nothing.
    fn cut_at(&mut self, listed: u64) {
        for unit in self.units.iter_mut().filter(|unit| unit.bytes.start >= listed) {
            unit.kind = Kind::NotListed;
        }
    }
}
