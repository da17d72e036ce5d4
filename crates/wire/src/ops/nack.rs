//! NACK: refuses one delivery.

use bytes::BytesMut;
use mortarmq_types::Position;

use super::ack::DeliveryRef;
use crate::decode::Reader;
use crate::encode::{SizedFrame, too_large};
use crate::faults::{DecodeError, EncodeError};
use crate::op::Op;

/// The request. Its flags field is 0: PROGRESS means nothing for a delivery that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack<'a> {
    /// The delivery.
    pub delivery: DeliveryRef,
    /// What is to become of the message.
    pub reason: NackReason,
    /// How long until the next try; 0 is the group's backoff. Ignored unless the reason is [`NackReason::Retry`].
    pub delay_ms: u32,
    /// Why, for people; stored with a dead letter. Not necessarily text.
    pub error_text: &'a [u8],
}

/// What is to become of a refused message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NackReason {
    /// Deliver it again after the delay.
    Retry = 0,
    /// Dead-letter it now.
    DeadLetter = 1,
    /// Give it back without counting an attempt.
    Release = 2,
}

impl<'a> Nack<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields, unknown reasons (3 is reserved) and unknown flags.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let delivery = DeliveryRef::read(&mut reader)?;
        let reason = match reader.u8("reason")? {
            0 => NackReason::Retry,
            1 => NackReason::DeadLetter,
            2 => NackReason::Release,
            found => {
                let found = u64::from(found);
                return Err(DecodeError::UnknownValue { field: "reason", found, allowed: "0 to 2" });
            }
        };
        reader.flags("NACK flags", 0)?;
        Ok(Self { delivery, reason, delay_ms: reader.u32("delay_ms")?, error_text: reader.bytes16("error text")? })
    }

    /// Appends the whole frame.
    ///
    /// # Errors
    /// An error text over 65535 bytes; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let Ok(text_len) = u16::try_from(self.error_text.len()) else {
            return Err(too_large("error text in bytes", usize::from(u16::MAX), self.error_text.len()));
        };
        let payload_len = DeliveryRef::LEN + 1 + 2 + 4 + 2 + self.error_text.len();
        self.delivery
            .write(SizedFrame::new(out, Op::Nack, payload_len))
            .u8(self.reason as u8)
            .u16(0)
            .u32(self.delay_ms)
            .u16(text_len)
            .raw(self.error_text)
            .finish();
        Ok(())
    }
}

/// The OK result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NackOk {
    /// What the answer rests on.
    pub position: Position,
}

impl NackOk {
    /// Decodes the result.
    ///
    /// # Errors
    /// Malformed when it ends early.
    pub fn decode(result: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self { position: Reader::new(result).position()? })
    }

    /// Appends the whole OK frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::ok(out, Op::Nack, 16).position(self.position).finish();
    }
}
