//! What a connection reads and writes: frames on a stream, or in the messages of a WebSocket over one.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use mortarmq_transport::Stream;
use tokio::net::TcpStream;

use super::READ_BYTES;
use crate::web_socket::{Origins, WebSocket};

/// A stream of frames. Its methods are those of [`Stream`].
pub(crate) struct Line {
    stream: Stream,
    web: Option<Box<WebSocket>>,
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// What a stream did, or can do.
#[derive(Debug)]
pub(crate) enum Moved {
    /// It was read; `WouldBlock` when there was nothing after all.
    Read(io::Result<usize>),
    /// It takes bytes again.
    Writable(io::Result<()>),
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

    /// Waits for what is wanted. To read, `into` gets room for one read once there is something.
    pub(crate) fn poll_moved(&mut self, context: &mut Context<'_>, wants: Wants, into: &mut BytesMut) -> Poll<Moved> {
        if wants.write
            && let Poll::Ready(ready) = self.stream.poll_writable(context)
        {
            return Poll::Ready(Moved::Writable(ready));
        }
        if !wants.read {
            return Poll::Pending;
        }
        let Some(web) = &mut self.web else {
            return self.stream.poll_read_buf(context, READ_BYTES, into).map(Moved::Read);
        };
        if !web.is_readable()
            && let Err(error) = ready!(self.stream.poll_readable(context))
        {
            return Poll::Ready(Moved::Read(Err(error)));
        }
        into.reserve(READ_BYTES);
        Poll::Ready(Moved::Read(web.read(&mut self.stream, into)))
    }

    pub(super) fn try_read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match &mut self.web {
            None => self.stream.try_read_buf(into),
            Some(web) => web.read(&mut self.stream, into),
        }
    }

    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.web {
            None => self.stream.try_write(bytes),
            Some(web) => web.write(&mut self.stream, bytes),
        }
    }

    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        match &mut self.web {
            None => self.stream.try_flush().map(|_| ()),
            Some(web) => web.flush(&mut self.stream),
        }
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.web.as_ref().is_some_and(|web| web.wants_write()) || self.stream.wants_write()
    }

    /// Announces the end, where what is spoken has a word for it; it is written as all else is.
    pub(crate) fn announce_end(&mut self) {
        self.stream.announce_end();
    }

    /// Says that nothing more comes, and gives the socket back.
    pub(crate) fn finish(mut self) -> TcpStream {
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
