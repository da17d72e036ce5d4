//! CREDIT: sets or raises a subscription's window.

use bytes::BytesMut;
use mortarmq_types::Position;

use crate::decode::Reader;
use crate::encode::SizedFrame;
use crate::faults::DecodeError;
use crate::op::Op;

/// The request. Its reserved field is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The connection's handle for the subscription.
    pub subscription_id: u16,
    /// The membership that the client knows; ignored in a shared group.
    pub membership_epoch: u32,
    /// The ownership that the client knows; ignored in a shared group.
    pub ownership_epoch: u64,
    /// Whether the numbers replace the window or raise it.
    pub mode: CreditMode,
    /// Messages that may be held unsettled by pushes; 0xFFFF is the group's setting.
    pub credit_count: u16,
    /// Bytes of them; 0xFFFFFFFF is the group's setting.
    pub credit_bytes: u32,
}

/// What a CREDIT does with the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CreditMode {
    /// Replaces it.
    Set = 0,
    /// Raises it.
    Add = 1,
}

impl Credit {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields and unknown modes.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let credit = Self {
            subscription_id: reader.u16("subscription_id")?,
            membership_epoch: reader.u32("membership_epoch")?,
            ownership_epoch: reader.u64("ownership_epoch")?,
            mode: if reader.boolean("mode")? { CreditMode::Add } else { CreditMode::Set },
            credit_count: reader.u16("credit_count")?,
            credit_bytes: reader.u32("credit_bytes")?,
        };
        reader.u32("reserved")?;
        Ok(credit)
    }

    /// Appends the whole frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::new(out, Op::Credit, 25)
            .u16(self.subscription_id)
            .u32(self.membership_epoch)
            .u64(self.ownership_epoch)
            .u8(self.mode as u8)
            .u16(self.credit_count)
            .u32(self.credit_bytes)
            .u32(0)
            .finish();
    }
}

/// The OK result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditOk {
    /// The window in messages.
    pub granted_count: u16,
    /// The window in bytes.
    pub granted_bytes: u32,
    /// Messages that are held unsettled.
    pub outstanding_count: u16,
    /// Bytes of them.
    pub outstanding_bytes: u32,
    /// How often the window was changed.
    pub credit_epoch: u64,
    /// What the answer rests on.
    pub position: Position,
}

impl CreditOk {
    /// Decodes the result.
    ///
    /// # Errors
    /// Malformed when it ends early.
    pub fn decode(result: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(result);
        Ok(Self {
            granted_count: reader.u16("granted_count")?,
            granted_bytes: reader.u32("granted_bytes")?,
            outstanding_count: reader.u16("outstanding_count")?,
            outstanding_bytes: reader.u32("outstanding_bytes")?,
            credit_epoch: reader.u64("credit_epoch")?,
            position: reader.position()?,
        })
    }

    /// Appends the whole OK frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::ok(out, Op::Credit, 36)
            .u16(self.granted_count)
            .u32(self.granted_bytes)
            .u16(self.outstanding_count)
            .u32(self.outstanding_bytes)
            .u64(self.credit_epoch)
            .position(self.position)
            .finish();
    }
}
