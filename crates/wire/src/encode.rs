//! Two ways to append a frame: [`SizedFrame`] where the size is known before, [`FrameWriter`] for all others.

use bytes::{BufMut, BytesMut};
use mortarmq_types::Position;

use crate::faults::EncodeError;
use crate::frame::{HEAD_BYTES, LENGTH_BYTES, MAX_FRAME_LEN, OK_HEAD_BYTES};
use crate::list::{List, ListItem};
use crate::op::Op;

/// Appends one frame whose size is known before it is written, and known to fit: room is made once and nothing is
/// patched. The fields go straight into the buffer; building them on the stack first was measured to be slower.
///
/// # Panics
/// [`Self::finish`], when the fields are not as long as was said: the sizes are constants of an op (beside bytes that
/// are counted), so its first use in a test shows it.
pub(crate) struct SizedFrame<'b> {
    out: &'b mut BytesMut,
    end: usize,
}

impl<'b> SizedFrame<'b> {
    #[inline]
    pub(crate) fn new(out: &'b mut BytesMut, op: Op, payload_len: usize) -> Self {
        let length = HEAD_BYTES - LENGTH_BYTES + payload_len;
        assert!(length <= MAX_FRAME_LEN, "a frame of {length} bytes passed the limits of its fields");
        out.reserve(LENGTH_BYTES + length);
        let end = out.len() + LENGTH_BYTES + length;
        Self { out, end }.u32(length as u32).u8(op.number())
    }

    #[inline]
    pub(crate) fn ok(out: &'b mut BytesMut, request_op: Op, result_len: usize) -> Self {
        let payload_len = OK_HEAD_BYTES - HEAD_BYTES + result_len;
        Self::new(out, Op::Ok, payload_len).u8(request_op.number()).u32(result_len as u32)
    }

    #[inline]
    pub(crate) fn u8(self, value: u8) -> Self {
        self.out.put_u8(value);
        self
    }

    #[inline]
    pub(crate) fn u16(self, value: u16) -> Self {
        self.out.put_u16(value);
        self
    }

    #[inline]
    pub(crate) fn u32(self, value: u32) -> Self {
        self.out.put_u32(value);
        self
    }

    #[inline]
    pub(crate) fn u64(self, value: u64) -> Self {
        self.out.put_u64(value);
        self
    }

    #[inline]
    pub(crate) fn position(self, position: Position) -> Self {
        self.u64(position.epoch.get()).u64(position.commit_index.get())
    }

    /// Bytes as they are.
    #[inline]
    pub(crate) fn raw(self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        self
    }

    #[inline]
    pub(crate) fn finish(self) {
        assert!(self.out.len() == self.end, "the frame ends at {}, not at {}", self.out.len(), self.end);
    }
}

/// Appends one frame of any length. The first field that does not fit makes [`FrameWriter::finish`] fail; without a
/// successful `finish` the buffer is as it was.
pub struct FrameWriter<'b> {
    out: &'b mut BytesMut,
    start: usize,
    is_ok: bool,
    is_finished: bool,
    error: Option<EncodeError>,
}

impl<'b> FrameWriter<'b> {
    pub(crate) fn frame(out: &'b mut BytesMut, op: Op) -> Self {
        let start = out.len();
        out.put_u32(0);
        out.put_u8(op.number());
        Self { out, start, is_ok: false, is_finished: false, error: None }
    }

    pub(crate) fn ok(out: &'b mut BytesMut, request_op: Op) -> Self {
        let mut writer = Self::frame(out, Op::Ok);
        writer.is_ok = true;
        writer.u8(request_op.number());
        writer.u32(0);
        writer
    }

    #[inline]
    pub(crate) fn u8(&mut self, value: u8) {
        self.out.put_u8(value);
    }

    #[inline]
    pub(crate) fn u16(&mut self, value: u16) {
        self.out.put_u16(value);
    }

    #[inline]
    pub(crate) fn u32(&mut self, value: u32) {
        self.out.put_u32(value);
    }

    #[inline]
    pub(crate) fn u64(&mut self, value: u64) {
        self.out.put_u64(value);
    }

    #[inline]
    pub(crate) fn position(&mut self, position: Position) {
        self.u64(position.epoch.get());
        self.u64(position.commit_index.get());
    }

    /// Bytes as they are.
    #[inline]
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Bytes behind a u8 length.
    pub(crate) fn bytes8(&mut self, field: &'static str, bytes: &[u8]) {
        match u8::try_from(bytes.len()) {
            Ok(length) => {
                self.u8(length);
                self.raw(bytes);
            }
            Err(_) => self.fail(too_large(field, usize::from(u8::MAX), bytes.len())),
        }
    }

    /// Bytes behind a u16 length.
    pub(crate) fn bytes16(&mut self, field: &'static str, bytes: &[u8]) {
        match u16::try_from(bytes.len()) {
            Ok(length) => {
                self.u16(length);
                self.raw(bytes);
            }
            Err(_) => self.fail(too_large(field, usize::from(u16::MAX), bytes.len())),
        }
    }

    /// Bytes behind a u32 length.
    pub(crate) fn bytes32(&mut self, field: &'static str, bytes: &[u8]) {
        match u32::try_from(bytes.len()) {
            Ok(length) if bytes.len() <= MAX_FRAME_LEN => {
                self.u32(length);
                self.raw(bytes);
            }
            _ => self.fail(too_large(field, MAX_FRAME_LEN, bytes.len())),
        }
    }

    /// Items behind a u16 count.
    pub(crate) fn list16<'a, T: ListItem<'a>>(&mut self, field: &'static str, items: &List<'a, T>) {
        match u16::try_from(items.len()) {
            Ok(count) => {
                self.u16(count);
                items.write(self);
            }
            Err(_) => self.fail(too_large(field, usize::from(u16::MAX), items.len())),
        }
    }

    /// Remembers the first thing that did not fit.
    pub(crate) fn fail(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    /// Whether something did not fit, so that a long loop can stop.
    pub(crate) fn is_failed(&self) -> bool {
        self.error.is_some() || self.length() > MAX_FRAME_LEN
    }

    pub(crate) fn finish(mut self) -> Result<(), EncodeError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let length = self.length();
        if length > MAX_FRAME_LEN {
            return Err(too_large("frame length in bytes", MAX_FRAME_LEN, length));
        }
        self.patch(self.start, length as u32);
        if self.is_ok {
            let result_length = self.out.len() - self.start - OK_HEAD_BYTES;
            self.patch(self.start + OK_HEAD_BYTES - 4, result_length as u32);
        }
        self.is_finished = true;
        Ok(())
    }

    fn length(&self) -> usize {
        self.out.len() - self.start - LENGTH_BYTES
    }

    fn patch(&mut self, at: usize, value: u32) {
        self.out[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
}

impl Drop for FrameWriter<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.out.truncate(self.start);
        }
    }
}

pub(crate) const fn too_large(field: &'static str, limit: usize, found: usize) -> EncodeError {
    EncodeError::TooLarge { field, limit, found }
}
