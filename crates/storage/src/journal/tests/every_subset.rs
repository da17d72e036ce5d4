//! Goal: no subset of the writes and names that were under way at a power loss loses an acknowledged batch, invents one or
//! stops the start. Method: files so small that all subsets can be gone through, at every operation of appending, rolling
//! over, releasing, recycling, preparing and recovering, and then at every operation of the recovery from each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::{DATA_DIR, Opened, batch, membership};
use crate::disk::{Disk, MemoryDisk};
use crate::journal::{Covered, Journal, JournalBatch, JournalOptions};
use mortarmq_types::ShardId;

/// Up to so many outcomes all are tried, else so many seeds.
const LIMIT: usize = 4096;
const SEEDS: u64 = 40;
/// Stands for the outcome of a kill.
const KILLED: usize = usize::MAX;

/// A header and two batches of one block a file, filled with zeros in two steps.
fn options() -> JournalOptions {
    JournalOptions { shard: ShardId::new(7), file_bytes: 12 << 10, zero_step_bytes: 8 << 10, spare_files: 1 }
}

/// What happens to the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Batch by number, whose entry has 100 times that index.
    Append(u64),
    /// A checkpoint covers all batches up to this one.
    Release(u64),
    PrepareSpare,
    Restart,
}

/// What a power loss hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hit {
    Append,
    RollOver,
    Recycling,
    Release,
    Preparation,
    Recovery,
    SecondRecovery,
}

const SCRIPT: [Step; 17] = [
    Step::Append(1),
    Step::Append(2),
    Step::Append(3),
    Step::Restart,
    Step::Append(4),
    Step::Append(5),
    Step::Release(2),
    Step::Append(6),
    // In the file that was freed.
    Step::Append(7),
    Step::Restart,
    Step::Append(8),
    Step::PrepareSpare,
    Step::Append(9),
    Step::Release(6),
    Step::Append(10),
    Step::Append(11),
    Step::Restart,
];
const LAST: u64 = 11;

fn script_batch(number: u64) -> JournalBatch {
    batch(number, &[if number.is_multiple_of(2) { 3000 } else { 200 }])
}

fn recover(disk: &MemoryDisk, released: u64) -> Opened {
    let mut batches = Vec::new();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let covered = (released > 0).then_some(Covered { log_index: released * 100 });
    let (journal, recovered) =
        Journal::recover(disk, Path::new(DATA_DIR), options(), membership(), covered, &mut |batch| {
            batches.push(batch);
            Ok(())
        })?;
    Ok((journal, recovered, batches))
}

/// What was promised before the power went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Promised {
    acknowledged: u64,
    /// What a checkpoint covers.
    released: u64,
}

fn names(disk: &MemoryDisk) -> Vec<String> {
    disk.list(&Path::new(DATA_DIR).join("journal")).unwrap_or_default()
}

/// Plays the script from behind a batch on; says what was promised, and in `hits` what each operation belonged to.
fn play(disk: &MemoryDisk, promised: &mut Promised, hits: &mut BTreeMap<u64, Hit>) -> Result<(), ()> {
    let held = promised.acknowledged;
    let mut note = |before: u64, hit: Hit| hits.extend((before + 1..=disk.operations()).map(|number| (number, hit)));
    let opened = recover(disk, promised.released);
    note(0, Hit::Recovery);
    let mut journal = opened.map_err(drop)?.0;
    let is_held = |step: &Step| matches!(step, Step::Append(number) if *number <= held);
    let from = SCRIPT.iter().rposition(is_held).map_or(0, |last| last + 1);
    for step in &SCRIPT[from..] {
        let (before, files) = (disk.operations(), names(disk));
        match *step {
            Step::Append(number) => {
                let appended = journal.append(&script_batch(number));
                let rolled = names(disk).iter().any(|name| name.ends_with(".journal") && !files.contains(name));
                let recycled = rolled && names(disk).len() == files.len();
                let batch_at = disk.operations().saturating_sub(2).max(before);
                note(before, if recycled { Hit::Recycling } else { Hit::RollOver });
                note(if rolled { batch_at } else { before }, Hit::Append);
                appended.map_err(drop)?;
                promised.acknowledged = number;
            }
            Step::Release(number) => {
                promised.released = number;
                let released = journal.release(number * 100, 0);
                note(before, Hit::Release);
                released.map_err(drop)?;
            }
            Step::PrepareSpare => {
                while journal.prepare_spare().map_err(drop)? {}
                note(before, Hit::Preparation);
            }
            Step::Restart => {
                let opened = recover(disk, promised.released);
                note(before, Hit::Recovery);
                journal = opened.map_err(drop)?.0;
            }
        }
    }
    Ok(())
}

/// Recovers: all acknowledged batches are there, at most one more, each once and in order.
fn check(disk: &MemoryDisk, promised: Promised, story: &dyn Fn() -> String) -> u64 {
    let Promised { acknowledged, released } = promised;
    let (journal, _, found) = recover(disk, released).unwrap_or_else(|error| panic!("{}: {error}", story()));
    let last = journal.next_batch() - 1;
    assert!(last == acknowledged || last == acknowledged + 1, "{}: P1: {last} where {acknowledged} were told", story());
    let first = last + 1 - found.len() as u64;
    assert!(first <= released + 1, "{}: begins with {first} where {released} were released", story());
    assert!(found.into_iter().eq((first..=last).map(script_batch)), "{}: something was invented", story());
    last
}

/// Loses power in every way in which it can be lost now, and has each looked at. Says whether these were all ways.
fn lose(disk: &MemoryDisk, mut look: impl FnMut(&MemoryDisk, usize)) -> bool {
    let (is_exhaustive, outcomes) = disk.power_losses(LIMIT, 0..SEEDS);
    outcomes.enumerate().for_each(|(number, outcome)| look(&outcome, number));
    look(&disk.after_process_kill(), KILLED);
    is_exhaustive
}

