//! OK: answers a request with its result.

use crate::decode::Reader;
use crate::faults::DecodeError;
use crate::op::Op;

/// The envelope of every OK. Each op encodes its own, whole; this is the client's first look at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OkAnswer<'a> {
    /// The op that is answered.
    pub request_op: Op,
    /// What its result type decodes.
    pub result: &'a [u8],
}

impl<'a> OkAnswer<'a> {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed when it ends early; unknown op when no op has the number.
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let number = reader.u8("request_op")?;
        let request_op = Op::from_number(number).ok_or(DecodeError::UnknownOp { number })?;
        Ok(Self { request_op, result: reader.bytes32("result")? })
    }
}
