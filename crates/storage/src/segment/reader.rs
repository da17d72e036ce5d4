//! Reading records and index entries, from any thread, past the shard's loop.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::{Partition, Seq, TopicIncarnation, WallTime};

use super::files::{Key, SegmentExtent, Shared, read_error};
use super::layout::{
    FILE_HEADER_BYTES, FileIdentity, INDEX_ENTRY_BYTES, IndexLine, Kind, POSITION_BYTES, PositionHeader, record_fault,
};
use super::{IndexEntry, ReadError, StoredRecord};
use crate::ledger;
use crate::staging::is_shared;

/// Reads what a [`super::SegmentWriter`] has written. Clones share the writer's list of files.
///
/// A partition that is unknown, or whose topic was dropped, reads as empty.
#[derive(Clone)]
pub struct SegmentReader {
    pub(super) shared: Arc<Shared>,
}

impl SegmentReader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Reads bytes of a file as they are, for another node: of a topic's file or a checkpoint, by its path in the data directory.
    ///
    /// # Errors
    /// [`ReadError::Io`] if there is no such file, or fewer bytes; for every other path, too.
    pub fn read_file(&self, file: &str, offset: u64, bytes: u32) -> Result<Bytes, ReadError> {
        let data_dir = self.shared.topics.parent().expect("the topics lie in the data directory");
        let path = data_dir.join(file);
        let failed = |source| ReadError::Io { path: path.clone(), offset, source };
        if !is_shared(file) {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        let mut buffer = vec![0; bytes as usize];
        let handle = self.shared.disk.open_to_read(&path).map_err(failed)?;
        handle.read_exact_at(&mut buffer, offset).map_err(failed)?;
        Ok(buffer.into())
    }

    /// Reads the records of `from..to` that are written, in order, the first of them always and then as many as fit
    /// `max_bytes`.
    ///
    /// If `from` lies before the first record that is kept, the answer begins with that one. If a record is damaged
    /// or cannot be read, one or more before it are returned; the error comes when it is the first that is asked for.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] if a checksum fails, of the position or of the record: nothing of it is served (P11). A
    /// record whose index entry is damaged is found by those before it. [`ReadError::Io`] if the disk does not give it back.
    pub fn read_records(
        &self,
        topic: TopicIncarnation,
        partition: Partition,
        from: Seq,
        to: Seq,
        max_bytes: usize,
    ) -> Result<Vec<StoredRecord>, ReadError> {
        let key = (topic, partition);
        let mut records: Vec<StoredRecord> = Vec::new();
        let mut left_bytes = max_bytes as u64;
        let mut next = from;
        while let Some(segment) = self.segment_at(key, next).filter(|segment| next.max(segment.first_seq) < to) {
            next = next.max(segment.first_seq);
            let end = to.min(segment.end_seq).min(next.plus(INDEX_STRETCH));
            let limit = Limit { bytes: left_bytes, first_always: records.is_empty() };
            match self.read_stretch(key, segment, next, end, limit) {
                Ok(stretch) => {
                    let Some(last) = stretch.last() else { break };
                    next = last.seq.next();
                    let read: u64 = stretch.iter().map(|record| (POSITION_BYTES + record.record.len()) as u64).sum();
                    left_bytes = left_bytes.saturating_sub(read);
                    records.extend(stretch);
                }
                Err(_) if !records.is_empty() || self.is_gone(key, segment) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    /// The first message of `from..to` that was published at this time or later by the leader's wall clock; `to` if none was.
    ///
    /// It looks at about as many records as `to` has binary digits. The wall clock may have gone back between two
    /// messages: then the answer is one of the places where it passed the time.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] if a record that is looked at fails its checksum.
    pub fn first_since(
        &self,
        topic: TopicIncarnation,
        partition: Partition,
        from: Seq,
        to: Seq,
        time: WallTime,
    ) -> Result<Seq, ReadError> {
        let (mut low, mut high) = (from.get(), to.get());
        while low < high {
            let middle = low + (high - low) / 2;
            let records = self.read_records(topic, partition, Seq::new(middle), Seq::new(high), 0)?;
            match records.first() {
                Some(record) if record.published_at < time => low = record.seq.get() + 1,
                Some(_) | None => high = middle,
            }
        }
        Ok(Seq::new(low))
    }

    /// Reads the index entries from `from` on that are written, at most `max`.
    ///
    /// If `from` lies before the first record that is kept, the answer begins with that one. Damage is met as in
    /// [`SegmentReader::read_records`].
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] if the first entry fails its checksum.
    pub fn read_index(
        &self,
        topic: TopicIncarnation,
        partition: Partition,
        from: Seq,
        max: usize,
    ) -> Result<Vec<IndexEntry>, ReadError> {
        let key = (topic, partition);
        let mut entries: Vec<IndexEntry> = Vec::new();
        let mut next = from;
        while let Some(segment) = self.segment_at(key, next).filter(|_| entries.len() < max) {
            next = next.max(segment.first_seq);
            let left = ((max - entries.len()) as u64).min(INDEX_STRETCH);
            match self.read_lines(key, segment, next, segment.end_seq.min(next.plus(left))) {
                Ok(lines) => {
                    next = next.plus(lines.len() as u64);
                    entries.extend(lines.iter().map(|line| line.entry));
                }
                Err(_) if !entries.is_empty() || self.is_gone(key, segment) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    /// Reads every ledger payload whose range of sequences holds `seq`, in the order in which they were appended. The
    /// ledger is scanned in pieces, so memory is bounded by what is found.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] if an entry's header, or a payload that is asked for, fails its checksum.
    pub fn read_ledger(
        &self,
        topic: TopicIncarnation,
        partition: Partition,
        seq: Seq,
    ) -> Result<Vec<Bytes>, ReadError> {
        let key = (topic, partition);
        match ledger::read(&self.shared, key, seq) {
            Err(_) if self.shared.view(key, |_| ()).is_none() => Ok(Vec::new()),
            read => read,
        }
    }

    /// How many bytes of the partition are written: segments, indexes and ledger.
    #[must_use]
    pub fn partition_bytes(&self, topic: TopicIncarnation, partition: Partition) -> u64 {
        self.shared.view((topic, partition), super::View::bytes).unwrap_or(0)
    }

    /// The sequence after the last record that is written: [`Seq::FIRST`] if there is none.
    #[must_use]
    pub fn end_seq(&self, topic: TopicIncarnation, partition: Partition) -> Seq {
        let last = self.shared.view((topic, partition), |view| view.segments.last().map(|segment| segment.end_seq));
        last.flatten().unwrap_or(Seq::FIRST)
    }

    pub(super) fn segment_at(&self, key: Key, seq: Seq) -> Option<SegmentExtent> {
        self.shared.view(key, |view| view.segment_at(seq)).flatten()
    }

    /// Whether a segment is no longer kept, which explains a failed read of it.
    fn is_gone(&self, key: Key, segment: SegmentExtent) -> bool {
        self.segment_at(key, segment.first_seq).is_none_or(|found| found.first_seq != segment.first_seq)
    }

    /// Reads records of one segment with one read of it. Those before a damaged one are returned.
    fn read_stretch(
        &self,
        (topic, partition): Key,
        segment: SegmentExtent,
        from: Seq,
        to: Seq,
        limit: Limit,
    ) -> Result<Vec<StoredRecord>, ReadError> {
        let identity = FileIdentity { topic, partition, kind: Kind::Segment, number: segment.first_seq.get() };
        // Made only to say what is wrong: it costs more than reading a few records.
        let path = || self.shared.path(&identity);
        // One line more than asked for: where it begins, the last record asked for ends.
        let lines = match self.read_lines((topic, partition), segment, from, segment.end_seq.min(to.next())) {
            Ok(lines) => lines,
            Err(damage) => return self.read_past_index((topic, partition), segment, from, limit, damage),
        };
        let start = u64::from(lines.first().map_or(0, |line| line.offset));
        let mut ends: Vec<u64> = lines.iter().skip(1).map(|line| u64::from(line.offset)).collect();
        if from.plus(lines.len() as u64) == segment.end_seq {
            ends.push(segment.bytes);
        }
        ends.truncate(to.above(from) as usize);
        let fitting = ends.iter().take_while(|end| end.saturating_sub(start) <= limit.bytes).count();
        let end = match fitting.checked_sub(1) {
            Some(last) => ends[last],
            None if !limit.first_always => return Ok(Vec::new()),
            None => match ends.first() {
                Some(end) => *end,
                // The next index entry is damaged, which is no reason to hold back this record.
                None => self.end_by_position(identity, start)?,
            },
        };
        if start < FILE_HEADER_BYTES as u64 || end <= start || end > segment.bytes {
            return Err(ReadError::Corrupt {
                path: path(),
                offset: start,
                what: "the index points outside the segment",
            });
        }
        let mut bytes = vec![0; (end - start) as usize];
        let file = self.shared.open(identity)?;
        match file.read_exact_at(&mut bytes, start) {
            // A later record may be what cannot be read, which is no reason to hold back this one.
            Err(_) if to > from.next() => {
                return self.read_stretch((topic, partition), segment, from, from.next(), limit);
            }
            read => read.map_err(|source| read_error(&path(), start, source))?,
        }
        let mut rest = Bytes::from(bytes);
        let mut records = Vec::new();
        let mut seq = from;
        while !rest.is_empty() && seq < to {
            let offset = end - rest.len() as u64;
            match split_record(&mut rest, seq, topic, partition) {
                Ok(record) => records.push(record),
                Err(_) if !records.is_empty() => break,
                Err(what) => return Err(ReadError::Corrupt { path: path(), offset, what }),
            }
            seq = seq.next();
        }
        Ok(records)
    }

    /// Reads one record whose index entry is damaged: the records before it lead there. Without a way, the damage.
    fn read_past_index(
        &self,
        (topic, partition): Key,
        segment: SegmentExtent,
        seq: Seq,
        limit: Limit,
        damage: ReadError,
    ) -> Result<Vec<StoredRecord>, ReadError> {
        let identity = FileIdentity { topic, partition, kind: Kind::Segment, number: segment.first_seq.get() };
        let (mut at, mut offset) = self.sound_line_before((topic, partition), segment, seq);
        while at < seq {
            let Ok(end) = self.end_by_position(identity, offset) else { return Err(damage) };
            (at, offset) = (at.next(), end);
        }
        let Ok(end) = self.end_by_position(identity, offset) else { return Err(damage) };
        if end > segment.bytes {
            return Err(damage);
        }
        if !limit.first_always && end - offset > limit.bytes {
            return Ok(Vec::new());
        }
        let path = || self.shared.path(&identity);
        let mut bytes = vec![0; (end - offset) as usize];
        let file = self.shared.open(identity)?;
        file.read_exact_at(&mut bytes, offset).map_err(|source| read_error(&path(), offset, source))?;
        split_record(&mut Bytes::from(bytes), seq, topic, partition)
            .map(|record| vec![record])
            .map_err(|what| ReadError::Corrupt { path: path(), offset, what })
    }

    /// The nearest record before one whose place the index still tells; else the segment's first.
    pub(super) fn sound_line_before(&self, key: Key, segment: SegmentExtent, seq: Seq) -> (Seq, u64) {
        let mut before = seq;
        for _ in 0..LINES_BACK {
            if before <= segment.first_seq {
                break;
            }
            before = Seq::new(before.get() - 1);
            if let Ok(lines) = self.read_lines(key, segment, before, before.next())
                && let Some(line) = lines.first()
            {
                return (before, u64::from(line.offset));
            }
        }
        (segment.first_seq, FILE_HEADER_BYTES as u64)
    }

    /// Where a record ends, by its own header.
    fn end_by_position(&self, identity: FileIdentity, start: u64) -> Result<u64, ReadError> {
        let path = || self.shared.path(&identity);
        let mut header = [0; POSITION_BYTES];
        let file = self.shared.open(identity)?;
        file.read_exact_at(&mut header, start).map_err(|source| read_error(&path(), start, source))?;
        let position = PositionHeader::parse(&header, identity.topic, identity.partition);
        position
            .map(|position| start + POSITION_BYTES as u64 + u64::from(position.record_bytes))
            .ok_or_else(|| ReadError::Corrupt { path: path(), offset: start, what: "the position fails its checksum" })
    }

    /// Reads index lines of one segment. Those before a damaged one are returned.
    pub(super) fn read_lines(
        &self,
        (topic, partition): Key,
        segment: SegmentExtent,
        from: Seq,
        to: Seq,
    ) -> Result<Vec<IndexLine>, ReadError> {
        let identity = FileIdentity { topic, partition, kind: Kind::Index, number: segment.first_seq.get() };
        let path = || self.shared.path(&identity);
        let line_bytes = INDEX_ENTRY_BYTES as u64;
        let start = FILE_HEADER_BYTES as u64 + from.above(segment.first_seq) * line_bytes;
        let mut bytes = vec![0; (to.above(from) * line_bytes) as usize];
        let file = self.shared.open(identity)?;
        match file.read_exact_at(&mut bytes, start) {
            // As for records.
            Err(_) if to > from.next() => return self.read_lines((topic, partition), segment, from, from.next()),
            read => read.map_err(|source| read_error(&path(), start, source))?,
        }
        let mut lines = Vec::with_capacity(bytes.len() / INDEX_ENTRY_BYTES);
        for (line, seq) in bytes.chunks_exact(INDEX_ENTRY_BYTES).zip(from.get()..) {
            match IndexLine::parse(line, Seq::new(seq), topic, partition) {
                Some(line) => lines.push(line),
                None if !lines.is_empty() => break,
                None => {
                    let what = "the index entry fails its checksum";
                    return Err(ReadError::Corrupt { path: path(), offset: start, what });
                }
            }
        }
        Ok(lines)
    }
}

/// How much one call may still read.
#[derive(Clone, Copy)]
struct Limit {
    bytes: u64,
    /// Whether one record is read even if it is larger.
    first_always: bool,
}

/// Takes the next record off the bytes of a segment, or says why it must not be served.
fn split_record(
    rest: &mut Bytes,
    seq: Seq,
    topic: TopicIncarnation,
    partition: Partition,
) -> Result<StoredRecord, &'static str> {
    let position = PositionHeader::parse(rest, topic, partition).ok_or("the position fails its checksum")?;
    if position.seq != seq {
        return Err("the record belongs to another sequence");
    }
    let end = POSITION_BYTES + position.record_bytes as usize;
    if rest.len() < end {
        return Err("the record is longer than the index says");
    }
    let record = rest.split_to(end).slice(POSITION_BYTES..);
    if let Some(fault) = record_fault(&record, &position) {
        return Err(fault);
    }
    let PositionHeader { commit_index, epoch, published_at, .. } = position;
    Ok(StoredRecord { seq, commit_index, epoch, published_at, record })
}

/// Index entries that are looked at, backwards, for one that is sound.
const LINES_BACK: u64 = 64;
/// Index entries read at once: 96 KiB.
const INDEX_STRETCH: u64 = 4096;
