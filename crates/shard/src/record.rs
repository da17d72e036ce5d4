//! The bytes of one message as journal, peer frame and segment carry them: made once at the edge, never re-encoded.
//!
//! | field | bytes | meaning, and the fault it guards against |
//! |---|---|---|
//! | version | 1 | [`RECORD_VERSION`]; an unknown one is refused, not guessed at (P11) |
//! | flags | 1 | bit 0: the body holds a headers block |
//! | producer_id | 8 | big-endian; given back in every delivery, so that a consumer can tell who sent it |
//! | producer_seq | 8 | big-endian |
//! | body | n | key, headers, value: exactly the bytes that PUB carried and MSG will carry |
//! | checksum | 4 | CRC32C of everything before it, little-endian: a flipped bit anywhere on the way is found |

use bytes::{BufMut, Bytes, BytesMut};
use hash32::Hasher as _;
use mortarmq_types::{KeyHash, ProducerId, ProducerSeq};
use std::hash::Hasher as _;

/// The version of the record layout.
pub const RECORD_VERSION: u8 = 1;
/// Bytes of a record around its body.
pub const RECORD_OVERHEAD_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES;

const HEADER_BYTES: usize = 18;
const CHECKSUM_BYTES: usize = 4;
const FLAG_HEADERS: u8 = 1;
const _: () = assert!(HEADER_BYTES == 1 + 1 + 8 + 8);

/// A message as its producer sent it, before it has a place.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// Who sends it; 0 for nobody in particular.
    pub producer_id: ProducerId,
    /// The sender's number for it.
    pub producer_seq: ProducerSeq,
    /// The key inside `body`; empty for none.
    pub key: &'a [u8],
    /// Whether `body` holds a headers block.
    pub has_headers: bool,
    /// Key, headers and value with their lengths, as on the wire.
    pub body: &'a [u8],
}

/// What the state machine needs to know of a record without reading its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSummary {
    /// Places the message and orders it.
    pub key_hash: KeyHash,
    /// Tells a retry from another message under the same number.
    pub content_hash: u64,
    /// Bytes of the encoded record.
    pub record_bytes: u32,
}

/// A stored record, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who sent it.
    pub producer_id: ProducerId,
    /// The sender's number for it.
    pub producer_seq: ProducerSeq,
    /// Whether [`Record::body`] holds a headers block.
    pub has_headers: bool,
    body: Bytes,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Fewer bytes than the smallest record has.
    #[error("a record of {found} bytes is shorter than the smallest one ({RECORD_OVERHEAD_BYTES} bytes)")]
    TooShort {
        /// Bytes there were.
        found: usize,
    },
    /// A layout that this build does not know.
    #[error("record version {found} is unknown here (this build knows {RECORD_VERSION})")]
    UnknownVersion {
        /// The version found.
        found: u8,
    },
    /// The bytes are not those that were written.
    #[error("record checksum {found:08x} differs from the computed {expected:08x}")]
    Checksum {
        /// Computed over the bytes.
        expected: u32,
        /// Found behind them.
        found: u32,
    },
}

/// Appends one record to `out`.
///
/// # Panics
/// Never for bodies that fit a frame (16 MiB).
pub fn write_record(out: &mut BytesMut, record: &NewRecord<'_>) -> RecordSummary {
    let start = out.len();
    out.reserve(RECORD_OVERHEAD_BYTES + record.body.len());
    out.put_u8(RECORD_VERSION);
    out.put_u8(if record.has_headers { FLAG_HEADERS } else { 0 });
    out.put_u64(record.producer_id.get());
    out.put_u64(record.producer_seq.get());
    out.put_slice(record.body);
    let checksum = crc32c::crc32c(&out[start..]);
    out.put_u32_le(checksum);
    RecordSummary {
        key_hash: key_hash(record.key),
        content_hash: xxhash_rust::xxh3::xxh3_64_with_seed(record.body, u64::from(record.has_headers)),
        record_bytes: u32::try_from(out.len() - start).expect("a record fits a frame, so 32 bits count its bytes"),
    }
}

/// Checks a record's version and checksum and opens it.
///
/// # Errors
/// When the bytes are not a whole, unchanged record of a known version (P11).
pub fn open_record(bytes: &Bytes) -> Result<Record, RecordError> {
    if bytes.len() < RECORD_OVERHEAD_BYTES {
        return Err(RecordError::TooShort { found: bytes.len() });
    }
    let (content, tail) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
    let found = u32::from_le_bytes(tail.try_into().expect("the tail is CHECKSUM_BYTES long"));
    let expected = crc32c::crc32c(content);
    if found != expected {
        return Err(RecordError::Checksum { expected, found });
    }
    if content[0] != RECORD_VERSION {
        return Err(RecordError::UnknownVersion { found: content[0] });
    }
    let number = |at: usize| u64::from_be_bytes(content[at..at + 8].try_into().expect("eight bytes"));
    Ok(Record {
        producer_id: ProducerId::new(number(2)),
        producer_seq: ProducerSeq::new(number(10)),
        has_headers: content[1] & FLAG_HEADERS != 0,
        body: bytes.slice(HEADER_BYTES..bytes.len() - CHECKSUM_BYTES),
    })
}

impl Record {
    /// Key, headers and value with their lengths: the bytes a delivery carries.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

/// The hash of a key: the lower half is `fnv1a32`, which places it; the upper half makes collisions rare. 0 without key.
#[must_use]
pub fn key_hash(key: &[u8]) -> KeyHash {
    if key.is_empty() {
        return KeyHash::NONE;
    }
    let mut fnv = hash32::FnvHasher::default();
    fnv.write(key);
    let upper = xxhash_rust::xxh3::xxh3_64(key) & 0xFFFF_FFFF_0000_0000;
    let hash = upper | u64::from(fnv.finish32());
    // A key must not look like no key; one bit of the upper half decides nothing but that.
    KeyHash::new(if hash == 0 { 1 << 63 } else { hash })
}

#[cfg(test)]
mod tests {
    use super::{NewRecord, RecordError, key_hash, open_record, write_record};
    use bytes::BytesMut;
    use mortarmq_types::{KeyHash, ProducerId, ProducerSeq};

    fn sample() -> BytesMut {
        let mut out = BytesMut::new();
        let record = NewRecord {
            producer_id: ProducerId::new(9),
            producer_seq: ProducerSeq::new(3),
            key: b"k",
            has_headers: false,
            body: b"\x00\x01k\x00\x00\x00\x02hi",
        };
        write_record(&mut out, &record);
        out
    }

    #[test]
    fn version_1_keeps_its_bytes() {
        let hex: String = sample().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "01000000000000000009000000000000000300016b0000000268694c28c627");
    }

    #[test]
    fn p11_a_record_with_any_flipped_bit_is_refused() {
        let good = sample();
        let record = open_record(&good.clone().freeze()).expect("the record is whole");
        assert_eq!((record.producer_id.get(), record.producer_seq.get()), (9, 3));
        assert_eq!(record.body().as_ref(), b"\x00\x01k\x00\x00\x00\x02hi");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = open_record(&bad.freeze()).expect_err("a flipped bit must be found");
            assert!(matches!(error, RecordError::Checksum { .. }), "bit {bit}: {error}");
        }
    }

    #[test]
    fn the_lower_half_of_a_key_hash_is_fnv1a32() {
        // Reference values of the published FNV-1a test vectors.
        assert_eq!(key_hash(b"a").get() as u32, 0xe40c_292c);
        assert_eq!(key_hash(b"foobar").get() as u32, 0xbf9c_f968);
        assert_eq!(key_hash(b""), KeyHash::NONE);
    }
}
