//! What replicas say to each other about files, and its bytes: about a snapshot, when the log alone cannot bring a follower up, and about
//! bytes that have rotted on one of them.
//!
//! All numbers are big-endian. A message names its own length and ends with a checksum of everything before, as one of Raft
//! does (`peer_message/codec.rs`), from which its first four bytes tell it.
//!
//! | at | field | meaning, and the fault it guards against |
//! |---|---|---|
//! | 0 | magic `MMQU`, version u16 | another protocol, another version |
//! | 6 | kind u8, reserved u8 | 1 offer, 2 fetch, 3 piece, 4 gone, 5 ask, 6 sound, 7 none, 8 lost, 9 reaches; any other kind, and a reserved byte that is not 0, is refused |
//! | 8 | bytes u32 | its whole length |
//! | 12 | shard u32 | a message of another shard |
//! | 16 | from u64, to u64 | Raft ids, not 0 (failure rule 4) |
//! | 32 | epoch u64 | the leader's: what another epoch says is no longer so |
//! | 40 | log_index u64, term u64, snapshot_bytes u64 | which checkpoint, and how long its file is; 0 from kind 5 on |
//! | 64 | offset u64 | of a fetch or a piece, in the file; from kind 5 on where in it the damage begins; of a reaches the log index |
//! | 72 | wanted_bytes u32 | of a fetch: at most [`PIECE_BYTES_MAX`]; of a none: 1 if it is damaged there, too |
//! | 76 | file_bytes u16, reserved u16 | at most [`FILE_BYTES_MAX`] |
//! | 80 | data_bytes u32 | of a piece: at most [`PIECE_BYTES_MAX`]; of a sound: at most [`SOUND_BYTES_MAX`] |
//! | 84 | file, data | the path in the data directory, UTF-8; the bytes |
//! | end − 4 | crc u32 | CRC32C of all the above |

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mortarmq_types::{Epoch, ShardId};

use crate::peer_message::PeerBytesError;
use crate::peer_message::envelope::{CRC_BYTES, MAGIC_AND_VERSION_BYTES, VERSION, open};

/// A checkpoint of a leader, with the files that it lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The last log entry that it holds.
    pub log_index: u64,
    /// That entry's term.
    pub term: u64,
    /// How long the checkpoint's file is.
    ///
    /// # Units
    /// Bytes.
    pub bytes: u64,
}

/// One word about files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatchUpMessage {
    /// Who says it: a Raft id.
    pub from: u64,
    /// Who it is for.
    pub to: u64,
    /// The leader's epoch.
    pub epoch: Epoch,
    /// The snapshot it is about; none of it for a word about damage.
    pub snapshot: Snapshot,
    /// What is said.
    pub word: CatchUpWord,
}

/// What is said about a snapshot, or about damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatchUpWord {
    /// The leader: it can be had, and no append brings you up.
    Offer,
    /// The follower: these bytes, please.
    Fetch {
        /// The file's path in the data directory.
        file: String,
        /// Where to begin.
        offset: u64,
        /// How many bytes, from 1 to [`PIECE_BYTES_MAX`].
        bytes: u32,
    },
    /// The leader: here they are.
    Piece {
        /// The file's path in the data directory.
        file: String,
        /// Where they begin.
        offset: u64,
        /// The bytes, as many as were asked for.
        data: Bytes,
    },
    /// The leader: this snapshot cannot be had any more. A follower: what came of it is not what it lists, it cannot be had.
    Gone,
    /// Any node: what stands here is damaged; is it sound where you are?
    Ask {
        /// What names the file or folder.
        file: String,
        /// Where in it.
        at: u64,
    },
    /// Any node: here it is, as far as it is sound and needed at once.
    Sound {
        /// As it was asked for.
        file: String,
        /// As it was asked for.
        at: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Any node: I have it not.
    None {
        /// As it was asked for.
        file: String,
        /// As it was asked for.
        at: u64,
        /// Whether it is there, and cannot be read.
        is_damaged: bool,
    },
    /// A node to its leader: what I had has rotted, and I have nothing.
    Lost,
    /// The leader: so far my log reached when I first heard that of you in my office.
    Reaches {
        /// Its last entry.
        log_index: u64,
    },
}

