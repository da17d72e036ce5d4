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

/// The image of a random state with some bytes changed, and the checksum of each section made right again would need the
/// layout; an image has none of its own, so changes reach every field.
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
    while let Some(([high, low, byte], behind)) = rest.split_first_chunk::<3>() {
        rest = behind;
        let place = usize::from(u16::from_be_bytes([*high, *low])) % out.len();
        out[place] ^= byte;
    }
    image(out.freeze());
}
