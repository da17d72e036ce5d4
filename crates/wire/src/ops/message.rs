//! MSG: delivers one message.

use bytes::BytesMut;
use mortarmq_types::{
    Attempt, Cause, CommitIndex, DeliveryId, Epoch, Partition, Position, ProducerId, ProducerSeq, Seq, WallTime,
};

use super::publish::FLAG_HEADERS;
use crate::body::{MAX_STORED_BODY_LEN, RecordBody};
use crate::decode::Reader;
use crate::encode::SizedFrame;
use crate::faults::DecodeError;
use crate::frame::MAX_FRAME_LEN;
use crate::op::Op;

/// A push, or a part of a pull's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The connection's handle for the subscription.
    pub subscription_id: u16,
    /// The connection's handle for the topic.
    pub topic_id: u16,
    /// The message's partition.
    pub partition: Partition,
    /// The message's sequence.
    pub seq: Seq,
    /// This delivery; a settle names it.
    pub delivery_id: DeliveryId,
    /// Which try this is. The wire has 16 bits: a higher one is sent as 65535.
    pub attempt: Attempt,
    /// Which ownership of the partition this is; 0 in a shared group.
    pub ownership_epoch: u64,
    /// Who published it; 0 if not idempotent.
    pub producer_id: ProducerId,
    /// Its number there; 0 if not idempotent.
    pub producer_seq: ProducerSeq,
    /// Key, headers and value, the bytes as they are stored: as they were published, and for a dead letter with headers behind them.
    pub body: RecordBody<'a>,
    /// Why it is delivered (P7).
    pub cause: Cause,
    /// The delivery this one follows (P7); 0 for the first.
    pub previous_delivery_id: DeliveryId,
    /// What is left of the lease.
    ///
    /// # Units
    /// Milliseconds.
    pub lease_ms: u32,
    /// When it was published, for display only.
    pub published_at: WallTime,
    /// The position of the command that gave the lease, the same when the message is sent again.
    pub position: Position,
}

impl<'a> Message<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields, unknown flags and causes; too large for a body over its limits.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut head = Reader::new(payload);
        let subscription_id = head.u16("subscription_id")?;
        let topic_id = head.u16("topic_id")?;
        let partition = Partition::new(head.u16("partition")?);
        let seq = Seq::new(head.u64("sequence")?);
        let delivery_id = DeliveryId::new(head.u64("delivery_id")?);
        let attempt = Attempt::new(u32::from(head.u16("attempt")?));
        let ownership_epoch = head.u64("ownership_epoch")?;
        let producer_id = ProducerId::new(head.u64("producer_id")?);
        let producer_seq = ProducerSeq::new(head.u64("producer_seq")?);
        let flags = head.flags("MSG flags", FLAG_HEADERS)?;
        let (body, rest) = RecordBody::parse_stored(head.rest(), flags & FLAG_HEADERS != 0)?;
        let mut tail = Reader::new(rest);
        Ok(Self {
            subscription_id,
            topic_id,
            partition,
            seq,
            delivery_id,
            attempt,
            ownership_epoch,
            producer_id,
            producer_seq,
            body,
            cause: read_cause(&mut tail)?,
            previous_delivery_id: DeliveryId::new(tail.u64("previous_delivery_id")?),
            lease_ms: tail.u32("lease_ms")?,
            published_at: WallTime::new(tail.u64("published_at_ms")?),
            position: Position {
                epoch: Epoch::new(tail.u64("leader_epoch")?),
                commit_index: CommitIndex::new(tail.u64("commit_index")?),
            },
        })
    }

    /// Appends the whole frame: the body's bytes as they are, between what tells of this delivery.
    #[inline]
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::new(out, Op::Message, HEAD_LEN + self.body.bytes().len() + TAIL_LEN)
            .u16(self.subscription_id)
            .u16(self.topic_id)
            .u16(self.partition.get())
            .u64(self.seq.get())
            .u64(self.delivery_id.get())
            .u16(u16::try_from(self.attempt.get()).unwrap_or(u16::MAX))
            .u64(self.ownership_epoch)
            .u64(self.producer_id.get())
            .u64(self.producer_seq.get())
            .u16(if self.body.has_headers() { FLAG_HEADERS } else { 0 })
            .raw(self.body.bytes())
            .u8(self.cause.number())
            .u64(self.previous_delivery_id.get())
            .u32(self.lease_ms)
            .u64(self.published_at.get())
            .position(self.position)
            .finish();
    }
}

