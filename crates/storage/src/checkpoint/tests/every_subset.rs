//! Goal: no subset of the writes and names that were under way at a power loss loses what was promised, applies anything
//! twice or stops the start. Method: a node in small writes so little between two checkpoints that all subsets can be gone
//! through, at every operation of publishing, checkpoints, releasing, recycling and recovering, and then at every
//! operation of the recovery from each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::model::{Copies, Node, Op, Promised, Step, batch};
use crate::disk::{Disk, MemoryDisk};

/// Up to so many outcomes all are tried, else so many seeds.
const LIMIT: usize = 4096;
const SEEDS: u64 = 30;
/// The same for the many recoveries that are cut.
const SECOND_LIMIT: usize = 300;
/// Stands for the outcome of a kill.
const KILLED: usize = usize::MAX;

/// What a power loss hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hit {
    Batch,
    RollOver,
    Recycling,
    Checkpoint,
    Release,
    Recovery,
    SecondRecovery,
}

fn script() -> Vec<Step> {
    let publish = |topic, bytes| Op::Publish { topic, partition: 0, bytes };
    let settle = |topic, bytes| Op::Settle { topic, partition: 0, bytes };
    let batches: [&[Op]; 9] = [
        &[publish(1, 90)],
        &[publish(1, 700), settle(1, 40)],
        &[publish(1, 1400)],
        &[publish(2, 20)],
        &[settle(1, 30)],
        &[Op::Drop { topic: 2 }],
        &[publish(1, 5000)],
        &[publish(1, 60)],
        &[publish(1, 3100), settle(1, 10)],
    ];
    let mut steps = Vec::new();
    let mut next = 1;
    for (position, ops) in batches.into_iter().enumerate() {
        steps.push(batch(next, ops));
        next += ops.len() as u64;
        if position != 1 {
            steps.push(Step::Checkpoint);
        }
        if position % 3 == 2 {
            steps.push(Step::Release);
        }
    }
    steps
}

/// Plays the script on a new disk; says what was promised, and in `hits` what each operation belonged to.
fn play(disk: &MemoryDisk, steps: &[Step], hits: &mut BTreeMap<u64, Hit>) -> (Promised, Result<(), String>) {
    let mut promised = Promised::default();
    let names = || disk.list(Path::new("data/journal")).unwrap_or_default();
    let mut note = |before: u64, hit: Hit| hits.extend((before + 1..=disk.operations()).map(|number| (number, hit)));
    let mut play_all = || {
        let mut opened = Node::open(disk);
        note(0, Hit::Recovery);
        for (position, step) in steps.iter().enumerate() {
            let mut node = opened?;
            let (before, files) = (disk.operations(), names());
            let taken = node.step(step, &mut promised);
            let rolled = names().iter().any(|name| name.ends_with(".journal") && !files.contains(name));
            note(
                before,
                match step {
                    Step::Checkpoint => Hit::Checkpoint,
                    Step::Release => Hit::Release,
                    Step::Batch(_) if rolled && names().len() == files.len() => Hit::Recycling,
                    Step::Batch(_) if rolled => Hit::RollOver,
                    Step::Batch(_) | Step::PrepareSpare => Hit::Batch,
                },
            );
            taken?;
            let before = disk.operations();
            opened = if position % 5 == 3 { Node::open(disk) } else { Ok(node) };
            note(before, Hit::Recovery);
        }
        opened.map(drop)
    };
    let played = play_all();
    (promised, played)
}

/// What the test went through.
#[derive(Default)]
struct Seen {
    crashes: BTreeMap<Hit, (u64, u64)>,
    outcomes: u64,
    gone_on: u64,
    /// Disks that were recovered from already, with what was promised then.
    known: BTreeSet<(u64, Promised)>,
    /// What recoveries made of them.
    recovered: BTreeSet<(u64, Promised)>,
}

impl Seen {
    /// Loses power in every way in which it can be lost now, and has each looked at that is new. One that was only killed
    /// is: what it holds is not durable yet.
    fn lose(
        &mut self,
        disk: &MemoryDisk,
        hit: Hit,
        promised: Promised,
        look: &mut dyn FnMut(&mut Self, &MemoryDisk, usize),
    ) {
        let limit = if hit == Hit::SecondRecovery { SECOND_LIMIT } else { LIMIT };
        let (is_exhaustive, outcomes) = disk.power_losses(limit, 0..SEEDS);
        let (crashes, exhaustive) = self.crashes.entry(hit).or_default();
        *crashes += 1;
        *exhaustive += u64::from(is_exhaustive);
        for (number, outcome) in outcomes.enumerate() {
            self.outcomes += 1;
            if self.known.insert((outcome.digest(), promised)) {
                look(self, &outcome, number);
            }
        }
        look(self, &disk.after_process_kill(), KILLED);
    }
}

