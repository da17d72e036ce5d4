//! Bytes of one node that rot, in every kind of file, and a disk that is wiped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::failure::{Outcome, machine};
use crate::ground::Ground;
use crate::run::{Run, broken};
use crate::scenario::{Class, Scenario};

const ROT: Scenario = Scenario::plan(Class::Rot, Ground::PLAIN);

pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "rot-journal",
        what: "a bit of a follower's journal flips while it is down",
        holds: "it names the damage and is brought up by the others before it votes or acknowledges; then it counts for a majority (P1, P11, failure rule 3)",
        is_short: true,
        steps: |run| rot(run, &JOURNAL),
        ..ROT
    },
    Scenario {
        name: "rot-checkpoint",
        what: "a bit of a follower's newest checkpoint flips while it is down",
        holds: "as above",
        steps: |run| rot(run, &CHECKPOINT),
        ..ROT
    },
    Scenario {
        name: "rot-identity",
        what: "a bit of a follower's identity file flips while it is down",
        holds: "it refuses to start and names the file; the others go on (P11)",
        steps: |run| rot(run, &IDENTITY),
        ..ROT
    },
    Scenario {
        name: "rot-segment",
        what: "a bit of a record flips on a follower while it is down",
        holds: "the scrub finds it, another node has it, and it is put in place: nothing of the damage is left (P11)",
        steps: |run| rot(run, &SEGMENT),
        ..ROT
    },
    Scenario {
        name: "rot-index",
        what: "a bit of a segment's index flips on a follower while it is down",
        holds: "as above",
        steps: |run| rot(run, &INDEX),
        ..ROT
    },
    Scenario {
        name: "rot-ledger",
        what: "a bit of a ledger file flips on a follower while it is down",
        holds: "as above",
        steps: |run| rot(run, &LEDGER),
        ..ROT
    },
    Scenario {
        name: "wiped-disk",
        what: "a follower comes back with an empty disk; an operator has it readmitted, and then another node is killed",
        holds: "it stays out until then and says that its data is gone, for it might vote against what it confirmed (failure rule 4); \
                then its word counts",
        steps: wiped_disk,
        ..ROT
    },
];

/// What is done to a file, and what the node does then.
struct Rot {
    /// Where in the data folder the files are, how their names end, and where in the newest of them a bit flips.
    folder: &'static str,
    ending: &'static str,
    place: Place,
    then: Then,
}

/// Where a bit flips.
enum Place {
    /// At an offset.
    At(u64),
    /// In a block of the journal that was written in this use of the file.
    UsedBlock,
}

/// What a node does with a file that rotted.
#[derive(Clone, Copy)]
enum Then {
    /// It does not start, and names the file.
    Refuses,
    /// It starts, says this, and is repaired from the others: its word counts again, and nothing of the damage is left.
    IsRepaired { says: &'static str },
}

/// What a node says that begins anew.
const SET_ASIDE: Then = Then::IsRepaired { says: "the other nodes bring this one up" };
/// What a node says that has a piece of a file from another.
const PUT_IN_PLACE: Then = Then::IsRepaired { says: "damage was repaired from another node" };

const JOURNAL: Rot = Rot { folder: "journal", ending: ".journal", place: Place::UsedBlock, then: SET_ASIDE };
const CHECKPOINT: Rot = Rot { folder: "checkpoints", ending: ".checkpoint", place: Place::At(300), then: SET_ASIDE };
const IDENTITY: Rot = Rot { folder: "", ending: "identity", place: Place::At(9), then: Then::Refuses };
const SEGMENT: Rot = Rot { folder: "topics", ending: ".segment", place: Place::At(200), then: PUT_IN_PLACE };
const INDEX: Rot = Rot { folder: "topics", ending: ".index", place: Place::At(100), then: PUT_IN_PLACE };
const LEDGER: Rot = Rot { folder: "topics", ending: ".ledger", place: Place::At(100), then: PUT_IN_PLACE };

fn rot(run: &mut Run, rot: &Rot) -> Outcome {
    let node = run.cast()?.followers[0];
    let data = run.disk_of(node).data_dir();
    // What a checkpoint lists is read again, and not written anew from the journal.
    let mut seen = BTreeSet::new();
    run.until("the follower has written some checkpoints", |_| {
        seen.extend(files(&data.join("checkpoints"), ".checkpoint"));
        seen.len() > CHECKPOINTS
    })?;
    run.kill(node)?;
    let file = chosen(&data.join(rot.folder), rot.ending)?;
    let bit = u8::try_from(run.chance().below(8)).unwrap_or_default();
    let offset = match rot.place {
        Place::At(offset) => offset,
        Place::UsedBlock => used_block(&file)? + 100,
    };
    run.disk(node, "corrupt", |_| Disk::flip_bit(&file, offset, bit))?;
    match rot.then {
        Then::Refuses => {
            run.start(node)?;
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            run.ends_saying(node, &[&name])?;
            run.stays_out(node);
        }
        Then::IsRepaired { says } => {
            run.back(node)?;
            run.says_itself(node, says)?;
            run.goes_on()?;
            goes_on_with(run, node)?;
        }
    }
    run.goes_on()
}

/// The other follower is killed, and comes back: meanwhile nothing is confirmed without the word of this one.
fn goes_on_with(run: &mut Run, node: usize) -> Outcome {
    let third = run.cast()?.followers.into_iter().find(|third| *third != node);
    let third = third.ok_or_else(|| broken("of two followers one is not this one"))?;
    run.kill(third)?;
    run.goes_on()?;
    run.back(third)
}

fn wiped_disk(run: &mut Run) -> Outcome {
    let node = run.cast()?.followers[0];
    run.goes_on()?;
    run.kill(node)?;
    run.disk(node, "wipe", Disk::wipe)?;
    run.start(node)?;
    run.says_itself(node, "this node's data is gone")?;
    run.goes_on()?;
    run.readmit(node)?;
    run.goes_on()?;
    goes_on_with(run, node)?;
    run.goes_on()
}

/// Of the files of this kind the one that was written last; of those of topics the largest.
fn chosen(folder: &Path, ending: &str) -> Outcome<PathBuf> {
    let mut found = files(folder, ending);
    let bytes = |path: &PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    match folder.ends_with("topics") {
        true => found.sort_by_key(bytes),
        false => found.sort(),
    }
    found.pop().ok_or_else(|| broken(format!("there is no {ending} in {}", folder.display())))
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// Where a block of a journal file begins that was written in this use of the file, by docs/formats.md: one in the middle.
fn used_block(file: &Path) -> Outcome<u64> {
    let bytes = std::fs::read(file).map_err(machine("cannot read a journal file"))?;
    let generation = |block: usize| bytes.get(block * BLOCK_BYTES..block * BLOCK_BYTES + 8);
    let used = (1..bytes.len() / BLOCK_BYTES).take_while(|block| generation(*block) == generation(0)).count();
    if used == 0 {
        return Err(broken(format!("{} has no batch", file.display())));
    }
    Ok(((1 + used / 2) * BLOCK_BYTES) as u64)
}

const BLOCK_BYTES: usize = 4096;
/// Enough that the first of them are no longer those of an empty cluster.
const CHECKPOINTS: usize = 2;
