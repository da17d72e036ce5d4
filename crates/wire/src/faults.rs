//! What can be wrong with bytes that came in, and with values that are to go out.

use crate::errors::ErrorCode;
use crate::frame::{MAX_BATCH_ITEMS, MAX_FRAME_LEN, WIRE_VERSION};
use crate::names::{MAX_NAME_LEN, NameKind};
use crate::op::Op;

/// The stream of frames itself is broken; the connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A length of 0, or above [`MAX_FRAME_LEN`].
    #[error("frame length {length} is outside 1..={MAX_FRAME_LEN}; fix the client, or check that it speaks MortarMQ")]
    BadLength {
        /// The length field as found.
        length: u32,
    },
}

impl FrameError {
    /// The code of the ERR that goes out before the connection closes.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::BadLength { .. } => ErrorCode::BadLength,
        }
    }
}

/// Why a payload was not understood. The text goes to the peer: it names the field and says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The payload ends inside a mandatory field.
    #[error("{field} needs {needed} bytes and {found} are left; fix the client")]
    Truncated {
        /// The field's name in the documentation.
        field: &'static str,
        /// The bytes it takes.
        needed: usize,
        /// The bytes that were left.
        found: usize,
    },
    /// A flag bit that this version does not know. It may change the meaning of the rest, so nothing is guessed.
    #[error("{field} {found:#06x} has a bit outside {known:#06x}; clear it, or upgrade the server")]
    UnknownFlags {
        /// The field's name.
        field: &'static str,
        /// The flags as found.
        found: u16,
        /// The bits that are known.
        known: u16,
    },
    /// A number that stands for a choice, and is none of them.
    #[error("{field} is {found}, allowed is {allowed}; fix the client")]
    UnknownValue {
        /// The field's name.
        field: &'static str,
        /// The number as found.
        found: u64,
        /// The choices.
        allowed: &'static str,
    },
    /// A batch of none or of too many.
    #[error("{field} is {found}, allowed is 1..={MAX_BATCH_ITEMS}; split the batch")]
    BatchCount {
        /// The field's name.
        field: &'static str,
        /// The count as found.
        found: u16,
    },
    /// A field that must not be empty or 0 where it is present.
    #[error("{field} is empty; give one or leave the field out")]
    Empty {
        /// The field's name.
        field: &'static str,
    },
    /// A field for people or for JSON that is not UTF-8.
    #[error("{field} is not UTF-8; fix the sender")]
    NotText {
        /// The field's name.
        field: &'static str,
    },
    /// More than the protocol carries.
    #[error("{field} is {found}, the limit is {limit}; send less")]
    TooLarge {
        /// What is too large, with its unit.
        field: &'static str,
        /// The most that is taken.
        limit: usize,
        /// What was found.
        found: usize,
    },
    /// A CONNECT of another version; nothing behind the version was read.
    #[error("this server speaks wire version {WIRE_VERSION}, the client asked for {found}; upgrade the client")]
    UnsupportedVersion {
        /// The version as found.
        found: u8,
    },
    /// A topic or group name that the rules forbid.
    #[error(
        "the {kind} name {problem}; use 1 to {MAX_NAME_LEN} of A-Z a-z 0-9 . _ -, not \".\" or \"..\", \
         and no \"$\" in front"
    )]
    InvalidName {
        /// Whose name it is.
        kind: NameKind,
        /// Which rule it breaks.
        problem: &'static str,
    },
    /// A SUB that names a partition.
    #[error("SUB takes partition 65535 (the group shares all of them), found {found}; fix the client")]
    UnknownPartition {
        /// The partition as found.
        found: u16,
    },
    /// A producer that is half idempotent, or whose numbers would pass the end of the line.
    #[error(
        "producer_id {producer_id} with producer_seq {producer_seq} and {count} records: {problem}; fix the client"
    )]
    ProducerSeqInvalid {
        /// The producer as found.
        producer_id: u64,
        /// Its number, of the first record, as found.
        producer_seq: u64,
        /// How many records follow.
        count: u16,
        /// Which rule it breaks.
        problem: &'static str,
    },
    /// A number that no op has.
    #[error("op {number:#04x} is not known; fix the client, or upgrade the server")]
    UnknownOp {
        /// The op byte.
        number: u8,
    },
    /// An op that exists and that this side does not take: the other side's, or not built in this version.
    #[error("{op} is not taken here; this version does not have it, or only the other side sends it")]
    UnsupportedOp {
        /// The op.
        op: Op,
    },
}

impl DecodeError {
    /// The code of the ERR that answers it, which says whether the connection closes.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Truncated { .. }
            | Self::UnknownFlags { .. }
            | Self::UnknownValue { .. }
            | Self::BatchCount { .. }
            | Self::Empty { .. }
            | Self::NotText { .. } => ErrorCode::MalformedPayload,
            Self::TooLarge { .. } => ErrorCode::TooLarge,
            Self::UnsupportedVersion { .. } => ErrorCode::UnsupportedVersion,
            Self::InvalidName { .. } => ErrorCode::InvalidTopic,
            Self::UnknownPartition { .. } => ErrorCode::UnknownPartition,
            Self::ProducerSeqInvalid { .. } => ErrorCode::ProducerSeqInvalid,
            Self::UnknownOp { .. } | Self::UnsupportedOp { .. } => ErrorCode::UnknownOp,
        }
    }
}

/// Why a value does not fit a frame. The buffer is left as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A field, or the whole frame, is longer than the protocol carries.
    #[error("{field} is {found}, the limit is {limit}; send less")]
    TooLarge {
        /// What is too large, with its unit.
        field: &'static str,
        /// The most that fits.
        limit: usize,
        /// What was given.
        found: usize,
    },
    /// A batch of none or of too many.
    #[error("{field} is {found}, allowed is 1..={MAX_BATCH_ITEMS}; split the batch")]
    BatchCount {
        /// The field's name.
        field: &'static str,
        /// The count that was given.
        found: usize,
    },
    /// A field that must not be empty where it is present.
    #[error("{field} is empty; give one or leave the field out")]
    Empty {
        /// The field's name.
        field: &'static str,
    },
}
