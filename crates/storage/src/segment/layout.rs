//! The bytes of segment and index files, and the header they share with ledger files. All integers are little-endian.
//!
//! **Every file** opens with 32 bytes:
//!
//! | at | field | meaning, and the fault it guards against |
//! |---|---|---|
//! | 0 | magic | `MMQS` segment, `MMQI` index, `MMLQ` ledger |
//! | 4 | version u16, header_bytes u16 | |
//! | 8 | topic u64 | the incarnation: a file of an earlier life of the topic is refused |
//! | 16 | number u64 | the first sequence, or a ledger file's number: a renamed file is refused |
//! | 24 | partition u16, zero u16 | |
//! | 28 | crc u32 | CRC32C of the above |
//!
//! **A segment** goes on with records, each a position header of 44 bytes and the record's bytes, unchanged:
//!
//! | at | field | meaning |
//! |---|---|---|
//! | 0 | record_bytes u32 | the length of what follows the header |
//! | 4 | crc u32 | CRC32C of topic, partition and all other fields: a record copied to another place fails |
//! | 8 | seq u64, commit_index u64, epoch u64, published_at u64 | |
//! | 40 | record_crc u32 | the record's own closing checksum: a sound record under another's position fails |
//!
//! **An index** goes on with 24 bytes for each record of the segment of the same name, in order:
//!
//! | at | field | meaning |
//! |---|---|---|
//! | 0 | key_hash u64 | 0 without a key |
//! | 8 | payload_bytes u32 | |
//! | 12 | offset u32 | where the record's position header begins in the segment |
//! | 16 | expires_at u48 | milliseconds, 0 for never |
//! | 22 | check u16 | the lower half of the CRC32C of topic, partition, seq and the above |

use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut};
use mortarmq_types::{CommitIndex, Epoch, KeyHash, Partition, Seq, TopicIncarnation, WallTime};

use super::{IndexEntry, SegmentRecord};

/// The topics' directory in the data directory.
pub(crate) const TOPICS_DIR: &str = "topics";
/// The length of the header that every file opens with.
pub(crate) const FILE_HEADER_BYTES: usize = 32;
/// The length of a position header.
pub(super) const POSITION_BYTES: usize = 44;
/// The length of an index entry.
pub(crate) const INDEX_ENTRY_BYTES: usize = 24;
/// The version written, and the only one read.
pub(super) const VERSION: u16 = 1;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Records.
    Segment,
    /// The index of the segment of the same number.
    Index,
    /// Deliveries and settles.
    Ledger,
}

impl Kind {
    const fn magic(self) -> &'static [u8; 4] {
        match self {
            Self::Segment => b"MMQS",
            Self::Index => b"MMQI",
            Self::Ledger => b"MMLQ",
        }
    }
}

/// Which file it is: its path and its header follow from this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileIdentity {
    pub(crate) topic: TopicIncarnation,
    pub(crate) partition: Partition,
    pub(crate) kind: Kind,
    /// The first sequence of a segment or index, the number of a ledger file.
    pub(crate) number: u64,
}

/// What a file header turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderCheck {
    Good,
    UnknownVersion(u16),
    Damaged(&'static str),
}

impl FileIdentity {
    /// The file of another kind under the same number.
    pub(crate) fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The folder of the file's partition, below the directory of the topics.
    pub(super) fn folder(&self, topics: &Path) -> PathBuf {
        topics.join(self.topic.to_hex()).join(self.partition.to_string())
    }

    /// The file's path.
    pub(super) fn path(&self, topics: &Path) -> PathBuf {
        self.folder(topics).join(self.name())
    }

    fn name(&self) -> String {
        let number = self.number;
        match self.kind {
            Kind::Segment => format!("{number:020}.segment"),
            Kind::Index => format!("{number:020}.index"),
            Kind::Ledger => format!("{number:04}.ledger"),
        }
    }

    /// The file's path in the data directory, as a checkpoint lists it.
    pub(crate) fn relative_path(&self) -> String {
        format!("{TOPICS_DIR}/{}/{}/{}", self.topic.to_hex(), self.partition, self.name())
    }

    /// The file of a path that [`Self::relative_path`] makes; nothing for every other path.
    pub(crate) fn of_relative_path(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix(TOPICS_DIR)?.strip_prefix('/')?.splitn(3, '/');
        let (topic, partition, name) = (parts.next()?, parts.next()?, parts.next()?);
        let (number, kind) = name.split_once('.')?;
        let kind = match kind {
            "segment" => Kind::Segment,
            "index" => Kind::Index,
            "ledger" => Kind::Ledger,
            _ => return None,
        };
        let topic = TopicIncarnation::new(u64::from_str_radix(topic, 16).ok()?);
        let partition = Partition::new(partition.parse().ok()?);
        let identity = Self { topic, partition, kind, number: number.parse().ok()? };
        (identity.relative_path() == path).then_some(identity)
    }

    /// Whether a name is one that [`Self::path`] makes.
    pub(super) fn is_file_name(name: &str) -> bool {
        let Some((digits, kind)) = name.split_once('.') else { return false };
        matches!(kind, "segment" | "index" | "ledger") && digits.bytes().all(|digit| digit.is_ascii_digit())
    }

