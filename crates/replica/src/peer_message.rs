//! What one replica says to another, checked once at the edge.

mod codec;
pub(crate) mod envelope;

use mortarmq_types::Epoch;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use thiserror::Error;

use crate::membership::Change;
pub use codec::PeerBytesError;

/// A message between replicas of one shard that is well-formed as far as it can be told without the receiver's state.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerMessage {
    message: Message,
    is_short_of_room: bool,
}

/// Why a message is not taken from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RefusedMessage {
    /// Sender or receiver is 0, which means "nobody" to the library.
    #[error("a peer message names no sender or no receiver")]
    Nobody,
    /// A kind that only the replica itself may raise, or that this version does not exchange: proposals and reads are
    /// forwarded above this crate, and snapshots travel out of band.
    #[error("a peer message of kind {0:?} is not accepted")]
    Kind(MessageType),
    /// The entries do not follow one another from the message's index on.
    #[error("a peer message carries entry {found} where {expected} follows")]
    Gap {
        /// The log index that would have followed.
        expected: u64,
        /// The log index that was found.
        found: u64,
    },
    /// An entry's term is lower than its predecessor's, or above the message's.
    #[error("entry {log_index} of a peer message has an impossible term {term}")]
    Term {
        /// The entry's log index.
        log_index: u64,
        /// Its term.
        term: u64,
    },
    /// An entry that changes members in no way that this version knows.
    #[error("entry {log_index} of a peer message changes members in an unknown way")]
    MembershipChange {
        /// The entry's log index.
        log_index: u64,
    },
}

impl PeerMessage {
    /// Checks a message and wraps it.
    ///
    /// # Errors
    /// [`RefusedMessage`] says what does not fit; the message must be dropped.
    /// # Source
    /// Failure rule 1 needs a sound log; the library panics on an unsound one.
    pub fn new(message: Message) -> Result<Self, RefusedMessage> {
        if message.from == 0 || message.to == 0 {
            return Err(RefusedMessage::Nobody);
        }
        if !is_exchanged(message.get_msg_type()) {
            return Err(RefusedMessage::Kind(message.get_msg_type()));
        }
        check_entries(&message)?;
        Ok(Self { message, is_short_of_room: false })
    }

    /// The same, of a sender whose disk is nearly full.
    pub(crate) fn short_of_room(self, is_short_of_room: bool) -> Self {
        Self { is_short_of_room, ..self }
    }

    /// Whether the sender's disk is nearly full: it tells with every message.
    #[must_use]
    pub fn is_short_of_room(&self) -> bool {
        self.is_short_of_room
    }

    /// Who says it.
    #[must_use]
    pub fn from(&self) -> u64 {
        self.message.from
    }

    /// Who it is for.
    #[must_use]
    pub fn to(&self) -> u64 {
        self.message.to
    }

    /// The epoch of the sender.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.message.term)
    }

    /// Whether it brings entries of the log.
    #[must_use]
    pub fn has_entries(&self) -> bool {
        !self.message.entries.is_empty()
    }

    /// Whether it is about what the log holds at some place: what says so must not overtake another.
    #[must_use]
    pub fn is_of_log(&self) -> bool {
        self.message.get_msg_type() == MessageType::MsgAppend
    }

    /// About how much memory it holds.
    ///
    /// # Units
    /// Bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Message>()
            + self.message.entries.iter().map(|entry| size_of::<Entry>() + entry.data.len()).sum::<usize>()
    }

    /// Whether only the leader of its epoch says this.
    pub(crate) fn is_a_leaders(&self) -> bool {
        matches!(
            self.message.get_msg_type(),
            MessageType::MsgAppend | MessageType::MsgHeartbeat | MessageType::MsgTimeoutNow
        )
    }

    /// The message itself, for tests.
    #[must_use]
    pub fn as_raft(&self) -> &Message {
        &self.message
    }

    pub(crate) fn into_raft(self) -> Message {
        self.message
    }

    /// Wraps what the library put out itself.
    ///
    /// # Panics
    /// If it is not of a kind that peers accept: then two replicas of this version could not talk.
    pub(crate) fn from_library(message: Message) -> Self {
        Self::new(message).unwrap_or_else(|refused| panic!("the library sends what no peer accepts: {refused}"))
    }
}