/// As much as is fetched at once, at most.
pub const PIECE_BYTES_MAX: u32 = 1 << 20;
/// As much is given of damaged bytes at most: the largest record is a frame of 16 MiB.
pub const SOUND_BYTES_MAX: u32 = (16 << 20) + (1 << 10);
/// The longest path of a file, in bytes.
pub const FILE_BYTES_MAX: usize = 255;

impl CatchUpMessage {
    /// Whether bytes begin as a message of this kind does, and not as one of Raft.
    #[must_use]
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC.to_be_bytes())
    }

    /// Appends the bytes of the message.
    ///
    /// # Panics
    /// On a path or a piece over its limit: who makes them keeps to it.
    pub fn encode(&self, shard: ShardId, out: &mut BytesMut) {
        let nothing = ("", 0, 0, &[][..]);
        let (kind, (file, offset, wanted_bytes, data)) = match &self.word {
            CatchUpWord::Offer => (KIND_OFFER, nothing),
            CatchUpWord::Fetch { file, offset, bytes } => (KIND_FETCH, (file.as_str(), *offset, *bytes, &[][..])),
            CatchUpWord::Piece { file, offset, data } => (KIND_PIECE, (file.as_str(), *offset, 0, &data[..])),
            CatchUpWord::Gone => (KIND_GONE, nothing),
            CatchUpWord::Ask { file, at } => (KIND_ASK, (file.as_str(), *at, 0, &[][..])),
            CatchUpWord::Sound { file, at, data } => (KIND_SOUND, (file.as_str(), *at, 0, &data[..])),
            CatchUpWord::None { file, at, is_damaged } => {
                (KIND_NONE, (file.as_str(), *at, u32::from(*is_damaged), &[][..]))
            }
            CatchUpWord::Lost => (KIND_LOST, nothing),
            CatchUpWord::Reaches { log_index } => (KIND_REACHES, ("", *log_index, 0, &[][..])),
        };
        let most = if kind == KIND_SOUND { SOUND_BYTES_MAX } else { PIECE_BYTES_MAX };
        assert!(file.len() <= FILE_BYTES_MAX, "a path of {} bytes", file.len());
        assert!(data.len() <= most as usize && wanted_bytes <= PIECE_BYTES_MAX, "a piece over its limit");
        let begin = out.len();
        let bytes = HEADER_BYTES + file.len() + data.len() + CRC_BYTES;
        out.reserve(bytes);
        out.put_u32(MAGIC);
        out.put_u16(VERSION);
        out.put_u8(kind);
        out.put_u8(0);
        out.put_u32(u32::try_from(bytes).expect("its parts have limits"));
        out.put_u32(shard.get());
        let Snapshot { log_index, term, bytes: snapshot_bytes } = self.snapshot;
        for number in [self.from, self.to, self.epoch.get(), log_index, term, snapshot_bytes, offset] {
            out.put_u64(number);
        }
        out.put_u32(wanted_bytes);
        out.put_u16(u16::try_from(file.len()).expect("checked above"));
        out.put_u16(0);
        out.put_u32(u32::try_from(data.len()).expect("checked above"));
        out.put_slice(file.as_bytes());
        out.put_slice(data);
        let crc = crc32c::crc32c(&out[begin..]);
        out.put_u32(crc);
    }

    /// Reads a message that is exactly these bytes. What a piece carries is shared, not copied.
    ///
    /// # Errors
    /// [`PeerBytesError`] for whatever [`CatchUpMessage::encode`] does not write.
    /// # Source
    /// P11.
    pub fn decode(bytes: Bytes) -> Result<(ShardId, Self), PeerBytesError> {
        let mut left = open(bytes, MAGIC, HEADER_BYTES)?;
        left.advance(MAGIC_AND_VERSION_BYTES);
        let (kind, reserved) = (left.get_u8(), left.get_u8());
        if reserved != 0 {
            return Err(PeerBytesError::Unknown { field: "flags", found: reserved });
        }
        left.advance(size_of::<u32>());
        let shard = ShardId::new(left.get_u32());
        let (from, to, epoch) = (left.get_u64(), left.get_u64(), Epoch::new(left.get_u64()));
        let snapshot = Snapshot { log_index: left.get_u64(), term: left.get_u64(), bytes: left.get_u64() };
        let (offset, wanted_bytes) = (left.get_u64(), left.get_u32());
        let (file_bytes, reserved, data_bytes) = (left.get_u16() as usize, left.get_u16(), left.get_u32() as usize);
        let is_whole = left.len() == file_bytes + data_bytes && reserved == 0;
        let most = if kind == KIND_SOUND { SOUND_BYTES_MAX } else { PIECE_BYTES_MAX };
        if !is_whole || file_bytes > FILE_BYTES_MAX || data_bytes > most as usize {
            return Err(PeerBytesError::Pieces);
        }
        let file = String::from_utf8(left.split_to(file_bytes).to_vec()).map_err(|_| PeerBytesError::Pieces)?;
        let is_bare = file.is_empty() && left.is_empty() && offset == 0 && wanted_bytes == 0;
        let is_damage = !file.is_empty() && snapshot == Snapshot::default();
        let is_within = |bytes: u64| offset.checked_add(bytes).is_some();
        let word = match kind {
            KIND_OFFER if is_bare => CatchUpWord::Offer,
            KIND_GONE if is_bare => CatchUpWord::Gone,
            KIND_FETCH if (1..=PIECE_BYTES_MAX).contains(&wanted_bytes) && left.is_empty() => {
                CatchUpWord::Fetch { file, offset, bytes: wanted_bytes }
            }
            KIND_PIECE if wanted_bytes == 0 && !left.is_empty() => CatchUpWord::Piece { file, offset, data: left },
            KIND_ASK if is_damage && wanted_bytes == 0 && left.is_empty() => CatchUpWord::Ask { file, at: offset },
            KIND_SOUND if is_damage && wanted_bytes == 0 && !left.is_empty() => {
                CatchUpWord::Sound { file, at: offset, data: left }
            }
            KIND_NONE if is_damage && wanted_bytes <= 1 && left.is_empty() => {
                CatchUpWord::None { file, at: offset, is_damaged: wanted_bytes == 1 }
            }
            KIND_LOST if is_bare && snapshot == Snapshot::default() => CatchUpWord::Lost,
            KIND_REACHES
                if file.is_empty() && left.is_empty() && wanted_bytes == 0 && snapshot == Snapshot::default() =>
            {
                CatchUpWord::Reaches { log_index: offset }
            }
            KIND_OFFER..=KIND_REACHES => return Err(PeerBytesError::Pieces),
            found => return Err(PeerBytesError::Unknown { field: "kind", found }),
        };
        let is_named = from != 0 && to != 0;
        if !is_named || !is_within(u64::from(PIECE_BYTES_MAX)) {
            return Err(PeerBytesError::Pieces);
        }
        Ok((shard, Self { from, to, epoch, snapshot, word }))
    }
}

