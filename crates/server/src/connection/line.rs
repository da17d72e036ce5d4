//! What a connection reads and writes: frames on a stream, or in the messages of a WebSocket over one.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use mortarmq_transport::Stream;
use tokio::net::TcpStream;

use crate::web_socket::{Origins, WebSocket};

/// A stream of frames. Its methods are those of [`Stream`].
pub(crate) struct Line {
    stream: Stream,
    web: Option<Box<WebSocket>>,
}

impl Line {
    /// Frames on the stream itself.
    pub(crate) const fn plain(stream: Stream) -> Self {
        Self { stream, web: None }
    }

    /// Frames in messages, of pages of these origins.
    pub(crate) fn web(stream: Stream, origins: Arc<Origins>) -> Self {
        Self { stream, web: Some(Box::new(WebSocket::new(origins))) }
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        if self.web.as_ref().is_some_and(|web| web.is_readable()) { Ok(()) } else { self.stream.readable().await }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.stream.writable().await
    }

    pub(super) fn try_read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match &mut self.web {
            None => self.stream.try_read_buf(into),
            Some(web) => web.read(&mut self.stream, into),
        }
    }

    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.web {
            None => self.stream.try_write(bytes),
            Some(web) => web.write(&mut self.stream, bytes),
        }
    }

    pub(super) fn try_flush(&mut self) -> io::Result<()> {
        match &mut self.web {
            None => self.stream.try_flush().map(|_| ()),
            Some(web) => web.flush(&mut self.stream),
        }
    }

    pub(super) fn wants_write(&self) -> bool {
        self.web.as_ref().is_some_and(|web| web.wants_write()) || self.stream.wants_write()
    }

    /// Says that nothing more comes, and gives the socket back.
    pub(super) fn finish(mut self) -> TcpStream {
        if let Some(web) = &mut self.web {
            web.end(&mut self.stream);
        }
        self.stream.finish()
    }

    /// The stream, to tell a peer in the clear that TLS is spoken here; none if nobody would understand it.
    pub(super) fn without_tls(mut self) -> Result<Stream, TcpStream> {
        if self.web.is_some() {
            return Err(self.stream.finish());
        }
        self.stream.drop_tls();
        Ok(self.stream)
    }
}