    /// The header the file opens with.
    pub(super) fn header(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut header = [0; FILE_HEADER_BYTES];
        let mut rest = &mut header[..];
        rest.put_slice(self.kind.magic());
        rest.put_u16_le(VERSION);
        rest.put_u16_le(FILE_HEADER_BYTES as u16);
        rest.put_u64_le(self.topic.get());
        rest.put_u64_le(self.number);
        rest.put_u16_le(self.partition.get());
        let crc = crc32c::crc32c(&header[..28]);
        header[28..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Compares a header with the one this file must have.
    pub(super) fn check(&self, header: &[u8; FILE_HEADER_BYTES]) -> HeaderCheck {
        if *header == self.header() {
            return HeaderCheck::Good;
        }
        let (fields, mut crc) = header.split_at(28);
        if !fields.starts_with(self.kind.magic()) || crc.get_u32_le() != crc32c::crc32c(fields) {
            return HeaderCheck::Damaged("the file header fails its checksum");
        }
        let version = (&fields[4..6]).get_u16_le();
        if version != VERSION {
            return HeaderCheck::UnknownVersion(version);
        }
        HeaderCheck::Damaged("the file belongs to another place")
    }
}

/// CRC32C that also covers where the bytes belong.
pub(crate) fn crc_in_partition(topic: TopicIncarnation, partition: Partition, bytes: &[u8]) -> u32 {
    let mut place = [0; 10];
    place[..8].copy_from_slice(&topic.get().to_le_bytes());
    place[8..].copy_from_slice(&partition.get().to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), bytes)
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PositionHeader {
    pub(super) record_bytes: u32,
    pub(super) seq: Seq,
    pub(super) commit_index: CommitIndex,
    pub(super) epoch: Epoch,
    pub(super) published_at: WallTime,
    /// The four bytes the record closes with, so that no other record can stand here.
    pub(super) record_crc: u32,
}

impl PositionHeader {
    pub(super) fn encode(&self, topic: TopicIncarnation, partition: Partition) -> [u8; POSITION_BYTES] {
        let mut header = [0; POSITION_BYTES];
        let mut rest = &mut header[..];
        rest.put_u32_le(self.record_bytes);
        rest.put_u32_le(0);
        for field in [self.seq.get(), self.commit_index.get(), self.epoch.get(), self.published_at.get()] {
            rest.put_u64_le(field);
        }
        rest.put_u32_le(self.record_crc);
        let crc = crc_in_partition(topic, partition, &header);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Reads a header; nothing if it fails its checksum.
    pub(super) fn parse(mut header: &[u8], topic: TopicIncarnation, partition: Partition) -> Option<Self> {
        let original = header.get(..POSITION_BYTES)?;
        let record_bytes = header.get_u32_le();
        header.advance(4);
        let mut next = || header.get_u64_le();
        let parsed = Self {
            record_bytes,
            seq: Seq::new(next()),
            commit_index: CommitIndex::new(next()),
            epoch: Epoch::new(next()),
            published_at: WallTime::new(next()),
            record_crc: header.get_u32_le(),
        };
        (parsed.encode(topic, partition) == original).then_some(parsed)
    }
}

/// An index entry with the place of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexLine {
    pub(super) entry: IndexEntry,
    pub(super) offset: u32,
}

impl IndexLine {
    pub(super) fn of(record: &SegmentRecord, offset: u32) -> Self {
        let entry = IndexEntry {
            seq: record.seq,
            key_hash: record.key_hash,
            payload_bytes: record.payload_bytes,
            expires_at_ms: record.expires_at_ms.min(MAX_EXPIRY_MS),
        };
        Self { entry, offset }
    }

    pub(super) fn encode(&self, topic: TopicIncarnation, partition: Partition) -> [u8; INDEX_ENTRY_BYTES] {
        let mut line = [0; INDEX_ENTRY_BYTES];
        line[..8].copy_from_slice(&self.entry.key_hash.get().to_le_bytes());
        line[8..12].copy_from_slice(&self.entry.payload_bytes.to_le_bytes());
        line[12..16].copy_from_slice(&self.offset.to_le_bytes());
        line[16..22].copy_from_slice(&self.entry.expires_at_ms.to_le_bytes()[..6]);
        let mut covered = [0; 30];
        covered[..8].copy_from_slice(&self.entry.seq.get().to_le_bytes());
        covered[8..].copy_from_slice(&line[..22]);
        let check = crc_in_partition(topic, partition, &covered);
        line[22..].copy_from_slice(&check.to_le_bytes()[..2]);
        line
    }

    /// Reads the entry of `seq`; nothing if it fails its checksum.
    pub(super) fn parse(line: &[u8], seq: Seq, topic: TopicIncarnation, partition: Partition) -> Option<Self> {
        let mut fields = line;
        let (key_hash, payload_bytes) = (KeyHash::new(fields.get_u64_le()), fields.get_u32_le());
        let (offset, expires_at_ms) = (fields.get_u32_le(), fields.get_uint_le(6));
        let parsed = Self { entry: IndexEntry { seq, key_hash, payload_bytes, expires_at_ms }, offset };
        (parsed.encode(topic, partition) == line).then_some(parsed)
    }
}

/// Expiry is kept in 48 bits: 8,900 years of milliseconds.
const MAX_EXPIRY_MS: u64 = (1 << 48) - 1;

/// The checksum a record closes with; 0 for one that is too short to have any.
pub(super) fn closing_crc(record: &[u8]) -> u32 {
    record.last_chunk::<4>().map_or(0, |crc| u32::from_le_bytes(*crc))
}

/// What keeps a record from being served under its position, if anything: it must end with the CRC32C of what stands
/// before it, and that must be the one its position names.
pub(super) fn record_fault(record: &[u8], position: &PositionHeader) -> Option<&'static str> {
    let is_sound =
        record.split_last_chunk::<4>().is_some_and(|(bytes, crc)| crc32c::crc32c(bytes).to_le_bytes() == *crc);
    if !is_sound {
        return Some("it fails its checksum");
    }
    (closing_crc(record) != position.record_crc).then_some("another record stands under its position")
}
