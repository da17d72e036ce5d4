//! Failure rule 3, the rotten side: what was durable and is not as written is never cut and never skipped.

use super::{batch, options, overwrite, path, read, recover, rotten, written};
use crate::disk::{Disk, MemoryDisk, SECTOR_BYTES};
use crate::journal::layout::{BLOCK_BYTES, Generations, Mark, Place, VERSION, batch_hash, encode_batch};
use crate::journal::{JournalBatch, JournalError};

/// Two files: one block of header each, then batches of one and two blocks in the first, of one block in the second.
fn two_files() -> (Vec<JournalBatch>, MemoryDisk) {
    let batches = vec![batch(1, &[100, 2000]), batch(2, &[5000]), batch(3, &[13_000]), batch(4, &[300])];
    let disk = written(&batches);
    assert_eq!(recover(&disk).expect("recovered").2, batches);
    (batches, disk)
}

/// Where the batches of [`two_files`] begin and end.
const PLACES: [(u64, u64, u64); 5] =
    [(1, 0, 4096), (1, 4096, 8192), (1, 8192, 16_384), (1, 16_384, 32_768), (2, 0, 8192)];

/// Where the piece of [`two_files`] begins that holds this byte.
fn piece_of(file: u64, byte: u64) -> u64 {
    if file == 2 {
        return byte / 4096 * 4096;
    }
    PLACES.iter().find(|(number, from, to)| *number == file && (*from..*to).contains(&byte)).expect("a piece").1
}

#[test]
fn rule_3_a_flipped_bit_in_any_byte_is_rotten_with_file_and_offset() {
    let (_, disk) = two_files();
    for (file, end) in [(1, 32_768), (2, 8192)] {
        let bytes = read(&disk, file);
        for byte in 0..end {
            // Every bit where marks and headers are, one elsewhere.
            let fields = if byte % BLOCK_BYTES < SECTOR_BYTES { 144 } else { 24 };
            let bits = if byte % SECTOR_BYTES < fields { 0..8 } else { byte % 8..byte % 8 + 1 };
            for bit in bits {
                overwrite(&disk, file, byte, &[bytes[byte] ^ (1 << bit)]);
                let (found, offset, what) = rotten(recover(&disk));
                assert_eq!((found, offset), (path(file), piece_of(file, byte as u64)), "byte {byte} bit {bit}: {what}");
            }
            overwrite(&disk, file, byte, &bytes[byte..=byte]);
        }
    }
    assert_eq!(recover(&disk).expect("nothing was cut").2.len(), 4);
}

#[test]
fn rule_3_a_newest_file_that_ends_within_its_header_is_rotten() {
    for length in [1, 100, 512, 3210, 4095] {
        let (_, disk) = two_files();
        disk.open(&path(2)).expect("it is there").set_len(length).expect("no crash");
        let (found, offset, what) = rotten(recover(&disk));
        assert_eq!((found, offset), (path(2), length), "{what}");
    }
}

#[test]
fn rule_3_a_lost_batch_is_rotten_when_anything_follows_it() {
    for (position, (file, from, to)) in PLACES.into_iter().enumerate().skip(1).take(3) {
        let (_, disk) = two_files();
        overwrite(&disk, file, from as usize, &vec![0; (to - from) as usize]);
        let (found, offset, what) = rotten(recover(&disk));
        assert_eq!((found, offset), (path(1), from), "{what}");
        assert!(what.contains(&format!("batch {position} is missing")), "{what}");
    }
    // A part of a batch that is not the last looks torn and is not.
    let (_, disk) = two_files();
    overwrite(&disk, 1, 20_480, &[0; BLOCK_BYTES]);
    let (found, offset, what) = rotten(recover(&disk));
    assert_eq!((found, offset), (path(1), 16_384), "{what}");
}

