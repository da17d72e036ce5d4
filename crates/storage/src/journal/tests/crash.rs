//! Power loss and kills at every disk operation; failed writes and syncs.

use super::{batch, recover};
use crate::disk::MemoryDisk;
use crate::journal::{JournalBatch, JournalError};

/// How many ways in which unsynced writes survive are tried for each place of a crash.
const SEEDS: u64 = 6;

/// Batches of several sizes, over three roll-overs; one is larger than a file, one larger than a zero-fill step.
fn script() -> Vec<JournalBatch> {
    let sizes: [&[usize]; 9] =
        [&[40], &[], &[5000, 30], &[9000], &[400, 400, 400], &[14_000], &[40_000], &[1], &[20_000]];
    sizes.iter().zip(1..).map(|(sizes, number)| batch(number, sizes)).collect()
}

/// Plays the script with a restart in the middle and says how many batches were acknowledged.
fn play(disk: &MemoryDisk, script: &[JournalBatch]) -> Result<usize, usize> {
    let mut acknowledged = 0;
    for part in script.chunks(script.len() / 2) {
        let Ok((mut journal, ..)) = recover(disk) else { return Err(acknowledged) };
        for batch in part {
            if journal.append(batch).is_err() {
                assert!(
                    matches!(journal.append(batch), Err(JournalError::Poisoned)),
                    "rule 2: poisoned after an error"
                );
                return Err(acknowledged);
            }
            acknowledged += 1;
        }
    }
    Ok(acknowledged)
}

/// Recovers and says how many batches of the script are there: all acknowledged ones, at most one more, in order.
fn check(disk: &MemoryDisk, script: &[JournalBatch], acknowledged: usize, story: &str) -> usize {
    let (_, _, found) = recover(disk).unwrap_or_else(|error| panic!("{story}: {error}"));
    assert!(found.len() >= acknowledged, "{story}: P1: {} of {acknowledged} batches found", found.len());
    assert!(found.len() <= acknowledged + 1, "{story}: {} batches found after {acknowledged}", found.len());
    assert_eq!(found, script[..found.len()], "{story}: something was invented");
    found.len()
}

/// Recovers, loses power, recovers, appends the rest of the script, and loses power once more: everything is there. Then
/// the same without the power loss in the middle, which would have hidden what recovery left unsynced.
fn check_and_go_on(disk: &MemoryDisk, script: &[JournalBatch], acknowledged: usize, story: &str) {
    let there = check(disk, script, acknowledged, story);
    let after_loss = disk.after_power_loss(there as u64);
    let (journal, ..) = recover(&after_loss).expect("what was recovered is durable");
    assert_eq!(journal.next_batch(), there as u64 + 1, "{story}: what recovery handed out must not be lost any more");
    for disk in [&after_loss, disk] {
        let (mut journal, ..) = recover(disk).unwrap_or_else(|error| panic!("{story}: {error}"));
        for batch in &script[there..] {
            journal.append(batch).unwrap_or_else(|error| panic!("{story}: {error}"));
        }
        for seed in 0..SEEDS {
            check(&disk.after_power_loss(seed), script, script.len(), &format!("{story}, in the end seed {seed}"));
        }
    }
}

#[test]
fn p1_a_power_loss_at_any_operation_loses_no_acknowledged_batch_and_invents_none() {
    let script = script();
    let whole = MemoryDisk::new();
    assert_eq!(play(&whole, &script), Ok(script.len()));
    assert!(whole.operations() > 40, "the script is long enough to mean something");
    for operation in 1..=whole.operations() {
        let disk = MemoryDisk::new();
        disk.crash_at(operation);
        let Err(acknowledged) = play(&disk, &script) else { panic!("operation {operation} is never reached") };
        for seed in 0..SEEDS {
            let story = format!("crash at operation {operation}, seed {seed}");
            check_and_go_on(&disk.after_power_loss(seed), &script, acknowledged, &story);
        }
        check_and_go_on(&disk.after_process_kill(), &script, acknowledged, &format!("kill at operation {operation}"));
    }
}

#[test]
fn p1_a_second_power_loss_during_recovery_changes_nothing() {
    let script = script();
    let whole = MemoryDisk::new();
    assert_eq!(play(&whole, &script), Ok(script.len()));
    for operation in 1..=whole.operations() {
        let disk = MemoryDisk::new();
        disk.crash_at(operation);
        let Err(acknowledged) = play(&disk, &script) else { panic!("operation {operation} is never reached") };
        for seed in 0..2 {
            for killed in [false, true] {
                let found = || if killed { disk.after_process_kill() } else { disk.after_power_loss(seed) };
                let steps = {
                    let disk = found();
                    drop(recover(&disk).expect("recovered"));
                    disk.operations()
                };
                for step in 1..=steps {
                    let disk = found();
                    disk.crash_at(step);
                    assert!(recover(&disk).is_err());
                    let story = format!("crash at operation {operation}, seed {seed}, then in recovery at {step}");
                    check(&disk.after_power_loss(seed + 1), &script, acknowledged, &story);
                }
            }
        }
    }
}

#[test]
fn rule_2_a_failed_write_or_sync_poisons_the_journal_and_recovery_makes_the_outcome_durable() {
    let script = script();
    let whole = MemoryDisk::new();
    assert_eq!(play(&whole, &script), Ok(script.len()));
    for operation in 1..=whole.operations() {
        let disk = MemoryDisk::new();
        disk.fail_at(operation);
        let Err(acknowledged) = play(&disk, &script) else { panic!("operation {operation} did not fail") };
        // The process ends and starts again on the same machine: the failed bytes are still in the cache, and the system
        // takes them for clean.
        let story = format!("operation {operation} failed");
        check_and_go_on(&disk.after_process_kill(), &script, acknowledged, &story);
        let restarted = disk.after_process_kill();
        let there = check(&restarted, &script, acknowledged, &story);
        for seed in 0..SEEDS {
            let story = format!("{story}, restart, power loss with seed {seed}");
            assert_eq!(check(&restarted.after_power_loss(seed), &script, there, &story), there, "{story}");
        }
    }
}
