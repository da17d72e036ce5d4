//! A cursor over a payload that never reads past its end.

use mortarmq_types::{CommitIndex, Epoch, Position};

use crate::faults::DecodeError;

/// Reads big-endian fields off the front of a payload. A missing byte is an error that names the field.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    #[inline]
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.chunk(field).map(u8::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.chunk(field).map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.chunk(field).map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.chunk(field).map(u64::from_be_bytes)
    }

    /// Bytes behind a u8 length.
    #[inline]
    pub(crate) fn bytes8(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.u8(field)?;
        self.take(usize::from(length), field)
    }

    /// Bytes behind a u16 length.
    #[inline]
    pub(crate) fn bytes16(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.u16(field)?;
        self.take(usize::from(length), field)
    }

    /// Bytes behind a u32 length.
    #[inline]
    pub(crate) fn bytes32(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let length = self.u32(field)?;
        self.take(length as usize, field)
    }

    /// Text behind a u16 length.
    pub(crate) fn text16(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes16(field)?).map_err(|_| DecodeError::NotText { field })
    }

    /// `leader_epoch u64, commit_index u64`.
    #[inline]
    pub(crate) fn position(&mut self) -> Result<Position, DecodeError> {
        let epoch = Epoch::new(self.u64("leader_epoch")?);
        Ok(Position { epoch, commit_index: CommitIndex::new(self.u64("commit_index")?) })
    }

    /// A u16 of flags, of which only `known` may be set.
    #[inline]
    pub(crate) fn flags(&mut self, field: &'static str, known: u16) -> Result<u16, DecodeError> {
        let found = self.u16(field)?;
        if found & !known != 0 {
            return Err(DecodeError::UnknownFlags { field, found, known });
        }
        Ok(found)
    }

    /// A u8 that is 0 or 1.
    #[inline]
    pub(crate) fn boolean(&mut self, field: &'static str) -> Result<bool, DecodeError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(DecodeError::UnknownValue { field, found: u64::from(found), allowed: "0 or 1" }),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, needed: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(needed) else {
            return Err(truncated(field, needed, self.rest.len()));
        };
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let Some((bytes, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(truncated(field, N, self.rest.len()));
        };
        self.rest = rest;
        Ok(*bytes)
    }
}

#[cold]
const fn truncated(field: &'static str, needed: usize, found: usize) -> DecodeError {
    DecodeError::Truncated { field, needed, found }
}
