//! PUB_BATCH: publishes several records, all or nothing.

use bytes::BytesMut;
use mortarmq_types::{CommitIndex, Epoch, Partition, Position, ProducerId, ProducerSeq, Seq};

use super::publish::{PublishOptions, check_producer, read_record, read_result_flags, write_record};
use crate::body::RecordBody;
use crate::decode::Reader;
use crate::encode::FrameWriter;
use crate::faults::{DecodeError, EncodeError};
use crate::frame::MAX_BATCH_ITEMS;
use crate::list::{List, ListItem};
use crate::op::Op;

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishBatch<'a> {
    /// The connection's handle for the topic.
    pub topic_id: u16,
    /// The partition of all records, or [`Partition::ANY`]: each by its key, else round-robin.
    pub partition: Partition,
    /// The producer; 0 with a `first_producer_seq` of 0 is "not idempotent".
    pub producer_id: ProducerId,
    /// The producer's number for the first record; each of the others has the next one.
    pub first_producer_seq: ProducerSeq,
    /// 1 to 1024 records.
    pub records: List<'a, PublishRecord<'a>>,
}

/// A record of a batch: the fields of PUB from flags on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishRecord<'a> {
    /// Key, headers and value.
    pub body: RecordBody<'a>,
    /// What else the flags say.
    pub options: PublishOptions<'a>,
}

impl<'a> PublishBatch<'a> {
    /// Decodes the payload; every record is checked.
    ///
    /// # Errors
    /// As PUB, and malformed for flags, of which none exist, and for a count outside `1..=1024`.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let topic_id = reader.u16("topic_id")?;
        let partition = Partition::new(reader.u16("partition")?);
        let producer_id = ProducerId::new(reader.u64("producer_id")?);
        let first_producer_seq = ProducerSeq::new(reader.u64("first_producer_seq")?);
        reader.flags("PUB_BATCH flags", 0)?;
        let count = read_batch_count(&mut reader, "PUB_BATCH count")?;
        let records = List::read(&mut reader, usize::from(count))?;
        check_producer(producer_id, first_producer_seq, count)?;
        Ok(Self { topic_id, partition, producer_id, first_producer_seq, records })
    }

    /// Appends the whole frame.
    ///
    /// # Errors
    /// A count outside `1..=1024`, a bad idempotency key, or more than a frame holds; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::frame(out, Op::PublishBatch);
        writer.u16(self.topic_id);
        writer.u16(self.partition.get());
        writer.u64(self.producer_id.get());
        writer.u64(self.first_producer_seq.get());
        writer.u16(0);
        write_batch(&mut writer, "PUB_BATCH count", &self.records);
        writer.finish()
    }
}

impl<'a> ListItem<'a> for PublishRecord<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        read_record(reader).map(|(body, options)| Self { body, options })
    }

    fn write(&self, writer: &mut FrameWriter<'_>) {
        write_record(writer, &self.body, &self.options);
    }
}

/// The OK result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishBatchOk<'a> {
    /// One for each record of the request, in its order.
    pub records: List<'a, RecordOk>,
    /// What the answer rests on; the commit index is the publish command's own.
    pub position: Position,
}

/// Where a record of a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOk {
    /// The partition that holds it.
    pub partition: Partition,
    /// Its sequence there.
    pub seq: Seq,
    /// Whether this is the first answer to an earlier publish of the same record (P3).
    pub deduplicated: bool,
}

impl<'a> PublishBatchOk<'a> {
    /// Decodes the result of a batch of `record_count` records: the number is not in the result.
    ///
    /// # Errors
    /// Malformed when it ends early or a flag is unknown.
    pub fn decode(result: &'a [u8], record_count: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(result);
        let records = List::read(&mut reader, record_count)?;
        let epoch = Epoch::new(reader.u64("leader_epoch")?);
        let commit_index = CommitIndex::new(reader.u64("commit_seq")?);
        Ok(Self { records, position: Position { epoch, commit_index } })
    }

    /// Appends the whole OK frame.
    ///
    /// # Errors
    /// A count outside `1..=1024`; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::ok(out, Op::PublishBatch);
        check_batch_count(&mut writer, "records", self.records.len());
        self.records.write(&mut writer);
        writer.position(self.position);
        writer.finish()
    }
}

impl ListItem<'_> for RecordOk {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            partition: Partition::new(reader.u16("partition")?),
            seq: Seq::new(reader.u64("sequence")?),
            deduplicated: read_result_flags(reader)?,
        })
    }

    fn write(&self, writer: &mut FrameWriter<'_>) {
        writer.u16(self.partition.get());
        writer.u64(self.seq.get());
        writer.u8(u8::from(self.deduplicated));
    }
}

