//! What one node says to another: of the log, of a snapshot, or of requests that another answers.

use bytes::{Bytes, BytesMut};
use mortarmq_node::{ForwardBody, ForwardMessage, Request};
use mortarmq_replica::{CatchUpMessage, CatchUpWord, PeerMessage};
use mortarmq_types::ShardId;

use super::handshake::Lane;

/// A message to or from another node.
pub(crate) enum Word {
    /// Of the log and its leader.
    Log(PeerMessage),
    /// Of a snapshot, for whom the log does not bring up.
    CatchUp(Box<CatchUpMessage>),
    /// Of requests that this node does not answer itself, and of their answers.
    Forward(ForwardMessage),
}

impl Word {
    /// Which link it takes. What may be large never stands before a vote.
    pub(super) fn lane(&self) -> Lane {
        match self {
            Self::Log(message) if !message.is_of_log() => Lane::Words,
            Self::Log(_) | Self::CatchUp(_) | Self::Forward(_) => Lane::Log,
        }
    }

    /// About how much memory it holds.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Log(message) => message.held_bytes(),
            Self::CatchUp(message) => {
                size_of::<CatchUpMessage>()
                    + match &message.word {
                        CatchUpWord::Piece { file, data, .. } => file.len() + data.len(),
                        CatchUpWord::Fetch { file, .. } => file.len(),
                        CatchUpWord::Offer | CatchUpWord::Gone => 0,
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

    pub(super) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Log(message) => message.encode(ShardId::ZERO, out),
            Self::CatchUp(message) => message.encode(ShardId::ZERO, out),
            Self::Forward(message) => message.encode(ShardId::ZERO, out),
        }
    }

    /// Reads what another node said; each kind begins with a word of its own.
    ///
    /// # Errors
    /// Why it is none of them.
    pub(super) fn decode(bytes: Bytes) -> Result<Self, String> {
        if bytes.starts_with(FORWARD_MAGIC) {
            return ForwardMessage::decode(bytes)
                .map(|(_, message)| Self::Forward(message))
                .map_err(|error| error.to_string());
        }
        if CatchUpMessage::is_one(&bytes) {
            return CatchUpMessage::decode(bytes)
                .map(|(_, message)| Self::CatchUp(Box::new(message)))
                .map_err(|error| error.to_string());
        }
        PeerMessage::decode(bytes).map(|(_, message)| Self::Log(message)).map_err(|error| error.to_string())
    }
}

/// How a message about forwarded requests begins.
const FORWARD_MAGIC: &[u8] = b"MMQF";
