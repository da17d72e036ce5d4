//! What goes in comes out, over roll-overs and restarts.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::ShardId;
use proptest::prelude::*;

use super::{DATA_DIR, batch, membership, options, path, read, recover, recover_with, rotten, written};
use crate::disk::{Disk, MemoryDisk, RealDisk};
use crate::journal::{HardState, Journal, JournalError, JournalOptions, RecoverStop};

#[test]
fn p1_batches_come_back_in_order_over_restarts_and_roll_overs() {
    let sizes: [&[usize]; 8] = [&[1], &[], &[5000, 0, 20], &[488, 344], &[70_000], &[9000], &[12_000], &[3]];
    let batches: Vec<_> = sizes.iter().zip(1..).map(|(sizes, number)| batch(number, sizes)).collect();
    let disk = MemoryDisk::new();
    for (batch, before) in batches.iter().zip(0..) {
        let (mut journal, _, found) = recover(&disk).expect("recovered");
        assert_eq!(found, batches[..before]);
        assert_eq!(journal.next_batch(), before as u64 + 1);
        journal.append(batch).expect("appended");
    }
    let (_, recovered, found) = recover(&disk).expect("recovered");
    assert_eq!(found, batches);
    assert_eq!(recovered.batches, 8);
    assert_eq!(recovered.entries, 10);
    assert_eq!(recovered.hard_state, batches[7].hard_state);
    assert_eq!(recovered.last_clock, Some(batches[7].clock));
    assert_eq!(recovered.membership, membership());
    assert_eq!((recovered.torn, recovered.unfinished_file), (None, None));
    let names = disk.list(&Path::new(DATA_DIR).join("journal")).expect("listed");
    assert_eq!(names, ["00000001.journal", "00000002.journal", "00000003.journal", "00000004.journal"]);
    let large = disk.open(&path(2)).expect("opened").len().expect("length");
    assert!(large > 70_000, "a batch larger than a file has a file of its own: {large}");
}

#[test]
fn rule_4_files_that_are_begun_after_a_change_of_members_say_the_new_ones() {
    let disk = MemoryDisk::new();
    let (mut journal, ..) = recover(&disk).expect("an empty disk");
    journal.append(&batch(1, &[100])).expect("no crash");
    let changed = Bytes::from_static(b"nodes 1, 2 and another 3");
    journal.set_membership(changed.clone());
    let found = |disk: &MemoryDisk| recover(&disk.after_process_kill()).expect("sound").1.membership;
    assert_eq!(found(&disk), membership(), "the file of before says what it said");
    journal.append(&batch(2, &[20 << 10])).expect("no crash");
    journal.append(&batch(3, &[20 << 10])).expect("no crash");
    assert_eq!(found(&disk), changed);
}

#[test]
fn a_new_journal_says_nothing_and_its_headers_carry_vote_and_membership() {
    let disk = MemoryDisk::new();
    assert!(!Journal::exists(&disk, Path::new(DATA_DIR)).expect("looked"));
    let (_, recovered, found) = recover(&disk).expect("a new journal");
    assert!(found.is_empty());
    assert_eq!((recovered.last_clock, recovered.hard_state), (None, HardState::default()));
    assert!(Journal::exists(&disk, Path::new(DATA_DIR)).expect("looked"));
    let other = Bytes::from_static(b"another set of nodes");
    let (_, recovered) = Journal::recover(Arc::new(disk), Path::new(DATA_DIR), options(), other, None, &mut |_| Ok(()))
        .expect("recovered");
    assert_eq!(recovered.membership, membership(), "an existing journal goes on with its own");
    let too_long = Bytes::from(vec![0; 4096]);
    let disk = Arc::new(MemoryDisk::new());
    let refused = Journal::recover(disk, Path::new(DATA_DIR), options(), too_long, None, &mut |_| Ok(()));
    assert!(matches!(refused, Err(JournalError::TooLarge { .. })));
}

