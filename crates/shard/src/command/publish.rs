//! Publishes, encoded at the edge: the connection writes whole commands, the shard's loop copies them into its batch.
//!
//! A record is encoded once, together with its command. A pipelined connection hands over all publishes of one read as
//! one [`PublishRun`], which the loop appends with a single copy.

use super::batch::{KIND_PUBLISH, KIND_PUBLISH_BATCH, close_command, open_command};
use super::codec::{self, CommandError, Fields};
use super::{Asked, Command, ITEMS_MAX, Publish, PublishBatch, PublishRecord, Times};
use crate::idempotency::IdempotencyKey;
use crate::record::{NewRecord, write_record};
use bytes::{BufMut, Bytes, BytesMut};
use mortarmq_types::{KeyHash, Partition, ProducerId, ProducerSeq, TopicIncarnation};

/// Encoded publishes of one topic, in the order in which they were sent.
#[derive(Clone, Debug)]
pub struct PublishRun {
    /// The topic of all of them.
    pub topic: TopicIncarnation,
    /// How many commands.
    pub count: u32,
    /// The commands, one behind the other, as they stand in a batch.
    pub commands: Bytes,
}

impl PublishRun {
    /// Checks commands that another node has encoded: each is a publish to the topic. Says also whether each message has an
    /// identity, by which it is stored once however often it is published.
    ///
    /// # Errors
    /// What is not as [`PublishRunBuilder`] writes it: it must not get into the log (P11).
    pub fn check(&self) -> Result<bool, CommandError> {
        let mut fields = Fields::new(self.commands.clone());
        let mut has_identity = true;
        for _ in 0..self.count {
            let command = fields.long_bytes()?;
            let kind = command.first().copied().unwrap_or_default();
            let (topic, producer_id, records) = match codec::decode(command)? {
                Command::Publish(publish) => (publish.topic, publish.producer_id, vec![publish.record]),
                Command::PublishBatch(batch) => (batch.topic, batch.producer_id, batch.records),
                _ => return Err(CommandError::UnknownKind { found: kind }),
            };
            if topic != self.topic {
                return Err(CommandError::Field { field: "topic", found: topic.get() });
            }
            has_identity &=
                producer_id != ProducerId::ZERO || records.iter().all(|record| record.idempotency_key.is_some());
        }
        if fields.is_empty() { Ok(has_identity) } else { Err(CommandError::TrailingBytes) }
    }
}

/// Encodes publishes into a buffer.
#[derive(Debug, Default)]
pub struct PublishRunBuilder {
    buffer: BytesMut,
    topic: TopicIncarnation,
    count: u32,
}

impl PublishRunBuilder {
    /// Adds one publish.
    ///
    /// # Panics
    /// When a publish to another topic was added before and not taken: the caller takes the run first.
    pub fn add(
        &mut self,
        topic: TopicIncarnation,
        requested: Partition,
        payload_bytes: u32,
        value_bytes: u32,
        record: &NewRecord<'_>,
    ) {
        self.add_timed(topic, requested, (payload_bytes, value_bytes), record, Times::default());
    }

    /// Adds one publish with a delay or a life of its own. `sizes` are payload and value, in bytes.
    ///
    /// # Panics
    /// As [`Self::add`].
    pub fn add_timed(
        &mut self,
        topic: TopicIncarnation,
        requested: Partition,
        sizes: (u32, u32),
        record: &NewRecord<'_>,
        times: Times,
    ) {
        self.add_asked(topic, requested, sizes, record, Asked { times, ..Asked::default() });
    }

    /// As [`Self::add_timed`], with whatever else may be asked for.
    ///
    /// # Panics
    /// As [`Self::add`].
    pub fn add_asked(
        &mut self,
        topic: TopicIncarnation,
        requested: Partition,
        sizes: (u32, u32),
        record: &NewRecord<'_>,
        asked: Asked,
    ) {
        assert!(self.count == 0 || self.topic == topic, "a run holds publishes of one topic");
        self.topic = topic;
        self.count += 1;
        let start = open_command(&mut self.buffer, KIND_PUBLISH);
        put_target(&mut self.buffer, topic, requested, record.producer_id);
        put_record(&mut self.buffer, sizes, record, asked);
        close_command(&mut self.buffer, start);
    }

