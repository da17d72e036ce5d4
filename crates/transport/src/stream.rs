//! The stream: what server and client read and write.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;

use crate::connector::server_name;
use crate::fault::TlsFault;
use crate::layer::Layer;
use crate::sealed::{Opener, Sealer};
use crate::sealing::Sealing;
use crate::session::{BINDING_BYTES, Session};

/// One TCP stream: plain, with TLS, or of sealed frames. Waiting is safe to cancel; nothing but a `try_` moves bytes.
///
/// # Invariants
/// 1. A plain stream's every call is the socket's own: no copy, no allocation.
/// 2. Of the others at most 64 KiB of plaintext wait for the socket: while any do, nothing more is taken.
/// 3. Bytes that were decrypted or opened and not taken make the stream readable at once.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    layer: Option<Layer>,
}

impl Stream {
    /// A stream without TLS.
    #[must_use]
    pub const fn plain(socket: TcpStream) -> Self {
        Self { socket, layer: None }
    }

    /// A stream of sealed frames, of two who share their keys: what each says, the other opens.
    #[must_use]
    pub fn sealed(socket: TcpStream, opener: Opener, sealer: Sealer) -> Self {
        Self { socket, layer: Some(Layer::Sealed(Box::new(Sealing::new(opener, sealer)))) }
    }

    pub(crate) fn with_tls(socket: TcpStream, connection: rustls::Connection) -> Self {
        Self { socket, layer: Some(Layer::Tls(Box::new(Session::new(connection)))) }
    }

