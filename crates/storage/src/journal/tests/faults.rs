//! Places that cannot be read and writes that end short: named, nothing handed out wrongly, nothing acknowledged lost.

use std::path::Path;

use super::release::{recover_covered, recycled};
use super::{batch, path, read, recover, written};
use crate::disk::{Disk, MemoryDisk};
use crate::journal::layout::BLOCK_BYTES;
use crate::journal::{Journal, JournalBatch, JournalError};

fn script() -> Vec<JournalBatch> {
    [&[40][..], &[3000], &[5000, 30], &[20_000], &[10]]
        .iter()
        .zip(1..)
        .map(|(sizes, number)| batch(number, sizes))
        .collect()
}

/// Where header and batches of the first file begin, and where the last ends.
const PLACES: [u64; 5] = [0, 4096, 8192, 12_288, 20_480];

#[test]
fn p11_a_place_that_cannot_be_read_stops_the_start_with_file_and_offset_and_changes_nothing() {
    let disk = written(&script());
    let before: Vec<_> = [1, 2].map(|number| read(&disk, number)).into();
    for (begin, end) in PLACES.iter().zip(&PLACES[1..]) {
        for place in [*begin, begin + 600, end - 1] {
            disk.fail_reads(&path(1), place..place + 1).expect("there");
            let operations = disk.operations();
            match recover(&disk).err().expect("unreadable") {
                JournalError::Unreadable { path: found, offset, .. } => {
                    assert_eq!((found, offset), (path(1), *begin), "byte {place}");
                }
                other => panic!("byte {place}: not unreadable but: {other}"),
            }
            // The directories' names are made durable again, and nothing else is done.
            assert!(disk.operations() <= operations + 2);
        }
    }
    disk.fail_reads(&path(1), 0..0).expect("there");
    assert_eq!([1, 2].map(|number| read(&disk, number)).to_vec(), before);
    assert_eq!(recover(&disk).expect("readable again").2, script());
}

#[test]
fn p1_a_write_that_ends_short_poisons_the_journal_and_loses_no_acknowledged_batch() {
    let script = script();
    let whole = MemoryDisk::new();
    let (mut journal, ..) = recover(&whole).expect("a new journal");
    let begun = whole.operations();
    script.iter().for_each(|batch| journal.append(batch).expect("appended"));
    let (mut torn, mut poisoned) = (0, 0);
    for operation in begun + 1..=whole.operations() {
        for bytes in [1, 511, 512, BLOCK_BYTES, BLOCK_BYTES + 700, usize::MAX] {
            let disk = MemoryDisk::new();
            let (mut journal, ..) = recover(&disk).expect("a new journal");
            disk.short_write_at(operation, bytes);
            let acknowledged = script.iter().take_while(|batch| journal.append(batch).is_ok()).count();
            assert!(acknowledged < script.len(), "operation {operation} failed and nobody noticed");
            assert!(matches!(journal.append(&script[0]), Err(JournalError::Poisoned)));
            poisoned += 1;
            for disk in [disk.after_process_kill(), disk.after_power_loss(operation)] {
                let story = format!("operation {operation}, {bytes} bytes");
                let (mut journal, recovered, found) = recover(&disk).unwrap_or_else(|error| panic!("{story}: {error}"));
                torn += u64::from(recovered.torn.is_some());
                let there = found.len();
                assert!(there == acknowledged || there == acknowledged + 1, "{story}: {there} of {acknowledged}");
                assert_eq!(found, script[..there], "{story}");
                script[there..].iter().for_each(|batch| journal.append(batch).expect("appended"));
                assert_eq!(recover(&disk.after_power_loss(1)).expect("recovered").2, script, "{story}");
            }
        }
    }
    assert!(torn > 10 && poisoned > 50, "{torn} torn, {poisoned} poisoned");
}

