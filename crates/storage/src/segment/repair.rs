//! Records that another node has sound: what is told of them, and how they take the place of damaged ones.
//!
//! What is written is what stood there before it rotted, at the same place: a checkpoint's list stays true, and so do the running
//! checksums of the writer. So nothing is made aside. A crash in the middle leaves some of the damaged bytes, which fail their
//! checksum as before, and the repair begins anew.
//!
//! # Invariants
//! 1. Bytes that are sound are not overwritten: another node that says something else there does not know better.
//! 2. What is written passes the checks of a reader, begins where this node's own files say that the record begins, and ends where
//!    they say that the next one does.

use std::io;
use std::path::PathBuf;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mortarmq_types::Seq;

use super::files::{Key, SegmentExtent, Shared};
use super::layout::{
    FILE_HEADER_BYTES, FileIdentity, HeaderCheck, INDEX_ENTRY_BYTES, IndexLine, Kind, POSITION_BYTES, PositionHeader,
    closing_crc, record_fault,
};
use super::{ReadError, SegmentReader, SegmentWriter};
use crate::ledger;
use crate::stretch::Stretch;

/// What came of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairOutcome {
    /// The bytes are on disk again, synced.
    Repaired {
        /// How many were written.
        bytes: u64,
    },
    /// There is nothing damaged there.
    Sound,
    /// What came is not what belongs there, or cannot be put there; nothing was written.
    Refused {
        /// Why.
        what: &'static str,
    },
}

/// The disk failed while a repair was written: the process says why and ends (failure rule 2).
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}", .path.display())]
pub struct RepairError {
    pub(crate) doing: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

impl SegmentReader {
    /// What another node needs to repair a stretch, as much of it as is sound here from its beginning on, up to about 128 KiB and
    /// one entry at least; nothing if it is not written here, or not any more.
    ///
    /// Of records: how many there are (u32, little-endian), their index entries, and their bytes in the segment. Of a ledger: the
    /// bytes of its entries.
    ///
    /// # Errors
    /// [`ReadError`] if it is damaged here, too.
    pub fn read_stretch_for_repair(&self, stretch: &Stretch) -> Result<Option<Bytes>, ReadError> {
        match *stretch {
            Stretch::Records { topic, partition, seq } => self.sound_records((topic, partition), seq),
            Stretch::Ledger { topic, partition, number, offset } => {
                ledger::sound_entries(&self.shared, (topic, partition), number, offset, GIVEN_BYTES)
            }
        }
    }

    fn sound_records(&self, key: Key, seq: Seq) -> Result<Option<Bytes>, ReadError> {
        let (topic, partition) = key;
        let Some(segment) = self.segment_at(key, seq).filter(|segment| segment.first_seq <= seq) else {
            return Ok(None);
        };
        let to = segment.end_seq.min(seq.plus(GIVEN_RECORDS));
        let records = self.read_records(topic, partition, seq, to, GIVEN_BYTES)?;
        let lines = self.read_lines(key, segment, seq, to)?;
        let both = || records.iter().zip(&lines).take_while(|(record, line)| record.seq == line.entry.seq);
        let Ok(count) = u32::try_from(both().count()) else { return Ok(None) };
        let mut out = BytesMut::new();
        out.put_u32_le(count);
        both().for_each(|(_, line)| out.put_slice(&line.encode(topic, partition)));
        for (stored, _) in both() {
            let position = PositionHeader {
                record_bytes: u32::try_from(stored.record.len()).expect("it was read from a segment"),
                seq: stored.seq,
                commit_index: stored.commit_index,
                epoch: stored.epoch,
                published_at: stored.published_at,
                record_crc: closing_crc(&stored.record),
            };
            out.put_slice(&position.encode(topic, partition));
            out.put_slice(&stored.record);
        }
        Ok((count > 0).then(|| out.freeze()))
    }
}

impl SegmentWriter {
    /// Writes what another node has of a stretch in place of what is damaged of it here.
    ///
    /// # Durability
    /// What it says it has repaired is synced. A crash before leaves what was there, or part of it: as damaged as before.
    /// # Errors
    /// When a write or a sync fails. The writer takes nothing more, and the process must end (failure rule 2).
    /// # Source
    /// Failure rule 3; P11; docs/decisions/018-repair.md.
    pub fn repair(&mut self, stretch: &Stretch, data: &Bytes) -> Result<RepairOutcome, RepairError> {
        if self.poisoned {
            return Ok(RepairOutcome::Refused { what: "an earlier write failed" });
        }
        let repaired = match *stretch {
            Stretch::Records { topic, partition, seq } => self.repair_records((topic, partition), seq, data),
            Stretch::Ledger { topic, partition, number, offset } => {
                ledger::repair(&self.shared, (topic, partition), number, offset, data)
            }
        };
        self.poisoned = repaired.is_err();
        repaired
    }