/// Reads the count of a batch: 1 to 1024.
pub(super) fn read_batch_count(reader: &mut Reader<'_>, field: &'static str) -> Result<u16, DecodeError> {
    let found = reader.u16(field)?;
    if found == 0 || usize::from(found) > MAX_BATCH_ITEMS {
        return Err(DecodeError::BatchCount { field, found });
    }
    Ok(found)
}

/// Writes count and items of a batch.
pub(super) fn write_batch<'a, T: ListItem<'a>>(writer: &mut FrameWriter<'_>, field: &'static str, items: &List<'a, T>) {
    check_batch_count(writer, field, items.len());
    writer.list16(field, items);
}

/// Makes the frame fail when the count is not 1 to 1024.
pub(super) fn check_batch_count(writer: &mut FrameWriter<'_>, field: &'static str, found: usize) {
    if found == 0 || found > MAX_BATCH_ITEMS {
        writer.fail(EncodeError::BatchCount { field, found });
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use mortarmq_types::{Partition, Position, ProducerId, ProducerSeq, Seq};

    use super::{PublishBatch, PublishBatchOk, PublishRecord, RecordOk};
    use crate::body::RecordBody;
    use crate::errors::ErrorCode;
    use crate::faults::{DecodeError, EncodeError};
    use crate::frame::MAX_BATCH_ITEMS;
    use crate::list::List;
    use crate::ops::publish::PublishOptions;

    fn batch<'a>(first_producer_seq: u64, records: &'a [PublishRecord<'a>]) -> PublishBatch<'a> {
        let producer_id = ProducerId::new(u64::from(first_producer_seq != 0));
        let first_producer_seq = ProducerSeq::new(first_producer_seq);
        let records = List::from(records);
        PublishBatch { topic_id: 1, partition: Partition::ANY, producer_id, first_producer_seq, records }
    }

    fn empty_record() -> PublishRecord<'static> {
        let (body, _) = RecordBody::parse(&[0; 6], false).expect("an empty body");
        PublishRecord { body, options: PublishOptions::default() }
    }

    #[test]
    fn batch_holds_1_to_1024_records_both_ways() {
        let records = vec![empty_record(); MAX_BATCH_ITEMS + 1];
        for (count, fits) in [(0, false), (1, true), (1024, true), (1025, false)] {
            let mut out = BytesMut::from(b"before".as_slice());
            let encoded = batch(0, &records[..count]).encode(&mut out);
            assert_eq!(encoded.is_ok(), fits, "{count}");
            assert!(fits || out == b"before".as_slice());
            let mut payload = [0; 24].to_vec();
            payload[22..24].copy_from_slice(&u16::try_from(count).unwrap().to_be_bytes());
            payload.extend(std::iter::repeat_n(0, 8 * count));
            let decoded = PublishBatch::decode(&payload).map(|batch| batch.records.len()).map_err(DecodeError::code);
            assert_eq!(decoded, if fits { Ok(count) } else { Err(ErrorCode::MalformedPayload) }, "{count}");
        }
        let answers = vec![RecordOk { partition: Partition::ZERO, seq: Seq::FIRST, deduplicated: false }; 1025];
        for (count, fits) in [(0, false), (1, true), (1024, true), (1025, false)] {
            let ok = PublishBatchOk { records: List::from(&answers[..count]), position: Position::default() };
            assert_eq!(ok.encode(&mut BytesMut::new()).is_ok(), fits, "{count}");
        }
    }

    #[test]
    fn p10_batch_whose_numbers_would_wrap_never_reaches_the_broker() {
        let records = [empty_record(); 3];
        let sent = |first_producer_seq| {
            let mut out = BytesMut::new();
            batch(first_producer_seq, &records).encode(&mut out).expect("fits");
            PublishBatch::decode(&out[5..]).map(|batch| batch.first_producer_seq.get()).map_err(DecodeError::code)
        };
        assert_eq!(sent(u64::MAX - 3), Ok(u64::MAX - 3));
        assert_eq!(sent(u64::MAX - 2), Err(ErrorCode::ProducerSeqInvalid));
    }

    #[test]
    fn batch_over_a_frame_leaves_the_buffer_as_it_was() {
        let mut bytes = BytesMut::new();
        crate::body::write_body(&mut bytes, b"", None, &vec![0; 6 << 20]).expect("within the limits");
        let (body, _) = RecordBody::parse(&bytes, false).expect("within the limits");
        let records = [PublishRecord { body, options: PublishOptions::default() }; 3];
        let mut out = BytesMut::from(b"before".as_slice());
        assert!(matches!(batch(0, &records).encode(&mut out), Err(EncodeError::TooLarge { .. })));
        assert_eq!(out, b"before".as_slice());
        assert_eq!(batch(0, &records[..2]).encode(&mut out), Ok(()));
    }
}
