//! What the messages of the test say: a name, and filler that follows from it, so that every byte of a delivery is known.

use crate::random::Random;

/// The value of the message of this name: up to 2 KiB.
pub(crate) fn value_of(id: &str) -> Vec<u8> {
    let seed = id.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(257).wrapping_add(u64::from(byte)));
    let filler = Random::new(seed).below(FILLER_BYTES_END);
    let letters = (0..filler).map(|at| b'a' + ((seed ^ at) % 26) as u8);
    id.bytes().chain(*b" ").chain(letters).collect()
}

/// The name of a message, once all of its value was found to be as it was sent.
pub(crate) fn id_of(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
    let id = String::from_utf8(value[..end].to_vec()).expect("names are text");
    assert!(value == value_of(&id), "P1: the value of {id} is not what was sent: {}", value.escape_ascii());
    id
}

/// Enough that a few hundred messages fill a journal file of 1 MiB.
const FILLER_BYTES_END: u64 = 2048;
