//! What every message between replicas begins and ends with: magic, version, kind and flags, its whole length, and a checksum.

use bytes::{Buf, Bytes};

use super::PeerBytesError;

/// The version that is written, and the only one that is read.
pub(crate) const VERSION: u16 = 1;
pub(crate) const MAGIC_AND_VERSION_BYTES: usize = 6;
pub(crate) const KIND_AND_FLAGS_BYTES: usize = 2;
pub(crate) const CRC_BYTES: usize = 4;

/// Checks what a message with this header says of itself as a whole; the bytes without the checksum.
///
/// # Errors
/// [`PeerBytesError`] for bytes that are no such message, were cut, go on or were changed.
pub(crate) fn open(mut bytes: Bytes, magic: u32, header_bytes: usize) -> Result<Bytes, PeerBytesError> {
    let found = bytes.len();
    let least = header_bytes + CRC_BYTES;
    if found < least {
        return Err(PeerBytesError::Length { found, expected: least as u64 });
    }
    let mut head = &bytes[..header_bytes];
    let begin = head.get_u32();
    if begin != magic {
        return Err(PeerBytesError::Magic { found: begin });
    }
    let version = head.get_u16();
    if version != VERSION {
        return Err(PeerBytesError::UnknownVersion { found: version });
    }
    head.advance(KIND_AND_FLAGS_BYTES);
    let expected = head.get_u32();
    if expected as usize != found {
        return Err(PeerBytesError::Length { found, expected: u64::from(expected) });
    }
    let mut crc = bytes.split_off(found - CRC_BYTES);
    if crc.get_u32() != crc32c::crc32c(&bytes) {
        return Err(PeerBytesError::Checksum);
    }
    Ok(bytes)
}
