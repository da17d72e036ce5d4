//! PUB: publishes one record.

use bytes::BytesMut;
use mortarmq_types::{CommitIndex, Epoch, Partition, Position, ProducerId, ProducerSeq, Seq};

use crate::body::{MAX_BODY_LEN, RecordBody};
use crate::decode::Reader;
use crate::encode::{FrameWriter, SizedFrame};
use crate::faults::{DecodeError, EncodeError};
use crate::frame::MAX_FRAME_LEN;
use crate::op::Op;

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// The connection's handle for the topic.
    pub topic_id: u16,
    /// The partition, or [`Partition::ANY`]: by key, else round-robin.
    pub partition: Partition,
    /// The producer; 0 with a `producer_seq` of 0 is "not idempotent".
    pub producer_id: ProducerId,
    /// The producer's number for this record.
    pub producer_seq: ProducerSeq,
    /// Key, headers and value.
    pub body: RecordBody<'a>,
    /// What else the flags say.
    pub options: PublishOptions<'a>,
}

/// The parts of a record that a publish may leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishOptions<'a> {
    /// How long until the message may be delivered.
    pub delay_ms: Option<u64>,
    /// How long the message may wait. When decoded never `Some(0)`: 0 on the wire is the topic's own.
    pub ttl_ms: Option<u64>,
    /// Inside its window, a key of the topic is stored once (P3). 1 to 255 bytes.
    pub idempotency_key: Option<&'a [u8]>,
}

impl<'a> Publish<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed, too large, or a producer with only one of its two numbers.
    /// # Source
    /// docs/reference/wire.md, rule 1.
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let topic_id = reader.u16("topic_id")?;
        let partition = Partition::new(reader.u16("partition")?);
        let producer_id = ProducerId::new(reader.u64("producer_id")?);
        let producer_seq = ProducerSeq::new(reader.u64("producer_seq")?);
        let (body, options) = read_record(&mut reader)?;
        check_producer(producer_id, producer_seq, 1)?;
        Ok(Self { topic_id, partition, producer_id, producer_seq, body, options })
    }

    /// Appends the whole frame.
    ///
    /// # Errors
    /// An idempotency key that is empty or over 255 bytes; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        out.reserve(MAX_HEAD_LEN + self.body.bytes().len());
        let mut writer = FrameWriter::frame(out, Op::Publish);
        writer.u16(self.topic_id);
        writer.u16(self.partition.get());
        writer.u64(self.producer_id.get());
        writer.u64(self.producer_seq.get());
        write_record(&mut writer, &self.body, &self.options);
        writer.finish()
    }
}

/// The OK result. It is sent only after the record is on the disks of a majority (P1), so its durability, which is the
/// only one of this version, is not a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishOk {
    /// The record's sequence in its partition.
    pub seq: Seq,
    /// What the answer rests on; the commit index is the publish command's own (`commit_seq`).
    pub position: Position,
    /// Whether this is the first answer to an earlier publish of the same record (P3).
    pub deduplicated: bool,
    /// The partition that holds the record.
    pub partition: Partition,
}

impl PublishOk {
    /// Decodes the result.
    ///
    /// # Errors
    /// Malformed when it ends early, when a flag is unknown, and when the durability is not a majority's: a client must
    /// not take a weaker promise for P1.
    #[inline]
    pub fn decode(result: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(result);
        let seq = Seq::new(reader.u64("sequence")?);
        let durability = reader.u8("durability")?;
        if durability != DURABILITY_QUORUM {
            let found = u64::from(durability);
            return Err(DecodeError::UnknownValue { field: "durability", found, allowed: "1 (quorum)" });
        }
        let epoch = Epoch::new(reader.u64("leader_epoch")?);
        let commit_index = CommitIndex::new(reader.u64("commit_seq")?);
        let deduplicated = read_result_flags(&mut reader)?;
        let partition = Partition::new(reader.u16("partition")?);
        Ok(Self { seq, position: Position { epoch, commit_index }, deduplicated, partition })
    }

    /// Appends the whole OK frame.
    #[inline]
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::ok(out, Op::Publish, 28)
            .u64(self.seq.get())
            .u8(DURABILITY_QUORUM)
            .position(self.position)
            .u8(u8::from(self.deduplicated))
            .u16(self.partition.get())
            .finish();
    }
}

