//! Power loss and kills at every disk operation of a node that appends, checkpoints, drops a topic, frees journal files
//! and begins recycled ones; then at every operation of its recovery.

use super::model::{Copies, Node, Op, Promised, Step, batch};
use crate::disk::MemoryDisk;

/// How many ways in which unsynced writes survive are tried for each place of a crash.
const SEEDS: u64 = 4;

fn script() -> Vec<Step> {
    let publish = |topic, partition, bytes| Op::Publish { topic, partition, bytes };
    let settle = |topic, bytes| Op::Settle { topic, partition: 0, bytes };
    let mut steps = Vec::new();
    let mut next = 1;
    let mut take = |steps: &mut Vec<Step>, ops: &[Op]| {
        steps.push(batch(next, ops));
        next += ops.len() as u64;
    };
    take(&mut steps, &[publish(1, 0, 600), settle(1, 50), publish(2, 0, 200)]);
    take(&mut steps, &[publish(1, 0, 700), publish(1, 0, 800), publish(2, 1, 40), settle(2, 90)]);
    steps.push(Step::Checkpoint);
    take(&mut steps, &[publish(1, 0, 5000), publish(3, 0, 20), settle(1, 900)]);
    steps.push(Step::PrepareSpare);
    take(&mut steps, &[Op::Drop { topic: 2 }, publish(1, 1, 4000), settle(1, 900)]);
    take(&mut steps, &[publish(3, 0, 3000)]);
    steps.push(Step::Release);
    steps.push(Step::Checkpoint);
    steps.push(Step::Release);
    take(&mut steps, &[publish(4, 0, 9000), Op::Drop { topic: 3 }]);
    take(&mut steps, &[publish(4, 0, 100), settle(4, 3000)]);
    steps.push(Step::Checkpoint);
    steps.push(Step::Release);
    for round in 0..4 {
        take(&mut steps, &[publish(1, 0, 2500 + round), settle(1, 300)]);
        take(&mut steps, &[publish(1, 1, 6000)]);
    }
    steps.push(Step::Checkpoint);
    steps.push(Step::Release);
    take(&mut steps, &[publish(1, 0, 7000), publish(4, 1, 10)]);
    take(&mut steps, &[publish(1, 0, 7000), Op::Drop { topic: 4 }]);
    steps
}

/// Plays the script on a new disk; an error is where the power went.
fn play(disk: &MemoryDisk, steps: &[Step]) -> (Promised, Result<(), String>) {
    let mut promised = Promised::default();
    let played = Node::open(disk).and_then(|mut node| node.run(steps, &mut promised));
    (promised, played)
}

/// Recovers and checks.
fn recovered(disk: &MemoryDisk, copies: &Copies, promised: Promised, story: &str) -> Node {
    let node = Node::open(disk).unwrap_or_else(|error| panic!("{story}: {error}"));
    node.check(disk, copies, promised, story);
    node
}

/// Recovers, goes on to the end, checks, loses power once more, checks.
fn recover_and_go_on(disk: &MemoryDisk, (steps, copies): (&[Step], &Copies), promised: Promised, story: &str) {
    let mut node = recovered(disk, copies, promised, story);
    // What recovery has found is a promise from now on.
    let mut promised = Promised { entries: node.state.applied, checkpoint: node.checkpoint };
    recovered(&disk.after_power_loss(promised.entries), copies, promised, &format!("{story}, lost again"));
    node.run(steps, &mut promised).unwrap_or_else(|error| panic!("{story}: {error}"));
    node.check(disk, copies, promised, &format!("{story}, in the end"));
    let lost = disk.after_power_loss(promised.entries + 1);
    let mut node = recovered(&lost, copies, promised, &format!("{story}, lost in the end"));
    node.check_last_checkpoint(&lost, story);
}

#[test]
fn the_script_releases_and_recycles_files_and_leaves_nothing_of_dropped_topics() {
    let (disk, steps) = (MemoryDisk::new(), script());
    let (promised, played) = play(&disk, &steps);
    assert_eq!(played, Ok(()));
    let journal = crate::disk::Disk::list(&disk, std::path::Path::new("data/journal")).expect("listed");
    assert!(journal.first().is_some_and(|first| first.as_str() > "00000006.journal"), "released: {journal:?}");
    let mut node = recovered(&disk, &Copies::of(&steps), promised, "without a crash");
    node.check_last_checkpoint(&disk, "without a crash");
}

#[test]
fn p1_a_power_loss_at_any_operation_loses_nothing_promised_and_applies_nothing_twice() {
    let (whole, steps) = (MemoryDisk::new(), script());
    assert_eq!(play(&whole, &steps).1, Ok(()));
    let copies = Copies::of(&steps);
    for operation in 1..=whole.operations() {
        let disk = MemoryDisk::new();
        disk.crash_at(operation);
        let (promised, played) = play(&disk, &steps);
        assert!(played.is_err(), "operation {operation} is never reached");
        for seed in 0..SEEDS {
            let story = format!("crash at operation {operation}, seed {seed}");
            recover_and_go_on(&disk.after_power_loss(seed), (&steps, &copies), promised, &story);
        }
        recover_and_go_on(
            &disk.after_process_kill(),
            (&steps, &copies),
            promised,
            &format!("kill at operation {operation}"),
        );
    }
}

#[test]
fn p1_a_second_power_loss_during_recovery_changes_nothing() {
    let (whole, steps) = (MemoryDisk::new(), script());
    assert_eq!(play(&whole, &steps).1, Ok(()));
    let copies = Copies::of(&steps);
    for operation in (1..=whole.operations()).step_by(5) {
        let disk = MemoryDisk::new();
        disk.crash_at(operation);
        let (promised, played) = play(&disk, &steps);
        assert!(played.is_err(), "operation {operation} is never reached");
        for killed in [false, true] {
            let found = || if killed { disk.after_process_kill() } else { disk.after_power_loss(operation) };
            let recovery = found();
            recovered(&recovery, &copies, promised, &format!("crash at operation {operation}"));
            for step in 1..=recovery.operations() {
                let disk = found();
                disk.crash_at(step);
                assert!(Node::open(&disk).is_err());
                let story = format!("crash at operation {operation}, killed {killed}, then in recovery at {step}");
                recovered(&disk.after_power_loss(step), &copies, promised, &story);
                recovered(&disk.after_process_kill(), &copies, promised, &story);
            }
        }
    }
}

#[test]
fn rule_2_a_failed_operation_ends_the_process_and_the_next_start_loses_nothing_promised() {
    let (whole, steps) = (MemoryDisk::new(), script());
    assert_eq!(play(&whole, &steps).1, Ok(()));
    let copies = Copies::of(&steps);
    for operation in 1..=whole.operations() {
        let disk = MemoryDisk::new();
        disk.fail_at(operation);
        let (promised, played) = play(&disk, &steps);
        assert!(played.is_err(), "operation {operation} fails and nobody notices");
        recover_and_go_on(
            &disk.after_process_kill(),
            (&steps, &copies),
            promised,
            &format!("operation {operation} failed"),
        );
    }
}