const MAGIC: u32 = u32::from_be_bytes(*b"MMQU");
const KIND_OFFER: u8 = 1;
const KIND_FETCH: u8 = 2;
const KIND_PIECE: u8 = 3;
const KIND_GONE: u8 = 4;
const KIND_ASK: u8 = 5;
const KIND_SOUND: u8 = 6;
const KIND_NONE: u8 = 7;
const KIND_LOST: u8 = 8;
const KIND_REACHES: u8 = 9;
const HEADER_BYTES: usize = 84;
const _: () = assert!(HEADER_BYTES == 8 + 2 * 4 + 7 * 8 + 4 + 2 * 2 + 4);

#[cfg(test)]
mod tests {
    use super::{CatchUpMessage, CatchUpWord, PIECE_BYTES_MAX, PeerBytesError, Snapshot};
    use crate::peer_message::PeerMessage;
    use bytes::{Bytes, BytesMut};
    use mortarmq_types::{Epoch, ShardId};
    use proptest::prelude::*;

    const SHARD: ShardId = ShardId::new(7);

    fn all() -> Vec<CatchUpMessage> {
        let file = || "topics/0000000000000001/0/0001.ledger".to_owned();
        let words = [
            CatchUpWord::Offer,
            CatchUpWord::Fetch { file: file(), offset: 5, bytes: PIECE_BYTES_MAX },
            CatchUpWord::Piece { file: file(), offset: 5, data: Bytes::from_static(b"abc") },
            CatchUpWord::Gone,
        ];
        let about_damage = [
            CatchUpWord::Ask { file: "topics/0000000000000001/0".to_owned(), at: 77 },
            CatchUpWord::Sound { file: file(), at: 32, data: Bytes::from_static(b"abc") },
            CatchUpWord::None { file: file(), at: 32, is_damaged: true },
            CatchUpWord::Lost,
            CatchUpWord::Reaches { log_index: 99 },
        ];
        let snapshot = Snapshot { log_index: 100, term: 3, bytes: 4096 };
        let (from, to, epoch) = (0x1_0000_0001, 0x2_0000_0001, Epoch::new(9));
        let message = |(word, snapshot)| CatchUpMessage { from, to, epoch, snapshot, word };
        let words = words.into_iter().map(|word| (word, snapshot));
        words.chain(about_damage.into_iter().map(|word| (word, Snapshot::default()))).map(message).collect()
    }

