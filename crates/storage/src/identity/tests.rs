//! Failure rule 4 and P11: an identity is there as a whole or not at all, and is never guessed at.

use std::io;
use std::path::{Path, PathBuf};

use mortarmq_types::NodeId;

use super::{Identity, IdentityError, IdentityState, LEAST_BYTES, MAX_PEERS, VERSION};
use crate::disk::{Disk, MemoryDisk, RealDisk};

const DATA_DIR: &str = "data";

fn identity() -> Identity {
    let cluster_id = std::array::from_fn(|byte| 0xC0 + byte as u8);
    let peers = [1, 2, 0x0305].map(NodeId::new).to_vec();
    Identity {
        cluster_id,
        node_id: NodeId::new(2),
        incarnation: Identity::FIRST_INCARNATION,
        peers,
        state: IdentityState::Made,
    }
}

fn path() -> PathBuf {
    Path::new(DATA_DIR).join("identity")
}

fn read(disk: &MemoryDisk) -> Result<Option<Identity>, IdentityError> {
    Identity::read(disk, Path::new(DATA_DIR))
}

fn write(disk: &MemoryDisk, identity: &Identity) -> Result<(), IdentityError> {
    identity.write(disk, Path::new(DATA_DIR))
}

fn bytes(disk: &MemoryDisk) -> Vec<u8> {
    let file = disk.open(&path()).expect("there");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

/// A disk with these bytes as identity file.
fn disk_with(bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_dir_all(Path::new(DATA_DIR)).expect("made");
    disk.create_new(&path()).and_then(|file| file.write_all_at(bytes, 0)).expect("written");
    disk
}

/// The offset of damage, and what is said of it.
fn rotten(bytes: &[u8]) -> (u64, &'static str) {
    let disk = disk_with(bytes);
    match read(&disk) {
        Err(IdentityError::Rotten { path: found, offset, what }) if found == path() => {
            let refused = write(&disk, &identity()).expect_err("it is not written over");
            assert!(matches!(refused, IdentityError::Rotten { .. }), "{refused}");
            assert_eq!(self::bytes(&disk), bytes);
            (offset, what)
        }
        other => panic!("not damaged: {other:?}"),
    }
}

/// The bytes with a checksum that fits them.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc_at = bytes.len() - 4;
    let crc = crc32c::crc32c(&bytes[..crc_at]);
    bytes[crc_at..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn identity_has_these_bytes() {
    let golden = [
        "4d4d5149",
        "0100",
        "2c00",                             // MMQI, version 1, 44 bytes
        "c0c1c2c3c4c5c6c7c8c9cacbcccdcecf", // the cluster
        "01000000",
        "0200",
        "0100", // incarnation, node, state
        "0300",
        "0100",
        "0200",
        "0503",     // peers
        "564d90c1", // CRC32C
    ];
    let disk = MemoryDisk::new();
    write(&disk, &identity()).expect("written");
    let hex: String = bytes(&disk).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, golden.concat());
    assert_eq!(read(&disk).expect("sound"), Some(identity()));
    let lone = Identity { peers: Vec::new(), incarnation: u32::MAX, ..identity() };
    assert_eq!(lone.encode().len(), LEAST_BYTES);
    assert_eq!(read(&disk_with(&lone.encode())).expect("sound"), Some(lone));
    let largest = Identity { peers: (0..MAX_PEERS as u16).map(NodeId::new).collect(), ..identity() };
    assert_eq!(read(&disk_with(&largest.encode())).expect("sound"), Some(largest));
}

#[test]
fn rule_4_only_a_name_that_is_not_there_is_no_identity() {
    let disk = MemoryDisk::new();
    assert_eq!(read(&disk).expect("no folder"), None);
    disk.create_dir_all(Path::new(DATA_DIR)).expect("made");
    assert_eq!(read(&disk).expect("an empty folder"), None);
    // What was left aside is none, and is gone once there is one.
    let aside = path().with_extension("new");
    disk.create_new(&aside).and_then(|file| file.write_all_at(&identity().encode(), 0)).expect("written");
    assert_eq!(read(&disk).expect("left aside"), None);
    write(&disk, &identity()).expect("written");
    assert_eq!(disk.list(Path::new(DATA_DIR)).expect("listed"), ["identity"]);
    // A folder in its place, and a disk that does not answer, are errors.
    let blocked = MemoryDisk::new();
    blocked.create_dir_all(&path()).expect("made");
    assert!(matches!(read(&blocked), Err(IdentityError::Io { .. })));
    disk.crash_at(disk.operations() + 1);
    disk.create_dir_all(Path::new("other")).expect_err("the power is gone");
    let error = read(&disk).expect_err("no answer");
    assert!(matches!(&error, IdentityError::Io { path: found, .. } if *found == path()), "{error}");
    assert_eq!(error.to_string(), "cannot open data/identity");
}

#[test]
fn p11_every_flipped_bit_and_every_other_length_is_damage() {
    let sound = identity().encode();
    for byte in 0..sound.len() {
        for bit in 0..8 {
            let mut flipped = sound.clone();
            flipped[byte] ^= 1 << bit;
            assert_eq!(rotten(&flipped).0, 0, "byte {byte} bit {bit}");
        }
    }
    for length in 0..sound.len() {
        let offset = if length < 12 { length } else { 0 };
        assert_eq!(rotten(&sound[..length]).0, offset as u64, "length {length}");
    }
    for behind in [1, 5_000] {
        let longer = [&sound[..], &vec![0; behind]].concat();
        assert_eq!(rotten(&longer), (sound.len() as u64, "bytes that do not belong to the identity"));
    }
}

#[test]
fn p11_what_a_checksum_does_not_show_is_not_believed() {
    let with = |at: usize, byte: u8| {
        let mut bytes = identity().encode();
        bytes[at] = byte;
        sealed(bytes)
    };
    let error = read(&disk_with(&with(4, 9))).expect_err("unknown version");
    assert_eq!(error.to_string(), format!("data/identity has version 9; this build reads version {VERSION}"));
    // A promise, an incarnation of 0, a byte that must be zero, another number of peers, peers out of order.
    let state = "its state is none that this version knows";
    assert_eq!(rotten(&with(30, 4)), (30, state));
    assert_eq!(rotten(&with(24, 0)), (0, "its incarnation is 0"));
    assert_eq!(rotten(&with(31, 1)), (0, "its fields make no sense"));
    assert_eq!(rotten(&with(32, 2)), (0, "its fields make no sense"));
    assert_eq!(rotten(&with(36, 1)), (0, "its peers do not rise"));
    let mut short = identity().encode()[..20].to_vec();
    short[6] = 20;
    assert_eq!(rotten(&sealed(short)), (0, "it has another length than its version"));
    let mut odd = [&identity().encode()[..], &[0]].concat();
    odd[6] += 1;
    assert_eq!(rotten(&sealed(odd)), (0, "its fields make no sense"));
}

#[test]
fn rule_4_another_identity_is_never_replaced() {
    let disk = MemoryDisk::new();
    write(&disk, &identity()).expect("written");
    write(&disk, &identity()).expect("the same again");
    let others = [
        Identity { cluster_id: [0; 16], ..identity() },
        Identity { node_id: NodeId::new(1), ..identity() },
        Identity { incarnation: 2, ..identity() },
        Identity { peers: vec![NodeId::new(1), NodeId::new(2)], ..identity() },
    ];
    for other in others {
        let refused = write(&disk, &other).expect_err("another");
        assert!(matches!(&refused, IdentityError::Another { path: found } if *found == path()), "{refused}");
        assert_eq!(read(&disk).expect("sound"), Some(identity()));
    }
}

#[test]
fn what_is_no_identity_is_not_written() {
    let invalid = [
        Identity { incarnation: 0, ..identity() },
        Identity { peers: [2, 1].map(NodeId::new).to_vec(), ..identity() },
        Identity { peers: [2, 2].map(NodeId::new).to_vec(), ..identity() },
        Identity { peers: (0..=MAX_PEERS as u16).map(NodeId::new).collect(), ..identity() },
    ];
    for identity in invalid {
        let disk = MemoryDisk::new();
        let refused = write(&disk, &identity).expect_err("invalid");
        assert!(matches!(refused, IdentityError::Invalid { .. }), "{refused}");
        assert_eq!(disk.operations(), 0, "nothing was touched");
    }
}

/// Cuts the power in every operation of a write and looks at what is left.
#[test]
fn rule_5_a_crash_at_any_moment_leaves_no_identity_or_all_of_it() {
    let mut kept = [0, 0];
    for left_aside in [false, true] {
        let fresh = || {
            let disk = MemoryDisk::new();
            if left_aside {
                disk.create_dir_all(Path::new(DATA_DIR)).expect("made");
                disk.create_new(&path().with_extension("new")).expect("made");
            }
            disk
        };
        let whole = fresh();
        let begun = whole.operations();
        write(&whole, &identity()).expect("written");
        for operation in begun + 1..=whole.operations() {
            let disk = fresh();
            disk.crash_at(operation);
            write(&disk, &identity()).expect_err("the power is gone");
            for seed in 0..64 {
                let found = disk.after_power_loss(seed);
                let left = read(&found).unwrap_or_else(|error| panic!("operation {operation} seed {seed}: {error}"));
                assert!(left.is_none() || left == Some(identity()), "operation {operation} seed {seed}");
                kept[usize::from(left.is_some())] += 1;
                write(&found, &identity()).expect("the next start");
                assert_eq!(read(&found).expect("sound"), Some(identity()));
                assert_eq!(found.list(Path::new(DATA_DIR)).expect("listed"), ["identity"]);
            }
        }
        for seed in 0..64 {
            let found = whole.after_power_loss(seed);
            assert_eq!(read(&found).expect("sound"), Some(identity()), "seed {seed}: it was confirmed");
        }
    }
    assert!(kept[0] > 0 && kept[1] > 0, "both happen: {kept:?}");
}

#[test]
fn rule_2_a_failed_operation_is_told_and_leaves_no_half_identity() {
    let whole = MemoryDisk::new();
    write(&whole, &identity()).expect("written");
    for operation in 1..=whole.operations() {
        let disk = MemoryDisk::new();
        disk.fail_at(operation);
        let error = write(&disk, &identity()).expect_err("it failed");
        assert!(matches!(&error, IdentityError::Io { source, .. } if source.kind() == io::ErrorKind::Other), "{error}");
        for seed in 0..16 {
            let left = read(&disk.after_power_loss(seed)).expect("none or sound");
            assert!(left.is_none() || left == Some(identity()), "operation {operation} seed {seed}");
        }
    }
}

#[test]
fn an_identity_is_found_again_on_the_systems_disk() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let data_dir = folder.path().join("new/data");
    assert_eq!(Identity::read(&RealDisk, &data_dir).expect("no folder"), None);
    identity().write(&RealDisk, &data_dir).expect("written");
    identity().write(&RealDisk, &data_dir).expect("the same again");
    assert_eq!(Identity::read(&RealDisk, &data_dir).expect("sound"), Some(identity()));
    assert_eq!(RealDisk.list(&data_dir).expect("listed"), ["identity"]);
}

