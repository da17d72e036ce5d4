//! From the bytes of a WebSocket to those of frames, as they come.

use std::io::Cursor;

use bytes::{Buf, BytesMut};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::fault::WebFault;

/// What came so far.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    part: Option<Part>,
    /// The message under way.
    message: Option<Progress>,
    ping: Option<Vec<u8>>,
    is_closed: bool,
    fault: Option<WebFault>,
}

/// A WebSocket frame of which some is to come.
#[derive(Debug)]
struct Part {
    mask: [u8; 4],
    /// How much of it came.
    at: usize,
    left: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Data { is_last: bool },
    Control { op: Control, payload: Vec<u8> },
}

/// How much of a message came, and how long its frame says it is.
#[derive(Debug, Default)]
struct Progress {
    length: [u8; 4],
    bytes: u64,
}

impl Progress {
    fn add(&mut self, bytes: &[u8]) {
        let from = usize::try_from(self.bytes).unwrap_or(usize::MAX).min(self.length.len());
        for (place, byte) in self.length[from..].iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.bytes += bytes.len() as u64;
    }

    /// What the message has in all if it is one frame; not known before its length is there.
    fn frame_bytes(&self) -> Option<u64> {
        (self.bytes >= 4).then(|| 4 + u64::from(u32::from_be_bytes(self.length)))
    }
}

impl Incoming {
    pub(super) fn fault(&self) -> Option<WebFault> {
        self.fault
    }

    /// The peer has said that it sends nothing more.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What the newest ping that was not answered carried.
    pub(super) fn take_ping(&mut self) -> Option<Vec<u8>> {
        self.ping.take()
    }

    /// Takes `raw` but for the beginning of a header, and appends what belongs to frames to `into`. Behind a fault or the end
    /// nothing is taken any more.
    pub(super) fn take(&mut self, raw: &mut BytesMut, into: &mut BytesMut) {
        while self.fault.is_none() && !self.is_closed {
            let moved = match &self.part {
                None => self.take_header(raw),
                Some(_) => self.take_part(raw, into),
            };
            match moved {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => self.fault = Some(fault),
            }
        }
        raw.clear();
    }

    /// Says whether one was there.
    fn take_header(&mut self, raw: &mut BytesMut) -> Result<bool, WebFault> {
        let mut cursor = Cursor::new(&raw[..]);
        let parsed =
            FrameHeader::parse(&mut cursor).map_err(|_| WebFault::Protocol("a frame of no known kind came"))?;
        let Some((header, left)) = parsed else { return Ok(false) };
        let bytes = usize::try_from(cursor.position()).expect("inside the buffer");
        raw.advance(bytes);
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(WebFault::Protocol("a reserved bit is set, and no extension was agreed on"));
        }
        let Some(mask) = header.mask else {
            return Err(WebFault::Protocol("a client's frame is not masked"));
        };
        let is_last = header.is_final;
        let kind = match header.opcode {
            OpCode::Data(Data::Text) => return Err(WebFault::Text),
            OpCode::Data(Data::Binary) if self.message.is_none() => {
                self.message = Some(Progress::default());
                Kind::Data { is_last }
            }
            OpCode::Data(Data::Continue) if self.message.is_some() => Kind::Data { is_last },
            OpCode::Control(op) if is_last && left <= CONTROL_BYTES_MAX => Kind::Control { op, payload: Vec::new() },
            OpCode::Control(_) => return Err(WebFault::Protocol("a control frame is too long, or in parts")),
            OpCode::Data(_) => return Err(WebFault::Protocol("the parts of a message are out of order")),
        };
        self.part = Some(Part { mask, at: 0, left, kind });
        Ok(true)
    }

    /// Says whether the part is complete.
    fn take_part(&mut self, raw: &mut BytesMut, into: &mut BytesMut) -> Result<bool, WebFault> {
        let part = self.part.as_mut().expect("looked at by the caller");
        let bytes = usize::try_from(part.left).unwrap_or(usize::MAX).min(raw.len());
        for (number, byte) in raw[..bytes].iter_mut().enumerate() {
            *byte ^= part.mask[(part.at + number) % part.mask.len()];
        }
        match &mut part.kind {
            Kind::Control { payload, .. } => payload.extend_from_slice(&raw[..bytes]),
            Kind::Data { .. } => {
                let progress = self.message.as_mut().expect("its header was taken");
                progress.add(&raw[..bytes]);
                // What a message has behind its frame is not handed on.
                let surplus = progress.frame_bytes().map_or(0, |whole| progress.bytes.saturating_sub(whole));
                let surplus = usize::try_from(surplus).unwrap_or(usize::MAX).min(bytes);
                into.extend_from_slice(&raw[..bytes - surplus]);
                if surplus > 0 {
                    return Err(WebFault::NotOneFrame);
                }
            }
        }
        raw.advance(bytes);
        part.at = (part.at + bytes) % part.mask.len();
        part.left -= bytes as u64;
        if part.left > 0 {
            return Ok(false);
        }
        let Some(Part { kind, .. }) = self.part.take() else { return Ok(false) };
        self.end_part(kind)?;
        Ok(true)
    }

    fn end_part(&mut self, kind: Kind) -> Result<(), WebFault> {
        match kind {
            Kind::Data { is_last: false } | Kind::Control { op: Control::Pong | Control::Reserved(_), .. } => Ok(()),
            Kind::Data { is_last: true } => {
                let message = self.message.take().expect("its header was taken");
                let is_whole = message.frame_bytes() == Some(message.bytes);
                if is_whole { Ok(()) } else { Err(WebFault::NotOneFrame) }
            }
            Kind::Control { op: Control::Ping, payload } => {
                self.ping = Some(payload);
                Ok(())
            }
            Kind::Control { op: Control::Close, .. } => {
                self.is_closed = true;
                Ok(())
            }
        }
    }
}

/// # Source
/// RFC 6455, 5.5.
const CONTROL_BYTES_MAX: u64 = 125;
