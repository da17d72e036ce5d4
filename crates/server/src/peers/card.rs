//! What a node says of itself with each sign of life: its version, its clock, its list of nodes and where its data lies. Nothing is
//! decided by it; operators are told what would hurt one day.
//!
//! A sign is the payload of a sealed frame: wall clock u64 in milliseconds since 1970, digest of the list of nodes (8 bytes), digest
//! of the device of the data folder (8), version (the rest, at most 32 bytes). An empty one says nothing.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Buf as _, BufMut as _, BytesMut};
use sha2::{Digest as _, Sha256};

use crate::clock::boot_id;
use crate::config::PeerAddress;

/// What a node says of itself, without its clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// Of the list of nodes with their addresses.
    pub(crate) peers: [u8; DIGEST_BYTES],
    /// Of the device and the machine where the data lies; zeros where that cannot be told.
    pub(crate) device: [u8; DIGEST_BYTES],
    /// The version of its binary.
    pub(crate) version: String,
}

impl Card {
    /// This node's own.
    pub(crate) fn own(peers: &[PeerAddress], data_dir: &Path) -> Self {
        Self { peers: of_peers(peers), device: of_device(data_dir), version: env!("CARGO_PKG_VERSION").to_owned() }
    }

    /// Puts it behind what is in `out` already, with the time of now.
    pub(crate) fn put(&self, now_ms: u64, out: &mut BytesMut) {
        out.put_u64(now_ms);
        out.put_slice(&self.peers);
        out.put_slice(&self.device);
        out.put_slice(&self.version.as_bytes()[..self.version.len().min(VERSION_MAX)]);
    }

    /// Reads one, and what its node's clock said; none of a sign that says nothing, or something that is not known here.
    pub(crate) fn read(mut sign: &[u8]) -> Option<(Self, u64)> {
        if sign.len() < HEAD_BYTES || sign.len() > SIGN_MAX {
            return None;
        }
        let now_ms = sign.get_u64();
        let (mut peers, mut device) = ([0; DIGEST_BYTES], [0; DIGEST_BYTES]);
        sign.copy_to_slice(&mut peers);
        sign.copy_to_slice(&mut device);
        let version = std::str::from_utf8(sign).ok()?.to_owned();
        Some((Self { peers, device, version }, now_ms))
    }

    /// Whether both keep their data on one device of one machine.
    pub(crate) fn shares_device(&self, other: &Self) -> bool {
        self.device == other.device && self.device != [0; DIGEST_BYTES]
    }
}

/// The wall clock.
///
/// # Units
/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The order in which they are listed decides who stands for election first, so it is part of it.
fn of_peers(peers: &[PeerAddress]) -> [u8; DIGEST_BYTES] {
    let mut hash = Sha256::new();
    for peer in peers {
        hash.update(peer.id.to_be_bytes());
        for address in [Some(&peer.peer), Some(&peer.client), peer.http.as_ref()] {
            // With its end, so that no two lists are one text.
            hash.update(address.map_or("", String::as_str));
            hash.update([0]);
        }
    }
    cut(hash)
}

/// Two nodes in containers of one machine share its boot id, and the number of the device if their folders lie on one.
fn of_device(data_dir: &Path) -> [u8; DIGEST_BYTES] {
    let (Ok(boot), Ok(folder)) = (boot_id(), std::fs::metadata(data_dir)) else { return [0; DIGEST_BYTES] };
    let mut hash = Sha256::new();
    hash.update(boot);
    hash.update(folder.dev().to_be_bytes());
    cut(hash)
}

fn cut(hash: Sha256) -> [u8; DIGEST_BYTES] {
    let whole = hash.finalize();
    std::array::from_fn(|place| whole[place])
}

const DIGEST_BYTES: usize = 8;
const HEAD_BYTES: usize = 8 + 2 * DIGEST_BYTES;
const VERSION_MAX: usize = 32;
/// The longest sign of life.
pub(crate) const SIGN_MAX: usize = HEAD_BYTES + VERSION_MAX;

#[cfg(test)]
mod tests {
    use super::{Card, SIGN_MAX};
    use crate::config::PeerAddress;
    use bytes::BytesMut;

    fn peers(client: &str, http: Option<&str>) -> Vec<PeerAddress> {
        let http = http.map(str::to_owned);
        vec![PeerAddress { id: 0, peer: "a:1".to_owned(), client: client.to_owned(), http }]
    }

    #[test]
    fn a_card_comes_as_it_was_sent_and_nothing_else_is_taken_for_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let card = Card { version: "9".repeat(40), ..Card::own(&peers("a:2", None), folder.path()) };
        let mut out = BytesMut::new();
        card.put(1_700_000_000_123, &mut out);
        assert_eq!(out.len(), SIGN_MAX);
        let (read, now_ms) = Card::read(&out).expect("a card");
        assert_eq!((read.version.len(), now_ms), (32, 1_700_000_000_123));
        assert_eq!((read.peers, read.device), (card.peers, card.device));
        for length in 0..24 {
            assert_eq!(Card::read(&out[..length]), None, "{length} bytes");
        }
        out.extend_from_slice(b"1");
        assert_eq!(Card::read(&out), None, "too long");
        assert_eq!(Card::read(&[0xff; 30]), None, "no text");
    }

    #[test]
    fn lists_of_nodes_differ_by_any_address_and_devices_by_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = |peers: &[PeerAddress]| Card::own(peers, folder.path());
        let card = own(&peers("a:2", None));
        assert_eq!(card, own(&peers("a:2", None)));
        for other in [peers("a:3", None), peers("a:2", Some("a:3")), [peers("a:2", None), peers("b:2", None)].concat()]
        {
            assert_ne!(card.peers, own(&other).peers);
        }
        assert!(card.shares_device(&own(&peers("a:3", None))));
        let elsewhere = Card::own(&peers("a:2", None), std::path::Path::new("/proc"));
        assert!(!card.shares_device(&elsewhere));
        let nowhere = Card::own(&[], std::path::Path::new("/nonexistent"));
        assert!(!nowhere.shares_device(&nowhere.clone()), "what cannot be told is not the same");
    }
}
