//! Any command that decodes applies without panic and leaves a state whose invariants hold and whose image is read again.
//!
//! The input: a seed of random commands that are good, then steps: a good batch, a good batch with bytes changed, or a
//! batch that is written out.
#![no_main]

#[path = "../../crates/shard/tests/random/mod.rs"]
#[allow(dead_code, reason = "the shard's tests use more of it")]
mod random;

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use mortarmq_shard::Shard;
use mortarmq_types::Epoch;
use random::{Random, batch};

fuzz_target!(|input: &[u8]| {
    let Some((seed, mut rest)) = input.split_first_chunk::<4>() else { return };
    let mut random = Random::of(u64::from(u32::from_be_bytes(*seed)));
    let (mut shard, mut time) = (Shard::default(), 0);
    let mut steps = 0;
    while let Some((kind, behind)) = rest.split_first() {
        rest = behind;
        steps += 1;
        if steps > STEPS_MAX {
            break;
        }
        let bytes = match kind % 4 {
            0 | 1 => batch(&mut random, &mut time, shard.state()),
            2 => changed(batch(&mut random, &mut time, shard.state()), &mut rest),
            _ => written_out(&mut rest),
        };
        let before = shard.clone();
        match shard.apply(bytes, Epoch::new(1)) {
            Ok(_) => shard.check(),
            // A node stops here; the test goes on with the state as it was.
            Err(_) => shard = before,
        }
    }
    let mut image = BytesMut::new();
    shard.image().encode(&mut image);
    let restored = Shard::from_image(image.clone().freeze()).expect("its own image");
    restored.check();
    let mut again = BytesMut::new();
    restored.image().encode(&mut again);
    assert_eq!(image, again, "an image that was read is written as the same");
});

/// A batch with some bytes changed: pairs of a place and a byte.
fn changed(bytes: Bytes, rest: &mut &[u8]) -> Bytes {
    let mut bytes = bytes.to_vec();
    let Some((count, behind)) = rest.split_first() else { return bytes.into() };
    *rest = behind;
    for _ in 0..count % 8 {
        let Some(([high, low, byte], behind)) = rest.split_first_chunk::<3>() else { break };
        *rest = behind;
        let place = usize::from(u16::from_be_bytes([*high, *low])) % bytes.len();
        bytes[place] ^= byte;
    }
    bytes.into()
}

fn written_out(rest: &mut &[u8]) -> Bytes {
    let Some((length, behind)) = rest.split_first() else { return Bytes::new() };
    let (bytes, behind) = behind.split_at(usize::from(*length).min(behind.len()));
    *rest = behind;
    Bytes::copy_from_slice(bytes)
}

const STEPS_MAX: u32 = 60;