    /// Adds one batch publish; the records carry their own producer numbers.
    ///
    /// # Panics
    /// As [`Self::add`], and for more than [`ITEMS_MAX`] records.
    pub fn add_batch<'a>(
        &mut self,
        topic: TopicIncarnation,
        requested: Partition,
        producer_id: ProducerId,
        records: impl ExactSizeIterator<Item = (u32, u32, NewRecord<'a>)>,
    ) {
        let records = records
            .map(|(payload_bytes, value_bytes, record)| ((payload_bytes, value_bytes), record, Times::default()));
        self.add_timed_batch(topic, requested, producer_id, records);
    }

    /// Adds one batch publish of records with delays or lives of their own; sizes are payload and value, in bytes.
    ///
    /// # Panics
    /// As [`Self::add_batch`].
    pub fn add_timed_batch<'a>(
        &mut self,
        topic: TopicIncarnation,
        requested: Partition,
        producer_id: ProducerId,
        records: impl ExactSizeIterator<Item = ((u32, u32), NewRecord<'a>, Times)>,
    ) {
        let asked = |times| Asked { times, ..Asked::default() };
        let records = records.map(|(sizes, record, times)| (sizes, record, asked(times)));
        self.add_asked_batch(topic, requested, producer_id, records);
    }

    /// As [`Self::add_timed_batch`], with whatever else may be asked for.
    ///
    /// # Panics
    /// As [`Self::add_batch`].
    pub fn add_asked_batch<'a>(
        &mut self,
        topic: TopicIncarnation,
        requested: Partition,
        producer_id: ProducerId,
        records: impl ExactSizeIterator<Item = ((u32, u32), NewRecord<'a>, Asked)>,
    ) {
        assert!(self.count == 0 || self.topic == topic, "a run holds publishes of one topic");
        let count = u16::try_from(records.len()).expect("ITEMS_MAX fits 16 bits");
        assert!(usize::from(count) <= ITEMS_MAX, "a batch of {count} records was checked when it was decoded");
        self.topic = topic;
        self.count += 1;
        let start = open_command(&mut self.buffer, KIND_PUBLISH_BATCH);
        put_target(&mut self.buffer, topic, requested, producer_id);
        self.buffer.put_u16(count);
        for (sizes, record, asked) in records {
            put_record(&mut self.buffer, sizes, &record, asked);
        }
        close_command(&mut self.buffer, start);
    }

    /// The topic of the publishes that were added, if any were.
    #[must_use]
    pub fn topic(&self) -> Option<TopicIncarnation> {
        (self.count > 0).then_some(self.topic)
    }

    /// Takes what was added; `None` if nothing was.
    pub fn take(&mut self) -> Option<PublishRun> {
        if self.count == 0 {
            return None;
        }
        let run = PublishRun { topic: self.topic, count: self.count, commands: self.buffer.split().freeze() };
        self.count = 0;
        Some(run)
    }
}

fn put_target(out: &mut BytesMut, topic: TopicIncarnation, requested: Partition, producer_id: ProducerId) {
    out.put_u64(topic.get());
    out.put_u16(requested.get());
    out.put_u64(producer_id.get());
}