#[test]
fn rule_3_valid_bytes_in_the_wrong_place_are_rotten() {
    let (_, disk) = two_files();
    let first = read(&disk, 1)[4096..8192].to_vec();
    for (file, offset) in [(1, 8192), (1, 28_672), (2, 4096)] {
        let disk = disk.after_process_kill();
        overwrite(&disk, file, offset, &first);
        rotten(recover(&disk));
    }
    // The first file in place of the second.
    let copy = disk.after_process_kill();
    overwrite(&copy, 2, 0, &read(&disk, 1));
    let (found, offset, what) = rotten(recover(&copy));
    assert_eq!((found, offset, what.as_str()), (path(2), 0, "the file was written as number 1"));
    // The second file of another journal, sound in itself.
    let other = written(&[batch(1, &[100, 2001]), batch(2, &[5000]), batch(3, &[13_000]), batch(4, &[300])]);
    overwrite(&disk, 2, 0, &read(&other, 2));
    let (found, offset, what) = rotten(recover(&disk));
    assert_eq!((found, offset, what.as_str()), (path(2), 0, "the file does not follow the one before it"));
}

#[test]
fn rule_3_a_batch_made_for_another_place_is_rotten_although_its_checksums_are_right() {
    let (batches, disk) = two_files();
    let place = Place {
        shard: 7,
        file: 1,
        generations: Generations { present: 1, reused: 0 },
        offset: 8192,
        batch: 2,
        previous_hash: batch_hash(&read(&disk, 1)[4096..8192]),
    };
    let others = [
        (Place { shard: 8, ..place }, "the batch is of another shard"),
        (Place { file: 2, ..place }, "the batch was written to another file"),
        (Place { previous_hash: place.previous_hash + 1, ..place }, "the batch does not follow the one before it"),
        (Place { batch: 3, ..place }, "batch 3 stands where batch 2 belongs"),
        (Place { offset: 4096, ..place }, "the first sector of batch 2 is damaged"),
    ];
    let mut image = Vec::new();
    for (other, expected) in others {
        encode_batch(&mut image, &other, &batches[1]);
        overwrite(&disk, 1, 8192, &image);
        let (found, offset, what) = rotten(recover(&disk));
        assert_eq!((found, offset, what.as_str()), (path(1), 8192, expected));
    }
    encode_batch(&mut image, &place, &batches[1]);
    overwrite(&disk, 1, 8192, &image);
    assert_eq!(recover(&disk).expect("the right place").2, batches);
}

#[test]
fn rule_3_an_incomplete_batch_is_rotten_when_even_an_unfinished_file_follows() {
    let disk = written(&[batch(1, &[100]), batch(2, &[5000])]);
    overwrite(&disk, 1, 12_288, &[0; BLOCK_BYTES]);
    let torn = disk.after_process_kill();
    assert!(recover(&torn).expect("recovered").1.torn.is_some(), "without the file it is torn");
    drop(disk.create_new(&path(2)).expect("created"));
    let (found, offset, what) = rotten(recover(&disk));
    assert_eq!((found, offset), (path(1), 8192), "{what}");
}

#[test]
fn rule_3_an_old_version_of_a_file_is_rotten_when_another_follows() {
    let (batches, disk) = two_files();
    let old = written(&batches[..2]);
    disk.remove(&path(1)).expect("removed");
    disk.create_new(&path(1)).expect("created").write_all_at(&read(&old, 1), 0).expect("written");
    let (found, offset, what) = rotten(recover(&disk));
    assert_eq!((found, offset), (path(1), 16_384));
    assert_eq!(what, "batch 3 is missing: the next file follows batch 3");
}

#[test]
fn rule_3_a_file_that_was_cut_short_is_rotten() {
    for length in [4096, 6000, 8192, 12_288, 16_384 - 1, 16_384 + 4096, 32_768 - 512] {
        let disk = written(&[batch(1, &[100]), batch(2, &[5000]), batch(3, &[13_000])]);
        disk.open(&path(1)).expect("opened").set_len(length).expect("cut");
        let on_a_step = length % options().zero_step_bytes == 0 && length < 16_384;
        // A file cut where a step and a batch end looks like one that never grew: only a later batch would tell.
        if !on_a_step {
            let (found, ..) = rotten(recover(&disk));
            assert_eq!(found, path(1), "length {length}");
        }
    }
}