/// Reads the fields of PUB from flags on, which PUB_BATCH repeats per record.
#[inline]
pub(super) fn read_record<'a>(reader: &mut Reader<'a>) -> Result<(RecordBody<'a>, PublishOptions<'a>), DecodeError> {
    let flags = reader.flags("PUB flags", KNOWN_FLAGS)?;
    let (body, rest) = RecordBody::parse(reader.rest(), flags & FLAG_HEADERS != 0)?;
    *reader = Reader::new(rest);
    if flags & !FLAG_HEADERS == 0 {
        return Ok((body, PublishOptions::default()));
    }
    let mut options = PublishOptions::default();
    if flags & FLAG_DELAY != 0 {
        options.delay_ms = Some(reader.u64("delay_ms")?);
    }
    if flags & FLAG_TTL != 0 {
        options.ttl_ms = Some(reader.u64("ttl_ms")?).filter(|ttl_ms| *ttl_ms != 0);
    }
    if flags & FLAG_IDEMPOTENCY_KEY != 0 {
        let key = reader.bytes8(IDEMPOTENCY_KEY)?;
        if key.is_empty() {
            return Err(DecodeError::Empty { field: IDEMPOTENCY_KEY });
        }
        options.idempotency_key = Some(key);
    }
    Ok((body, options))
}

/// Writes the fields of PUB from flags on.
#[inline]
pub(super) fn write_record(writer: &mut FrameWriter<'_>, body: &RecordBody<'_>, options: &PublishOptions<'_>) {
    let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
    writer.u16(
        flag(body.has_headers(), FLAG_HEADERS)
            | flag(options.delay_ms.is_some(), FLAG_DELAY)
            | flag(options.ttl_ms.is_some(), FLAG_TTL)
            | flag(options.idempotency_key.is_some(), FLAG_IDEMPOTENCY_KEY),
    );
    writer.raw(body.bytes());
    if let Some(delay_ms) = options.delay_ms {
        writer.u64(delay_ms);
    }
    if let Some(ttl_ms) = options.ttl_ms {
        writer.u64(ttl_ms);
    }
    if let Some(key) = options.idempotency_key {
        if key.is_empty() {
            writer.fail(EncodeError::Empty { field: IDEMPOTENCY_KEY });
        }
        writer.bytes8("idempotency key in bytes", key);
    }
}

/// Checks the identity of a publish of `count` records: both numbers or none, and no number past the last.
#[inline]
pub(super) fn check_producer(id: ProducerId, first_seq: ProducerSeq, count: u16) -> Result<(), DecodeError> {
    let problem = match (id.get(), first_seq.get()) {
        (0, 0) => return Ok(()),
        (0, _) | (_, 0) => "one of the two is 0",
        (_, first_seq) if first_seq.checked_add(u64::from(count)).is_none() => "the numbers pass the last one",
        _ => return Ok(()),
    };
    Err(DecodeError::ProducerSeqInvalid { producer_id: id.get(), producer_seq: first_seq.get(), count, problem })
}

/// Reads result_flags: whether the record is deduplicated.
#[inline]
pub(super) fn read_result_flags(reader: &mut Reader<'_>) -> Result<bool, DecodeError> {
    let flags = reader.u8("result_flags")?;
    if flags & !RESULT_DEDUPLICATED != 0 {
        let (found, known) = (u16::from(flags), u16::from(RESULT_DEDUPLICATED));
        return Err(DecodeError::UnknownFlags { field: "result_flags", found, known });
    }
    Ok(flags & RESULT_DEDUPLICATED != 0)
}

/// The flag that says that a headers block follows the key, the same in PUB, PUB_BATCH and MSG.
pub(super) const FLAG_HEADERS: u16 = 1;
const FLAG_DELAY: u16 = 1 << 1;
const FLAG_TTL: u16 = 1 << 2;
const FLAG_IDEMPOTENCY_KEY: u16 = 1 << 3;
const KNOWN_FLAGS: u16 = FLAG_HEADERS | FLAG_DELAY | FLAG_TTL | FLAG_IDEMPOTENCY_KEY;
const IDEMPOTENCY_KEY: &str = "idempotency key";
/// The record is on the disks of a majority.
const DURABILITY_QUORUM: u8 = 1;
const RESULT_DEDUPLICATED: u8 = 1;

/// All of PUB but its body: length, op, topic, partition, producer, number, flags, and every option.
const MAX_HEAD_LEN: usize = 4 + 1 + 2 + 2 + 8 + 8 + 2 + 8 + 8 + 1 + 255;
// A body within its limits always fits a PUB.
const _: () = assert!(MAX_HEAD_LEN + MAX_BODY_LEN <= MAX_FRAME_LEN);

#[cfg(test)]
mod tests;
