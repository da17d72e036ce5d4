//! The bytes of version 1, and that nothing else is read.

use bytes::{Bytes, BytesMut};
use mortarmq_types::ShardId;
use proptest::prelude::*;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};

use super::{KINDS, PeerBytesError, PeerMessage};

const SHARD: ShardId = ShardId::new(7);

fn message(kind: MessageType) -> Message {
    let mut message = Message { from: 0x1_0000_0001, to: 0x2_0000_0001, term: 9, ..Message::default() };
    message.set_msg_type(kind);
    message
}

fn append() -> Message {
    let entry = |index, term, data: &'static [u8]| Entry { index, term, data: data.into(), ..Entry::default() };
    let mut append = Message { index: 41, log_term: 8, commit: 40, ..message(MessageType::MsgAppend) };
    append.set_entries(vec![entry(42, 8, b"first"), entry(43, 9, b"")].into());
    append
}

fn bytes_of(message: Message) -> Bytes {
    let mut out = BytesMut::new();
    PeerMessage::new(message).expect("a sound message").encode(SHARD, &mut out);
    out.freeze()
}

fn hex(message: Message) -> String {
    bytes_of(message).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn version_1_keeps_its_bytes() {
    let mut refusal =
        Message { index: 41, reject: true, reject_hint: 30, log_term: 7, ..message(MessageType::MsgAppendResponse) };
    refusal.commit = 29;
    let mut vote = Message { index: 43, log_term: 9, priority: -2, ..message(MessageType::MsgRequestVote) };
    vote.context = Bytes::from_static(b"CampaignTransfer");
    let all: Vec<String> =
        [append(), refusal, vote, message(MessageType::MsgTimeoutNow)].into_iter().map(hex).collect();
    assert_eq!(all.concat(), include_str!("v1.hex").split_whitespace().collect::<String>());
}

#[test]
fn every_kind_that_peers_exchange_comes_back_as_it_was() {
    for (_, kind) in KINDS {
        let sent = PeerMessage::new(message(kind)).expect("a sound message");
        assert_eq!(PeerMessage::decode(bytes_of(message(kind))), Ok((SHARD, sent)), "{kind:?}");
    }
    let sent = PeerMessage::new(append()).expect("a sound message");
    assert_eq!(PeerMessage::decode(bytes_of(append())), Ok((SHARD, sent)));
}

#[test]
fn a_change_of_members_comes_back_as_one_and_a_build_without_changes_finds_no_length_that_fits() {
    let mut changes = append();
    let change = crate::Change::Replace { old: 0x3_0000_0001, new: 0x3_0000_0009 };
    changes.mut_entries()[0].data = change.encode();
    changes.mut_entries()[0].set_entry_type(EntryType::EntryConfChangeV2);
    let (sent, bytes) = (PeerMessage::new(changes.clone()).expect("a sound message"), bytes_of(changes));
    assert_eq!(PeerMessage::decode(bytes.clone()), Ok((SHARD, sent)));
    let data_bytes = u32::from_be_bytes(bytes[104..108].try_into().expect("four bytes"));
    assert_eq!(data_bytes, (1 << 31) | change.encode().len() as u32);
    assert!(data_bytes as usize > bytes.len());
    // The bit on an entry that is none.
    let length = (1_u32 << 31 | 5).to_be_bytes();
    assert!(matches!(forged(104, &length), Err(PeerBytesError::Refused(_))));
}

#[test]
fn p11_a_message_that_is_cut_goes_on_or_was_changed_is_refused() {
    let whole = bytes_of(append());
    for length in 0..whole.len() {
        assert!(PeerMessage::decode(whole.slice(..length)).is_err(), "cut at {length}");
    }
    let longer: Bytes = [&whole[..], &[0]].concat().into();
    assert!(matches!(PeerMessage::decode(longer), Err(PeerBytesError::Length { .. })));
    for bit in 0..whole.len() * 8 {
        let mut changed = whole.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(PeerMessage::decode(changed.into()).is_err(), "bit {bit}");
    }
}

/// As somebody would write it who means harm: the checksum fits.
fn forged(at: usize, with: &[u8]) -> Result<(ShardId, PeerMessage), PeerBytesError> {
    let mut bytes = bytes_of(append()).to_vec();
    bytes[at..at + with.len()].copy_from_slice(with);
    let end = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&crc.to_be_bytes());
    PeerMessage::decode(bytes.into())
}

#[test]
fn p11_what_fits_its_checksum_is_looked_at_all_the_same() {
    assert_eq!(forged(4, &[0, 2]), Err(PeerBytesError::UnknownVersion { found: 2 }));
    assert_eq!(forged(6, &[0]), Err(PeerBytesError::Unknown { field: "kind", found: 0 }));
    assert_eq!(forged(7, &[4]), Err(PeerBytesError::Unknown { field: "flags", found: 4 }));
    assert_eq!(forged(88, &u32::MAX.to_be_bytes()), Err(PeerBytesError::Pieces));
    assert_eq!(forged(92, &u32::MAX.to_be_bytes()), Err(PeerBytesError::Pieces), "no room is made for them");
    assert_eq!(forged(92, &1_u32.to_be_bytes()), Err(PeerBytesError::Pieces), "something is left over");
    assert_eq!(forged(48, &u64::MAX.to_be_bytes()), Err(PeerBytesError::Pieces), "log indexes would wrap");
    assert_eq!(forged(48, &(u64::MAX - 2).to_be_bytes()), Err(PeerBytesError::Pieces), "the last would be the highest");
    assert!(matches!(forged(16, &[0; 8]), Err(PeerBytesError::Refused(_))), "nobody says it");
    assert!(matches!(forged(96, &[0; 8]), Err(PeerBytesError::Refused(_))), "an entry of term 0");
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_that_is_written_the_same_or_none(mut bytes: Vec<u8>, is_headed: bool) {
        if is_headed && bytes.len() >= 16 {
            let length = u32::try_from(bytes.len()).expect("small");
            bytes[..4].copy_from_slice(b"MMQP");
            bytes[4..8].copy_from_slice(&[0, 1, 1, 0]);
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            let end = bytes.len() - 4;
            let crc = crc32c::crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&crc.to_be_bytes());
        }
        let bytes = Bytes::from(bytes);
        if let Ok((shard, message)) = PeerMessage::decode(bytes.clone()) {
            let mut again = BytesMut::new();
            message.encode(shard, &mut again);
            prop_assert_eq!(again.freeze(), bytes);
        }
    }

    #[test]
    fn every_append_comes_back_as_it_was(
        shard: u32,
        numbers: [u64; 4],
        index in 0..u64::MAX - 100,
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
    ) {
        let mut sent = Message { index, term: u64::MAX, commit: numbers[0], reject_hint: numbers[1], ..append() };
        (sent.commit_term, sent.log_term) = (numbers[2], 0);
        let entry = |(place, data): (u64, Vec<u8>)| {
            Entry { index: index + 1 + place, term: numbers[3].max(1), data: data.into(), ..Entry::default() }
        };
        sent.set_entries((0..).zip(payloads).map(entry).collect::<Vec<_>>().into());
        let sent = PeerMessage::new(sent).expect("a sound message");
        let (mut out, shard) = (BytesMut::new(), ShardId::new(shard));
        sent.encode(shard, &mut out);
        prop_assert_eq!(PeerMessage::decode(out.freeze()), Ok((shard, sent)));
    }
}
