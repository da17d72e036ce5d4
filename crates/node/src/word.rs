//! What one node says to another: of the log, of a snapshot, or of requests that another answers. A driver carries the bytes.

use bytes::{Bytes, BytesMut};
use mortarmq_replica::{CatchUpMessage, CatchUpWord, PeerBytesError, PeerMessage};
use mortarmq_types::ShardId;
use thiserror::Error;

use crate::config::Now;
use crate::forward::codec::ForwardBytesError;
use crate::forward::message::{ForwardBody, ForwardMessage};
use crate::node::Node;
use crate::request::Request;

/// A message to or from another node.
#[derive(Clone, Debug)]
pub enum PeerWord {
    /// Of the log and its leader.
    Log(PeerMessage),
    /// Of files: a snapshot, for whom the log does not bring up, or damaged bytes.
    CatchUp(Box<CatchUpMessage>),
    /// Of requests that a node does not answer itself, and of their answers.
    Forward(ForwardMessage),
}

/// Why bytes are nothing that a node says. They must be dropped; what matters is said again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeerWordError {
    /// They are nothing of the log or of a snapshot.
    #[error(transparent)]
    Log(#[from] PeerBytesError),
    /// They are nothing of forwarded requests.
    #[error(transparent)]
    Forward(#[from] ForwardBytesError),
}

impl PeerWord {
    /// Whether it may be large, or must not overtake another: a vote or a heartbeat never waits behind it.
    #[must_use]
    pub fn is_bulk(&self) -> bool {
        match self {
            Self::Log(message) => message.is_of_log(),
            Self::CatchUp(_) | Self::Forward(_) => true,
        }
    }

    /// About how much memory it holds.
    ///
    /// # Units
    /// Bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Log(message) => message.held_bytes(),
            Self::CatchUp(message) => {
                size_of::<CatchUpMessage>()
                    + match &message.word {
                        CatchUpWord::Piece { file, data, .. } | CatchUpWord::Sound { file, data, .. } => {
                            file.len() + data.len()
                        }
                        CatchUpWord::Fetch { file, .. }
                        | CatchUpWord::Ask { file, .. }
                        | CatchUpWord::None { file, .. } => file.len(),
                        CatchUpWord::Offer | CatchUpWord::Gone | CatchUpWord::Lost | CatchUpWord::Reaches { .. } => 0,
                    }
            }
            Self::Forward(message) => match &message.body {
                ForwardBody::Ask { requests, .. } => {
                    size_of::<ForwardMessage>() + requests.iter().map(Request::held_bytes).sum::<usize>()
                }
                ForwardBody::Answers { answers, .. } => {
                    size_of::<ForwardMessage>()
                        + answers.iter().map(|(_, replies)| size_of_val(&**replies)).sum::<usize>()
                }
            },
        }
    }

    /// Appends its bytes.
    pub fn encode(&self, shard: ShardId, out: &mut BytesMut) {
        match self {
            Self::Log(message) => message.encode(shard, out),
            Self::CatchUp(message) => message.encode(shard, out),
            Self::Forward(message) => message.encode(shard, out),
        }
    }

    /// Reads what is exactly these bytes; each kind begins with a magic of its own.
    ///
    /// # Errors
    /// [`PeerWordError`] for whatever [`PeerWord::encode`] does not write.
    /// # Source
    /// P11.
    pub fn decode(bytes: Bytes) -> Result<(ShardId, Self), PeerWordError> {
        if ForwardMessage::is_one(&bytes) {
            let (shard, message) = ForwardMessage::decode(bytes)?;
            return Ok((shard, Self::Forward(message)));
        }
        if CatchUpMessage::is_one(&bytes) {
            let (shard, message) = CatchUpMessage::decode(bytes)?;
            return Ok((shard, Self::CatchUp(Box::new(message))));
        }
        let (shard, message) = PeerMessage::decode(bytes)?;
        Ok((shard, Self::Log(message)))
    }
}

impl Node {
    /// Another node says something.
    ///
    /// # Panics
    /// As [`Node::handle_peer`].
    pub fn handle_word(&mut self, now: Now, word: PeerWord) {
        match word {
            PeerWord::Log(message) => self.handle_peer(now, message),
            PeerWord::CatchUp(message) => self.handle_catch_up(now, *message),
            PeerWord::Forward(message) => self.handle_forward(now, message),
        }
    }
}
