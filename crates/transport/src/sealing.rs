//! Sealed frames over a socket that never waits: bytes between frames and the socket.
//!
//! # Invariants
//! 1. What was opened is handed out before more is read, so no more of it is kept here than one read of the socket brought.
//! 2. Bytes are taken only while none wait for the socket.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use tokio::net::TcpStream;

use crate::sealed::{LENGTH_BYTES, Opener, SEAL_BYTES, Sealer};

/// One connection's frames.
#[derive(Debug)]
pub(crate) struct Sealing {
    opener: Opener,
    sealer: Sealer,
    /// A frame of which something is missing.
    received: BytesMut,
    /// Opened, and not taken yet.
    opened: BytesMut,
    /// Sealed, and not written yet.
    unwritten: BytesMut,
    /// The peer has announced its end, or the socket has come to it.
    is_ended: bool,
    has_announced: bool,
}

impl Sealing {
    pub(crate) fn new(opener: Opener, sealer: Sealer) -> Self {
        Self {
            opener,
            sealer,
            received: BytesMut::new(),
            opened: BytesMut::new(),
            unwritten: BytesMut::new(),
            is_ended: false,
            has_announced: false,
        }
    }

    /// A read gives something, or the end, without the socket.
    pub(crate) fn is_readable(&self) -> bool {
        !self.opened.is_empty() || self.is_ended
    }

    pub(crate) fn wants_write(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Reads what is there into the room of `into`; 0 is the end.
    pub(crate) fn read(&mut self, socket: &TcpStream, into: &mut impl BufMut) -> io::Result<usize> {
        // Whatever is wrong with writing, the next write is told.
        let _ = self.flush(socket);
        while self.opened.is_empty() && !self.is_ended {
            self.receive(socket)?;
        }
        let taken = self.opened.len().min(into.chunk_mut().len());
        into.put_slice(&self.opened[..taken]);
        self.opened.advance(taken);
        Ok(taken)
    }

    /// Reads from the socket once, and opens what is whole.
    pub(crate) fn receive(&mut self, socket: &TcpStream) -> io::Result<()> {
        self.received.reserve(READ_BYTES);
        if socket.try_read_buf(&mut self.received)? == 0 {
            // What this stream carries says itself where it is complete.
            self.is_ended = true;
            return Ok(());
        }
        while !self.is_ended
            && let Some(length) = self.received.first_chunk::<LENGTH_BYTES>().copied()
        {
            let bytes = u32::from_be_bytes(length) as usize;
            if bytes > FRAME_BYTES {
                let text = format!("a frame of {bytes} bytes; at most {FRAME_BYTES} are sent");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            if self.received.len() < LENGTH_BYTES + bytes + SEAL_BYTES {
                break;
            }
            self.received.advance(LENGTH_BYTES);
            let rest = self.received.split_to(bytes + SEAL_BYTES).freeze();
            let opened = self.opener.open(length, rest).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "a frame that the other side has not sealed")
            })?;
            self.is_ended = opened.is_empty();
            self.opened.extend_from_slice(&opened);
        }
        Ok(())
    }

    /// Takes some of the bytes for the socket.
    pub(crate) fn write(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(socket)?;
        if self.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if bytes.is_empty() {
            // An empty frame is the end.
            return Ok(0);
        }
        let taken = bytes.len().min(FRAME_BYTES);
        self.sealer.seal(&mut self.unwritten, |out| out.extend_from_slice(&bytes[..taken]));
        match self.flush(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Writes what is sealed until none waits or the socket takes no more; how much went.
    pub(crate) fn flush(&mut self, socket: &TcpStream) -> io::Result<usize> {
        let mut written = 0;
        while !self.unwritten.is_empty() {
            match socket.try_write(&self.unwritten) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.unwritten.advance(bytes);
                    written += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Nothing more will be written.
    pub(crate) fn announce_end(&mut self) {
        if !std::mem::replace(&mut self.has_announced, true) {
            self.sealer.seal(&mut self.unwritten, |_| ());
        }
    }
}

/// The longest payload of a frame.
const FRAME_BYTES: usize = 32 << 10;
/// How much one read of the socket takes.
const READ_BYTES: usize = 64 << 10;
