//! What a replica promises with what it says (failure rule 1).

use mortarmq_types::Epoch;
use raft::eraftpb::{Message, MessageType};

use crate::peer_message::PeerMessage;
use crate::replica::Replica;

/// What the sender of a message never forgets, whatever happens to it: it said so only when it was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It votes for nobody else in this epoch.
    Vote {
        /// The epoch.
        epoch: Epoch,
        /// Whom it votes for.
        candidate: u64,
    },
    /// It holds the log of this epoch's leader so far.
    Log {
        /// The epoch.
        epoch: Epoch,
        /// The last log index.
        log_index: u64,
    },
}

impl Promise {
    /// The epoch it was made in.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        match self {
            Self::Vote { epoch, .. } | Self::Log { epoch, .. } => *epoch,
        }
    }

    fn of(message: &Message) -> Option<Self> {
        let epoch = Epoch::new(message.term);
        match message.get_msg_type() {
            MessageType::MsgRequestVote => Some(Self::Vote { epoch, candidate: message.from }),
            MessageType::MsgRequestVoteResponse if !message.reject => Some(Self::Vote { epoch, candidate: message.to }),
            MessageType::MsgAppendResponse if !message.reject => Some(Self::Log { epoch, log_index: message.index }),
            _ => None,
        }
    }
}

impl PeerMessage {
    /// What its sender promises with it, if anything.
    #[must_use]
    pub fn promise(&self) -> Option<Promise> {
        Promise::of(self.as_raft())
    }
}

impl Replica {
    /// Whether it still keeps what it promised. In a later epoch, its leader may have had the log cut.
    #[must_use]
    pub fn keeps(&self, promise: Promise) -> bool {
        let state = self.hard_state();
        if state.term != promise.epoch().get() {
            return state.term > promise.epoch().get();
        }
        match promise {
            Promise::Vote { candidate, .. } => state.vote == candidate,
            Promise::Log { log_index, .. } => self.last_log_index() >= log_index,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(kind: MessageType, reject: bool) -> Option<Promise> {
        let mut message = Message { from: 2, to: 3, term: 7, index: 41, reject, ..Message::default() };
        message.set_msg_type(kind);
        Promise::of(&message)
    }

    #[test]
    fn votes_and_acknowledgements_are_promises_and_their_refusals_none() {
        let epoch = Epoch::new(7);
        assert_eq!(said(MessageType::MsgRequestVote, false), Some(Promise::Vote { epoch, candidate: 2 }));
        assert_eq!(said(MessageType::MsgRequestVoteResponse, false), Some(Promise::Vote { epoch, candidate: 3 }));
        assert_eq!(said(MessageType::MsgAppendResponse, false), Some(Promise::Log { epoch, log_index: 41 }));
        assert_eq!(said(MessageType::MsgRequestVoteResponse, true), None);
        assert_eq!(said(MessageType::MsgAppendResponse, true), None);
        assert_eq!(said(MessageType::MsgRequestPreVote, false), None, "asking whether one would be voted for");
        assert_eq!(said(MessageType::MsgHeartbeatResponse, false), None);
    }
}
