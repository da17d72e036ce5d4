//! The segment writer with what it cannot take yet: a copy waits until its source can be read, and all behind it with it,
//! as the order of the log is the order of the files.

use std::collections::VecDeque;

use mortarmq_node::{CopyWork, SegmentWork};
use mortarmq_shard::MessagePlace;
use mortarmq_storage::{FlushError, SegmentWriter};

use crate::room::{Room, Use};
use crate::segment_thread::SegmentError;
use crate::threads::chain;

/// The segment writer and its backlog, which is empty but on a full disk.
pub(crate) struct Segments {
    pub(crate) writer: SegmentWriter,
    backlog: VecDeque<SegmentWork>,
    backlog_bytes: u64,
}

impl Segments {
    pub(crate) fn new(writer: SegmentWriter) -> Self {
        Self { writer, backlog: VecDeque::new(), backlog_bytes: 0 }
    }

    /// How many bytes are not written, in the writer's memory or in the backlog.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.writer.buffered_bytes() + self.backlog_bytes
    }

    /// Whether something waits that the writer could not take yet.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Takes work, in order.
    pub(crate) fn take(&mut self, work: Vec<SegmentWork>, room: &Room) -> Result<(), SegmentError> {
        let mut work = work.into_iter();
        if self.backlog.is_empty() {
            for item in work.by_ref() {
                if let Some(stuck) = self.take_one(item, room)? {
                    self.put_off(stuck);
                    break;
                }
            }
        }
        work.for_each(|item| self.put_off(item));
        Ok(())
    }

    /// Writes what waits, with room from the reserve if need be, and goes on with the backlog. Gives back what the writer
    /// said when there was no room: that is no failed write, and nothing is lost (failure rule 8).
    pub(crate) fn flush(&mut self, room: &Room) -> Result<Option<FlushError>, SegmentError> {
        loop {
            if let Some(full) = self.write(room)? {
                return Ok(Some(full));
            }
            let Some(item) = self.backlog.pop_front() else { return Ok(None) };
            self.backlog_bytes -= bytes(&item);
            // What it copies can be read now, so it is taken.
            if let Some(stuck) = self.take_one(item, room)? {
                self.backlog_bytes += bytes(&stuck);
                self.backlog.push_front(stuck);
            }
        }
    }

    fn put_off(&mut self, item: SegmentWork) {
        self.backlog_bytes += bytes(&item);
        self.backlog.push_back(item);
    }

    /// Takes one thing; gives it back if it copies what there is no room to write.
    fn take_one(&mut self, item: SegmentWork, room: &Room) -> Result<Option<SegmentWork>, SegmentError> {
        match item {
            SegmentWork::Append(record) => {
                self.writer.append(std::slice::from_ref(&record)).map_err(SegmentError::Append)?;
            }
            SegmentWork::Copy(copy) => return self.append_copy(copy, room),
            SegmentWork::Ledger(event) => {
                self.writer.append_ledger(std::slice::from_ref(&event)).map_err(SegmentError::Append)?;
            }
            SegmentWork::SegmentBytes(bytes) => self.writer.set_segment_bytes(bytes),
            SegmentWork::DropTopic(topic) => self.writer.drop_topic(topic),
        }
        Ok(None)
    }

    /// Makes a record of another one, which must be written before it can be read.
    fn append_copy(&mut self, copy: Box<CopyWork>, room: &Room) -> Result<Option<SegmentWork>, SegmentError> {
        let MessagePlace { topic, partition, seq } = copy.from;
        let reader = self.writer.reader();
        if reader.end_seq(topic, partition) <= seq && self.write(room)?.is_some() {
            return Ok(Some(SegmentWork::Copy(copy)));
        }
        let read = reader.read_records(topic, partition, seq, seq.next(), usize::MAX);
        let source = read.map(|records| records.into_iter().find(|found| found.seq == seq).map(|found| found.record));
        let copied = copy.make(source.map_err(|error| chain(&error)));
        if let Some(reason) = &copied.unreadable {
            tracing::error!(
                topic = topic.to_hex(), %partition, %seq,
                "a dead message cannot be read; its dead letter tells of the damage only: {reason}"
            );
        }
        self.writer.append(std::slice::from_ref(&copied.record)).map_err(SegmentError::Append)?;
        Ok(None)
    }

    fn write(&mut self, room: &Room) -> Result<Option<FlushError>, SegmentError> {
        loop {
            match self.writer.flush() {
                Ok(()) => return Ok(None),
                Err(full @ FlushError::DiskFull { .. }) => {
                    if !room.make(Use::Segments, self.writer.buffered_bytes()) {
                        return Ok(Some(full));
                    }
                }
                Err(error) => return Err(SegmentError::Flush(error)),
            }
        }
    }
}

/// What an item holds in memory, but for its fixed size.
fn bytes(item: &SegmentWork) -> u64 {
    match item {
        SegmentWork::Append(record) => record.record.len() as u64,
        SegmentWork::Ledger(event) => event.payload.len() as u64,
        SegmentWork::Copy(_) | SegmentWork::SegmentBytes(_) | SegmentWork::DropTopic(_) => 0,
    }
}
