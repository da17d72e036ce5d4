//! PULL: asks once for messages. Its MSGs and its answer take no place in the order of answers.

use bytes::BytesMut;
use mortarmq_types::{MemberId, Position};

use crate::decode::Reader;
use crate::encode::{FrameWriter, SizedFrame};
use crate::faults::{DecodeError, EncodeError};
use crate::list::List;
use crate::op::Op;

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull<'a> {
    /// The connection's handle for the subscription.
    pub subscription_id: u16,
    /// The member's session, which the pull renews.
    pub member_id: MemberId,
    /// The membership that the client knows; ignored in a shared group.
    pub membership_epoch: u32,
    /// The assignment that the client knows; ignored in a shared group.
    pub assignment_epoch: u32,
    /// The ownerships that the client knows; ignored in a shared group.
    pub ownership_epochs: List<'a, u64>,
    /// The most messages; at least 1.
    pub max_msgs: u16,
    /// The most bytes; 0 is no limit.
    pub max_bytes: u32,
    /// How long to wait for messages.
    pub wait_ms: u16,
    /// Bytes that end the waiting.
    pub min_bytes: u32,
}

impl<'a> Pull<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields and for max_msgs 0.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let subscription_id = reader.u16("subscription_id")?;
        let member_id = MemberId::new(reader.u64("member_id")?);
        let membership_epoch = reader.u32("membership_epoch")?;
        let assignment_epoch = reader.u32("assignment_epoch")?;
        let epoch_count = usize::from(reader.u16("ownership_epochs count")?);
        let ownership_epochs = List::read(&mut reader, epoch_count)?;
        let max_msgs = reader.u16("max_msgs")?;
        let max_bytes = reader.u32("max_bytes")?;
        let wait_ms = reader.u16("wait_ms")?;
        let min_bytes = reader.u32("min_bytes")?;
        if max_msgs == 0 {
            return Err(DecodeError::UnknownValue { field: "max_msgs", found: 0, allowed: "1 to 65535" });
        }
        Ok(Self {
            subscription_id,
            member_id,
            membership_epoch,
            assignment_epoch,
            ownership_epochs,
            max_msgs,
            max_bytes,
            wait_ms,
            min_bytes,
        })
    }

    /// Appends the whole frame.
    ///
    /// # Errors
    /// Over 65535 ownership epochs; `out` is as it was.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), EncodeError> {
        let mut writer = FrameWriter::frame(out, Op::Pull);
        writer.u16(self.subscription_id);
        writer.u64(self.member_id.get());
        writer.u32(self.membership_epoch);
        writer.u32(self.assignment_epoch);
        writer.list16("ownership_epochs", &self.ownership_epochs);
        writer.u16(self.max_msgs);
        writer.u32(self.max_bytes);
        writer.u16(self.wait_ms);
        writer.u32(self.min_bytes);
        writer.finish()
    }
}

/// The OK result, sent behind the pull's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullOk {
    /// Which subscription's pull is answered: the answer may overtake others.
    pub subscription_id: u16,
    /// How many messages were sent for it.
    pub message_count: u16,
    /// What the answer rests on.
    pub position: Position,
}

impl PullOk {
    /// Decodes the result.
    ///
    /// # Errors
    /// Malformed when it ends early.
    pub fn decode(result: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(result);
        Ok(Self {
            subscription_id: reader.u16("subscription_id")?,
            message_count: reader.u16("count")?,
            position: reader.position()?,
        })
    }

    /// Appends the whole OK frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::ok(out, Op::Pull, 20)
            .u16(self.subscription_id)
            .u16(self.message_count)
            .position(self.position)
            .finish();
    }
}