#[inline]
fn read_cause(reader: &mut Reader<'_>) -> Result<Cause, DecodeError> {
    let number = reader.u8("cause")?;
    let unknown = DecodeError::UnknownValue { field: "cause", found: u64::from(number), allowed: "0 to 6" };
    Cause::from_number(number).ok_or(unknown)
}

const HEAD_LEN: usize = 2 + 2 + 2 + 8 + 8 + 2 + 8 + 8 + 8 + 2;
const TAIL_LEN: usize = 1 + 8 + 4 + 8 + 16;
// A body within its limits always fits a MSG.
const _: () = assert!(1 + HEAD_LEN + MAX_STORED_BODY_LEN + TAIL_LEN <= MAX_FRAME_LEN);

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use mortarmq_types::{Attempt, Cause, DeliveryId, Partition, Position, ProducerId, ProducerSeq, Seq, WallTime};

    use super::Message;
    use crate::body::{RecordBody, write_body};
    use crate::frame::{MAX_HEADERS, MAX_HEADERS_LEN, MAX_KEY_LEN, MAX_VALUE_LEN, Split, split_frame};

    fn message(body: RecordBody<'_>, attempt: u32) -> Message<'_> {
        Message {
            subscription_id: 1,
            topic_id: 2,
            partition: Partition::new(3),
            seq: Seq::new(4),
            delivery_id: DeliveryId::new(5),
            attempt: Attempt::new(attempt),
            ownership_epoch: 6,
            producer_id: ProducerId::new(7),
            producer_seq: ProducerSeq::new(8),
            body,
            cause: Cause::First,
            previous_delivery_id: DeliveryId::ZERO,
            lease_ms: 9,
            published_at: WallTime::new(10),
            position: Position::default(),
        }
    }

    #[test]
    fn largest_body_that_a_publish_takes_fits_a_message() {
        // Goal: what was accepted can be delivered. Method: every limit of a body at its end at once.
        let header_value = vec![b'v'; MAX_HEADERS_LEN / MAX_HEADERS - 1];
        let pairs = [(b"n".as_slice(), header_value.as_slice()); MAX_HEADERS];
        let key = [b'k'; MAX_KEY_LEN];
        let value = vec![0; MAX_VALUE_LEN - MAX_KEY_LEN - MAX_HEADERS_LEN];
        let mut bytes = BytesMut::new();
        write_body(&mut bytes, &key, Some(&pairs), &value).expect("at the limit, not over it");
        let (body, _) = RecordBody::parse(&bytes, true).expect("at the limit, not over it");
        assert_eq!(body.payload_len(), MAX_VALUE_LEN);
        let mut out = BytesMut::new();
        message(body, 1).encode(&mut out);
        let Ok(Split::Frame { payload, .. }) = split_frame(&out) else { panic!("the frame is taken") };
        assert_eq!(Message::decode(payload), Ok(message(body, 1)));
    }

    #[test]
    fn attempt_beyond_16_bits_is_sent_as_the_highest() {
        let (body, _) = RecordBody::parse(&[0, 0, 0, 0, 0, 0], false).expect("an empty body");
        for (attempt, sent) in [(65_534, 65_534), (65_535, 65_535), (65_536, 65_535), (u32::MAX, 65_535)] {
            let mut out = BytesMut::new();
            message(body, attempt).encode(&mut out);
            assert_eq!(Message::decode(&out[5..]).map(|message| message.attempt), Ok(Attempt::new(sent)));
        }
    }
}
