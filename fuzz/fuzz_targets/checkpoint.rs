//! Any file in the place of a checkpoint, and any bytes in the place of a state's image, are read or refused; never a
//! panic, never more memory than there are bytes. The input: how it is used, then the bytes, or changes of good ones.
#![no_main]

#[path = "../../crates/shard/tests/random/mod.rs"]
#[allow(dead_code, reason = "the shard's tests use more of it")]
mod random;

use std::path::Path;

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use mortarmq_shard::Shard;
use mortarmq_storage::{Disk, MemoryDisk, load_checkpoint};
use mortarmq_types::Epoch;
use random::{Random, batch};

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    match kind % 3 {
        0 => file(rest),
        1 => image(Bytes::copy_from_slice(rest)),
        _ => changed_image(rest),
    }
});

fn file(bytes: &[u8]) {
    let disk = MemoryDisk::new();
    let folder = Path::new("/data/checkpoints");
    disk.create_dir_all(folder).expect("a folder");
    let file = disk.create_new(&folder.join("00000000000000000007.checkpoint")).expect("a file");
    file.write_all_at(bytes, 0).expect("written");
    if let Err(error) = load_checkpoint(&disk, Path::new("/data")) {
        assert!(error.to_string().contains("checkpoint"), "P11: the file is named: {error}");
    }
}

fn image(bytes: Bytes) {
    let Ok(shard) = Shard::from_image(bytes) else { return };
    shard.check();
    let mut again = BytesMut::new();
    shard.image().encode(&mut again);
    Shard::from_image(again.freeze()).expect("what was read is written so that it is read again");
}

/// The image of a random state with bytes of its sections changed and their checksums made right again: it is refused, or
/// it is a state that goes on without panic.
fn changed_image(input: &[u8]) {
    let Some(([seed, steps], mut rest)) = input.split_first_chunk::<2>() else { return };
    let mut random = Random::of(u64::from(*seed));
    let (mut shard, mut time) = (Shard::default(), 0);
    for _ in 0..steps % 40 {
        let bytes = batch(&mut random, &mut time, shard.state());
        shard.apply(bytes, Epoch::new(1)).expect("these commands decode");
    }
    let mut out = BytesMut::new();
    shard.image().encode(&mut out);
    let bodies = bodies(&out);
    while let Some(([section, high, low, byte], behind)) = rest.split_first_chunk::<4>() {
        rest = behind;
        let body = &bodies[usize::from(*section) % bodies.len()];
        if !body.is_empty() {
            out[body.start + usize::from(u16::from_be_bytes([*high, *low])) % body.len()] ^= byte;
        }
    }
    for body in &bodies {
        let checksum = crc32c::crc32c(&out[body.start - HEADER_BYTES..body.end]);
        out[body.end..body.end + 4].copy_from_slice(&checksum.to_be_bytes());
    }
    let Ok(mut shard) = Shard::from_image(out.freeze()) else { return };
    shard.check();
    time = shard.state().time.get();
    for _ in 0..8 {
        let bytes = batch(&mut random, &mut time, shard.state());
        shard.apply(bytes, Epoch::new(1)).expect("these commands decode");
        shard.check();
    }
    let mut again = BytesMut::new();
    shard.image().encode(&mut again);
    Shard::from_image(again.freeze()).expect("its own image").check();
}

/// Where the bodies of an image's sections stand: docs in `crates/shard/src/image.rs`.
fn bodies(image: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 5);
    while at < image.len() {
        let body = at + HEADER_BYTES;
        let length = u64::from_be_bytes(image[body - 8..body].try_into().expect("8 bytes"));
        let end = body + usize::try_from(length).expect("in memory");
        found.push(body..end);
        at = end + 4;
    }
    found
}

/// Kind, owner, number and length of a section.
const HEADER_BYTES: usize = 1 + 8 + 2 + 8;
