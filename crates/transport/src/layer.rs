//! What lies between a stream's bytes and the socket's, if anything does.

use std::io;

use bytes::BufMut;
use tokio::net::TcpStream;

use crate::sealing::Sealing;
use crate::session::Session;

/// TLS, or sealed frames.
#[derive(Debug)]
pub(crate) enum Layer {
    Tls(Box<Session>),
    Sealed(Box<Sealing>),
}

impl Layer {
    /// A read gives something, or the end, without the socket.
    pub(crate) fn is_readable(&self) -> bool {
        match self {
            Self::Tls(session) => session.is_readable(),
            Self::Sealed(sealing) => sealing.is_readable(),
        }
    }

    /// Whether bytes wait for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Self::Tls(session) => session.wants_write(),
            Self::Sealed(sealing) => sealing.wants_write(),
        }
    }

    /// Reads what is there into the room of `into`; 0 is the end.
    pub(crate) fn read(&mut self, socket: &TcpStream, into: &mut impl BufMut) -> io::Result<usize> {
        match self {
            Self::Tls(session) => session.read(socket, into),
            Self::Sealed(sealing) => sealing.read(socket, into),
        }
    }

    /// Takes some of the bytes for the socket.
    pub(crate) fn write(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tls(session) => session.write(socket, bytes),
            Self::Sealed(sealing) => sealing.write(socket, bytes),
        }
    }

    /// Writes what waits for the socket; how much went.
    pub(crate) fn flush(&mut self, socket: &TcpStream) -> io::Result<usize> {
        match self {
            Self::Tls(session) => session.flush(socket),
            Self::Sealed(sealing) => sealing.flush(socket),
        }
    }

    /// Nothing more will be written.
    pub(crate) fn announce_end(&mut self) {
        match self {
            Self::Tls(session) => session.announce_end(),
            Self::Sealed(sealing) => sealing.announce_end(),
        }
    }
}
