//! A batch: one log entry with a stamp and many commands.
//!
//! | field | bytes | meaning |
//! |---|---|---|
//! | version | 1 | [`BATCH_VERSION`]; an unknown one is refused |
//! | count | 4 | commands that follow |
//! | time | 8 | cluster time of the batch, milliseconds |
//! | gap | 8 | milliseconds before it in which nobody could settle or renew |
//! | wall | 8 | the leader's wall clock, for display |
//! | commands | n | each: length u32 (of what follows), kind u8, fields |
//!
//! All numbers are big-endian. The journal's checksum covers the bytes.

use super::Command;
use super::codec::{self, CommandError, Fields};
use super::publish::PublishRun;
use bytes::{BufMut, Bytes, BytesMut};
use mortarmq_types::{ClusterTime, WallTime};

/// The version of the batch layout.
pub const BATCH_VERSION: u8 = 1;

pub(super) const KIND_SET_DEFAULTS: u8 = 1;
pub(super) const KIND_CREATE_TOPIC: u8 = 2;
pub(super) const KIND_DELETE_TOPIC: u8 = 3;
pub(super) const KIND_PUBLISH: u8 = 4;
pub(super) const KIND_PUBLISH_BATCH: u8 = 5;
pub(super) const KIND_JOIN_GROUP: u8 = 6;
pub(super) const KIND_END_MEMBER: u8 = 7;
pub(super) const KIND_DELIVER: u8 = 8;
pub(super) const KIND_SETTLE: u8 = 9;
pub(super) const KIND_PURGE_PATH: u8 = 10;
pub(super) const KIND_SEEK_PATH: u8 = 11;
pub(super) const KIND_DELETE_GROUP: u8 = 12;
pub(super) const KIND_RESUME_MEMBER: u8 = 13;
pub(super) const KIND_TRIM: u8 = 14;
pub(super) const KIND_REDRIVE: u8 = 15;
pub(super) const KIND_DROP_DEAD: u8 = 16;
pub(super) const KIND_CHANGE_TOPIC: u8 = 17;
pub(super) const KIND_CHANGE_GROUP: u8 = 18;
pub(super) const KIND_CHANGE_DEFAULTS: u8 = 19;

const HEADER_BYTES: usize = 1 + 4 + 8 + 8 + 8;

/// A piece of memory for the batches that come.
const SHARED_BYTES: usize = 1 << 20;
/// With less room than this, or than the last batch took, a new piece begins.
const SHARED_LEAST_BYTES: usize = 4096;

/// The times of a batch, given by the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Cluster time.
    pub time: ClusterTime,
    /// Milliseconds before it in which nobody could settle or renew: leases and sessions move by them.
    pub gap_ms: u64,
    /// The leader's wall clock.
    pub wall: WallTime,
}

/// Collects encoded commands; stamped when it is closed.
#[derive(Debug)]
pub struct BatchBuilder {
    buffer: BytesMut,
    count: u32,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        let mut buffer = BytesMut::new();
        buffer.put_bytes(0, HEADER_BYTES);
        Self { buffer, count: 0 }
    }
}

impl BatchBuilder {
    /// Adds one command.
    ///
    /// # Panics
    /// For publishes, which come encoded from the edge: [`Self::add_run`].
    pub fn add(&mut self, command: &Command) {
        codec::encode(&mut self.buffer, command);
        self.count += 1;
    }

    /// Adds the publishes of a run.
    pub fn add_run(&mut self, run: &PublishRun) {
        self.buffer.extend_from_slice(&run.commands);
        self.count += run.count;
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Commands so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether there are no commands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Stamps what was collected and hands it over; the builder is empty afterwards.
    pub fn close(&mut self, stamp: Stamp) -> Bytes {
        let mut header = &mut self.buffer[..HEADER_BYTES];
        header.put_u8(BATCH_VERSION);
        header.put_u32(self.count);
        header.put_u64(stamp.time.get());
        header.put_u64(stamp.gap_ms);
        header.put_u64(stamp.wall.get());
        let bytes = self.buffer.split().freeze();
        // What is kept of a batch keeps all of its memory, room that was not used included. So batches share a piece of it.
        if self.buffer.capacity() < bytes.len().max(SHARED_LEAST_BYTES) {
            self.buffer = BytesMut::with_capacity(SHARED_BYTES.max(bytes.len()));
        }
        self.buffer.put_bytes(0, HEADER_BYTES);
        self.count = 0;
        bytes
    }
}

/// A batch being read.
#[derive(Debug)]
pub struct Batch {
    /// Its times.
    pub stamp: Stamp,
    /// Commands not read yet.
    pub left: u32,
    fields: Fields,
}

impl Batch {
    /// Reads the header of a batch.
    ///
    /// # Errors
    /// When it is too short or of an unknown version.
    pub fn open(bytes: Bytes) -> Result<Self, CommandError> {
        let mut fields = Fields::new(bytes);
        let version = fields.u8()?;
        if version != BATCH_VERSION {
            return Err(CommandError::UnknownVersion { found: version });
        }
        let left = fields.u32()?;
        let stamp =
            Stamp { time: ClusterTime::new(fields.u64()?), gap_ms: fields.u64()?, wall: WallTime::new(fields.u64()?) };
        Ok(Self { stamp, left, fields })
    }

    /// The next command; `None` after the last.
    ///
    /// # Errors
    /// When its bytes are no command. The batch cannot be read on after that.
    pub fn next_command(&mut self) -> Result<Option<Command>, CommandError> {
        if self.left == 0 {
            return if self.fields.is_empty() { Ok(None) } else { Err(CommandError::TrailingBytes) };
        }
        self.left -= 1;
        let command = self.fields.long_bytes()?;
        codec::decode(command).map(Some)
    }
}

/// Begins a command in `out`; [`close_command`] fills its length in.
pub(super) fn open_command(out: &mut BytesMut, kind: u8) -> usize {
    let start = out.len();
    out.put_u32(0);
    out.put_u8(kind);
    start
}

pub(super) fn close_command(out: &mut BytesMut, start: usize) {
    let length = u32::try_from(out.len() - start - 4).expect("a command is bounded by the frame it came in");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}