/// Recovers and checks.
fn recovered(disk: &MemoryDisk, copies: &Copies, promised: Promised, story: &str) -> Node {
    let node = Node::open(disk).unwrap_or_else(|error| panic!("{story}: {error}"));
    node.check(disk, copies, promised, story);
    node
}

/// Cuts the recovery from a disk at each of its operations, and recovers from everything that this may leave.
fn crash_recovery(found: &MemoryDisk, copies: &Copies, promised: Promised, story: &str, seen: &mut Seen) {
    for step in 1.. {
        let disk = found.after_process_kill();
        disk.crash_at(step);
        if Node::open(&disk).is_ok() {
            return;
        }
        seen.lose(&disk, Hit::SecondRecovery, promised, &mut |_, outcome, number| {
            let story = format!("{story}, then in recovery at {step}, outcome {number}");
            recovered(outcome, copies, promised, &story);
        });
    }
}

#[test]
fn p1_no_subset_of_what_was_under_way_at_a_power_loss_loses_what_was_promised_or_applies_it_twice() {
    let (whole, steps, mut hits) = (MemoryDisk::new(), script(), BTreeMap::new());
    assert_eq!(play(&whole, &steps, &mut hits).1, Ok(()));
    let operations = whole.operations();
    assert_eq!(hits.len() as u64, operations, "it is known what each operation belongs to");
    let copies = Copies::of(&steps);
    let mut seen = Seen::default();
    for (operation, hit) in hits {
        let disk = MemoryDisk::new();
        disk.crash_at(operation);
        let (promised, played) = play(&disk, &steps, &mut BTreeMap::new());
        assert!(played.is_err(), "operation {operation} is never reached");
        let mut second = Vec::new();
        seen.lose(&disk, hit, promised, &mut |seen, outcome, number| {
            let story = format!("crash at operation {operation}, outcome {number}");
            let untouched = outcome.after_process_kill();
            let mut node = recovered(outcome, &copies, promised, &story);
            if !seen.recovered.insert((outcome.digest(), promised)) && number != KILLED {
                return;
            }
            second.push(untouched);
            seen.gone_on += 1;
            let mut promised = Promised { entries: node.state.applied, checkpoint: node.checkpoint };
            let lost = outcome.after_power_loss(operation);
            recovered(&lost, &copies, promised, &format!("{story}, lost again"));
            // The very next batch, before anything else is synced that recovery left unsynced.
            let next = outcome.after_process_kill();
            let mut again = Node::open(&next).unwrap_or_else(|error| panic!("{story}: {error}"));
            let mut told = promised;
            if let Some(step) = again.next_batch(&steps) {
                again.step(step, &mut told).unwrap_or_else(|error| panic!("{story}: {error}"));
                for lost in next.power_losses(8, 0..2).1 {
                    recovered(&lost, &copies, told, &format!("{story}, lost after the next batch"));
                }
            }
            node.run(&steps, &mut promised).unwrap_or_else(|error| panic!("{story}: {error}"));
            node.check(outcome, &copies, promised, &format!("{story}, in the end"));
            let lost = outcome.after_power_loss(operation + 1);
            let mut node = recovered(&lost, &copies, promised, &format!("{story}, lost in the end"));
            node.check_last_checkpoint(&lost, &story);
        });
        for (number, found) in second.iter().enumerate() {
            crash_recovery(found, &copies, promised, &format!("crash at operation {operation}, {number}"), &mut seen);
        }
    }
    let Seen { crashes, outcomes, gone_on, known, .. } = seen;
    println!(
        "{operations} operations; crashes by what they hit, and how many of them with every subset: {crashes:?}; \
         {outcomes} outcomes, {} of them different, {gone_on} gone on from",
        known.len()
    );
    let least = [
        (Hit::Batch, 10),
        (Hit::RollOver, 8),
        (Hit::Recycling, 6),
        (Hit::Checkpoint, 60),
        (Hit::Release, 3),
        (Hit::Recovery, 20),
        (Hit::SecondRecovery, 500),
    ];
    for (hit, least) in least {
        let (_, exhaustive) = crashes.get(&hit).copied().unwrap_or_default();
        assert!(exhaustive >= least, "{hit:?} is hardly hit with every subset: {crashes:?}");
    }
}
