//! The bytes of a peer message: our own, so that the library's parser never sees what came over a network.
//!
//! All numbers are big-endian. A message names its own length and ends with a checksum of everything before, so that what
//! was cut, goes on or was changed on the way is refused as a whole. The log indexes of entries are not written: they
//! follow one another from the message's own on.
//!
//! | at | field | meaning, and the fault it guards against |
//! |---|---|---|
//! | 0 | magic `MMQP`, version u16 | another protocol, another version |
//! | 6 | kind u8, flags u8 | what it says; flags bit 0: refused, bit 1: the sender is short of room; any other kind or flag is refused |
//! | 8 | bytes u32 | its whole length |
//! | 12 | shard u32 | a message of another shard |
//! | 16 | from u64, to u64 | Raft ids, not 0: an earlier life of a node's data is another voter (failure rule 4) |
//! | 32 | term u64, log_term u64, index u64 | the sender's term; the entry before the first one that is sent |
//! | 56 | commit u64, commit_term u64 | what the sender knows to be committed |
//! | 72 | reject_hint u64, priority i64 | where to try next; the candidate's priority |
//! | 88 | context_bytes u32, entry_count u32 | |
//! | 96 | context | which round of reads a heartbeat is for, or what an election is for |
//! | | per entry: term u64, data_bytes u32, data | in order; the highest bit of data_bytes: it changes members |
//! | end − 4 | crc u32 | CRC32C of all the above |

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mortarmq_types::ShardId;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use thiserror::Error;

use super::envelope::{CRC_BYTES, KIND_AND_FLAGS_BYTES, MAGIC_AND_VERSION_BYTES, VERSION, open};
use super::{PeerMessage, RefusedMessage};

/// Why bytes are no peer message. They must be dropped; the sender says again what matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PeerBytesError {
    /// They are fewer than the smallest message, or not as many as the message says.
    #[error("a peer message of {found} bytes should have {expected}")]
    Length {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: u64,
    },
    /// They do not begin as a message does.
    #[error("a peer message begins with {found:08x}, not with MMQP")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// A version that this build does not know (P11).
    #[error("a peer message of version {found}; this build reads version {VERSION}")]
    UnknownVersion {
        /// The version found.
        found: u16,
    },
    /// They were changed on the way.
    #[error("a peer message whose checksum does not fit")]
    Checksum,
    /// A kind or a flag that this version has no meaning for.
    #[error("a peer message with the unknown {field} {found}")]
    Unknown {
        /// Kind or flags.
        field: &'static str,
        /// The value found.
        found: u8,
    },
    /// The pieces do not add up to the whole, though the checksum fits.
    #[error("a peer message whose pieces do not fit its length")]
    Pieces,
    /// It is well-formed and says what no peer may say.
    #[error("a peer message that is not accepted")]
    Refused(#[source] RefusedMessage),
}

impl PeerMessage {
    /// Appends the bytes of the message.
    ///
    /// # Panics
    /// When the message holds what the format has no place for: this version of the library sets none of it.
    pub fn encode(&self, shard: ShardId, out: &mut BytesMut) {
        let message = &self.message;
        assert!(is_plain(message), "a peer message that the format has no place for: {:?}", message.get_msg_type());
        let begin = out.len();
        let data_bytes: usize = message.entries.iter().map(|entry| ENTRY_BYTES + entry.data.len()).sum();
        let bytes = HEADER_BYTES + message.context.len() + data_bytes + CRC_BYTES;
        out.reserve(bytes);
        out.put_u32(MAGIC);
        out.put_u16(VERSION);
        out.put_u8(kind_number(message.get_msg_type()));
        out.put_u8(u8::from(message.reject) * FLAG_REJECT + u8::from(self.is_short_of_room) * FLAG_SHORT_OF_ROOM);
        out.put_u32(u32::try_from(bytes).expect("limits keep messages far below 4 GiB"));
        out.put_u32(shard.get());
        let Message { from, to, term, log_term, index, commit, commit_term, reject_hint, .. } = *message;
        for number in [from, to, term, log_term, index, commit, commit_term, reject_hint] {
            out.put_u64(number);
        }
        out.put_i64(message.priority);
        out.put_u32(u32::try_from(message.context.len()).expect("a context is a few bytes"));
        out.put_u32(u32::try_from(message.entries.len()).expect("each entry takes bytes, which are bounded"));
        out.put_slice(&message.context);
        for entry in message.entries.iter() {
            out.put_u64(entry.term);
            let data_bytes = u32::try_from(entry.data.len()).expect("an entry is far below 2 GiB");
            assert!(data_bytes & ENTRY_CHANGES == 0, "an entry is far below 2 GiB");
            let changes = entry.get_entry_type() == EntryType::EntryConfChangeV2;
            out.put_u32(data_bytes | if changes { ENTRY_CHANGES } else { 0 });
            out.put_slice(&entry.data);
        }
        let crc = crc32c::crc32c(&out[begin..]);
        out.put_u32(crc);
        assert_eq!(out.len() - begin, bytes, "the length that the header says");
    }

