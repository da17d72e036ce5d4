//! The ledger: the history of every delivery and settle of a partition, kept apart from the records. A trace reads it.
//!
//! A ledger file opens as every file of a partition does (`segment/layout.rs`, magic `MMLQ`) and goes on with entries,
//! each a header of 24 bytes and its payload. All integers are little-endian:
//!
//! | at | field | meaning, and the fault it guards against |
//! |---|---|---|
//! | 0 | payload_bytes u32 | the length of what follows the header |
//! | 4 | count u32 | how many sequences the payload speaks of |
//! | 8 | first_seq u64 | the first of them |
//! | 16 | payload_crc u32 | CRC32C of the payload |
//! | 20 | header_crc u32 | CRC32C of topic, partition and the above: a scan is not led astray by a damaged length |

mod layout;
mod reader;
mod repair;
mod verify;
mod writer;

use bytes::Bytes;
use mortarmq_types::{Partition, Seq, TopicIncarnation};

pub(crate) use reader::read;
pub(crate) use repair::{repair, sound_entries};
pub(crate) use verify::check_entry;
pub(crate) use writer::LedgerTail;

/// A piece of history on its way into the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRecord {
    /// The topic's incarnation.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// The first sequence it speaks of.
    pub first_seq: Seq,
    /// How many sequences from there on it speaks of.
    pub count: u32,
    /// What happened, as the caller encodes it.
    pub payload: Bytes,
}

/// What of a ledger file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LedgerExtent {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// No entry speaks of a sequence below this one.
    pub(crate) lowest_seq: Seq,
    /// No entry speaks of this sequence or one above it.
    pub(crate) end_seq: Seq,
}
