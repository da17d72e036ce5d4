//! What a file keeps, without a mount.

use super::{File, MAX_PENDING_BYTES};
use crate::power::Loss;
use crate::random::Random;

fn survivor(file: File, seed: u64) -> (Vec<u8>, Loss) {
    let mut loss = Loss::default();
    (file.survivor(&mut Random::new(seed), &mut loss).current, loss)
}

#[test]
fn rule_2_what_a_failed_sync_forgot_reads_back_and_no_later_sync_saves_it() {
    let mut file = File::default();
    file.write(0, b"forgotten");
    file.forget_pending();
    file.sync();
    file.write(9, b"later");
    file.sync();
    assert_eq!(file.current, b"forgottenlater");
    assert_eq!(survivor(file, 1).0, b"\0\0\0\0\0\0\0\0\0later");
}

#[test]
fn overlapping_pending_writes_surface_in_every_version() {
    let outcomes: std::collections::BTreeSet<Vec<u8>> = (0..50)
        .map(|seed| {
            let mut file = File::default();
            file.write(0, b"0");
            file.sync();
            file.write(0, b"1");
            file.write(0, b"2");
            survivor(file, seed).0
        })
        .collect();
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [b"0", b"1", b"2"]);
}

#[test]
fn pending_bytes_are_bounded_by_writing_the_oldest_back() {
    const CHUNK: usize = 32 << 20;
    let mut file = File::default();
    let chunk = vec![1; CHUNK];
    for _ in 0..=MAX_PENDING_BYTES / CHUNK {
        file.write(0, &chunk);
    }
    assert_eq!(file.pending_bytes, MAX_PENDING_BYTES);
    assert_eq!(file.synced.len(), CHUNK);
}

#[test]
fn a_cut_that_is_undone_brings_the_bytes_back_and_their_space() {
    let mut brought_back = 0;
    for seed in 0..20 {
        let mut file = File::default();
        file.write(0, &[1; 9000]);
        file.sync();
        file.set_len(0);
        assert_eq!(file.blocks().count(), 0);
        let mut loss = Loss::default();
        let found = file.survivor(&mut Random::new(seed), &mut loss);
        assert_eq!(found.blocks().count(), loss.lengths_dropped * 3);
        brought_back += loss.lengths_dropped;
    }
    assert!((1..20).contains(&brought_back));
}
