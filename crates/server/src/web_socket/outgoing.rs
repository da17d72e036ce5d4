//! From the bytes of frames to those of a WebSocket: a binary message for each frame.

use std::io;

use bytes::{Buf, BytesMut};
use mortarmq_transport::Stream;
use mortarmq_wire::Split;
use mortarmq_wire::split_frame;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

/// What is on its way to the stream.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    waiting: BytesMut,
    /// What of the message under way was not taken yet.
    left: usize,
    /// The answer to the newest ping; it cannot stand inside a message.
    pong: Option<Vec<u8>>,
    has_ended: bool,
}

impl Outgoing {
    pub(super) fn wants_write(&self) -> bool {
        !self.waiting.is_empty() || (self.pong.is_some() && self.left == 0)
    }

    /// Adds bytes as they are.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
    }

    /// Answers a ping. One that was not answered yet is not answered any more.
    pub(super) fn pong(&mut self, payload: Vec<u8>) {
        if !self.has_ended {
            self.pong = Some(payload);
        }
    }

    /// Adds the word that ends everything. In the middle of a message there is no place for it.
    pub(super) fn end(&mut self, is_fault: bool) {
        if self.left > 0 || self.has_ended {
            return;
        }
        self.has_ended = true;
        self.pong = None;
        let code = if is_fault { CloseCode::Protocol } else { CloseCode::Normal };
        self.frame(OpCode::Control(Control::Close), &u16::from(code).to_be_bytes());
    }

    /// Takes whole frames as far as there is room, or goes on with a large one.
    pub(super) fn write(&mut self, stream: &mut Stream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(stream)?;
        if self.left > 0 {
            let taken = stream.try_write(&bytes[..self.left.min(bytes.len())])?;
            self.left -= taken;
            return Ok(taken);
        }
        let mut taken = 0;
        while self.waiting.len() < BUFFERED_BYTES && self.left == 0 {
            let rest = &bytes[taken..];
            let Ok(Split::Frame { consumed, .. }) = split_frame(rest) else { break };
            let now = consumed.min(BUFFERED_BYTES);
            self.header(OpCode::Data(Data::Binary), consumed as u64);
            self.waiting.extend_from_slice(&rest[..now]);
            self.left = consumed - now;
            taken += now;
        }
        match self.flush(stream) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self, stream: &mut Stream) -> io::Result<()> {
        loop {
            if self.waiting.is_empty()
                && self.left == 0
                && let Some(payload) = self.pong.take()
            {
                self.frame(OpCode::Control(Control::Pong), &payload);
            }
            if self.waiting.is_empty() {
                break;
            }
            let written = stream.try_write(&self.waiting)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.waiting.advance(written);
        }
        if self.waiting.capacity() > 0 {
            self.waiting = BytesMut::new();
        }
        stream.try_flush().map(|_| ())
    }

    fn frame(&mut self, opcode: OpCode, payload: &[u8]) {
        self.header(opcode, payload.len() as u64);
        self.waiting.extend_from_slice(payload);
    }

    fn header(&mut self, opcode: OpCode, length: u64) {
        let header = FrameHeader { opcode, ..FrameHeader::default() };
        let mut bytes = Vec::with_capacity(header.len(length));
        header.format(length, &mut bytes).expect("memory takes every byte");
        self.waiting.extend_from_slice(&bytes);
    }
}

/// Bytes of messages that may wait for the stream.
pub(super) const BUFFERED_BYTES: usize = 64 << 10;
