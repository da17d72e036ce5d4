//! SETTLE: settles several deliveries of one subscription.

use bytes::BytesMut;
use mortarmq_types::{DeliveryId, Partition, Position, Seq};

use super::publish_batch::{check_batch_count, read_batch_count, write_batch};
use crate::decode::Reader;
use crate::encode::FrameWriter;
use crate::errors::ErrorCode;
use crate::faults::{DecodeError, EncodeError};
use crate::list::{List, ListItem};
use crate::op::Op;

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle<'a> {
    /// The connection's handle for the subscription.
    pub subscription_id: u16,
    /// 1 to 1024 items.
    pub items: List<'a, SettleItem<'a>>,
}

/// What is to become of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettleItem<'a> {
    /// What is to become of it.
    pub kind: SettleKind,
    /// The message's partition.
    pub partition: Partition,
    /// The message's sequence.
    pub seq: Seq,
    /// The delivery.
    pub delivery_id: DeliveryId,
    /// Which ownership of the partition it came under; 0 in a shared group.
    pub ownership_epoch: u64,
    /// For a nack how long until the next try, 0 is the group's backoff; ignored for other kinds.
    pub delay_ms: u32,
    /// Why, for people; stored with a dead letter. Not necessarily text.
    pub error_text: &'a [u8],
}

/// What a settle does with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SettleKind {
    /// The message is done.
    Ack = 0,
    /// Deliver it again after the delay.
    Nack = 1,
    /// Dead-letter it now.
    DeadLetter = 2,
    /// Renew the lease, settle nothing.
    Progress = 3,
    /// Give it back without counting an attempt.
    Release = 4,
}

impl<'a> Settle<'a> {
    /// Decodes the payload; every item is checked.
    ///
    /// # Errors
    /// Malformed for missing fields, unknown kinds, and a count outside `1..=1024`.
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let subscription_id = reader.u16("subscription_id")?;
        let count = read_batch_count(&mut reader, "SETTLE count")?;
        Ok(Self { subscription_id, items: List::read(&mut reader, usize::from(count))? })
    }

    /// Appends the whole frame.
    ///
    /// # Errors
    /// A count outside `1..=1024`, an error text over 65535 bytes, or more than a frame holds; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::frame(out, Op::Settle);
        writer.u16(self.subscription_id);
        write_batch(&mut writer, "SETTLE count", &self.items);
        writer.finish()
    }
}

impl<'a> ListItem<'a> for SettleItem<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            kind: SettleKind::from_number(reader.u8("kind")?)?,
            partition: Partition::new(reader.u16("partition")?),
            seq: Seq::new(reader.u64("seq")?),
            delivery_id: DeliveryId::new(reader.u64("delivery_id")?),
            ownership_epoch: reader.u64("ownership_epoch")?,
            delay_ms: reader.u32("delay_ms")?,
            error_text: reader.bytes16("error text")?,
        })
    }

    fn write(&self, writer: &mut FrameWriter<'_>) {
        writer.u8(self.kind as u8);
        writer.u16(self.partition.get());
        writer.u64(self.seq.get());
        writer.u64(self.delivery_id.get());
        writer.u64(self.ownership_epoch);
        writer.u32(self.delay_ms);
        writer.bytes16("error text in bytes", self.error_text);
    }
}

impl SettleKind {
    const fn from_number(number: u8) -> Result<Self, DecodeError> {
        match number {
            0 => Ok(Self::Ack),
            1 => Ok(Self::Nack),
            2 => Ok(Self::DeadLetter),
            3 => Ok(Self::Progress),
            4 => Ok(Self::Release),
            _ => Err(DecodeError::UnknownValue { field: "kind", found: number as u64, allowed: "0 to 4" }),
        }
    }
}

/// The OK result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettleOk<'a> {
    /// One for each item of the request, in its order.
    pub codes: List<'a, ItemCode>,
    /// What the answer rests on.
    pub position: Position,
}

impl<'a> SettleOk<'a> {
    /// Decodes the result of a settle of `item_count` items: the number is not in the result.
    ///
    /// # Errors
    /// Malformed when it ends early.
    pub fn decode(result: &'a [u8], item_count: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(result);
        Ok(Self { codes: List::read(&mut reader, item_count)?, position: reader.position()? })
    }

    /// Appends the whole OK frame.
    ///
    /// # Errors
    /// A count outside `1..=1024`; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::ok(out, Op::Settle);
        check_batch_count(&mut writer, "codes", self.codes.len());
        self.codes.write(&mut writer);
        writer.position(self.position);
        writer.finish()
    }
}

/// How one item of a SETTLE ended. A number and not an [`ErrorCode`], as a newer server may send one that this
/// version does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemCode(u16);

impl ItemCode {
    /// Settled.
    pub const OK: Self = Self(0);

    /// The number on the wire; 0 is settled.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Whether the item was settled.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        self.0 == 0
    }

    /// The error's code, if there is one and this version knows it.
    #[must_use]
    pub const fn error(self) -> Option<ErrorCode> {
        ErrorCode::from_number(self.0)
    }
}

impl From<ErrorCode> for ItemCode {
    fn from(code: ErrorCode) -> Self {
        Self(code.number())
    }
}

impl ListItem<'_> for ItemCode {
    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.u16("code").map(Self)
    }

    fn write(&self, writer: &mut FrameWriter<'_>) {
        writer.u16(self.0);
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use mortarmq_types::Position;

    use super::{ItemCode, SettleOk};
    use crate::errors::ErrorCode;
    use crate::list::List;

    #[test]
    fn answer_holds_1_to_1024_codes() {
        let codes = [ItemCode::OK; 1025];
        for (count, fits) in [(0, false), (1, true), (1024, true), (1025, false)] {
            let ok = SettleOk { codes: List::from(&codes[..count]), position: Position::default() };
            assert_eq!(ok.encode(&mut BytesMut::new()).is_ok(), fits, "{count}");
        }
    }

    #[test]
    fn code_of_a_newer_server_is_an_error_without_a_name() {
        let newer = ItemCode(0x7777);
        assert_eq!((newer.is_ok(), newer.error(), newer.number()), (false, None, 0x7777));
        let known = ItemCode::from(ErrorCode::StaleOwner);
        assert_eq!((known.is_ok(), known.error()), (false, Some(ErrorCode::StaleOwner)));
        assert!(ItemCode::OK.is_ok() && ItemCode::OK.error().is_none());
    }
}