    /// Whether TLS is spoken.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self.layer, Some(Layer::Tls(_)))
    }

    /// Whether the certificate that the peer has shown names `host`: a name, or an IP address with or without brackets. Asked
    /// once the handshake is done.
    ///
    /// # Errors
    /// [`TlsFault::Certificate`](crate::TlsFault) when it does not, or there is none.
    pub fn check_peer_name(&self, host: &str) -> io::Result<()> {
        let shown = match &self.layer {
            Some(Layer::Tls(session)) => session.peer_certificate(),
            _ => None,
        };
        let Some(shown) = shown else {
            return Err(TlsFault::Certificate { reason: "there is none".to_owned() }.into_io());
        };
        let name = server_name(host)?;
        let checked = ParsedCertificate::try_from(shown).and_then(|shown| verify_server_name(&shown, &name));
        checked.map_err(|error| TlsFault::from(error).into_io())
    }

    /// What only both ends of this very TLS session know, and nobody between them; none without TLS. Asked once the handshake
    /// is done.
    ///
    /// # Errors
    /// The handshake is not done.
    /// # Source
    /// RFC 9266.
    pub fn binding(&self) -> io::Result<Option<[u8; BINDING_BYTES]>> {
        let Some(Layer::Tls(session)) = &self.layer else { return Ok(None) };
        session.binding().map(Some).map_err(|error| TlsFault::from(error).into_io())
    }

    /// Waits until there may be something to read.
    ///
    /// # Errors
    /// The system's.
    pub async fn readable(&self) -> io::Result<()> {
        if self.can_read_now() { Ok(()) } else { self.socket.readable().await }
    }

    /// Waits until something may be written.
    ///
    /// # Errors
    /// The system's.
    pub async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Waits for one of both.
    ///
    /// # Errors
    /// The system's.
    pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        if interest.is_readable() && self.can_read_now() {
            return Ok(Ready::READABLE);
        }
        self.socket.ready(interest).await
    }

    /// Reads what is there, at most the room that `into` has. 0 is the end: with TLS also one that was not announced, for
    /// what this stream carries says itself where it is complete.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there now; the system's; a [`TlsFault`](crate::TlsFault).
    #[inline]
    pub fn try_read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match &mut self.layer {
            None => self.socket.try_read_buf(into),
            Some(layer) => layer.read(&self.socket, into),
        }
    }

    /// As [`readable`](Self::readable).
    ///
    /// # Errors
    /// The system's.
    #[inline]
    pub fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.can_read_now() { Poll::Ready(Ok(())) } else { self.socket.poll_read_ready(context) }
    }

    /// As [`writable`](Self::writable).
    ///
    /// # Errors
    /// The system's.
    #[inline]
    pub fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_write_ready(context)
    }

    /// Waits until there may be something to read, then gives `into` room for `room_bytes` and reads as
    /// [`try_read_buf`](Self::try_read_buf) does. Without TLS the next wait asks the system nothing when this read left some
    /// of the room: then nothing more was there, and it will tell.
    ///
    /// # Errors
    /// Those of `try_read_buf`.
    #[inline]
    pub fn poll_read_buf(
        &mut self,
        context: &mut Context<'_>,
        room_bytes: usize,
        into: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_readable(context))?;
        into.reserve(room_bytes);
        match &mut self.layer {
            None => {
                let read = pin!(self.socket.read_buf(into)).poll(context);
                if read.is_pending() && into.is_empty() {
                    // The system had said so too early: whoever waits needs no room.
                    *into = BytesMut::new();
                }
                read
            }
            Some(layer) => Poll::Ready(layer.read(&self.socket, into)),
        }
    }

    /// Writes some of the bytes, and says how many. With TLS these may still wait for the socket:
    /// [`wants_write`](Self::wants_write).
    ///
    /// # Errors
    /// `WouldBlock` when the socket takes nothing now; the system's.
    #[inline]
    pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.layer {
            None => self.socket.try_write(bytes),
            Some(layer) => layer.write(&self.socket, bytes),
        }
    }

    /// Writes what waits for the socket; how much of it went, in bytes of the socket. Without TLS nothing ever waits.
    ///
    /// # Errors
    /// `WouldBlock` when something waits and the socket takes nothing now; the system's.
    pub fn try_flush(&mut self) -> io::Result<usize> {
        match &mut self.layer {
            None => Ok(0),
            Some(layer) => layer.flush(&self.socket),
        }
    }

    /// Whether bytes wait for the socket: then wait until it is writable, and [`try_flush`](Self::try_flush).
    #[inline]
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| layer.wants_write())
    }

    /// Completes the handshake, so that its failure is told apart from others. Whoever reads anyway needs no such call.
    ///
    /// # Errors
    /// A [`TlsFault`](crate::TlsFault); `UnexpectedEof` when the peer goes before it is done; the system's.
    pub async fn handshake(&mut self) -> io::Result<()> {
        let Some(Layer::Tls(session)) = &mut self.layer else { return Ok(()) };
        while session.is_handshaking() {
            would_block(session.flush(&self.socket))?;
            let both = Interest::READABLE | Interest::WRITABLE;
            let interest = if session.wants_write() { both } else { Interest::READABLE };
            self.socket.ready(interest).await?;
            would_block(session.receive(&self.socket))?;
            if session.is_ended() && session.is_handshaking() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Announces the end on a stream of frames or TLS; it is written as all else is. Of a plain one the end is its socket's.
    pub fn announce_end(&mut self) {
        if let Some(layer) = &mut self.layer {
            layer.announce_end();
        }
    }

    /// Announces the end, if TLS is spoken, writes what the socket takes of what waits, and gives the socket back.
    #[must_use]
    pub fn finish(mut self) -> TcpStream {
        if let Some(layer) = &mut self.layer {
            layer.announce_end();
            // The caller has flushed before, or does not care: all that could wait here is the announcement.
            let _ = layer.flush(&self.socket);
        }
        self.socket
    }

    /// Goes on without TLS, to tell a peer that does not speak it ([`TlsFault::NotTls`](crate::TlsFault)) what is spoken here.
    pub fn drop_tls(&mut self) {
        self.layer = None;
    }

    /// Announces the end, and closes this direction once everything is written.
    ///
    /// # Errors
    /// The system's.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_shutdown(context)).await
    }

    fn can_read_now(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| layer.is_readable())
    }

    /// Pending, and woken as soon as the socket can be read or, while something waits for it, written.
    fn poll_moved(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.wants_write()
            && let Poll::Ready(ready) = self.socket.poll_write_ready(context)
        {
            return Poll::Ready(ready);
        }
        self.socket.poll_read_ready(context)
    }
}

/// As the socket's own. While it is read, answers of the handshake are written too.
impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let Some(layer) = &mut this.layer else { return Pin::new(&mut this.socket).poll_read(context, into) };
            if would_block(layer.read(&this.socket, into))?.is_some() {
                return Poll::Ready(Ok(()));
            }
            ready!(this.poll_moved(context))?;
        }
    }
}

/// As the socket's own; with TLS, what was written is on its way for sure only after a flush.
impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            let Some(layer) = &mut this.layer else { return Pin::new(&mut this.socket).poll_write(context, bytes) };
            if let Some(written) = would_block(layer.write(&this.socket, bytes))? {
                return Poll::Ready(Ok(written));
            }
            ready!(this.socket.poll_write_ready(context))?;
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match &this.layer {
            None => Pin::new(&mut this.socket).poll_write_vectored(context, slices),
            Some(_) => {
                let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
                Pin::new(this).poll_write(context, first)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.layer.is_none()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while let Some(layer) = &mut this.layer {
            if !layer.wants_write() {
                break;
            }
            if would_block(layer.flush(&this.socket))?.is_none() {
                ready!(this.socket.poll_write_ready(context))?;
            }
        }
        Pin::new(&mut this.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(layer) = &mut self.layer {
            layer.announce_end();
        }
        ready!(self.as_mut().poll_flush(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// `None` for what can go on later.
fn would_block<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