fn is_exchanged(kind: MessageType) -> bool {
    match kind {
        MessageType::MsgAppend
        | MessageType::MsgAppendResponse
        | MessageType::MsgRequestVote
        | MessageType::MsgRequestVoteResponse
        | MessageType::MsgRequestPreVote
        | MessageType::MsgRequestPreVoteResponse
        | MessageType::MsgHeartbeat
        | MessageType::MsgHeartbeatResponse
        | MessageType::MsgTimeoutNow => true,
        MessageType::MsgHup
        | MessageType::MsgBeat
        | MessageType::MsgPropose
        | MessageType::MsgSnapshot
        | MessageType::MsgUnreachable
        | MessageType::MsgSnapStatus
        | MessageType::MsgCheckQuorum
        | MessageType::MsgTransferLeader
        | MessageType::MsgReadIndex
        | MessageType::MsgReadIndexResp => false,
    }
}

fn check_entries(message: &Message) -> Result<(), RefusedMessage> {
    if message.entries.is_empty() {
        return Ok(());
    }
    // Of the exchanged kinds only appends carry entries.
    if message.get_msg_type() != MessageType::MsgAppend {
        return Err(RefusedMessage::Kind(message.get_msg_type()));
    }
    let (mut last_index, mut last_term) = (message.index, message.log_term);
    for Entry { index, term, entry_type, data, .. } in message.entries.iter() {
        if last_index.checked_add(1) != Some(*index) {
            return Err(RefusedMessage::Gap { expected: last_index.saturating_add(1), found: *index });
        }
        if *term == 0 || *term < last_term || *term > message.term {
            return Err(RefusedMessage::Term { log_index: *index, term: *term });
        }
        let is_known = match entry_type {
            EntryType::EntryNormal => true,
            EntryType::EntryConfChangeV2 => Change::decode(data).is_some(),
            EntryType::EntryConfChange => false,
        };
        if !is_known {
            return Err(RefusedMessage::MembershipChange { log_index: *index });
        }
        (last_index, last_term) = (*index, *term);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Entry, EntryType, Message, MessageType, PeerMessage, RefusedMessage};

    fn append(entries: &[(u64, u64)]) -> Message {
        let mut message = Message { from: 1, to: 2, term: 5, index: 10, log_term: 3, ..Message::default() };
        message.set_msg_type(MessageType::MsgAppend);
        let entries: Vec<Entry> =
            entries.iter().map(|(index, term)| Entry { index: *index, term: *term, ..Entry::default() }).collect();
        message.set_entries(entries.into());
        message
    }

    #[test]
    fn a_sound_append_passes() {
        assert!(PeerMessage::new(append(&[(11, 3), (12, 5)])).is_ok());
        assert!(PeerMessage::new(append(&[])).is_ok());
    }

    #[test]
    fn an_unsound_log_is_refused_before_the_library_sees_it() {
        assert_eq!(PeerMessage::new(append(&[(11, 3), (13, 3)])), Err(RefusedMessage::Gap { expected: 12, found: 13 }));
        assert_eq!(PeerMessage::new(append(&[(11, 2)])), Err(RefusedMessage::Term { log_index: 11, term: 2 }));
        assert_eq!(PeerMessage::new(append(&[(11, 6)])), Err(RefusedMessage::Term { log_index: 11, term: 6 }));
        let mut message = append(&[(11, 3)]);
        message.mut_entries()[0].set_entry_type(EntryType::EntryConfChangeV2);
        assert_eq!(PeerMessage::new(message.clone()), Err(RefusedMessage::MembershipChange { log_index: 11 }));
        message.mut_entries()[0].data = crate::Change::Promote { id: 7 }.encode();
        assert!(PeerMessage::new(message).is_ok(), "a change that is known");
    }

    #[test]
    fn what_peers_do_not_say_is_refused() {
        for kind in [MessageType::MsgPropose, MessageType::MsgHup, MessageType::MsgReadIndexResp] {
            let mut message = append(&[]);
            message.set_msg_type(kind);
            assert_eq!(PeerMessage::new(message), Err(RefusedMessage::Kind(kind)));
        }
        let mut message = append(&[(11, 3)]);
        message.set_msg_type(MessageType::MsgHeartbeat);
        assert_eq!(PeerMessage::new(message), Err(RefusedMessage::Kind(MessageType::MsgHeartbeat)));
        let mut message = append(&[]);
        message.from = 0;
        assert_eq!(PeerMessage::new(message), Err(RefusedMessage::Nobody));
    }
}
