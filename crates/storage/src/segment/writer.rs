//! Writing segments, their indexes and ledger files.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use mortarmq_types::{Seq, TopicIncarnation};

use super::files::{Key, SegmentExtent, Shared, View};
use super::layout::{FileIdentity, IndexLine, Kind, POSITION_BYTES, PositionHeader, TOPICS_DIR, closing_crc};
use super::remove::folder_error;
use super::tail::Tail;
use super::written::{Sink, WrittenFiles};
use super::{AppendError, FlushError, FolderError, SegmentOptions, SegmentReader, SegmentRecord};
use crate::disk::{Disk, create_dir_durable};
use crate::ledger::{LedgerRecord, LedgerTail};
use crate::staging::Staging;

/// Owns the segment and ledger files. One thread drives it: `append` and `append_ledger` for each effect, `flush`
/// after each batch of work. Nothing is visible to readers, or on disk, before the flush.
pub struct SegmentWriter {
    pub(super) shared: Arc<Shared>,
    options: SegmentOptions,
    pub(super) partitions: BTreeMap<Key, PartitionTail>,
    /// Partitions with bytes that wait in memory.
    pub(super) waiting: BTreeSet<Key>,
    /// What was written of each file that is kept.
    pub(super) written: WrittenFiles,
    /// Topics that are gone for every reader and whose files wait for the next checkpoint.
    pub(super) dropped: BTreeSet<TopicIncarnation>,
    /// Files that were trimmed and wait for the next checkpoint.
    pub(super) trimmed: Vec<FileIdentity>,
    /// A checkpoint that another node fetches: neither it nor what it lists goes.
    pub(super) held: Option<u64>,
    pub(super) poisoned: bool,
}

/// The files of a partition that are being written; all but the last of each kind are complete.
#[derive(Default)]
pub(super) struct PartitionTail {
    /// The last sequence appended; 0 before the first.
    last_seq: Seq,
    segments: VecDeque<SegmentTail>,
    ledgers: VecDeque<LedgerTail>,
}

struct SegmentTail {
    first_seq: Seq,
    end_seq: Seq,
    records: Tail,
    index: Tail,
}

impl SegmentWriter {
    /// Opens the writer on a data directory. What an earlier process left there is neither read nor touched: call
    /// [`SegmentWriter::restore`] before the first append if there is a checkpoint, [`SegmentWriter::reset`] if not.
    ///
    /// # Errors
    /// [`FolderError::Io`] if the directory for topics cannot be made.
    pub fn open(disk: Arc<dyn Disk>, data_dir: &Path, options: SegmentOptions) -> Result<Self, FolderError> {
        let topics = data_dir.join(TOPICS_DIR);
        create_dir_durable(&*disk, &topics).map_err(folder_error("create", &topics))?;
        let segment_bytes = options.segment_bytes.clamp(1, MAX_SEGMENT_BYTES);
        Ok(Self {
            shared: Arc::new(Shared::new(disk, topics)),
            options: SegmentOptions { segment_bytes, push_bytes: options.push_bytes },
            partitions: BTreeMap::new(),
            waiting: BTreeSet::new(),
            written: WrittenFiles::default(),
            dropped: BTreeSet::new(),
            trimmed: Vec::new(),
            held: None,
            poisoned: false,
        })
    }

    /// Begins new segments and ledger files at this size from now on; what is begun goes on.
    pub fn set_segment_bytes(&mut self, bytes: u64) {
        self.options.segment_bytes = bytes.clamp(1, MAX_SEGMENT_BYTES);
    }

    /// Holds the checkpoint at a log entry for another node that fetches it: the next checkpoints remove neither it nor a file
    /// that it lists. With `None` they do again.
    pub fn hold(&mut self, log_index: Option<u64>) {
        self.held = log_index;
    }

    /// What brings this data directory to another node's checkpoint.
    #[must_use]
    pub fn staging(&self) -> Staging {
        let data_dir = self.shared.topics.parent().expect("the topics lie in the data directory");
        Staging::new(Arc::clone(&self.shared.disk), data_dir)
    }

    /// A reader of what this writer writes.
    #[must_use]
    pub fn reader(&self) -> SegmentReader {
        SegmentReader::new(self.shared.clone())
    }

    /// Takes records, in memory only. On an error the records before the one at fault were taken. A record of a topic
    /// that was dropped is not kept: nobody can ask for it, as its incarnation never comes back.
    ///
    /// # Durability
    /// None, nor visibility, before [`SegmentWriter::flush`]. The journal holds what these records were made from.
    /// # Errors
    /// [`AppendError::OutOfOrder`] if a sequence is not the partition's next (1 for the first): the caller is wrong.
    pub fn append(&mut self, records: &[SegmentRecord]) -> Result<(), AppendError> {
        if self.poisoned {
            return Err(AppendError::Poisoned);
        }
        for record in records.iter().filter(|record| !self.dropped.contains(&record.topic)) {
            let key = (record.topic, record.partition);
            self.partitions.entry(key).or_default().append(record, self.options.segment_bytes)?;
            self.waiting.insert(key);
        }
        Ok(())
    }

    /// Takes ledger records, in memory only. One of a topic that was dropped is not kept.
    ///
    /// # Durability
    /// As [`SegmentWriter::append`].
    /// # Errors
    /// [`AppendError::TooLarge`] for a payload whose length does not fit 32 bits.
    pub fn append_ledger(&mut self, records: &[LedgerRecord]) -> Result<(), AppendError> {
        if self.poisoned {
            return Err(AppendError::Poisoned);
        }
        for record in records.iter().filter(|record| !self.dropped.contains(&record.topic)) {
            let key = (record.topic, record.partition);
            let partition = self.partitions.entry(key).or_default();
            LedgerTail::append(&mut partition.ledgers, record, self.options.segment_bytes)?;
            self.waiting.insert(key);
        }
        Ok(())
    }

