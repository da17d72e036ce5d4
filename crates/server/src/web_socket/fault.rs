//! What a peer can do wrong between WebSocket and frames.

use std::io;

/// Why the messages of a WebSocket are no frames. The text goes to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebFault {
    /// A binary message that is shorter or longer than its frame.
    #[error("a binary message holds exactly one frame, its length included; fix the client")]
    NotOneFrame,
    /// A text message.
    #[error("a text message came; frames travel in binary messages: fix the client (browsers: send an ArrayBuffer)")]
    Text,
    /// What RFC 6455 forbids.
    #[error("{0} (RFC 6455); fix the client")]
    Protocol(&'static str),
}

impl WebFault {
    /// As the error of a read.
    pub(super) fn into_io(self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self)
    }

    /// The fault behind an error of a read.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}