#[test]
fn an_append_costs_one_write_and_one_sync() {
    let disk = MemoryDisk::new();
    let (mut journal, ..) = recover(&disk).expect("a new journal");
    journal.append(&batch(1, &[100])).expect("appended, in the zeros that came with the file");
    let disk = MemoryDisk::new();
    let options = JournalOptions { zero_step_bytes: 32 << 10, ..options() };
    let (mut journal, ..) = recover_with(&disk, options).expect("a new journal");
    let (operations, syncs) = (disk.operations(), disk.syncs());
    for number in 1..=5 {
        journal.append(&batch(number, &[100, 1000])).expect("appended");
    }
    assert_eq!(disk.operations() - operations, 10);
    assert_eq!(disk.syncs() - syncs, 5);
}

#[test]
fn the_bytes_of_version_1_do_not_change() {
    let disk = written(&[batch(1, &[3, 0])]);
    let file = read(&disk, 1);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&file[..24 + 92 + 16]), FILE_HEADER);
    assert_eq!(hex(&file[4096..4096 + 24 + 120 + 2 * 21 + 3]), BATCH);
    assert!(file[4096 + 24 + 120 + 2 * 21 + 3..4096 + 512].iter().all(|byte| *byte == 0));
}

const FILE_HEADER: &str = "010000000000000000000000000000000000000083a1868b4d4d514a01005c000700000010000000010000000000000001000000000000000080000000000000002000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e24e96826e6f64657320312c203220616e642033";
const BATCH: &str = "01000000000000000100000000000000080000005516b34c4d4d5142010078000700000002000000010000000000000000100000000000000100000000000000a5000000000000006400000000000000000000000000000001000000000000006400000000000000010101010101010101010101010101010b000000000000000000000000000000d83bb4676483729e640000000000000000000000000000000300000000072645650000000000000000000000000000000000000001";

#[test]
fn the_caller_can_stop_the_replay_at_a_batch() {
    let disk = written(&[batch(1, &[10]), batch(2, &[10]), batch(3, &[10])]);
    let mut seen = 0;
    let stopped = Journal::recover(Arc::new(disk), Path::new(DATA_DIR), options(), membership(), None, &mut |batch| {
        seen = batch.number;
        if batch.number == 2 { Err(RecoverStop { reason: "an unknown command".to_owned() }) } else { Ok(()) }
    });
    assert_eq!(seen, 2);
    let Err(JournalError::Stopped { path: found, offset, source }) = stopped else { panic!("not stopped") };
    assert_eq!((found, offset, source.reason.as_str()), (path(1), 8192, "an unknown command"));
}

#[test]
fn a_journal_of_another_shard_is_refused() {
    let disk = written(&[batch(1, &[10])]);
    let other = JournalOptions { shard: ShardId::new(8), ..options() };
    let (found, offset, what) = rotten(recover_with(&disk, other));
    assert_eq!((found, offset, what.as_str()), (path(1), 0, "the file is of shard 7"));
}

#[test]
fn a_journal_lies_on_a_real_disk_as_in_memory() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let batches: Vec<_> = (1..=20).map(|number| batch(number, &[3000, 10])).collect();
    for part in batches.chunks(7) {
        let (mut journal, _) =
            Journal::recover(disk.clone(), folder.path(), options(), membership(), None, &mut |_| Ok(()))
                .expect("recovered");
        for batch in part {
            journal.append(batch).expect("appended");
        }
    }
    let mut found = Vec::new();
    Journal::recover(disk, folder.path(), options(), membership(), None, &mut |batch| {
        found.push(batch);
        Ok(())
    })
    .expect("recovered");
    assert_eq!(found, batches);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_batches_in_files_of_any_size_come_back(
        sizes in prop::collection::vec(prop::collection::vec(0usize..6000, 0..5), 1..12),
        file_bytes in 1u64..60_000,
        zero_step_bytes in 1u64..60_000,
    ) {
        let options = JournalOptions { file_bytes, zero_step_bytes, ..options() };
        let batches: Vec<_> = sizes.iter().zip(1..).map(|(sizes, number)| batch(number, sizes)).collect();
        let disk = MemoryDisk::new();
        let (mut journal, ..) = recover_with(&disk, options).expect("a new journal");
        for batch in &batches {
            journal.append(batch).expect("appended");
        }
        let (_, _, found) = recover_with(&disk.after_power_loss(1), options).expect("recovered");
        prop_assert_eq!(found, batches);
    }
}
