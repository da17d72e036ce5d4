//! Key, headers and value of a record: the same contiguous bytes in PUB, PUB_BATCH, MSG and in stored records.
//!
//! `key (u16 len) | headers block, if the flag says so | value (u32 len)`. The headers block is `u16 count`, then per
//! pair `name (u8 len)` and `value (u16 len)`.

use bytes::{BufMut, BytesMut};

use crate::decode::Reader;
use crate::encode::too_large;
use crate::faults::{DecodeError, EncodeError};
use crate::frame::{
    MAX_ADDED_HEADERS, MAX_ADDED_HEADERS_LEN, MAX_HEADERS, MAX_HEADERS_LEN, MAX_KEY_LEN, MAX_STORED_LEN, MAX_VALUE_LEN,
};

/// A record's body, checked against every limit, as the bytes that travel and are stored.
///
/// # Invariants
/// 1. `bytes` is exactly one body: nothing in front, nothing behind.
/// 2. Key, header and value limits hold, so a MSG of it fits a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordBody<'a> {
    bytes: &'a [u8],
    has_headers: bool,
    /// Where the value's bytes begin, behind its length.
    value_start: usize,
    payload_len: usize,
}

impl<'a> RecordBody<'a> {
    /// Reads the body of a publish at the front of `bytes` and returns it with what follows.
    ///
    /// # Errors
    /// Truncated where bytes are missing, too large where a limit is passed.
    /// # Source
    /// docs/reference/wire.md, "Exact behaviour".
    #[inline]
    pub fn parse(bytes: &'a [u8], has_headers: bool) -> Result<(Self, &'a [u8]), DecodeError> {
        Self::parse_within(bytes, has_headers, &PUBLISHED)
    }

    /// As [`RecordBody::parse`], for a body that is stored or delivered: the broker may have added headers to it.
    ///
    /// # Errors
    /// Truncated where bytes are missing, too large where a limit is passed.
    #[inline]
    pub fn parse_stored(bytes: &'a [u8], has_headers: bool) -> Result<(Self, &'a [u8]), DecodeError> {
        Self::parse_within(bytes, has_headers, &STORED)
    }

    #[inline]
    fn parse_within(bytes: &'a [u8], has_headers: bool, limits: &Limits) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut reader = Reader::new(bytes);
        let key = reader.bytes16("key")?;
        if key.len() > MAX_KEY_LEN {
            return Err(DecodeError::TooLarge { field: "key in bytes", limit: MAX_KEY_LEN, found: key.len() });
        }
        let headers_len = if has_headers { skip_headers(&mut reader, limits)? } else { 0 };
        let value = reader.bytes32("value")?;
        let payload_len = key.len() + headers_len + value.len();
        if payload_len > limits.payload_len {
            let field = "key, headers and value together in bytes";
            return Err(DecodeError::TooLarge { field, limit: limits.payload_len, found: payload_len });
        }
        let rest = reader.rest();
        let body_len = bytes.len() - rest.len();
        let body = Self { bytes: &bytes[..body_len], has_headers, value_start: body_len - value.len(), payload_len };
        Ok((body, rest))
    }

    /// The wire bytes, exactly as they are stored.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the bytes hold a headers block (possibly of no pairs): flag bit 0.
    #[inline]
    #[must_use]
    pub const fn has_headers(&self) -> bool {
        self.has_headers
    }

    /// The key; empty means that there is none.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        Reader::new(self.bytes).bytes16("key").unwrap_or_default()
    }

    /// The header pairs in their order; `None` without a headers block.
    #[must_use]
    pub fn headers(&self) -> Option<Headers<'a>> {
        if !self.has_headers {
            return None;
        }
        let mut reader = Reader::new(self.bytes);
        reader.bytes16("key").ok()?;
        let left = reader.u16("headers count").ok()?;
        Some(Headers { reader, left })
    }

    /// The value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        &self.bytes[self.value_start..]
    }

    /// What credit, quotas and limits count.
    ///
    /// # Units
    /// Bytes of key, header names, header values and value; lengths are not counted.
    #[inline]
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        self.payload_len
    }
}