    fn repair_records(&self, key: Key, seq: Seq, data: &Bytes) -> Result<RepairOutcome, RepairError> {
        let reader = self.reader();
        let Some(segment) = reader.segment_at(key, seq).filter(|segment| segment.first_seq <= seq) else {
            return refused("the record is not written here");
        };
        let (topic, partition) = key;
        let identity = FileIdentity { topic, partition, kind: Kind::Segment, number: segment.first_seq.get() };
        let mut mended = 0;
        for file in [identity, identity.of_kind(Kind::Index)] {
            match mend_header(&self.shared, file)? {
                Ok(bytes) => mended += bytes,
                Err(what) => return refused(what),
            }
        }
        let own = Own { reader: &reader, key, segment, identity };
        if own.is_sound(seq) {
            return Ok(if mended > 0 { RepairOutcome::Repaired { bytes: mended } } else { RepairOutcome::Sound });
        }
        let given = match Given::parse(data, key, seq).and_then(|given| own.fit(seq, given)) {
            Ok(given) => given,
            Err(what) => return refused(what),
        };
        let line_at = FILE_HEADER_BYTES as u64 + seq.above(segment.first_seq) * INDEX_ENTRY_BYTES as u64;
        write(&self.shared, identity, given.begin, &given.records)?;
        write(&self.shared, identity.of_kind(Kind::Index), line_at, &given.lines)?;
        Ok(RepairOutcome::Repaired { bytes: mended + (given.records.len() + given.lines.len()) as u64 })
    }
}

/// What another node gave: each part passes the checks of a reader.
struct Given {
    begin: u64,
    /// Where each record ends in the segment.
    ends: Vec<u64>,
    lines: Bytes,
    records: Bytes,
}

impl Given {
    fn parse(data: &Bytes, (topic, partition): Key, first: Seq) -> Result<Self, &'static str> {
        let mut records = data.clone();
        let count = records.try_get_u32_le().map_err(|_| "it is too short")? as usize;
        let Some(line_bytes) = count.checked_mul(INDEX_ENTRY_BYTES).filter(|bytes| *bytes <= records.len()) else {
            return Err("it is too short");
        };
        let lines = records.split_to(line_bytes);
        let (mut begin, mut ends, mut rest) = (0, Vec::new(), &records[..]);
        for (line, seq) in lines.chunks_exact(INDEX_ENTRY_BYTES).zip(first.get()..) {
            let seq = Seq::new(seq);
            let line = IndexLine::parse(line, seq, topic, partition).ok_or("an index entry fails its checksum")?;
            let position = PositionHeader::parse(rest, topic, partition).ok_or("a position fails its checksum")?;
            let record = rest.get(POSITION_BYTES..).and_then(|rest| rest.get(..position.record_bytes as usize));
            let record = record.ok_or("a record is cut short")?;
            let offset = u64::from(line.offset);
            let is_next = ends.last().is_none_or(|end| *end == offset);
            if position.seq != seq || !is_next {
                return Err("a record belongs to another place");
            }
            if let Some(fault) = record_fault(record, &position) {
                return Err(fault);
            }
            if ends.is_empty() {
                begin = offset;
            }
            let bytes = POSITION_BYTES + record.len();
            ends.push(offset + bytes as u64);
            rest = &rest[bytes..];
        }
        if ends.is_empty() || !rest.is_empty() {
            return Err("it is not as long as it says");
        }
        Ok(Self { begin, ends, lines, records })
    }
}

/// What the files here say of where records stand.
struct Own<'a> {
    reader: &'a SegmentReader,
    key: Key,
    segment: SegmentExtent,
    identity: FileIdentity,
}