#[test]
fn rule_4_a_promise_becomes_the_identity_whatever_happens_meanwhile() {
    let promise = Identity { state: IdentityState::Promise, ..identity() };
    for crash_at in 0.. {
        let disk = MemoryDisk::new();
        promise.write(&disk, Path::new(DATA_DIR)).expect("an empty folder");
        assert_eq!(Identity::read(&disk, Path::new(DATA_DIR)).expect("sound"), Some(promise.clone()));
        disk.crash_at(disk.operations() + crash_at + 1);
        let is_over = promise.clone().fulfil(&disk, Path::new(DATA_DIR)).is_ok();
        for seed in 0..8 {
            let disk = disk.after_power_loss(seed);
            let found = Identity::read(&disk, Path::new(DATA_DIR)).expect("sound").expect("one of the two");
            assert_eq!(Identity { state: IdentityState::Promise, ..found.clone() }, promise);
            assert!(!is_over || found.state == IdentityState::Made, "it was durable when it was told");
            let mut again = found;
            again.fulfil(&disk, Path::new(DATA_DIR)).expect("again");
            assert!(again.state == IdentityState::Made);
        }
        if is_over {
            return;
        }
    }
}

#[test]
fn rule_4_what_was_not_promised_is_not_fulfilled() {
    let disk = MemoryDisk::new();
    let mut promise = Identity { state: IdentityState::Promise, ..identity() };
    assert!(matches!(promise.fulfil(&disk, Path::new(DATA_DIR)), Err(IdentityError::Another { .. })));
    let other = Identity { cluster_id: [0; 16], ..identity() };
    other.write(&disk, Path::new(DATA_DIR)).expect("an empty folder");
    assert!(matches!(promise.fulfil(&disk, Path::new(DATA_DIR)), Err(IdentityError::Another { .. })));
    assert_eq!(promise.state, IdentityState::Promise);
}