/// The pairs of a headers block: name and value, in their order.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    reader: Reader<'a>,
    left: u16,
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // Both were read once when the body was parsed, so neither can be missing.
        let name = self.reader.bytes8("header name").ok()?;
        let value = self.reader.bytes16("header value").ok()?;
        Some((name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::from(self.left), Some(usize::from(self.left)))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Appends a body in wire form; [`RecordBody::parse`] of it gives the same key, headers and value.
///
/// # Errors
/// The limit that is passed; `out` is left as it was.
pub fn write_body(
    out: &mut BytesMut,
    key: &[u8],
    headers: Option<&[(&[u8], &[u8])]>,
    value: &[u8],
) -> Result<(), EncodeError> {
    if key.len() > MAX_KEY_LEN {
        return Err(too_large("key in bytes", MAX_KEY_LEN, key.len()));
    }
    let pairs = headers.unwrap_or_default();
    let headers_len = check_headers(pairs)?;
    let payload_len = key.len().saturating_add(headers_len).saturating_add(value.len());
    if payload_len > MAX_VALUE_LEN {
        return Err(too_large("key, headers and value together in bytes", MAX_VALUE_LEN, payload_len));
    }
    // The checks above keep every length within its field: 255, 64, 255, 16 KiB and 16 MiB.
    out.reserve(2 + 2 + 3 * pairs.len() + 4 + payload_len);
    put_key(out, key);
    if headers.is_some() {
        put_headers(out, pairs.len(), pairs.iter());
    }
    put_value(out, value);
    Ok(())
}

/// Appends a published body with header pairs behind its own; [`RecordBody::parse_stored`] with a headers block reads it.
///
/// # Errors
/// The limit that is passed; `out` is left as it was.
pub fn write_body_with(out: &mut BytesMut, body: &RecordBody<'_>, added: &[(&[u8], &[u8])]) -> Result<(), EncodeError> {
    if added.len() > MAX_ADDED_HEADERS {
        return Err(too_large("added headers in pairs", MAX_ADDED_HEADERS, added.len()));
    }
    let added_len = check_headers(added)?;
    if added_len > MAX_ADDED_HEADERS_LEN {
        return Err(too_large("added headers in bytes", MAX_ADDED_HEADERS_LEN, added_len));
    }
    let payload_len = body.payload_len().saturating_add(added_len);
    if payload_len > MAX_STORED_LEN {
        return Err(too_large("key, headers and value together in bytes", MAX_STORED_LEN, payload_len));
    }
    let own: Vec<(&[u8], &[u8])> = body.headers().into_iter().flatten().collect();
    out.reserve(2 + 2 + 3 * (own.len() + added.len()) + 4 + payload_len);
    put_key(out, body.key());
    put_headers(out, own.len() + added.len(), own.iter().chain(added));
    put_value(out, body.value());
    Ok(())
}

/// Passes over a headers block and returns the bytes of its names and values.
fn skip_headers(reader: &mut Reader<'_>, limits: &Limits) -> Result<usize, DecodeError> {
    let count = usize::from(reader.u16("headers count")?);
    if count > limits.pairs {
        return Err(DecodeError::TooLarge { field: "headers in pairs", limit: limits.pairs, found: count });
    }
    let mut headers_len = 0;
    for _ in 0..count {
        headers_len += reader.bytes8("header name")?.len();
        headers_len += reader.bytes16("header value")?.len();
    }
    if headers_len > limits.headers_len {
        return Err(DecodeError::TooLarge { field: "headers in bytes", limit: limits.headers_len, found: headers_len });
    }
    Ok(headers_len)
}

/// Checks pairs against the limits and returns the bytes of their names and values.
fn check_headers(pairs: &[(&[u8], &[u8])]) -> Result<usize, EncodeError> {
    if pairs.len() > MAX_HEADERS {
        return Err(too_large("headers in pairs", MAX_HEADERS, pairs.len()));
    }
    let mut headers_len: usize = 0;
    for (name, value) in pairs {
        if name.len() > usize::from(u8::MAX) {
            return Err(too_large("header name in bytes", usize::from(u8::MAX), name.len()));
        }
        headers_len = headers_len.saturating_add(name.len()).saturating_add(value.len());
    }
    if headers_len > MAX_HEADERS_LEN {
        return Err(too_large("headers in bytes", MAX_HEADERS_LEN, headers_len));
    }
    Ok(headers_len)
}

fn put_key(out: &mut BytesMut, key: &[u8]) {
    out.put_u16(key.len() as u16);
    out.put_slice(key);
}

fn put_headers<'a>(out: &mut BytesMut, count: usize, pairs: impl Iterator<Item = &'a (&'a [u8], &'a [u8])>) {
    out.put_u16(count as u16);
    for (name, value) in pairs {
        out.put_u8(name.len() as u8);
        out.put_slice(name);
        out.put_u16(value.len() as u16);
        out.put_slice(value);
    }
}

fn put_value(out: &mut BytesMut, value: &[u8]) {
    out.put_u32(value.len() as u32);
    out.put_slice(value);
}

/// What a body may hold.
struct Limits {
    pairs: usize,
    headers_len: usize,
    payload_len: usize,
}

const PUBLISHED: Limits = Limits { pairs: MAX_HEADERS, headers_len: MAX_HEADERS_LEN, payload_len: MAX_VALUE_LEN };
const STORED: Limits = Limits {
    pairs: MAX_HEADERS + MAX_ADDED_HEADERS,
    headers_len: MAX_HEADERS_LEN + MAX_ADDED_HEADERS_LEN,
    payload_len: MAX_STORED_LEN,
};

/// The most bytes that the lengths of a body take: of the key, of each pair, their count, of the value.
const fn overhead(pairs: usize) -> usize {
    2 + 2 + 3 * pairs + 4
}

/// The longest body of a publish, as bytes on the wire.
pub(crate) const MAX_BODY_LEN: usize = MAX_VALUE_LEN + overhead(MAX_HEADERS);

/// The longest body of a delivery, as bytes on the wire.
pub(crate) const MAX_STORED_BODY_LEN: usize = MAX_STORED_LEN + overhead(MAX_HEADERS + MAX_ADDED_HEADERS);

// A header value's length has 16 bits; the limit on all headers keeps it there.
const _: () = assert!(MAX_HEADERS_LEN <= u16::MAX as usize);

#[cfg(test)]
mod tests;
