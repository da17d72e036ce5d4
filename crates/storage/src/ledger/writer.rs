//! Writing ledger files.

use std::collections::VecDeque;

use mortarmq_types::{Partition, Seq, TopicIncarnation};

use super::layout::{ENTRY_BYTES, EntryHeader};
use super::{LedgerExtent, LedgerRecord};
use crate::segment::{AppendError, FileIdentity, FlushError, Kind, Sink, Tail};

/// A ledger file that is being written.
pub(crate) struct LedgerTail {
    pub(crate) tail: Tail,
    lowest_seq: Seq,
    end_seq: Seq,
}

impl LedgerTail {
    /// A file that a checkpoint lists and that goes on behind the listed bytes.
    pub(crate) fn restored(topic: TopicIncarnation, partition: Partition, extent: &LedgerExtent) -> Self {
        let identity = FileIdentity { topic, partition, kind: Kind::Ledger, number: extent.number };
        let LedgerExtent { bytes, lowest_seq, end_seq, .. } = *extent;
        Self { tail: Tail::restored(identity, bytes), lowest_seq, end_seq }
    }

    /// Takes a record into the last of a partition's ledger files, or begins the next.
    pub(crate) fn append(
        ledgers: &mut VecDeque<Self>,
        record: &LedgerRecord,
        file_bytes: u64,
    ) -> Result<(), AppendError> {
        let bytes = record.payload.len() as u64;
        let too_large = |_| AppendError::TooLarge { bytes, limit: u64::from(u32::MAX) };
        let payload_bytes = u32::try_from(bytes).map_err(too_large)?;
        let is_full = |ledger: &Self| ledger.tail.bytes() + ENTRY_BYTES as u64 + bytes > file_bytes;
        if ledgers.back().is_none_or(is_full) {
            let number = ledgers.back().map_or(1, |ledger| ledger.tail.identity.number + 1);
            let (topic, partition, kind) = (record.topic, record.partition, Kind::Ledger);
            let tail = Tail::new(FileIdentity { topic, partition, kind, number });
            ledgers.push_back(Self { tail, lowest_seq: Seq::MAX, end_seq: Seq::ZERO });
        }
        let ledger = ledgers.back_mut().expect("one was pushed if there was none");
        let LedgerRecord { first_seq, count, .. } = *record;
        let payload_crc = crc32c::crc32c(&record.payload);
        let header = EntryHeader { payload_bytes, count, first_seq, payload_crc };
        ledger.tail.push(&header.encode(record.topic, record.partition));
        ledger.tail.push(&record.payload);
        ledger.lowest_seq = ledger.lowest_seq.min(first_seq);
        ledger.end_seq = ledger.end_seq.max(Seq::new(first_seq.get().saturating_add(u64::from(count))));
        Ok(())
    }

    /// Writes what waits for a partition's ledger files and makes it visible.
    pub(crate) fn flush(
        ledgers: &mut VecDeque<Self>,
        key: (TopicIncarnation, Partition),
        sink: &mut Sink<'_>,
    ) -> Result<(), FlushError> {
        loop {
            let complete = ledgers.len() > 1;
            let Some(ledger) = ledgers.front_mut() else { return Ok(()) };
            ledger.tail.write(sink, complete)?;
            let extent = LedgerExtent {
                number: ledger.tail.identity.number,
                bytes: ledger.tail.bytes(),
                lowest_seq: ledger.lowest_seq,
                end_seq: ledger.end_seq,
            };
            sink.shared.publish(key, |view| view.put_ledger(extent));
            if !complete {
                return Ok(());
            }
            ledgers.pop_front();
        }
    }
}
