//! What a program publishes.

use std::ops::Range;

use bytes::BytesMut;
use mortarmq_types::{Partition, ProducerId, ProducerSeq};
use mortarmq_wire::ops::{Publish, PublishBatch, PublishOptions, PublishRecord};
use mortarmq_wire::{EncodeError, List, RecordBody, write_body};

/// A message to be published.
///
/// ```
/// # use mortarmq_client::Message;
/// let message = Message::of(b"{\"amount\":100}").key(b"customer-7").header("order-id", b"41").delay_ms(60_000);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// Messages with one key are delivered in order (P8); empty is no key. At most 255 bytes.
    pub key: &'a [u8],
    /// Names and values, at most 64 pairs and 16 KiB.
    pub headers: Vec<(&'a [u8], &'a [u8])>,
    /// The value.
    pub value: &'a [u8],
    /// How long until it may be delivered.
    pub delay_ms: Option<u64>,
    /// How long it may wait before it is dropped; `None` is the topic's.
    pub ttl_ms: Option<u64>,
    /// Inside its window a key of the topic is stored once, whoever publishes it (P3). 1 to 255 bytes.
    pub idempotency_key: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    /// A message of a value only.
    #[must_use]
    pub const fn of(value: &'a [u8]) -> Self {
        Self { key: &[], headers: Vec::new(), value, delay_ms: None, ttl_ms: None, idempotency_key: None }
    }

    /// The same with this key: messages of one key are delivered in order.
    #[must_use]
    pub fn key(self, key: &'a [u8]) -> Self {
        Self { key, ..self }
    }

    /// The same with one header more.
    #[must_use]
    pub fn header(mut self, name: &'a str, value: &'a [u8]) -> Self {
        self.headers.push((name.as_bytes(), value));
        self
    }

    /// The same, to be delivered no earlier than in so many milliseconds.
    #[must_use]
    pub fn delay_ms(self, delay_ms: u64) -> Self {
        Self { delay_ms: Some(delay_ms), ..self }
    }

    /// The same, dropped if it waits for longer than so many milliseconds.
    #[must_use]
    pub fn ttl_ms(self, ttl_ms: u64) -> Self {
        Self { ttl_ms: Some(ttl_ms), ..self }
    }

    /// The same, stored once for this key, whoever publishes it and however often.
    #[must_use]
    pub fn idempotency_key(self, key: &'a [u8]) -> Self {
        Self { idempotency_key: Some(key), ..self }
    }

    /// About what the message takes in a frame, for the bound on what is outstanding.
    pub(crate) fn weight(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        FRAME_OVERHEAD + self.key.len() + headers + self.value.len()
    }

    fn options(&self) -> PublishOptions<'a> {
        PublishOptions { delay_ms: self.delay_ms, ttl_ms: self.ttl_ms, idempotency_key: self.idempotency_key }
    }

    /// Appends key, headers and value, and returns where.
    fn write(&self, out: &mut BytesMut) -> Result<Range<usize>, EncodeError> {
        let start = out.len();
        write_body(out, self.key, (!self.headers.is_empty()).then_some(&self.headers[..]), self.value)?;
        Ok(start..out.len())
    }

    fn read<'b>(&self, bytes: &'b [u8]) -> RecordBody<'b> {
        let has_headers = !self.headers.is_empty();
        RecordBody::parse(bytes, has_headers).expect("the bytes are what write_body wrote, limits checked").0
    }
}

/// Appends a PUB frame whose handle and numbers are filled in when it is sent.
pub(crate) fn encode_publish(
    message: &Message<'_>,
    partition: Partition,
    scratch: &mut BytesMut,
    out: &mut BytesMut,
) -> Result<(), EncodeError> {
    scratch.clear();
    message.write(scratch)?;
    Publish {
        topic_id: 0,
        partition,
        producer_id: ProducerId::ZERO,
        producer_seq: ProducerSeq::ZERO,
        body: message.read(scratch),
        options: message.options(),
    }
    .encode(out)
}

