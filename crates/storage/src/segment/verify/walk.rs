//! The walk through a file of a partition, entry by entry.

use std::io;
use std::path::Path;

use mortarmq_types::Seq;

use super::checked::{Checked, Extent, Missing};
use super::lines::Lines;
use crate::disk::Disk;
use crate::ledger;
use crate::segment::layout::{
    FILE_HEADER_BYTES, FileIdentity, INDEX_ENTRY_BYTES, IndexLine, Kind, POSITION_BYTES, PositionHeader, record_fault,
};
use crate::verify::Report;

/// A check of one file that can pause behind every entry: whoever drives it says how fast it goes.
pub(crate) struct Walk {
    checked: Checked,
    lines: Option<Lines>,
    next: Next,
}

/// What the next step looks at.
#[derive(Clone, Copy)]
enum Next {
    /// This record of a segment, which begins here.
    Record(Seq, u64),
    /// The line of this record, for the first that leads to a record behind a damaged one, which began here.
    Behind(Seq, u64),
    /// The line of this record in an index, here.
    Line(Seq, u64),
    /// The entry of a ledger that begins here.
    Entry(u64),
    /// The file as a whole.
    Whole,
    /// Nothing more.
    End,
}

impl Walk {
    /// Opens a file; nothing if it is not to be read, which is told then. `index` is the extent of the index of the
    /// same number, for a segment.
    pub(crate) fn open(
        disk: &dyn Disk,
        data_dir: &Path,
        identity: FileIdentity,
        extent: Extent<'_>,
        index: Option<Extent<'_>>,
        report: &mut Report<'_>,
    ) -> Result<Option<Self>, Missing> {
        let Some(checked) = Checked::open(disk, data_dir, identity, extent, report)? else { return Ok(None) };
        let (first, begin) = (Seq::new(identity.number), FILE_HEADER_BYTES as u64);
        let (next, lines) = match (identity.kind, index) {
            (Kind::Segment, Some(extent)) => {
                let lines = Lines::open(disk, data_dir, identity.of_kind(Kind::Index), extent);
                (Next::Record(first, begin), lines)
            }
            (Kind::Segment, None) => (Next::Record(first, begin), None),
            (Kind::Index, _) => (Next::Line(first, begin), None),
            (Kind::Ledger, _) => (Next::Entry(begin), None),
        };
        Ok(Some(Self { checked, lines, next }))
    }

    /// Checks one more entry and says how many bytes that were; none at the end.
    pub(crate) fn step(&mut self, report: &mut Report<'_>) -> Option<u64> {
        let file_bytes = self.checked.file_bytes();
        let stepped = match self.next {
            Next::Record(_, offset) | Next::Line(_, offset) | Next::Entry(offset) if offset >= file_bytes => {
                Ok((Next::Whole, 0))
            }
            Next::Record(seq, offset) => self.record(seq, offset, report),
            Next::Behind(seq, offset) => Ok((self.behind(seq, offset), INDEX_ENTRY_BYTES as u64)),
            Next::Line(seq, offset) => self.line(seq, offset, report),
            Next::Entry(offset) => ledger::check_entry(&mut self.checked, offset, report)
                .map(|end| end.map_or((Next::Whole, 0), |end| (Next::Entry(end), end - offset))),
            Next::Whole => {
                self.checked.compare(report).map(|read| read.map_or((Next::End, 0), |bytes| (Next::Whole, bytes)))
            }
            Next::End => return None,
        };
        let (next, bytes) = stepped.unwrap_or_else(|error| {
            self.checked.unreadable(&error, report);
            (Next::End, 0)
        });
        self.next = next;
        Some(bytes)
    }

    /// Checks a record, and that the index says where it begins.
    fn record(&mut self, seq: Seq, offset: u64, report: &mut Report<'_>) -> io::Result<(Next, u64)> {
        if let Some(lines) = &mut self.lines {
            lines.compare(seq, offset, report);
        }
        let (end, wrong) = read_record(&mut self.checked, offset, seq)?;
        let bytes = end.map_or(POSITION_BYTES as u64, |end| end - offset) + INDEX_ENTRY_BYTES as u64;
        if let Some(what) = wrong
            && !self.checked.found(offset, Some(seq), format!("record {seq}: {what}"), report)
        {
            return Ok((Next::Whole, bytes));
        }
        let next = after(seq, |seq| end.map_or(Next::Behind(seq, offset), |end| Next::Record(seq, end)));
        Ok((next, bytes))
    }

    /// Where to go on behind a record that does not say where it ends.
    fn behind(&mut self, seq: Seq, damaged: u64) -> Next {
        let file_bytes = self.checked.file_bytes();
        let Some(lines) = self.lines.as_mut().filter(|lines| lines.place(seq).is_some()) else { return Next::Whole };
        match lines.offset(seq) {
            Some(begin) if begin > damaged && begin < file_bytes => Next::Record(seq, begin),
            _ => after(seq, |seq| Next::Behind(seq, damaged)),
        }
    }

    /// Checks a line of an index.
    fn line(&mut self, seq: Seq, offset: u64, report: &mut Report<'_>) -> io::Result<(Next, u64)> {
        let identity = self.checked.identity;
        let line = self.checked.read(offset, INDEX_ENTRY_BYTES)?;
        if IndexLine::parse(line, seq, identity.topic, identity.partition).is_none() {
            let what = format!("the line of record {seq} fails its checksum");
            if !self.checked.found(offset, None, what, report) {
                return Ok((Next::Whole, INDEX_ENTRY_BYTES as u64));
            }
        }
        let end = offset + INDEX_ENTRY_BYTES as u64;
        Ok((after(seq, |seq| Next::Line(seq, end)), INDEX_ENTRY_BYTES as u64))
    }
}

/// What comes next, with the sequence after this one. A file's name is no reason to trust that there is one.
fn after(seq: Seq, next: impl FnOnce(Seq) -> Next) -> Next {
    seq.get().checked_add(1).map_or(Next::Whole, |seq| next(Seq::new(seq)))
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
    Ok((Some(end), record_fault(checked.read(begin, position.record_bytes as usize)?, &position)))
}