/// What the test went through.
#[derive(Default)]
struct Seen {
    crashes: BTreeMap<Hit, u64>,
    exhaustive: u64,
    outcomes: u64,
    gone_on: u64,
    /// Disks that were recovered from already, with what was promised then.
    known: BTreeSet<(u64, Promised)>,
    /// What recoveries made of them.
    recovered: BTreeSet<(u64, Promised)>,
}

impl Seen {
    /// Whether this disk is met for the first time. One that was only killed is: what it holds is not durable yet.
    fn is_new(&mut self, disk: &MemoryDisk, number: usize, promised: Promised) -> bool {
        self.outcomes += 1;
        self.known.insert((disk.digest(), promised)) || number == KILLED
    }
}

/// Plays with a power loss at one operation, and recovers from everything that it may leave.
fn crash_at(operation: u64, hit: Hit, seen: &mut Seen) {
    let disk = MemoryDisk::new();
    disk.crash_at(operation);
    let mut promised = Promised::default();
    assert_eq!(play(&disk, &mut promised, &mut BTreeMap::new()), Err(()), "operation {operation} is never reached");
    *seen.crashes.entry(hit).or_default() += 1;
    let mut second = Vec::new();
    let is_exhaustive = lose(&disk, |outcome, number| {
        let story = || format!("crash at operation {operation}, outcome {number}");
        if !seen.is_new(outcome, number, promised) {
            return;
        }
        let untouched = outcome.after_process_kill();
        let last = check(outcome, promised, &story);
        if seen.recovered.insert((outcome.digest(), promised)) || number == KILLED {
            second.push(untouched);
            go_on(outcome, Promised { acknowledged: last, ..promised }, &story);
            seen.gone_on += 1;
        } else if number.is_multiple_of(100) {
            second.push(untouched);
        }
    });
    seen.exhaustive += u64::from(is_exhaustive);
    for (number, found) in second.iter().enumerate() {
        crash_recovery(found, promised, &format!("crash at operation {operation}, {number}"), seen);
    }
}

/// Cuts the recovery from a disk at each of its operations, and recovers from everything that this may leave.
fn crash_recovery(found: &MemoryDisk, promised: Promised, story: &str, seen: &mut Seen) {
    for step in 1.. {
        let disk = found.after_process_kill();
        disk.crash_at(step);
        if recover(&disk, promised.released).is_ok() {
            return;
        }
        *seen.crashes.entry(Hit::SecondRecovery).or_default() += 1;
        let is_exhaustive = lose(&disk, |outcome, number| {
            if seen.is_new(outcome, number, promised) {
                check(outcome, promised, &|| format!("{story}, then in recovery at {step}, outcome {number}"));
            }
        });
        seen.exhaustive += u64::from(is_exhaustive);
    }
}

/// Goes on with the script behind what was recovered, which is promised from now on, and loses power once more.
fn go_on(recovered: &MemoryDisk, mut promised: Promised, story: &dyn Fn() -> String) {
    for seed in 0..2 {
        let kept = check(&recovered.after_power_loss(seed), promised, &|| format!("{}, lost again", story()));
        assert_eq!(kept, promised.acknowledged, "{}: what was handed out is lost", story());
    }
    // The very next batch, before anything else is synced that recovery left unsynced.
    if promised.acknowledged < LAST {
        let next = recovered.after_process_kill();
        let (mut journal, ..) =
            recover(&next, promised.released).unwrap_or_else(|error| panic!("{}: {error}", story()));
        let acknowledged = promised.acknowledged + 1;
        journal.append(&script_batch(acknowledged)).unwrap_or_else(|error| panic!("{}: {error}", story()));
        let promised = Promised { acknowledged, ..promised };
        for outcome in next.power_losses(32, 0..2).1 {
            check(&outcome, promised, &|| format!("{}, lost after the next batch", story()));
        }
    }
    let played = play(recovered, &mut promised, &mut BTreeMap::new());
    assert_eq!((played, promised.acknowledged), (Ok(()), LAST), "{}", story());
    for seed in 0..2 {
        check(&recovered.after_power_loss(seed), promised, &|| format!("{}, in the end", story()));
    }
}

#[test]
fn p1_no_subset_of_what_was_under_way_at_a_power_loss_loses_or_invents_a_batch() {
    let (whole, mut hits) = (MemoryDisk::new(), BTreeMap::new());
    assert_eq!(play(&whole, &mut Promised::default(), &mut hits), Ok(()));
    let operations = whole.operations();
    assert_eq!(hits.len() as u64, operations, "it is known what each operation belongs to");
    let mut seen = Seen::default();
    for (operation, hit) in hits {
        crash_at(operation, hit, &mut seen);
    }
    let Seen { crashes, exhaustive, outcomes, gone_on, known, .. } = seen;
    println!(
        "{operations} operations; crashes by what they hit: {crashes:?}, {exhaustive} of them with every subset; {outcomes} \
         outcomes, {} of them different, {gone_on} gone on from",
        known.len()
    );
    let least = [
        (Hit::Append, 20),
        (Hit::RollOver, 10),
        (Hit::Recycling, 8),
        (Hit::Release, 4),
        (Hit::Preparation, 3),
        (Hit::Recovery, 10),
        (Hit::SecondRecovery, 200),
    ];
    for (hit, least) in least {
        assert!(crashes.get(&hit).is_some_and(|crashes| *crashes >= least), "{hit:?} is hardly hit: {crashes:?}");
    }
    let all: u64 = crashes.values().sum();
    assert!(exhaustive * 10 >= all * 9, "only {exhaustive} of {all} crashes were gone through in all their outcomes");
}