    fn bytes_of(message: &CatchUpMessage) -> Bytes {
        let mut out = BytesMut::new();
        message.encode(SHARD, &mut out);
        out.freeze()
    }

    #[test]
    fn version_1_keeps_its_bytes_and_comes_back_as_it_was() {
        let hex: String =
            all().iter().flat_map(|message| bytes_of(message).to_vec()).map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, include_str!("catch_up/v1.hex").split_whitespace().collect::<String>());
        for message in all() {
            let bytes = bytes_of(&message);
            assert!(CatchUpMessage::is_one(&bytes) && PeerMessage::decode(bytes.clone()).is_err());
            assert_eq!(CatchUpMessage::decode(bytes), Ok((SHARD, message)));
        }
    }

    #[test]
    fn p11_a_message_that_is_cut_goes_on_or_was_changed_is_refused() {
        for message in all() {
            let whole = bytes_of(&message);
            for length in 0..whole.len() {
                assert!(CatchUpMessage::decode(whole.slice(..length)).is_err(), "{length}");
                let mut changed = whole.to_vec();
                changed[length] ^= 1;
                assert!(CatchUpMessage::decode(changed.into()).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn p11_what_no_replica_says_is_refused_though_its_checksum_fits() {
        let sealed_of = |message: usize, at: usize, value: u8| {
            let mut bytes = bytes_of(&all()[message]).to_vec();
            let end = bytes.len() - 4;
            bytes[at] = value;
            let crc = crc32c::crc32c(&bytes[..end]).to_be_bytes();
            bytes[end..].copy_from_slice(&crc);
            CatchUpMessage::decode(bytes.into())
        };
        let sealed = |at, value| sealed_of(1, at, value);
        // An ask of a snapshot or for bytes, a sound without any, a none of another kind of lack.
        for (message, at, value) in
            [(4, 47, 1), (4, 75, 1), (4, 6, 6), (5, 6, 5), (6, 75, 2), (7, 71, 1), (7, 47, 1), (8, 47, 1), (8, 75, 1)]
        {
            assert_eq!(sealed_of(message, at, value), Err(PeerBytesError::Pieces), "{message} {at}");
        }
        assert_eq!(sealed(6, 10), Err(PeerBytesError::Unknown { field: "kind", found: 10 }));
        assert_eq!(sealed(7, 1), Err(PeerBytesError::Unknown { field: "flags", found: 1 }));
        // Another kind, a fetch of more than a piece, lengths that do not add up, no UTF-8.
        for (at, value) in
            [(6, 1), (6, 3), (6, 5), (6, 6), (6, 7), (6, 8), (6, 9), (72, 1), (77, 1), (80, 1), (84, 0xFF)]
        {
            assert_eq!(sealed(at, value), Err(PeerBytesError::Pieces), "{at}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = CatchUpMessage::decode(bytes.into());
        }
    }
}
