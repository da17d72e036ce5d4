//! Any bytes: a message of a peer, about the log, a snapshot or what is forwarded, that is written the same, or none, and no panic.
//! What a checksum hides is forged.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use mortarmq_node::ForwardMessage;
use mortarmq_replica::{CatchUpMessage, PeerMessage};

fuzz_target!(|input: &[u8]| {
    read(Bytes::copy_from_slice(input));
    if input.len() >= 16 {
        for magic in [b"MMQP\0\x01", b"MMQF\0\x01", b"MMQU\0\x01"] {
            let mut forged = input.to_vec();
            let length = u32::try_from(forged.len()).expect("inputs are small");
            forged[..6].copy_from_slice(magic);
            forged[8..12].copy_from_slice(&length.to_be_bytes());
            let end = forged.len() - 4;
            let crc = crc32c::crc32c(&forged[..end]);
            forged[end..].copy_from_slice(&crc.to_be_bytes());
            read(forged.into());
        }
    }
});

fn read(bytes: Bytes) {
    if CatchUpMessage::is_one(&bytes) {
        if let Ok((shard, message)) = CatchUpMessage::decode(bytes.clone()) {
            let mut again = BytesMut::new();
            message.encode(shard, &mut again);
            assert_eq!(again.freeze(), bytes);
        }
        return;
    }
    match PeerMessage::decode(bytes.clone()) {
        Ok((shard, message)) => {
            let mut again = BytesMut::new();
            message.encode(shard, &mut again);
            assert_eq!(again.freeze(), bytes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match ForwardMessage::decode(bytes.clone()) {
        Ok((shard, message)) => {
            let mut again = BytesMut::new();
            message.encode(shard, &mut again);
            assert_eq!(again.freeze(), bytes);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
