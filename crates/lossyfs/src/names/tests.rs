//! What directories keep, without a mount.

use std::collections::BTreeSet;
use std::ffi::OsString;

use super::{Names, Step};
use crate::power::Loss;
use crate::random::Random;

const LEFT: u64 = 1;
const RIGHT: u64 = 2;
const FILE: u64 = 10;

fn step(directory: u64, name: &str, target: Option<u64>) -> Step {
    Step { directory, name: OsString::from(name), target }
}

fn two_directories() -> Names {
    let mut names = Names::default();
    names.add_directory(LEFT);
    names.add_directory(RIGHT);
    names
}

/// The names that survive in both directories.
fn survivors(names: Names, seed: u64) -> Vec<String> {
    let found = names.survivors(&mut Random::new(seed), &mut Loss::default());
    let text = |directory: &u64, name: &OsString| format!("{directory}/{}", name.to_string_lossy());
    found.iter().flat_map(|(directory, listing)| listing.keys().map(|name| text(directory, name))).collect()
}

#[test]
fn a_synced_move_to_another_directory_is_not_undone_by_the_older_making_of_the_old_name() {
    for seed in 0..20 {
        let mut names = two_directories();
        names.change(vec![step(LEFT, "file", Some(FILE))]);
        names.change(vec![step(RIGHT, "moved", Some(FILE)), step(LEFT, "file", None)]);
        names.sync(RIGHT);
        assert_eq!(survivors(names, seed), ["2/moved"], "seed {seed}");
    }
}

#[test]
fn an_unsynced_move_to_another_directory_happens_whole_or_not_at_all() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..20 {
        let mut names = two_directories();
        names.put_durable(&step(LEFT, "file", Some(FILE)));
        names.change(vec![step(RIGHT, "moved", Some(FILE)), step(LEFT, "file", None)]);
        outcomes.insert(survivors(names, seed));
    }
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [["1/file"], ["2/moved"]]);
}

#[test]
fn a_sync_covers_the_changes_of_its_directory_and_no_others() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..40 {
        let mut names = two_directories();
        names.change(vec![step(RIGHT, "other", Some(FILE))]);
        names.change(vec![step(LEFT, "before", Some(FILE))]);
        names.sync(LEFT);
        names.change(vec![step(LEFT, "after", Some(FILE))]);
        let found = survivors(names, seed);
        assert!(found.contains(&"1/before".to_owned()), "seed {seed}: {found:?}");
        outcomes.insert(found);
    }
    assert_eq!(outcomes.len(), 4, "the other two come and go: {outcomes:?}");
}
