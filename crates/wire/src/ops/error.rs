//! ERR: answers a request, or ends a connection, with an error.

use bytes::BytesMut;
use mortarmq_types::Position;

use crate::decode::Reader;
use crate::encode::SizedFrame;
use crate::errors::{ErrorCode, Outcome};
use crate::faults::DecodeError;
use crate::frame::MAX_ERR_MESSAGE;
use crate::op::Op;

/// An error answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorAnswer<'a> {
    /// The code's number. A newer server may send one that this version does not know: see [`Self::known_code`].
    pub code: u16,
    /// The number of the op that is answered; 0 where no op was read.
    pub request_op: u8,
    /// What is wrong and what to do. At most [`MAX_ERR_MESSAGE`] bytes are sent.
    pub message: &'a [u8],
    /// Whether the request may have taken effect (P2).
    pub outcome: Outcome,
    /// How long to wait before a retry; 0 says nothing.
    ///
    /// # Units
    /// Milliseconds.
    pub retry_after_ms: u32,
    /// What the answer rests on; 0, 0 when nothing was looked up.
    pub position: Position,
    /// Which subscription's pull is answered. Only travels when `request_op` is PULL, otherwise 0.
    pub subscription_id: u16,
}

impl<'a> ErrorAnswer<'a> {
    /// An answer with the code's own outcome, and nothing looked up.
    #[must_use]
    pub const fn new(code: ErrorCode, request_op: u8, message: &'a [u8]) -> Self {
        Self {
            code: code.number(),
            request_op,
            message,
            outcome: code.outcome(),
            retry_after_ms: 0,
            position: NOTHING_LOOKED_UP,
            subscription_id: 0,
        }
    }

    /// The code, if this version knows it. If not, `outcome` still tells what to do.
    #[must_use]
    pub const fn known_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_number(self.code)
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// Malformed for missing fields and unknown outcomes.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let code = reader.u16("code")?;
        let request_op = reader.u8("request_op")?;
        let message = reader.bytes16("message")?;
        let outcome = if reader.boolean("outcome")? { Outcome::Unknown } else { Outcome::Refused };
        let retry_after_ms = reader.u32("retry_after_ms")?;
        let position = reader.position()?;
        let subscription_id = if is_pull(request_op) { reader.u16("subscription_id")? } else { 0 };
        Ok(Self { code, request_op, message, outcome, retry_after_ms, position, subscription_id })
    }

    /// Appends the whole frame. A message over [`MAX_ERR_MESSAGE`] is cut between two characters.
    pub fn encode(&self, out: &mut BytesMut) {
        let message = cut(self.message);
        let is_pull = is_pull(self.request_op);
        let payload_len = 2 + 1 + 2 + message.len() + 1 + 4 + 16 + if is_pull { 2 } else { 0 };
        let frame = SizedFrame::new(out, Op::Err, payload_len)
            .u16(self.code)
            .u8(self.request_op)
            .u16(message.len() as u16)
            .raw(message)
            .u8(self.outcome.number())
            .u32(self.retry_after_ms)
            .position(self.position);
        let frame = if is_pull { frame.u16(self.subscription_id) } else { frame };
        frame.finish();
    }
}

const fn is_pull(request_op: u8) -> bool {
    request_op == Op::Pull.number()
}

/// The longest beginning that is within the limit and does not end inside a UTF-8 character.
fn cut(message: &[u8]) -> &[u8] {
    if message.len() <= MAX_ERR_MESSAGE {
        return message;
    }
    let is_boundary = |at: &usize| message[*at] & 0xC0 != 0x80;
    let end = (MAX_ERR_MESSAGE - 3..=MAX_ERR_MESSAGE).rev().find(is_boundary).unwrap_or(MAX_ERR_MESSAGE);
    &message[..end]
}

const NOTHING_LOOKED_UP: Position =
    Position { epoch: mortarmq_types::Epoch::ZERO, commit_index: mortarmq_types::CommitIndex::ZERO };

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::ErrorAnswer;
    use crate::errors::{ErrorCode, Outcome};
    use crate::faults::DecodeError;
    use crate::frame::MAX_ERR_MESSAGE;
    use crate::op::Op;

    fn sent(answer: &ErrorAnswer<'_>) -> BytesMut {
        let mut out = BytesMut::new();
        answer.encode(&mut out);
        out
    }

    #[test]
    fn long_message_is_cut_between_two_characters() {
        let cut_to = |text: &str| {
            let frame = sent(&ErrorAnswer::new(ErrorCode::Internal, 0, text.as_bytes()));
            let message = ErrorAnswer::decode(&frame[5..]).expect("well formed").message.to_vec();
            String::from_utf8(message).expect("cut between characters").len()
        };
        assert_eq!(cut_to(&"a".repeat(MAX_ERR_MESSAGE)), 512);
        assert_eq!(cut_to(&"a".repeat(MAX_ERR_MESSAGE + 1)), 512);
        assert_eq!(cut_to(&"ä".repeat(400)), 512);
        assert_eq!(cut_to(&format!("a{}", "ä".repeat(400))), 511);
        assert_eq!(cut_to(&format!("a{}", "🦀".repeat(200))), 509);
    }

    #[test]
    fn every_decode_error_has_a_text_that_is_not_cut() {
        let invalid = DecodeError::InvalidName { kind: crate::names::NameKind::Group, problem: "has a character" };
        let producer = DecodeError::ProducerSeqInvalid {
            producer_id: u64::MAX,
            producer_seq: u64::MAX,
            count: u16::MAX,
            problem: "the numbers pass the last one",
        };
        for error in [invalid, producer] {
            assert!(error.to_string().len() < MAX_ERR_MESSAGE, "{error}");
        }
    }

    #[test]
    fn only_an_answer_to_a_pull_names_its_subscription() {
        let mut answer = ErrorAnswer::new(ErrorCode::UnknownMember, Op::Pull.number(), b"");
        answer.subscription_id = 7;
        assert_eq!(ErrorAnswer::decode(&sent(&answer)[5..]), Ok(answer));
        let without = &sent(&answer)[5..sent(&answer).len() - 2];
        assert_eq!(ErrorAnswer::decode(without).map_err(DecodeError::code), Err(ErrorCode::MalformedPayload));
        answer.request_op = Op::Publish.number();
        assert_eq!(ErrorAnswer::decode(&sent(&answer)[5..]).map(|answer| answer.subscription_id), Ok(0));
    }

    #[test]
    fn code_of_a_newer_server_is_kept_with_its_outcome() {
        let mut answer = ErrorAnswer::new(ErrorCode::QuorumLost, 0, b"");
        assert_eq!((answer.known_code(), answer.outcome), (Some(ErrorCode::QuorumLost), Outcome::Unknown));
        answer.code = 0x7777;
        let frame = sent(&answer);
        let decoded = ErrorAnswer::decode(&frame[5..]).expect("well formed");
        assert_eq!((decoded.known_code(), decoded.code, decoded.outcome), (None, 0x7777, Outcome::Unknown));
    }
}