impl Own<'_> {
    /// Cuts what was given to what has to be written: up to the first place behind a record where this node's own files go on.
    fn fit(&self, seq: Seq, given: Given) -> Result<Given, &'static str> {
        let Given { begin, ends, lines, records } = given;
        if self.line(seq) != Some(begin) && self.walk(seq) != Some(begin) {
            return Err("the record begins elsewhere here");
        }
        let last = ends.iter().zip(seq.next().get()..).position(|(end, next)| self.goes_on(Seq::new(next), *end));
        let Some(last) = last else { return Err("what is sound here goes on elsewhere, or too far behind") };
        let bytes = usize::try_from(ends[last] - begin).map_err(|_| "it is too long")?;
        if ends[last] > self.segment.bytes {
            return Err("it is longer than the segment");
        }
        let lines = lines.slice(..(last + 1) * INDEX_ENTRY_BYTES);
        Ok(Given { begin, ends, lines, records: records.slice(..bytes) })
    }

    /// Whether a record begins there, by its own entry or its own position; or the segment ends there.
    fn goes_on(&self, next: Seq, end: u64) -> bool {
        if next >= self.segment.end_seq {
            return next == self.segment.end_seq && end == self.segment.bytes;
        }
        self.line(next) == Some(end) || self.position(end).is_some_and(|position| position.seq == next)
    }

    fn line(&self, seq: Seq) -> Option<u64> {
        let lines = self.reader.read_lines(self.key, self.segment, seq, seq.next()).ok()?;
        lines.first().map(|line| u64::from(line.offset))
    }

    fn position(&self, offset: u64) -> Option<PositionHeader> {
        let mut header = [0; POSITION_BYTES];
        let file = self.reader.shared.open(self.identity).ok()?;
        file.read_exact_at(&mut header, offset).ok()?;
        PositionHeader::parse(&header, self.key.0, self.key.1)
    }

    /// Where a record begins, by those before it.
    fn walk(&self, seq: Seq) -> Option<u64> {
        let (mut at, mut offset) = self.reader.sound_line_before(self.key, self.segment, seq);
        while at < seq {
            let position = self.position(offset).filter(|position| position.seq == at)?;
            offset += POSITION_BYTES as u64 + u64::from(position.record_bytes);
            at = at.next();
        }
        Some(offset)
    }

    /// Whether a record and its index entry are as they were written.
    fn is_sound(&self, seq: Seq) -> bool {
        let Some(begin) = self.line(seq) else { return false };
        let Some(position) = self.position(begin).filter(|position| position.seq == seq) else { return false };
        let mut record = vec![0; position.record_bytes as usize];
        let Ok(file) = self.reader.shared.open(self.identity) else { return false };
        let read = file.read_exact_at(&mut record, begin + POSITION_BYTES as u64);
        read.is_ok() && record_fault(&record, &position).is_none()
    }
}

/// Writes the header that a file of this name has, if another stands there: it follows from the name, and every entry is checked for
/// its place by itself. Says how many bytes were written, or why nothing may be.
pub(crate) fn mend_header(shared: &Shared, identity: FileIdentity) -> Result<Result<u64, &'static str>, RepairError> {
    let Ok(file) = shared.disk.open(&shared.path(&identity)) else { return Ok(Err("a file cannot be opened")) };
    let mut header = [0; FILE_HEADER_BYTES];
    if file.read_exact_at(&mut header, 0).is_ok() {
        match identity.check(&header) {
            HeaderCheck::Good => return Ok(Ok(0)),
            HeaderCheck::UnknownVersion(_) => return Ok(Err("a file has a version that this build does not read")),
            HeaderCheck::Damaged(_) => {}
        }
    }
    let failed = |doing| move |source| RepairError { doing, path: shared.path(&identity), source };
    file.write_all_at(&identity.header(), 0).map_err(failed("repair"))?;
    file.sync_data().map_err(failed("sync"))?;
    Ok(Ok(FILE_HEADER_BYTES as u64))
}

/// Writes and syncs bytes of a file whose header is sound.
pub(crate) fn write(shared: &Shared, identity: FileIdentity, offset: u64, bytes: &[u8]) -> Result<(), RepairError> {
    let path = || shared.path(&identity);
    let failed = |doing| move |source| RepairError { doing, path: path(), source };
    let file = shared.disk.open(&path()).map_err(failed("open"))?;
    file.write_all_at(bytes, offset).map_err(failed("repair"))?;
    file.sync_data().map_err(failed("sync"))
}

pub(crate) fn refused(what: &'static str) -> Result<RepairOutcome, RepairError> {
    Ok(RepairOutcome::Refused { what })
}

/// As much is given at once, unless one record is larger.
const GIVEN_BYTES: usize = 128 << 10;
const GIVEN_RECORDS: u64 = 1024;

#[cfg(test)]
mod tests;