#[test]
fn rule_3_a_batch_beyond_what_was_ever_filled_with_zeros_is_rotten() {
    // Cut inside the batch and grown again, but not by the journal, which grows in steps of 8,192.
    let disk = written(&[batch(1, &[100]), batch(2, &[5000]), batch(3, &[13_000])]);
    let file = disk.open(&path(1)).expect("opened");
    file.set_len(20_480).expect("cut");
    file.set_len(28_000).expect("grown");
    let (found, offset, what) = rotten(recover(&disk));
    assert_eq!((found, offset, what.as_str()), (path(1), 16_384, "the file ends inside batch 3"));
}

#[test]
fn bytes_behind_the_last_batch_that_the_journal_did_not_write_are_rotten() {
    let disk = written(&[batch(1, &[100]), batch(2, &[100])]);
    overwrite(&disk, 1, 14_000, b"stray");
    let (found, offset, what) = rotten(recover(&disk));
    assert_eq!((found, offset), (path(1), 14_000 / 512 * 512), "{what}");
}

#[test]
fn a_missing_file_is_named() {
    for number in [1, 2] {
        let disk = written(&[batch(1, &[20_000]), batch(2, &[20_000]), batch(3, &[20_000])]);
        disk.remove(&path(number)).expect("removed");
        let error = recover(&disk).err().expect("a file is missing");
        assert!(matches!(&error, JournalError::Missing { path: found } if *found == path(number)), "{error}");
    }
}

#[test]
fn p11_a_sound_file_of_an_unknown_version_is_refused_by_number() {
    // A header of another version, with a checksum that is right: first the file's, then a batch's.
    let (_, disk) = two_files();
    let original = read(&disk, 1);
    let mut block = original[..BLOCK_BYTES].to_vec();
    block[24 + 4..24 + 6].copy_from_slice(&9u16.to_le_bytes());
    block[24 + 88..24 + 92].fill(0);
    let crc = crc32c::crc32c(&block);
    block[24 + 88..24 + 92].copy_from_slice(&crc.to_le_bytes());
    overwrite(&disk, 1, 0, &block);
    let error = recover(&disk).err().expect("unknown version");
    assert_eq!(
        error.to_string(),
        format!("{} has version 9 at offset 0; this build reads version 1", path(1).display())
    );
    overwrite(&disk, 1, 0, &original[..BLOCK_BYTES]);
    let mut header = original[8192 + 24..8192 + 24 + 120].to_vec();
    header[4..6].copy_from_slice(&(VERSION + 1).to_le_bytes());
    let crc = crc32c::crc32c(&header[..116]);
    header[116..].copy_from_slice(&crc.to_le_bytes());
    overwrite(&disk, 1, 8192 + 24, &header);
    let error = recover(&disk).err().expect("unknown version");
    assert!(matches!(error, JournalError::UnknownVersion { offset: 8192, found: 2, supported: 1, .. }), "{error}");
}

#[test]
fn a_sector_in_another_place_is_foreign_whatever_its_generation() {
    let (_, disk) = two_files();
    let sector = &read(&disk, 1)[4096..4608];
    for (present, reused, at, mark) in [
        (1, 0, 4096, Mark::Batch(1)),
        (2, 1, 4096, Mark::Older),
        (2, 0, 4096, Mark::Foreign),
        (1, 0, 4608, Mark::Foreign),
        (2, 1, 4608, Mark::Foreign),
    ] {
        assert_eq!(Mark::of(sector, Generations { present, reused }, at), mark, "generation {present} at {at}");
    }
}