/// Appends a PUB_BATCH frame whose handle and numbers are filled in when it is sent.
pub(crate) fn encode_publish_batch(
    messages: &[Message<'_>],
    partition: Partition,
    scratch: &mut BytesMut,
    out: &mut BytesMut,
) -> Result<(), EncodeError> {
    scratch.clear();
    let bodies = messages.iter().map(|message| message.write(scratch)).collect::<Result<Vec<_>, _>>()?;
    let records: Vec<PublishRecord<'_>> = messages
        .iter()
        .zip(bodies)
        .map(|(message, body)| PublishRecord { body: message.read(&scratch[body]), options: message.options() })
        .collect();
    PublishBatch {
        topic_id: 0,
        partition,
        producer_id: ProducerId::ZERO,
        first_producer_seq: ProducerSeq::ZERO,
        records: List::from(&records[..]),
    }
    .encode(out)
}

/// Fills in what changes with the connection and with renumbering; PUB and PUB_BATCH begin alike.
///
/// # Source
/// docs/reference/wire.md, "Ops": topic_id u16, partition u16, producer_id u64, producer_seq u64 behind length and op.
pub(crate) fn address(frame: &mut [u8], topic_id: u16, producer_id: u64, number: u64) {
    frame[5..7].copy_from_slice(&topic_id.to_be_bytes());
    frame[9..17].copy_from_slice(&producer_id.to_be_bytes());
    frame[17..25].copy_from_slice(&number.to_be_bytes());
}

/// Bytes of a PUB frame that are not key, headers or value, and the engine's own entry for it.
const FRAME_OVERHEAD: usize = 64;

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use mortarmq_types::Partition;
    use mortarmq_wire::{Request, Split, split_frame};

    use super::{Message, address, encode_publish, encode_publish_batch};

    fn decoded(frame: &[u8], check: impl Fn(Request<'_>)) {
        let Ok(Split::Frame { op, payload, consumed }) = split_frame(frame) else { panic!("one whole frame") };
        assert_eq!(consumed, frame.len());
        check(Request::decode(op, payload).expect("a request"));
    }

    #[test]
    fn addressed_frames_decode_to_the_given_handle_identity_and_number() {
        let message = Message::of(b"v").key(b"k").header("name", b"value").delay_ms(7);
        let (mut scratch, mut one, mut two) = (BytesMut::new(), BytesMut::new(), BytesMut::new());
        encode_publish(&message, Partition::ANY, &mut scratch, &mut one).unwrap();
        address(&mut one, 3, 1 << 62, 1 << 40);
        decoded(&one, |request| {
            let Request::Publish(publish) = request else { panic!("{request:?}") };
            assert_eq!((publish.topic_id, publish.partition), (3, Partition::ANY));
            assert_eq!((publish.producer_id.get(), publish.producer_seq.get()), (1 << 62, 1 << 40));
            assert_eq!((publish.body.key(), publish.body.value()), (&b"k"[..], &b"v"[..]));
            assert_eq!(publish.options.delay_ms, Some(7));
        });
        let batch = [message, Message::of(b"second")];
        encode_publish_batch(&batch, Partition::new(5), &mut scratch, &mut two).unwrap();
        address(&mut two, 9, 8, 7);
        decoded(&two, |request| {
            let Request::PublishBatch(batch) = request else { panic!("{request:?}") };
            assert_eq!((batch.topic_id, batch.partition), (9, Partition::new(5)));
            assert_eq!((batch.producer_id.get(), batch.first_producer_seq.get()), (8, 7));
            let values: Vec<&[u8]> = batch.records.iter().map(|record| record.body.value()).collect();
            assert_eq!(values, [&b"v"[..], b"second"]);
        });
    }

    #[test]
    fn a_message_over_the_limits_leaves_nothing_behind() {
        let (mut scratch, mut out) = (BytesMut::new(), BytesMut::new());
        let message = Message { key: &[b'k'; 256], ..Message::default() };
        encode_publish(&message, Partition::ANY, &mut scratch, &mut out).expect_err("the key is too long");
        encode_publish_batch(&[], Partition::ANY, &mut scratch, &mut out).expect_err("no record");
        assert!(out.is_empty());
    }
}
