//! Limits of the protocol, and cutting frames off a receive buffer.
//!
//! A frame is `u32 length` (big-endian; counts the op byte and the payload), `u8 op`, payload.

use crate::faults::FrameError;

/// The first field of CONNECT.
pub const WIRE_VERSION: u8 = 1;
/// The largest `length` of a frame. A larger one is `BAD_LENGTH` and closes: nothing of it is buffered.
///
/// # Units
/// Bytes.
pub const MAX_FRAME_LEN: usize = 16 * 1024 * 1024;
/// The most that key, headers (names and values) and value of a record hold together, so that its MSG fits a frame.
///
/// # Units
/// Bytes.
pub const MAX_VALUE_LEN: usize = MAX_FRAME_LEN - 1024;
/// The longest message key.
///
/// # Units
/// Bytes.
pub const MAX_KEY_LEN: usize = 255;
/// The most header pairs of a record.
pub const MAX_HEADERS: usize = 64;
/// The most that the header names and values of a record hold together; lengths are not counted.
///
/// # Units
/// Bytes.
pub const MAX_HEADERS_LEN: usize = 16 * 1024;
/// The most header pairs that the broker adds to a record: those of a dead letter. A record as it was published has at most
/// [`MAX_HEADERS`].
pub const MAX_ADDED_HEADERS: usize = 8;
/// The most that names and values of added headers hold together.
///
/// # Units
/// Bytes.
pub const MAX_ADDED_HEADERS_LEN: usize = 1184;
/// The most that key, headers and value of a record hold together once the broker has added to it.
///
/// # Units
/// Bytes.
pub const MAX_STORED_LEN: usize = MAX_FRAME_LEN - 320;
/// The longest text of an ERR; a longer one is cut when it is encoded.
///
/// # Units
/// Bytes.
pub const MAX_ERR_MESSAGE: usize = 512;
/// The most records of a PUB_BATCH and items of a SETTLE.
pub const MAX_BATCH_ITEMS: usize = 1024;
/// How often an idle side sends a PING.
pub const KEEPALIVE_MS: u64 = 30_000;
/// A connection without a complete frame for this long is closed, without an ERR.
pub const KEEPALIVE_TIMEOUT_MS: u64 = 45_000;
/// A frame that was begun and brings no new byte for this long closes the connection, without an ERR.
pub const HALF_FRAME_IDLE_MS: u64 = 10_000;
/// A frame that was begun and is not complete after this long closes the connection, without an ERR.
pub const HALF_FRAME_TOTAL_MS: u64 = 120_000;
/// A connection that sent no CONNECT for this long is closed with `AUTH_TIMEOUT`.
pub const CONNECT_TIMEOUT_MS: u64 = 5_000;

/// The bytes in front of what `length` counts.
pub(crate) const LENGTH_BYTES: usize = 4;
/// Length and op: where a request's payload begins.
pub(crate) const HEAD_BYTES: usize = LENGTH_BYTES + 1;
/// Length, op, request_op and result length: where the result of an OK begins.
pub(crate) const OK_HEAD_BYTES: usize = HEAD_BYTES + 1 + 4;

/// What [`split_frame`] found at the start of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split<'a> {
    /// The buffer does not hold a whole frame yet.
    Incomplete {
        /// At least this many more bytes are needed: the rest of the length field if that is incomplete, else exactly
        /// the rest of the frame. So `buffer.len() + needed` is what a receive budget has to grant.
        needed: usize,
    },
    /// The buffer begins with a whole frame.
    Frame {
        /// The op byte, not checked yet.
        op: u8,
        /// What follows the op byte.
        payload: &'a [u8],
        /// How many bytes of the buffer the frame takes, its length field included.
        consumed: usize,
    },
}

/// Cuts one frame off the start of a buffer. Looks at the same bytes again when more have arrived; keeps no state.
///
/// # Errors
/// [`FrameError::BadLength`] as soon as the length field can be read and lies outside `1..=MAX_FRAME_LEN`. The stream
/// cannot be resynchronised: the connection closes.
/// # Source
/// docs/reference/wire.md, "Frames".
#[inline]
pub fn split_frame(buffer: &[u8]) -> Result<Split<'_>, FrameError> {
    let Some((length_bytes, behind)) = buffer.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(Split::Incomplete { needed: LENGTH_BYTES - buffer.len() });
    };
    let length = u32::from_be_bytes(*length_bytes);
    if length == 0 || length as usize > MAX_FRAME_LEN {
        return Err(FrameError::BadLength { length });
    }
    let length = length as usize;
    let Some((op, payload)) = behind.get(..length).and_then(<[u8]>::split_first) else {
        return Ok(Split::Incomplete { needed: length - behind.len() });
    };
    Ok(Split::Frame { op: *op, payload, consumed: LENGTH_BYTES + length })
}

#[cfg(test)]
mod tests {
    use super::{MAX_FRAME_LEN, Split, split_frame};
    use crate::faults::FrameError;

    #[test]
    fn length_outside_its_range_is_refused_before_the_frame_is_buffered() {
        assert_eq!(split_frame(&[0, 0, 0, 0]), Err(FrameError::BadLength { length: 0 }));
        let over = u32::try_from(MAX_FRAME_LEN + 1).unwrap();
        assert_eq!(split_frame(&over.to_be_bytes()), Err(FrameError::BadLength { length: over }));
        assert_eq!(split_frame(&[0xFF; 4]), Err(FrameError::BadLength { length: u32::MAX }));
    }

    #[test]
    fn largest_length_is_taken() {
        let most = u32::try_from(MAX_FRAME_LEN).unwrap();
        assert_eq!(split_frame(&most.to_be_bytes()), Ok(Split::Incomplete { needed: MAX_FRAME_LEN }));
        let mut frame = vec![0; 4 + MAX_FRAME_LEN];
        frame[..4].copy_from_slice(&most.to_be_bytes());
        let Ok(Split::Frame { payload, consumed, .. }) = split_frame(&frame) else { panic!("a whole frame is there") };
        assert_eq!((payload.len(), consumed), (MAX_FRAME_LEN - 1, frame.len()));
    }

    #[test]
    fn smallest_frame_is_an_op_without_payload() {
        assert_eq!(split_frame(&[0, 0, 0, 1]), Ok(Split::Incomplete { needed: 1 }));
        assert_eq!(split_frame(&[0, 0, 0, 1, 7, 9]), Ok(Split::Frame { op: 7, payload: &[], consumed: 5 }));
    }

    #[test]
    fn needed_counts_down_to_the_whole_frame() {
        let frame = [0, 0, 0, 3, 7, 1, 2];
        let needed: Vec<usize> = (0..frame.len())
            .map(|have| match split_frame(&frame[..have]) {
                Ok(Split::Incomplete { needed }) => needed,
                other => panic!("{have} bytes gave {other:?}"),
            })
            .collect();
        assert_eq!(needed, [4, 3, 2, 1, 3, 2, 1]);
    }
}
