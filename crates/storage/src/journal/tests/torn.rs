//! Failure rule 3, the torn side: a batch of which a write did not arrive is cut, and only that one.

use super::release::recover_covered;
use super::{batch, membership, overwrite, path, read, recover, rotten, written};
use crate::disk::{Disk, MemoryDisk, SECTOR_BYTES};
use crate::journal::layout::{BLOCK_BYTES, FileHeader, Generations, Parsed, Place, encode_batch};
use crate::journal::{JournalBatch, TornTail};

/// Where the second batch of these tests begins: behind header and first batch.
const SECOND: usize = 2 * BLOCK_BYTES;

/// Two batches of which only those pieces of the second have arrived for which `arrived` says so.
fn second_in_part(second: &JournalBatch, piece: usize, arrived: impl Fn(usize) -> bool) -> (MemoryDisk, usize) {
    let disk = written(&[batch(1, &[10]), second.clone()]);
    let (_, recovered, _) = recover(&disk).expect("recovered");
    let bytes = recovered.bytes as usize - BLOCK_BYTES;
    for position in 0..bytes / piece {
        if !arrived(position) {
            overwrite(&disk, 1, SECOND + position * piece, &vec![0; piece]);
        }
    }
    (disk, bytes)
}

/// Recovers a second batch of which some pieces arrived, and appends another in its place.
fn check_pieces(second: &JournalBatch, piece: usize, pieces: usize) {
    let whole = (1usize << pieces) - 1;
    for arrived in 0..=whole {
        let (disk, bytes) = second_in_part(second, piece, |position| arrived >> position & 1 == 1);
        assert_eq!(bytes, piece * pieces, "the test knows the batch's size");
        let (mut journal, recovered, found) = recover(&disk).unwrap_or_else(|error| panic!("{arrived:b}: {error}"));
        let complete = arrived == whole;
        assert_eq!(found.len(), 1 + usize::from(complete), "{arrived:b}");
        match recovered.torn {
            None => assert!(complete || arrived == 0, "{arrived:b}: a tear goes unnoticed"),
            Some(TornTail { file, offset, .. }) => {
                assert!(!complete && arrived != 0, "{arrived:b}: not torn");
                assert_eq!((file, offset), (path(1), SECOND as u64), "{arrived:b}");
            }
        }
        if !complete {
            let left = &read(&disk, 1)[SECOND..];
            assert!(left.iter().all(|byte| *byte == 0), "{arrived:b}: the cut is on disk");
            journal.append(&batch(2, &[600])).expect("appended in its place");
            let (_, recovered, found) = recover(&disk).expect("recovered");
            assert_eq!((found[1..].to_vec(), recovered.torn), (vec![batch(2, &[600])], None), "{arrived:b}");
        }
    }
}

#[test]
fn rule_3_a_last_batch_torn_in_any_subset_of_its_sectors_is_cut() {
    check_pieces(&batch(2, &[3000]), SECTOR_BYTES, 8);
}

#[test]
fn rule_3_a_last_batch_torn_in_any_subset_of_its_blocks_is_cut() {
    check_pieces(&batch(2, &[15_000]), BLOCK_BYTES, 4);
}

#[test]
fn rule_3_zeros_in_a_value_are_not_taken_for_blocks_that_did_not_arrive() {
    let mut zeros = batch(2, &[15_000]);
    zeros.entries[0].data = vec![0; 15_000].into();
    check_pieces(&zeros, BLOCK_BYTES, 4);
    // Written whole and damaged in the midst of the zeros: rotten, although most of it is zero.
    let disk = written(&[batch(1, &[10]), zeros]);
    overwrite(&disk, 1, SECOND + 5000, &[1]);
    let (found, offset, _) = rotten(recover(&disk));
    assert_eq!((found, offset), (path(1), SECOND as u64));
}

