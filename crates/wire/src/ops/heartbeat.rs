//! HEARTBEAT: renews or leaves a member's session.

use bytes::BytesMut;
use mortarmq_types::{MemberId, Position};

use crate::decode::Reader;
use crate::encode::SizedFrame;
use crate::faults::DecodeError;
use crate::op::Op;

/// The request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The connection's handle for the subscription.
    pub subscription_id: u16,
    /// The member's session.
    pub member_id: MemberId,
    /// The membership that the client knows; ignored in a shared group.
    pub membership_epoch: u32,
    /// The assignment that the client knows; ignored in a shared group.
    pub assignment_epoch: u32,
    /// Whether it stays.
    pub state: HeartbeatState,
}

/// Whether a member stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HeartbeatState {
    /// It works on.
    Active = 0,
    /// It ends the subscription; its leases end as released.
    Leave = 1,
}

impl Heartbeat {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields and unknown states.
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        Ok(Self {
            subscription_id: reader.u16("subscription_id")?,
            member_id: MemberId::new(reader.u64("member_id")?),
            membership_epoch: reader.u32("membership_epoch")?,
            assignment_epoch: reader.u32("assignment_epoch")?,
            state: if reader.boolean("state")? { HeartbeatState::Leave } else { HeartbeatState::Active },
        })
    }

    /// Appends the whole frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::new(out, Op::Heartbeat, 19)
            .u16(self.subscription_id)
            .u64(self.member_id.get())
            .u32(self.membership_epoch)
            .u32(self.assignment_epoch)
            .u8(self.state as u8)
            .finish();
    }
}

/// The OK result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatOk {
    /// What the answer rests on.
    pub position: Position,
}

impl HeartbeatOk {
    /// Decodes the result.
    ///
    /// # Errors
    /// Malformed when it ends early.
    pub fn decode(result: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self { position: Reader::new(result).position()? })
    }

    /// Appends the whole OK frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::ok(out, Op::Heartbeat, 16).position(self.position).finish();
    }
}
