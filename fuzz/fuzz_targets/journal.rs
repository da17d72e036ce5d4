//! A journal is recovered or refused, whatever its file holds; and whatever a power loss leaves of a good one, every batch
//! that was confirmed is read again (P1). The input: how it is used, then the file, or a script.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mortarmq_storage::{
    Clock, Disk, HardState, Journal, JournalBatch, JournalEntry, JournalError, JournalOptions, MemoryDisk,
};
use mortarmq_types::ShardId;

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    match kind % 3 {
        0 => any_file(rest),
        1 => changed_file(rest),
        _ => power_loss(rest),
    }
});

const DATA: &str = "/data";

fn options() -> JournalOptions {
    JournalOptions { shard: ShardId::new(0), file_bytes: 64 << 10, zero_step_bytes: 16 << 10, spare_files: 1 }
}

fn recover(disk: &MemoryDisk) -> Result<(Journal, Vec<JournalBatch>), JournalError> {
    let mut batches = Vec::new();
    let recovered =
        Journal::recover(Arc::new(disk.clone()), Path::new(DATA), options(), Bytes::new(), None, &mut |batch| {
            batches.push(batch);
            Ok(())
        });
    recovered.map(|(journal, _)| (journal, batches))
}

fn any_file(bytes: &[u8]) {
    let disk = MemoryDisk::new();
    let folder = Path::new("/data/journal");
    disk.create_dir_all(folder).expect("a folder");
    let file = disk.create_new(&folder.join("00000001.journal")).expect("a file");
    file.write_all_at(bytes, 0).expect("written");
    let _ = recover(&disk);
}

/// Changes of a good journal: what comes out of it is a beginning of what went in, or it is refused.
fn changed_file(mut rest: &[u8]) {
    let disk = MemoryDisk::new();
    let written = {
        let (mut journal, _) = recover(&disk).expect("an empty journal");
        let batches: Vec<JournalBatch> = (1..=6).map(|number| entries(number, 40 * number as usize)).collect();
        for batch in &batches {
            journal.append(batch).expect("it is durable");
        }
        batches
    };
    let file = disk.open(Path::new("/data/journal/00000001.journal")).expect("the file");
    let length = file.len().expect("a length");
    let mut is_changed = false;
    while let Some((change, behind)) = rest.split_first_chunk::<4>() {
        rest = behind;
        let place = u64::from(u16::from_be_bytes([change[0], change[1]])) * 3 % length;
        let mut byte = [0];
        file.read_exact_at(&mut byte, place).expect("inside the file");
        is_changed |= change[2] != 0;
        file.write_all_at(&[byte[0] ^ change[2]], place).expect("written");
    }
    match recover(&disk) {
        Ok((_, read)) => {
            let data = |batches: &[JournalBatch]| batches.iter().map(|batch| batch.entries.clone()).collect::<Vec<_>>();
            let (read, written) = (data(&read), data(&written));
            assert!(written.starts_with(&read), "P11: what is read was written");
            assert!(is_changed || read.len() == written.len(), "P1: a good journal is read whole");
        }
        Err(error) => assert!(is_changed, "a good journal is refused: {error}"),
    }
}

/// Appends of any size, and the power goes at any operation: what was confirmed is there, and nothing is made up.
fn power_loss(input: &[u8]) {
    let Some(([crash, seed], sizes)) = input.split_first_chunk::<2>() else { return };
    let disk = MemoryDisk::new();
    disk.crash_at(u64::from(*crash) + 1);
    let (mut confirmed, mut tried) = (0, Vec::new());
    if let Ok((mut journal, _)) = recover(&disk) {
        for (number, size) in (1..).zip(sizes.iter().take(30)) {
            let batch = entries(number, usize::from(*size) * 37);
            let result = journal.append(&batch);
            tried.push(batch.entries);
            if result.is_err() {
                break;
            }
            confirmed += 1;
        }
    }
    let after = disk.after_power_loss(u64::from(*seed));
    let (_, read) = recover(&after).expect("P1: a power loss leaves a journal that is recovered");
    let read: Vec<Vec<JournalEntry>> = read.into_iter().map(|batch| batch.entries).collect();
    assert!(read.len() >= confirmed, "P1: {confirmed} batches were confirmed and {} are there", read.len());
    assert!(tried.starts_with(&read), "P11: what is read was written");
}

fn entries(number: u64, data_bytes: usize) -> JournalBatch {
    let data = Bytes::from(vec![u8::try_from(number % 251).expect("small"); data_bytes]);
    JournalBatch {
        number,
        hard_state: HardState { term: 1, vote: 1, commit: number.saturating_sub(1) },
        clock: Clock::default(),
        entries: vec![JournalEntry { index: number, term: 1, kind: 0, data }],
    }
}
