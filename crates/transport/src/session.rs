//! TLS over a socket that never waits: bytes between a `rustls::Connection` and the socket.
//!
//! # Invariants
//! 1. Plaintext is handed out before more is read, so no more of it is kept here than one read of the socket brought.
//! 2. Plaintext is taken only while no ciphertext waits for the socket.
//! 3. A server sends nothing to a peer whose first byte is not one of TLS.

use std::io::{self, BufRead, IoSlice, Read, Write};

use bytes::BufMut;
use rustls::Connection;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;

use crate::fault::TlsFault;

/// One connection's TLS.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Connection,
    /// Decrypted, and not taken yet.
    plaintext_bytes: usize,
    /// The peer has announced its end, or the socket has come to it.
    is_ended: bool,
    /// A server looks at the first byte before it says anything.
    is_first: bool,
}

impl Session {
    pub(crate) fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(BUFFERED_BYTES));
        let is_first = matches!(connection, Connection::Server(_));
        Self { connection, plaintext_bytes: 0, is_ended: false, is_first }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub(crate) const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// A read gives something, or the end, without the socket.
    pub(crate) const fn is_readable(&self) -> bool {
        self.plaintext_bytes > 0 || self.is_ended
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// The certificate that the peer has shown, if it was asked for one.
    pub(crate) fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates()?.first()
    }

    /// What only both ends of this very session know.
    pub(crate) fn binding(&self) -> Result<[u8; BINDING_BYTES], rustls::Error> {
        self.connection.export_keying_material([0; BINDING_BYTES], BINDING_LABEL, None)
    }

    /// Reads what is there into the room of `into`; 0 is the end.
    pub(crate) fn read(&mut self, socket: &TcpStream, into: &mut impl BufMut) -> io::Result<usize> {
        let room = into.chunk_mut().len();
        // Whatever is wrong with writing, the next write is told.
        let _ = self.flush(socket);
        let mut taken = self.take_plaintext(into, room);
        for _ in 0..RECORDS_PER_READ {
            if taken == room || self.is_ended {
                return Ok(taken);
            }
            match self.receive(socket) {
                Ok(()) => taken += self.take_plaintext(into, room - taken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
        }
        // The socket stays ready: whoever waits for it is back at once, after others.
        if taken > 0 || self.is_ended { Ok(taken) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Reads from the socket once, decrypts, and answers what belongs to TLS itself.
    pub(crate) fn receive(&mut self, socket: &TcpStream) -> io::Result<()> {
        let received = if self.is_first {
            let mut first = [0];
            let received = socket.try_read(&mut first)?;
            if received > 0 && first != [HANDSHAKE_RECORD] {
                return Err(TlsFault::NotTls.into_io());
            }
            self.is_first = false;
            self.connection.read_tls(&mut &first[..received])?
        } else {
            self.connection.read_tls(&mut Socket(socket))?
        };
        if received == 0 {
            self.is_ended = true;
            return Ok(());
        }
        let processed = self.connection.process_new_packets();
        // An answer of the handshake, or an alert. A peer that reads no more may still have sent something that counts.
        let _ = self.flush(socket);
        let state = processed.map_err(|error| TlsFault::from(error).into_io())?;
        self.plaintext_bytes = state.plaintext_bytes_to_read();
        self.is_ended = state.peer_has_closed();
        Ok(())
    }

    /// Takes some of the bytes for the socket.
    pub(crate) fn write(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.flush(socket)?;
        // Else a peer that reads slowly would be sent its bytes in tiny records, as room for each comes free.
        if self.wants_write() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.connection.writer().write(bytes)?;
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match self.flush(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Writes ciphertext until none waits or the socket takes no more; how much went.
    pub(crate) fn flush(&mut self, socket: &TcpStream) -> io::Result<usize> {
        let mut written = 0;
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(socket)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Nothing more will be written.
    pub(crate) fn announce_end(&mut self) {
        // To a peer that speaks something else TLS says nothing.
        if !self.is_first {
            self.connection.send_close_notify();
        }
    }

    fn take_plaintext(&mut self, into: &mut impl BufMut, room: usize) -> usize {
        let most = room.min(self.plaintext_bytes);
        let mut taken = 0;
        let mut reader = self.connection.reader();
        while taken < most {
            // An end that nobody announced is an error here, and no plaintext is left then.
            let Ok(chunk) = reader.fill_buf() else { break };
            let bytes = chunk.len().min(most - taken);
            if bytes == 0 {
                break;
            }
            into.put_slice(&chunk[..bytes]);
            reader.consume(bytes);
            taken += bytes;
        }
        self.plaintext_bytes -= taken;
        taken
    }
}

/// What rustls reads and writes.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Plaintext that may wait for the socket: some full records, so that one call of the system writes many.
const BUFFERED_BYTES: usize = 64 << 10;
/// What one read does at most when the peer sends nothing but messages of TLS itself.
const RECORDS_PER_READ: usize = 64;
/// The first byte of every handshake.
const HANDSHAKE_RECORD: u8 = 22;
/// That of RFC 9266, which TLS 1.3 makes unique for each session.
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
pub(crate) const BINDING_BYTES: usize = 32;
