//! Segments: each partition's records in append order, with a dense index, written at apply and not fsynced.
//!
//! One [`SegmentWriter`] owns the files (the ledger's too); any number of [`SegmentReader`]s read what it has written.
//! The files lie in `data_dir/topics/INCARNATION/PARTITION`, incarnation in 16 hex digits: `FIRST_SEQ.segment` and
//! `FIRST_SEQ.index` with 20 digits, and `NNNN.ledger`. They are made when the first byte goes to them.
//!
//! # Invariants
//! 1. The sequences of a partition follow one another without a gap (P10).
//! 2. A reader sees a record only after its bytes and its index entry were written.
//! 3. Nothing is served whose position, index entry or record fails its checksum (P11).
//! 4. After a failed write or sync the writer takes nothing more (failure rule 2). A full disk is no failed write: the
//!    bytes stay in memory and [`SegmentWriter::flush`] may be called again (failure rule 8).
//! 5. A file that the newest checkpoint lists keeps the listed bytes until a newer checkpoint is durable.

mod checkpoint;
mod files;
mod layout;
mod reader;
mod remove;
mod repair;
mod restore;
mod tail;
mod trim;
mod verify;
mod writer;
mod written;

use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use mortarmq_types::{CommitIndex, Epoch, KeyHash, Partition, Seq, TopicIncarnation, WallTime};

pub(crate) use files::{Key, Shared, View, read_error};
pub(crate) use layout::{FILE_HEADER_BYTES, FileIdentity, INDEX_ENTRY_BYTES, Kind, TOPICS_DIR, crc_in_partition};
pub use reader::SegmentReader;
pub use repair::{RepairError, RepairOutcome};
pub(crate) use repair::{mend_header, refused, write};
pub(crate) use restore::views_of;
pub(crate) use tail::Tail;
pub(crate) use verify::{Checked, Extent, Missing, Walk, verify};
pub use writer::SegmentWriter;
pub(crate) use written::Sink;

/// How segments are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    /// The size at which a new segment or ledger file is begun. A record that is larger gets a segment of its own.
    pub segment_bytes: u64,
    /// After how many bytes written to a file it is synced, so that a checkpoint has little left to sync.
    pub push_bytes: u64,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, push_bytes: 4 << 20 }
    }
}

/// A record on its way into a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// The topic's incarnation.
    pub topic: TopicIncarnation,
    /// The partition.
    pub partition: Partition,
    /// Its place: one more than the partition's last.
    pub seq: Seq,
    /// The command that appended it.
    pub commit_index: CommitIndex,
    /// The leader's term then.
    pub epoch: Epoch,
    /// When it was published, for display and for seeking by time.
    pub published_at: WallTime,
    /// The hash of its key, for the index.
    pub key_hash: KeyHash,
    /// The size of what the consumer gets, for the index.
    pub payload_bytes: u32,
    /// When its life ends, in milliseconds as the caller counts them; 0 for never. Kept in 48 bits: what is later than
    /// the largest such value is kept as that value.
    pub expires_at_ms: u64,
    /// The record, made at the edge and stored as it is. Its last 4 bytes are the CRC32C, little-endian, of the bytes
    /// before them; it is checked whenever the record is read.
    pub record: Bytes,
}

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its place in the partition.
    pub seq: Seq,
    /// The command that appended it.
    pub commit_index: CommitIndex,
    /// The leader's term then.
    pub epoch: Epoch,
    /// When it was published.
    pub published_at: WallTime,
    /// The record as it was appended. Records of one read share one allocation.
    pub record: Bytes,
}

/// What the index knows of a record without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its place in the partition.
    pub seq: Seq,
    /// The hash of its key.
    pub key_hash: KeyHash,
    /// The size of what the consumer gets.
    pub payload_bytes: u32,
    /// When its life ends; 0 for never.
    pub expires_at_ms: u64,
}

/// Why records could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The sequence is not the partition's next: the caller is wrong.
    #[error("record {found} of topic {topic:?} partition {partition} appended where {expected} is next")]
    OutOfOrder {
        /// The topic's incarnation.
        topic: TopicIncarnation,
        /// The partition.
        partition: Partition,
        /// The sequence that is next.
        expected: Seq,
        /// The sequence of the record.
        found: Seq,
    },
    /// More bytes than a position header can say.
    #[error("a record of {bytes} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An earlier write failed.
    #[error("a write failed before, so nothing more is taken")]
    Poisoned,
}

/// Why buffered bytes could not be written.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// No room. The bytes are kept in memory; call again when there is room (failure rule 8).
    #[error("no room on disk for {}", .path.display())]
    DiskFull {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The disk failed. The process must end; recovery writes the files anew (failure rule 2).
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file that was being written is not what it was.
    #[error("a file being written cannot be opened again")]
    Reopen(#[source] ReadError),
    /// An earlier write failed.
    #[error("a write failed before, so nothing more is written")]
    Poisoned,
}

/// Why files or folders could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The disk failed.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is a checkpoint, and what it lists is not to be emptied but restored (failure rule 4).
    #[error("{} holds a checkpoint to restore the topics from", .checkpoints.display())]
    CheckpointThere {
        /// The checkpoints' directory.
        checkpoints: PathBuf,
    },
    /// There are topics and no journal to rebuild them from, so they are left alone (failure rule 4).
    #[error("{} holds topics, but the journal they come from is missing", .topics.display())]
    JournalMissing {
        /// The directory that would have been emptied.
        topics: PathBuf,
    },
}

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The disk failed.
    #[error("cannot read {} at offset {offset}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are not what was written; they are not served (P11).
    #[error("{} is damaged at offset {offset}: {what}", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where the damaged piece begins.
        offset: u64,
        /// Which check failed.
        what: &'static str,
    },
    /// A sound file in a format this build does not know (P11).
    #[error("{} has version {found}; this build reads version {supported}", .path.display())]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u16,
        /// The version this build reads and writes.
        supported: u16,
    },
}

#[cfg(test)]
mod tests;