/// Layout: producer_seq u64, key_hash u64, content_hash u64, payload_bytes u32, value_bytes u32, record (u32 length), flags
/// u8, with bit 0 delay_ms u64, with bit 1 ttl_ms u64, with bit 2 the hash of the idempotency key (16 bytes). What is 0 is left
/// out.
fn put_record(out: &mut BytesMut, (payload_bytes, value_bytes): (u32, u32), record: &NewRecord<'_>, asked: Asked) {
    let Asked { times, idempotency_key } = asked;
    out.put_u64(record.producer_seq.get());
    let hashes_at = out.len();
    out.put_u64(0);
    out.put_u64(0);
    out.put_u32(payload_bytes);
    out.put_u32(value_bytes);
    let length_at = out.len();
    out.put_u32(0);
    let summary = write_record(out, record);
    out[hashes_at..hashes_at + 8].copy_from_slice(&summary.key_hash.get().to_be_bytes());
    out[hashes_at + 8..hashes_at + 16].copy_from_slice(&summary.content_hash.to_be_bytes());
    out[length_at..length_at + 4].copy_from_slice(&summary.record_bytes.to_be_bytes());
    let given = [(FLAG_DELAY, times.delay_ms), (FLAG_TTL, times.ttl_ms)].into_iter().filter(|(_, ms)| *ms != 0);
    let flags: u8 = given.clone().map(|(flag, _)| flag).sum();
    out.put_u8(flags | if idempotency_key.is_some() { FLAG_KEY } else { 0 });
    given.for_each(|(_, ms)| out.put_u64(ms));
    if let Some(key) = idempotency_key {
        out.put_u128(key.get());
    }
}

const FLAG_DELAY: u8 = 1;
const FLAG_TTL: u8 = 2;
const FLAG_KEY: u8 = 4;

pub(super) fn decode_publish(fields: &mut Fields) -> Result<Publish, CommandError> {
    Ok(Publish {
        topic: TopicIncarnation::new(fields.u64()?),
        requested: Partition::new(fields.u16()?),
        producer_id: ProducerId::new(fields.u64()?),
        record: decode_record(fields)?,
    })
}

pub(super) fn decode_publish_batch(fields: &mut Fields) -> Result<PublishBatch, CommandError> {
    let topic = TopicIncarnation::new(fields.u64()?);
    let requested = Partition::new(fields.u16()?);
    let producer_id = ProducerId::new(fields.u64()?);
    let count = usize::from(fields.u16()?);
    if count == 0 || count > ITEMS_MAX {
        return Err(CommandError::Field { field: "records", found: count as u64 });
    }
    let records = (0..count).map(|_| decode_record(fields)).collect::<Result<_, _>>()?;
    Ok(PublishBatch { topic, requested, producer_id, records })
}

fn decode_record(fields: &mut Fields) -> Result<PublishRecord, CommandError> {
    let (producer_seq, key_hash) = (ProducerSeq::new(fields.u64()?), KeyHash::new(fields.u64()?));
    let (content_hash, payload_bytes, value_bytes) = (fields.u64()?, fields.u32()?, fields.u32()?);
    let record = fields.long_bytes()?;
    let Asked { times, idempotency_key } = decode_asked(fields)?;
    Ok(PublishRecord {
        producer_seq,
        key_hash,
        content_hash,
        payload_bytes,
        value_bytes,
        times,
        idempotency_key,
        record,
    })
}

fn decode_asked(fields: &mut Fields) -> Result<Asked, CommandError> {
    let flags = fields.u8()?;
    if flags & !(FLAG_DELAY | FLAG_TTL | FLAG_KEY) != 0 {
        return Err(CommandError::Field { field: "flags", found: u64::from(flags) });
    }
    let mut given = |flag, field| match flags & flag {
        0 => Ok(0),
        _ => match fields.u64()? {
            0 => Err(CommandError::Field { field, found: 0 }),
            ms => Ok(ms),
        },
    };
    let times = Times { delay_ms: given(FLAG_DELAY, "delay_ms")?, ttl_ms: given(FLAG_TTL, "ttl_ms")? };
    let idempotency_key = match flags & FLAG_KEY {
        0 => None,
        _ => Some(IdempotencyKey::new(u128::from(fields.u64()?) << 64 | u128::from(fields.u64()?))),
    };
    Ok(Asked { times, idempotency_key })
}
