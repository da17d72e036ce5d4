//! WebSocket over a stream: bytes of frames in and out, one frame per binary message. Sans tasks: it is driven as a stream is.
//!
//! A message is handed on as it comes, so that the connection's own time-outs and the receive budget see each byte of it:
//! nothing of it is collected here.
//!
//! # Invariants
//! 1. What is read of the stream is handed on by the same call, but for the beginning of a header (at most 14 bytes) and
//!    the head of the handshake (at most [`HEAD_BYTES_MAX`]).
//! 2. At most [`outgoing::BUFFERED_BYTES`] of messages wait for the stream: while any do, nothing more is taken.
//! 3. A header is never written without a part of its message, so a message of which nothing was taken can be taken back.
//!
//! # Source
//! RFC 6455; docs/reference/wire.md, "WebSocket".

mod fault;
mod handshake;
mod incoming;
mod origins;
mod outgoing;

use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use mortarmq_transport::Stream;

pub(crate) use fault::WebFault;
use handshake::Answer;
pub(crate) use handshake::no_place;
use incoming::Incoming;
pub use origins::Origins;
use outgoing::Outgoing;

/// One connection's WebSocket.
pub(crate) struct WebSocket {
    stage: Stage,
    origins: Arc<Origins>,
    raw: BytesMut,
    incoming: Incoming,
    outgoing: Outgoing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The request to become a WebSocket has not come.
    Handshake,
    Open,
    /// It will not become one: what waits is written, then that is all.
    Refused,
}

impl WebSocket {
    pub(crate) fn new(origins: Arc<Origins>) -> Self {
        Self {
            stage: Stage::Handshake,
            origins,
            raw: BytesMut::new(),
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
        }
    }

    /// Whether the next read tells something without the stream.
    pub(crate) fn is_readable(&self) -> bool {
        self.incoming.fault().is_some() || self.has_ended()
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.outgoing.wants_write()
    }

    /// Reads what is there and hands on what of it belongs to frames; 0 is the end.
    pub(crate) fn read(&mut self, stream: &mut Stream, into: &mut BytesMut) -> io::Result<usize> {
        let before = into.len();
        for _ in 0..READS_MAX {
            if let Some(fault) = self.incoming.fault() {
                return Err(fault.into_io());
            }
            if self.has_ended() {
                return Ok(0);
            }
            self.raw.reserve(READ_BYTES);
            if stream.try_read_buf(&mut self.raw)? == 0 {
                return Ok(0);
            }
            self.take(into);
            if into.len() > before {
                return Ok(into.len() - before);
            }
        }
        // The stream stays ready: whoever waits for it is back at once, after others.
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Takes some of the bytes, which begin where the last ones that were taken ended.
    pub(crate) fn write(&mut self, stream: &mut Stream, bytes: &[u8]) -> io::Result<usize> {
        if self.stage != Stage::Open {
            // Whoever does not speak WebSocket is told nothing in frames.
            return Ok(bytes.len());
        }
        self.outgoing.write(stream, bytes)
    }

    /// Writes what waits.
    pub(crate) fn flush(&mut self, stream: &mut Stream) -> io::Result<()> {
        self.outgoing.flush(stream)
    }

    /// Says that nothing more comes, as far as the stream takes it now.
    pub(crate) fn end(&mut self, stream: &mut Stream) {
        if self.stage == Stage::Open {
            self.outgoing.end(self.incoming.fault().is_some());
        }
        // All that could wait here is that word.
        let _ = self.outgoing.flush(stream);
    }

    fn has_ended(&self) -> bool {
        self.incoming.is_closed() || self.stage == Stage::Refused
    }

    fn take(&mut self, into: &mut BytesMut) {
        if self.stage == Stage::Handshake {
            match handshake::answer(&self.raw, &self.origins) {
                Answer::Incomplete => return,
                Answer::Accept { head_bytes, text } => {
                    self.raw.advance(head_bytes);
                    self.outgoing.put(text.as_bytes());
                    self.stage = Stage::Open;
                }
                Answer::Refuse { text } => {
                    self.outgoing.put(text.as_bytes());
                    self.stage = Stage::Refused;
                    return self.raw.clear();
                }
            }
        }
        self.incoming.take(&mut self.raw, into);
        if let Some(payload) = self.incoming.take_ping() {
            self.outgoing.pong(payload);
        }
    }
}

/// The longest head of a handshake: cookies and proxies make it long.
const HEAD_BYTES_MAX: usize = 16 << 10;
const READ_BYTES: usize = 16 << 10;
/// What one read does at most when the peer sends nothing but pings.
const READS_MAX: usize = 64;

#[cfg(test)]
mod tests;
