//! Why a line is not a record.

use thiserror::Error;

/// Why a line is not a record. It is counted and reported, and the reading goes on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// The line is not UTF-8, not JSON, or a field has the wrong type.
    #[error("no JSON that fits: {reason}")]
    Json {
        /// What the JSON reader says, with the column.
        reason: String,
    },
    /// The record has no `op`.
    #[error("no `op`")]
    NoOp,
    /// The record has an `op` that is not known.
    #[error("op {op:?} is unknown")]
    UnknownOp {
        /// The op.
        op: String,
    },
    /// The record lacks a field it must have.
    #[error("a record {op:?} without `{field}`")]
    Missing {
        /// The op.
        op: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field holds a word that is not known.
    #[error("{field} {word:?} is unknown")]
    UnknownWord {
        /// The field.
        field: &'static str,
        /// What it holds.
        word: String,
    },
    /// The run record names a version of the format that this reader does not know.
    #[error("version {v} of the format (known: {known})")]
    Version {
        /// The version.
        v: u32,
        /// The newest that is known.
        known: u32,
    },
    /// The call returned before it was made.
    #[error("impossible: returned at {ret}, before its call at {call}")]
    ReturnsBeforeCall {
        /// When it was called.
        call: u64,
        /// When it returned.
        ret: u64,
    },
    /// The line is longer than a line may be.
    #[error("a line of more than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// The file ends in the middle of a record: whoever wrote it was killed.
    #[error("torn: the file ends in the middle of a record")]
    Torn,
    /// The compressed file is damaged: what follows in it cannot be read.
    #[error("damaged: {reason}; nothing after it in this file can be read")]
    Damaged {
        /// What the decompressor says.
        reason: String,
    },
}

/// The longest text of a bad line that a report repeats.
const MAX_SHOWN: usize = 60;

impl Unreadable {
    /// Repeats a text of a bad line, cut: a report is for reading.
    pub(super) fn shown(text: &str) -> String {
        match text.char_indices().nth(MAX_SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        }
    }
}