#[test]
fn rule_4_a_node_that_asks_is_admitted_or_goes_on_asking_whatever_happens_meanwhile() {
    let asks = Identity { state: IdentityState::Asks, incarnation: 77, ..identity() };
    for crash_at in 0.. {
        let disk = MemoryDisk::new();
        asks.write(&disk, Path::new(DATA_DIR)).expect("an empty folder");
        disk.crash_at(disk.operations() + crash_at + 1);
        let mut promise = asks.clone();
        let is_over =
            promise.ask_as(&disk, Path::new(DATA_DIR), 99).is_ok() && promise.admit(&disk, Path::new(DATA_DIR)).is_ok();
        for seed in 0..8 {
            let disk = disk.after_power_loss(seed);
            let mut found = Identity::read(&disk, Path::new(DATA_DIR)).expect("sound").expect("one of three");
            match found.state {
                IdentityState::Asks => {
                    assert!(!is_over && [77, 99].contains(&found.incarnation), "it was durable when it was told");
                    assert!(Identity::read(&disk, Path::new(DATA_DIR)).is_ok());
                }
                IdentityState::Promise => assert_eq!(found.incarnation, 99, "it was admitted as that"),
                IdentityState::Made => panic!("nothing was durable"),
            }
            if found.state == IdentityState::Asks {
                found.admit(&disk, Path::new(DATA_DIR)).expect("again");
            }
            found.fulfil(&disk, Path::new(DATA_DIR)).expect("the first batch is durable");
        }
        if is_over {
            return;
        }
    }
}

#[test]
fn rule_4_who_has_or_has_promised_anything_does_not_ask() {
    for state in [IdentityState::Made, IdentityState::Promise] {
        let disk = MemoryDisk::new();
        let mut found = Identity { state, ..identity() };
        found.write(&disk, Path::new(DATA_DIR)).expect("an empty folder");
        assert!(matches!(found.ask_as(&disk, Path::new(DATA_DIR), 5), Err(IdentityError::Invalid { .. })));
        let mut asks = Identity { state: IdentityState::Asks, ..identity() };
        assert!(matches!(asks.write(&disk, Path::new(DATA_DIR)), Err(IdentityError::Another { .. })));
        if state == IdentityState::Made {
            assert!(matches!(asks.admit(&disk, Path::new(DATA_DIR)), Err(IdentityError::Another { .. })));
        }
    }
}