    /// Reads a message that is exactly these bytes. What the entries carry is shared, not copied.
    ///
    /// # Errors
    /// [`PeerBytesError`] for whatever [`PeerMessage::encode`] does not write.
    /// # Source
    /// P11; failure rule 1: the library panics on an unsound log.
    pub fn decode(bytes: Bytes) -> Result<(ShardId, Self), PeerBytesError> {
        let mut left = open(bytes, MAGIC, HEADER_BYTES)?;
        left.advance(MAGIC_AND_VERSION_BYTES);
        let kind = left.get_u8();
        let kind = kind_of(kind).ok_or(PeerBytesError::Unknown { field: "kind", found: kind })?;
        let flags = left.get_u8();
        if flags & !(FLAG_REJECT | FLAG_SHORT_OF_ROOM) != 0 {
            return Err(PeerBytesError::Unknown { field: "flags", found: flags });
        }
        left.advance(size_of::<u32>());
        let shard = ShardId::new(left.get_u32());
        let mut message = Message {
            from: left.get_u64(),
            to: left.get_u64(),
            term: left.get_u64(),
            log_term: left.get_u64(),
            index: left.get_u64(),
            commit: left.get_u64(),
            commit_term: left.get_u64(),
            reject_hint: left.get_u64(),
            priority: left.get_i64(),
            reject: flags & FLAG_REJECT != 0,
            ..Message::default()
        };
        message.set_msg_type(kind);
        let (context_bytes, entry_count) = (left.get_u32() as usize, left.get_u32() as usize);
        message.context = take(&mut left, context_bytes)?;
        message.set_entries(take_entries(&mut left, message.index, entry_count)?.into());
        if !left.is_empty() {
            return Err(PeerBytesError::Pieces);
        }
        let message = Self::new(message).map_err(PeerBytesError::Refused)?;
        Ok((shard, message.short_of_room(flags & FLAG_SHORT_OF_ROOM != 0)))
    }
}

fn take(left: &mut Bytes, count: usize) -> Result<Bytes, PeerBytesError> {
    if count > left.len() {
        return Err(PeerBytesError::Pieces);
    }
    Ok(left.split_to(count))
}

fn take_entries(left: &mut Bytes, before: u64, count: usize) -> Result<Vec<Entry>, PeerBytesError> {
    // Before room is made for them: each takes some of the bytes that are there.
    if count > left.len() / ENTRY_BYTES || before.checked_add(count as u64 + 1).is_none() {
        return Err(PeerBytesError::Pieces);
    }
    let mut entries = Vec::with_capacity(count);
    for index in (before..).skip(1).take(count) {
        if left.len() < ENTRY_BYTES {
            return Err(PeerBytesError::Pieces);
        }
        let term = left.get_u64();
        let data_bytes = left.get_u32();
        let data = take(left, (data_bytes & !ENTRY_CHANGES) as usize)?;
        let mut entry = Entry { index, term, data, ..Entry::default() };
        if data_bytes & ENTRY_CHANGES != 0 {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Whether a message holds nothing but what the format has a place for. Its kinds were checked when it became a peer message.
fn is_plain(message: &Message) -> bool {
    let asks_for_none = message.request_snapshot == 0 && message.get_snapshot().is_empty();
    asks_for_none && message.deprecated_priority == 0 && message.entries.iter().all(|entry| entry.context.is_empty())
}

/// The numbers of the kinds, which the library's are no part of.
const KINDS: [(u8, MessageType); 9] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgRequestPreVote),
    (6, MessageType::MsgRequestPreVoteResponse),
    (7, MessageType::MsgHeartbeat),
    (8, MessageType::MsgHeartbeatResponse),
    (9, MessageType::MsgTimeoutNow),
];

fn kind_of(number: u8) -> Option<MessageType> {
    KINDS.iter().find(|(known, _)| *known == number).map(|(_, kind)| *kind)
}

fn kind_number(kind: MessageType) -> u8 {
    let found = KINDS.iter().find(|(_, known)| *known == kind);
    found.expect("a peer message is of a kind that peers exchange").0
}

const MAGIC: u32 = u32::from_be_bytes(*b"MMQP");
const FLAG_REJECT: u8 = 1;
const FLAG_SHORT_OF_ROOM: u8 = 2;
const HEADER_BYTES: usize = 96;
const ENTRY_BYTES: usize = 12;
/// In the length of an entry: it changes members. A build without changes takes it for a length that does not fit.
const ENTRY_CHANGES: u32 = 1 << 31;
const _: () = assert!(HEADER_BYTES == MAGIC_AND_VERSION_BYTES + KIND_AND_FLAGS_BYTES + 2 * 4 + 9 * 8 + 2 * 4);

#[cfg(test)]
mod tests;
