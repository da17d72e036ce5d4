//! ACK: confirms one delivery, or renews its lease.

use bytes::BytesMut;
use mortarmq_types::{DeliveryId, Partition, Position, Seq};

use crate::decode::Reader;
use crate::encode::SizedFrame;
use crate::faults::DecodeError;
use crate::op::Op;

/// Names one delivery, in ACK and NACK. The delivery_id decides; topic, partition and sequence must agree with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRef {
    /// The connection's handle for the subscription.
    pub subscription_id: u16,
    /// The connection's handle for the topic.
    pub topic_id: u16,
    /// The message's partition.
    pub partition: Partition,
    /// The message's sequence.
    pub seq: Seq,
    /// The delivery.
    pub delivery_id: DeliveryId,
    /// Which ownership of the partition it came under; 0 in a shared group.
    pub ownership_epoch: u64,
}

impl DeliveryRef {
    /// # Units
    /// Bytes on the wire.
    pub(super) const LEN: usize = 2 + 2 + 2 + 8 + 8 + 8;

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            subscription_id: reader.u16("subscription_id")?,
            topic_id: reader.u16("topic_id")?,
            partition: Partition::new(reader.u16("partition")?),
            seq: Seq::new(reader.u64("seq")?),
            delivery_id: DeliveryId::new(reader.u64("delivery_id")?),
            ownership_epoch: reader.u64("ownership_epoch")?,
        })
    }

    pub(super) fn write<'b>(&self, frame: SizedFrame<'b>) -> SizedFrame<'b> {
        frame
            .u16(self.subscription_id)
            .u16(self.topic_id)
            .u16(self.partition.get())
            .u64(self.seq.get())
            .u64(self.delivery_id.get())
            .u64(self.ownership_epoch)
    }
}

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The delivery.
    pub delivery: DeliveryRef,
    /// Whether only the lease is renewed (PROGRESS) and nothing is settled.
    pub is_progress: bool,
}

impl Ack {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields and unknown flags.
    #[inline]
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let delivery = DeliveryRef::read(&mut reader)?;
        let flags = reader.flags("ACK flags", FLAG_PROGRESS)?;
        Ok(Self { delivery, is_progress: flags & FLAG_PROGRESS != 0 })
    }

    /// Appends the whole frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let frame = SizedFrame::new(out, Op::Ack, DeliveryRef::LEN + 2);
        self.delivery.write(frame).u16(if self.is_progress { FLAG_PROGRESS } else { 0 }).finish();
    }
}

/// The OK result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckOk {
    /// What the answer rests on.
    pub position: Position,
}

impl AckOk {
    /// Decodes the result.
    ///
    /// # Errors
    /// Malformed when it ends early.
    pub fn decode(result: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self { position: Reader::new(result).position()? })
    }

    /// Appends the whole OK frame.
    #[inline]
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::ok(out, Op::Ack, 16).position(self.position).finish();
    }
}

const FLAG_PROGRESS: u16 = 1;
