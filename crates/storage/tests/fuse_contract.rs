//! The journal on a mounted file system that loses power: the same promises as on the disk in memory, through the kernel.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mortarmq_lossyfs::{Loss, LossyFs};
use mortarmq_storage::{HardState, Journal, JournalBatch, JournalEntry, JournalError, JournalOptions, RealDisk};
use mortarmq_types::ShardId;

/// Power losses in the life of one journal.
const ROUNDS: u64 = 60;

/// Longer than the test: a sync ends only because the power is lost.
const NEVER: Duration = Duration::from_secs(3600);

fn batch(number: u64) -> JournalBatch {
    let bytes = (number * 977 % 6000) as usize;
    let entry = JournalEntry { index: number, term: 1, kind: 0, data: vec![number as u8; bytes].into() };
    let hard_state = HardState { term: 1, vote: 0, commit: number };
    JournalBatch { number, hard_state, entries: vec![entry], ..JournalBatch::default() }
}

/// Recovers, and says how many batches there are, after a look at each.
fn recover(data_dir: &Path, story: &str) -> (Journal, u64) {
    let mut options = JournalOptions::new(ShardId::new(1));
    options.file_bytes = 64 << 10;
    options.zero_step_bytes = 16 << 10;
    let mut found = 0;
    let mut check = |replayed: JournalBatch| {
        found += 1;
        assert_eq!(replayed, batch(found), "{story}: something was invented");
        Ok(())
    };
    let recovered = Journal::recover(Arc::new(RealDisk), data_dir, options, Bytes::new(), None, &mut check);
    let (journal, _) = recovered.unwrap_or_else(|error| panic!("{story}: {error}"));
    (journal, found)
}

/// Appends until a fault: the power goes between two appends, in the middle of a sync, or a sync fails, the process
/// starts again, and only then the power goes. Says how many batches must be found afterwards.
fn append_until_fault(fs: &LossyFs, data_dir: &Path, seed: u64, loss: &mut Loss) -> u64 {
    let (mut journal, there) = recover(data_dir, &format!("seed {seed}"));
    for number in there + 1..=there + 1 + seed % 4 {
        journal.append(&batch(number)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    let acknowledged = journal.next_batch() - 1;
    let next = batch(acknowledged + 1);
    match seed % 3 {
        0 => {
            *loss = fs.lose_power(seed);
            acknowledged
        }
        1 => {
            fs.set_sync_delay(NEVER);
            let asked = fs.syncs();
            std::thread::scope(|scope| {
                let append = scope.spawn(|| journal.append(&next));
                while fs.syncs() == asked {
                    std::thread::yield_now();
                }
                *loss = fs.lose_power(seed);
                fs.set_sync_delay(Duration::ZERO);
                append.join().expect("no panic").expect_err("it was never synced");
            });
            acknowledged
        }
        _ => {
            fs.fail_next_sync(1);
            journal.append(&next).expect_err("its sync failed");
            assert!(matches!(journal.append(&next), Err(JournalError::Poisoned)), "rule 2");
            drop(journal);
            let (_, found) = recover(data_dir, &format!("seed {seed}, started again"));
            assert!(found >= acknowledged, "seed {seed}: P1: {found} of {acknowledged} batches found");
            *loss = fs.lose_power(seed);
            found
        }
    }
}

#[test]
fn p1_a_journal_on_a_mounted_file_system_loses_no_acknowledged_batch_over_many_power_losses() {
    // Goal: P1 and failure rules 1, 2, 3 and 5 hold with the real system calls. Method: one journal, many power losses;
    // after each all acknowledged batches are there, at most one more, and nothing else.
    if let Err(missing) = LossyFs::is_available() {
        writeln!(std::io::stderr(), "SKIPPED the journal on lossyfs: {missing}").expect("stderr is open");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let fs = LossyFs::mount(folder.path()).expect("mounted");
    let data_dir = folder.path().join("data");
    let mut real_losses = 0;
    for seed in 0..ROUNDS {
        let mut loss = Loss::default();
        let acknowledged = append_until_fault(&fs, &data_dir, seed, &mut loss);
        let (_, found) = recover(&data_dir, &format!("after seed {seed}"));
        assert!(found >= acknowledged, "seed {seed}: P1: {found} of {acknowledged} batches found");
        assert!(found <= acknowledged + 1, "seed {seed}: {found} batches found after {acknowledged}");
        real_losses += u64::from(loss.is_real());
    }
    assert!(real_losses >= 5, "the losses were real: {real_losses} of {ROUNDS}");
}
