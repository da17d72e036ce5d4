//! PING: a sign of life, allowed before CONNECT.

use bytes::BytesMut;

use crate::encode::SizedFrame;
use crate::op::Op;

/// The request. It has no payload; whatever bytes a newer peer adds are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping;

impl Ping {
    /// Appends the whole frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::new(out, Op::Ping, 0).finish();
    }
}

/// The OK result. It is empty and rests on no shard position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingOk;

impl PingOk {
    /// Appends the whole OK frame.
    pub fn encode(&self, out: &mut BytesMut) {
        SizedFrame::ok(out, Op::Ping, 0).finish();
    }
}
