//! Frames that are numbered and sealed, so that none can be changed, left out, repeated or sent on another connection.
//!
//! A frame is its length as u32 big-endian, the payload, and the first 16 bytes of HMAC-SHA-256 over number, length and payload, under
//! the key of its direction. The number begins at 0 and is not sent.

use std::io;

use bytes::{Bytes, BytesMut};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Seals what one side says.
#[derive(Debug)]
pub struct Sealer {
    key: Hmac<Sha256>,
    number: u64,
}

/// Opens it on the other side.
#[derive(Debug)]
pub struct Opener {
    key: Hmac<Sha256>,
    number: u64,
}

impl Sealer {
    /// Begins with frame 0.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self { key: Hmac::new_from_slice(key).expect("a key of any length"), number: 0 }
    }

    /// Puts a frame behind what is in `out` already; `write` puts its payload.
    ///
    /// # Panics
    /// When that has 4 GiB or more.
    pub fn seal(&mut self, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
        let begin = out.len();
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        write(out);
        let length = out.len() - begin - LENGTH_BYTES;
        let length = u32::try_from(length).expect("messages are far below 4 GiB").to_be_bytes();
        out[begin..begin + LENGTH_BYTES].copy_from_slice(&length);
        let seal = seal(&self.key, self.number, &out[begin..]);
        out.extend_from_slice(&seal.finalize().into_bytes()[..SEAL_BYTES]);
        self.number += 1;
    }
}

impl Opener {
    /// Begins with frame 0.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self { key: Hmac::new_from_slice(key).expect("a key of any length"), number: 0 }
    }

    /// The payload of a frame that is exactly these bytes, without their length.
    pub(crate) fn open(&mut self, length: [u8; LENGTH_BYTES], mut rest: Bytes) -> Option<Bytes> {
        let seal_at = rest.len().checked_sub(SEAL_BYTES)?;
        let given = rest.split_off(seal_at);
        let mut mac = seal(&self.key, self.number, &length);
        mac.update(&rest);
        mac.verify_truncated_left(&given).ok()?;
        self.number += 1;
        Some(rest)
    }
}

fn seal(key: &Hmac<Sha256>, number: u64, bytes: &[u8]) -> Hmac<Sha256> {
    let mut mac = key.clone();
    mac.update(&number.to_be_bytes());
    mac.update(bytes);
    mac
}

/// How long the payload of the next frame is.
///
/// # Units
/// Bytes.
/// # Errors
/// The stream's; and when it is longer than any.
pub async fn read_length(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
    let length = stream.read_u32().await? as usize;
    if length > FRAME_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a frame of {length} bytes; at most {FRAME_MAX} are sent"),
        ));
    }
    Ok(length)
}

/// The payload of a frame whose length is known.
///
/// # Errors
/// The stream's; and when it was not sealed by the other side, as the next one of this link.
pub async fn read_payload(
    stream: &mut (impl AsyncRead + Unpin),
    opener: &mut Opener,
    length: usize,
) -> io::Result<Bytes> {
    let mut rest = BytesMut::zeroed(length + SEAL_BYTES);
    stream.read_exact(&mut rest).await?;
    let length = u32::try_from(length).expect("it was a u32").to_be_bytes();
    let opened = opener.open(length, rest.freeze());
    opened.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a frame that the other node has not sealed"))
}

/// The longest payload: an append message of one entry, and an entry is a batch of commands.
pub const FRAME_MAX: usize = 72 << 20;
pub(crate) const LENGTH_BYTES: usize = 4;
pub(crate) const SEAL_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::{Opener, Sealer, read_length, read_payload};
    use bytes::BytesMut;

    const KEY: [u8; 32] = [3; 32];

    async fn opened(opener: &mut Opener, mut bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let length = read_length(&mut bytes).await?;
        Ok(read_payload(&mut bytes, opener, length).await?.to_vec())
    }

    fn sealed(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        sealer.seal(&mut out, |out| out.extend_from_slice(payload));
        out.to_vec()
    }

    #[tokio::test]
    async fn what_is_sealed_is_opened_once_and_in_order() {
        let (mut sealer, mut opener) = (Sealer::new(&KEY), Opener::new(&KEY));
        let frames: Vec<_> =
            [&b"first"[..], b"", b"third"].iter().map(|payload| sealed(&mut sealer, payload)).collect();
        assert_eq!(opened(&mut opener, &frames[0]).await.expect("the first"), b"first");
        assert!(opened(&mut opener, &frames[0]).await.is_err(), "repeated");
        assert!(opened(&mut opener, &frames[2]).await.is_err(), "one was left out");
        assert_eq!(opened(&mut opener, &frames[1]).await.expect("the second"), b"");
        assert_eq!(opened(&mut opener, &frames[2]).await.expect("the third"), b"third");
        assert!(opened(&mut Opener::new(&[4; 32]), &frames[0]).await.is_err(), "of another link or direction");
    }

    #[tokio::test]
    async fn a_frame_of_which_one_bit_was_changed_is_not_opened() {
        let frame = sealed(&mut Sealer::new(&KEY), b"an entry");
        for bit in 0..frame.len() * 8 {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(opened(&mut Opener::new(&KEY), &changed).await.is_err(), "bit {bit}");
        }
    }
}
