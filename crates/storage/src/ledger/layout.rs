//! The header of a ledger entry.

use bytes::{Buf, BufMut};
use mortarmq_types::{Partition, Seq, TopicIncarnation};

use crate::segment::crc_in_partition;

/// The length of an entry's header.
pub(super) const ENTRY_BYTES: usize = 24;

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHeader {
    pub(super) payload_bytes: u32,
    pub(super) count: u32,
    pub(super) first_seq: Seq,
    pub(super) payload_crc: u32,
}

impl EntryHeader {
    pub(super) fn encode(&self, topic: TopicIncarnation, partition: Partition) -> [u8; ENTRY_BYTES] {
        let mut header = [0; ENTRY_BYTES];
        let mut rest = &mut header[..];
        rest.put_u32_le(self.payload_bytes);
        rest.put_u32_le(self.count);
        rest.put_u64_le(self.first_seq.get());
        rest.put_u32_le(self.payload_crc);
        let crc = crc_in_partition(topic, partition, &header[..20]);
        header[20..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Reads a header; nothing if it fails its checksum.
    pub(super) fn parse(header: &[u8], topic: TopicIncarnation, partition: Partition) -> Option<Self> {
        let mut fields = header;
        let (payload_bytes, count) = (fields.get_u32_le(), fields.get_u32_le());
        let (first_seq, payload_crc) = (Seq::new(fields.get_u64_le()), fields.get_u32_le());
        let parsed = Self { payload_bytes, count, first_seq, payload_crc };
        (parsed.encode(topic, partition) == header).then_some(parsed)
    }

    /// Whether the entry speaks of this sequence.
    pub(super) fn holds(&self, seq: Seq) -> bool {
        seq >= self.first_seq && seq.above(self.first_seq) < u64::from(self.count)
    }
}