#[test]
fn rule_3_a_write_that_ends_within_its_first_sector_is_torn_also_over_an_older_generation() {
    // The next batch goes to where the end of an older one stands.
    for bytes in 1..=512 {
        let (disk, mut journal, _) = recycled();
        disk.short_write_at(disk.operations() + 1, bytes);
        assert!(matches!(journal.append(&batch(4, &[600])), Err(JournalError::Io { .. })), "a write failed");
        let disk = disk.after_process_kill();
        let (mut journal, recovered, found) =
            recover_covered(&disk).unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
        assert_eq!((found.len(), recovered.torn.is_some()), (2, true), "{bytes} bytes");
        journal.append(&batch(4, &[700])).expect("appended in its place");
        assert_eq!(recover_covered(&disk.after_power_loss(1)).expect("recovered").2[2], batch(4, &[700]));
    }
}

/// A journal with two batches, and the number of the next; if the file is reused, where that begins an older one did.
fn two_batches(is_reused: bool) -> (MemoryDisk, Journal, u64) {
    if !is_reused {
        let disk = written(&[batch(1, &[100]), batch(2, &[100])]);
        return (disk.clone(), recover(&disk).expect("recovered").0, 3);
    }
    let small: Vec<_> = (1..=7).map(|number| batch(number, &[100])).collect();
    let disk = written(&[&small[..], &[batch(8, &[25_000])]].concat());
    let (mut journal, ..) = recover(&disk).expect("recovered");
    journal.release(u64::MAX, 0).expect("released");
    journal.append(&batch(9, &[100])).expect("appended");
    (disk, journal, 10)
}

/// Goal: a write that ends within any sector but the last of its batch is torn, whatever of it a power loss leaves, and one that
/// ends within the last is never taken for anything but what it is. Method: every byte, in a file that is used for the first time
/// and in one where the header of an older batch stands at the very place.
#[test]
fn rule_3_a_write_that_ends_within_a_sector_is_torn_unless_it_is_the_last() {
    let (mut torn, mut refused) = (0, 0);
    for is_reused in [false, true] {
        for size in [600, 4000, 5000] {
            // All that ends within a header or a mark, and a part of the rest.
            let is_drawn = |bytes: &usize| *bytes <= 200 || bytes % 512 <= 26 || bytes.is_multiple_of(41);
            let whole_bytes = if size > 4000 { 2 * BLOCK_BYTES } else { BLOCK_BYTES };
            for bytes in (1..=whole_bytes).filter(is_drawn) {
                let (disk, mut journal, number) = two_batches(is_reused);
                disk.short_write_at(disk.operations() + 1, bytes);
                let third = batch(number, &[size]);
                let is_whole = journal.append(&third).is_ok();
                assert!(!is_whole, "a write failed");
                let ends_in_last_sector = bytes > whole_bytes - 512;
                let mut disks = vec![disk.after_process_kill()];
                disks.extend((0..3).map(|seed| disk.after_power_loss(seed * 8192 + bytes as u64)));
                for disk in disks {
                    match recover_covered(&disk) {
                        Ok((_, recovered, found)) => {
                            assert!(found.len() == 2 || (found.len() == 3 && found[2] == third));
                            torn += u64::from(recovered.torn.is_some());
                        }
                        Err(JournalError::Rotten { what, .. }) if ends_in_last_sector => {
                            assert!(what.contains("written whole"), "{what}");
                            refused += 1;
                        }
                        Err(error) => panic!("reused {is_reused}, {size} in {bytes} bytes: {error}"),
                    }
                }
            }
        }
    }
    assert!(torn > 2_000 && refused > 50, "{torn} torn, {refused} refused");
}

#[test]
fn p11_a_place_in_a_spare_that_cannot_be_read_is_named() {
    let disk = written(&script());
    let (mut journal, ..) = recover(&disk).expect("recovered");
    while journal.prepare_spare().expect("prepared") {}
    let spare = Path::new("data/journal/spare-0001");
    assert!(disk.exists(spare).expect("looked"));
    disk.fail_reads(spare, 100..101).expect("there");
    let error = recover(&disk).err().expect("unreadable");
    assert!(matches!(&error, JournalError::Unreadable { path, offset: 0, .. } if path == spare), "{error}");
}