#[test]
fn rule_3_an_older_generation_shows_that_a_block_did_not_arrive() {
    // As in a recycled file: where the second batch goes stands one of the file's earlier use.
    let disk = written(&[batch(1, &[20_000]), batch(2, &[15_000])]);
    let file = read(&disk, 2);
    let Parsed::Good(header) = FileHeader::parse(&file[..BLOCK_BYTES]) else { panic!("a header") };
    let earlier = Generations { present: 1, reused: 0 };
    let place =
        Place { shard: 7, file: 1, generations: earlier, offset: BLOCK_BYTES as u64, batch: 900, previous_hash: 5 };
    let mut older = Vec::new();
    encode_batch(&mut older, &place, &batch(900, &[19_000]));
    assert_eq!(older.len(), 5 * BLOCK_BYTES);
    let newer = &file[BLOCK_BYTES..5 * BLOCK_BYTES];
    for arrived in 0..16usize {
        let mut mixed = older.clone();
        for block in (0..4).filter(|block| arrived >> block & 1 == 1) {
            let bytes = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
            mixed[bytes.clone()].copy_from_slice(&newer[bytes]);
        }
        let disk = disk.after_process_kill();
        overwrite(&disk, 2, BLOCK_BYTES, &mixed);
        // A file that is new has no earlier use: the same bytes cannot be there.
        let (found, ..) = rotten(recover(&disk));
        assert_eq!(found, path(2), "{arrived:b}");
        overwrite(&disk, 2, 0, &FileHeader { reused_generation: 1, ..header.clone() }.encode());
        let (_, recovered, found) = recover(&disk).unwrap_or_else(|error| panic!("{arrived:b}: {error}"));
        assert_eq!(found.len(), 1 + usize::from(arrived == 15), "{arrived:b}");
        assert_eq!(recovered.torn.is_some(), arrived != 0 && arrived != 15, "{arrived:b}");
    }
}

#[test]
fn rule_3_zeros_torn_over_the_zeros_of_an_older_generation_are_cut_although_their_payload_is_the_same() {
    // Each mark ends with its checksum, so a sound one in place of another does not change the batch's.
    const BLOCKS: usize = 6;
    let zeros = |number| {
        let mut batch = batch(number, &[20_000]);
        batch.entries[0].data = vec![0; 20_000].into();
        batch
    };
    let disk = written(&[zeros(1), zeros(2)]);
    let older = read(&disk, 1);
    let (mut journal, ..) = recover(&disk).expect("recovered");
    journal.release(u64::MAX, 0).expect("released");
    journal.append(&zeros(3)).expect("appended");
    let first = BLOCK_BYTES..BLOCK_BYTES + SECTOR_BYTES;
    for arrived in 0..1usize << BLOCKS {
        let disk = disk.after_process_kill();
        for block in (0..BLOCKS).filter(|block| arrived >> block & 1 == 0) {
            let bytes = (block + 1) * BLOCK_BYTES..(block + 2) * BLOCK_BYTES;
            overwrite(&disk, 3, bytes.start, &older[bytes]);
        }
        let is_whole = arrived == (1 << BLOCKS) - 1;
        let (_, recovered, found) = recover_covered(&disk).unwrap_or_else(|error| panic!("{arrived:b}: {error}"));
        assert!(found[1..] == [zeros(3)][..usize::from(is_whole)], "{arrived:b}: {} batches", found.len());
        assert_eq!(recovered.torn.is_some(), arrived != 0 && !is_whole, "{arrived:b}");
    }
    // In a batch that was written whole, such a sector is damage that the start must not go over.
    let (mut journal, ..) = recover_covered(&disk).expect("recovered");
    journal.append(&batch(4, &[100])).expect("appended");
    let sector = first.start + 3 * SECTOR_BYTES..first.end + 3 * SECTOR_BYTES;
    overwrite(&disk, 3, sector.start, &older[sector]);
    assert_eq!(rotten(recover_covered(&disk)).1, BLOCK_BYTES as u64);
}

#[test]
fn rule_3_a_file_whose_roll_over_was_interrupted_is_removed() {
    // All that a crash can leave: no byte, zeros, a part of the header.
    let disk = written(&[batch(1, &[20_000]), batch(2, &[20_000])]);
    let header = read(&disk, 2)[..BLOCK_BYTES].to_vec();
    let mut half = header.clone();
    half[SECTOR_BYTES..].fill(0);
    let mut other_half = header;
    other_half[..SECTOR_BYTES].fill(0);
    for left in [vec![], vec![0; 8192], vec![0; 5000], half, other_half] {
        for number in [1, 2] {
            let disk = if number == 1 { MemoryDisk::new() } else { written(&[batch(1, &[20_000])]) };
            disk.create_dir_all(path(number).parent().expect("a directory")).expect("made");
            disk.create_new(&path(number)).expect("created").write_all_at(&left, 0).expect("written");
            let (mut journal, recovered, found) = recover(&disk).expect("recovered");
            assert_eq!(found.len() as u64, number - 1);
            assert_eq!(recovered.unfinished_file, Some(path(number)));
            assert_eq!(recovered.membership, membership());
            journal.append(&batch(number, &[20_000])).expect("appended");
            let (_, recovered, found) = recover(&disk.after_power_loss(number)).expect("recovered");
            assert_eq!((found.len() as u64, recovered.unfinished_file), (number, None));
        }
    }
}