    /// How many bytes wait for a flush: the caller bounds this (failure rules 8 and 9).
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        let waiting = self.waiting.iter().filter_map(|key| self.partitions.get(key));
        waiting.map(PartitionTail::buffered_bytes).sum()
    }

    /// Writes all that waits, each file in one write, and makes it visible.
    ///
    /// # Durability
    /// In the system's cache; a file is synced after each `push_bytes` and when it is complete.
    /// # Errors
    /// After [`FlushError::DiskFull`] call again: nothing is lost. Any other error poisons the writer.
    pub fn flush(&mut self) -> Result<(), FlushError> {
        if self.poisoned {
            return Err(FlushError::Poisoned);
        }
        while let Some(key) = self.waiting.first().copied() {
            if let Some(partition) = self.partitions.get_mut(&key) {
                let mut sink = Sink { shared: &self.shared, options: &self.options, written: &mut self.written };
                let flushed = partition.flush(key, &mut sink);
                self.poisoned = matches!(&flushed, Err(error) if !matches!(error, FlushError::DiskFull { .. }));
                flushed?;
            }
            self.waiting.remove(&key);
        }
        Ok(())
    }
}

impl PartitionTail {
    /// Goes on where a checkpoint found a partition.
    pub(super) fn restored((topic, partition): Key, view: &View) -> Self {
        let segment = view.segments.last().map(|extent| {
            let number = extent.first_seq.get();
            let tail = |kind, bytes| Tail::restored(FileIdentity { topic, partition, kind, number }, bytes);
            let (first_seq, end_seq) = (extent.first_seq, extent.end_seq);
            let index = tail(Kind::Index, extent.index_bytes());
            SegmentTail { first_seq, end_seq, records: tail(Kind::Segment, extent.bytes), index }
        });
        let ledger = view.ledgers.last().map(|extent| LedgerTail::restored(topic, partition, extent));
        // Of a segment that holds a record the end is not 0.
        let last_seq = segment.as_ref().map_or(Seq::ZERO, |segment| Seq::new(segment.end_seq.get() - 1));
        Self { last_seq, segments: segment.into_iter().collect(), ledgers: ledger.into_iter().collect() }
    }

    fn append(&mut self, record: &SegmentRecord, segment_bytes: u64) -> Result<(), AppendError> {
        let (topic, partition, expected) = (record.topic, record.partition, self.last_seq.next());
        if record.seq != expected {
            return Err(AppendError::OutOfOrder { topic, partition, expected, found: record.seq });
        }
        let bytes = record.record.len() as u64;
        let too_large = |_| AppendError::TooLarge { bytes, limit: u64::from(u32::MAX) };
        let record_bytes = u32::try_from(bytes).map_err(too_large)?;
        let is_full = |segment: &SegmentTail| segment.records.bytes() + POSITION_BYTES as u64 + bytes > segment_bytes;
        if self.segments.back().is_none_or(is_full) {
            self.segments.push_back(SegmentTail::new(record));
        }
        let segment = self.segments.back_mut().expect("one was pushed if there was none");
        // A record begins below segment_bytes, which is at most MAX_SEGMENT_BYTES, or right behind the header.
        let offset = segment.records.bytes() as u32;
        let SegmentRecord { seq, commit_index, epoch, published_at, .. } = *record;
        let record_crc = closing_crc(&record.record);
        let position = PositionHeader { record_bytes, seq, commit_index, epoch, published_at, record_crc };
        segment.records.push(&position.encode(topic, partition));
        segment.records.push(&record.record);
        segment.index.push(&IndexLine::of(record, offset).encode(topic, partition));
        segment.end_seq = record.seq.next();
        self.last_seq = record.seq;
        Ok(())
    }

    fn buffered_bytes(&self) -> u64 {
        let segment = |tail: &SegmentTail| tail.records.buffered_bytes() + tail.index.buffered_bytes();
        let segments: u64 = self.segments.iter().map(segment).sum();
        segments + self.ledgers.iter().map(|ledger| ledger.tail.buffered_bytes()).sum::<u64>()
    }

    fn flush(&mut self, key: Key, sink: &mut Sink<'_>) -> Result<(), FlushError> {
        loop {
            let complete = self.segments.len() > 1;
            let Some(segment) = self.segments.front_mut() else { break };
            segment.records.write(sink, complete)?;
            segment.index.write(sink, complete)?;
            let (first_seq, end_seq, bytes) = (segment.first_seq, segment.end_seq, segment.records.bytes());
            sink.shared.publish(key, |view| view.put_segment(SegmentExtent { first_seq, end_seq, bytes }));
            if !complete {
                break;
            }
            self.segments.pop_front();
        }
        LedgerTail::flush(&mut self.ledgers, key, sink)
    }
}

impl SegmentTail {
    fn new(first: &SegmentRecord) -> Self {
        let (topic, partition, number) = (first.topic, first.partition, first.seq.get());
        let tail = |kind| Tail::new(FileIdentity { topic, partition, kind, number });
        Self { first_seq: first.seq, end_seq: first.seq, records: tail(Kind::Segment), index: tail(Kind::Index) }
    }
}

/// Offsets in a segment are 32 bits.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
