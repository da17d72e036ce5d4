//! Goal: no life of a node, however disorderly its clients and its disk, breaks a promise. Method: seeded random lives on
//! a disk in memory, with deaths and power losses at random operations; a record kept outside the broker in plain maps
//! judges every answer and every delivery at once.
//!
//! `MORTARMQ_LIVES=500` plays more of them; `MORTARMQ_SEED=N MORTARMQ_LIVES=1` plays one again.

mod support;

#[path = "random_lives/changes.rs"]
mod changes;
#[path = "random_lives/consumers.rs"]
mod consumers;
#[path = "random_lives/flood.rs"]
mod flood;
#[path = "random_lives/groups.rs"]
mod groups;
#[path = "random_lives/life.rs"]
mod life;
#[path = "random_lives/publishes.rs"]
mod publishes;
#[path = "random_lives/random.rs"]
mod random;
#[path = "random_lives/record.rs"]
mod record;
#[path = "random_lives/redrives.rs"]
mod redrives;
#[path = "random_lives/resumes.rs"]
mod resumes;
#[path = "random_lives/seen.rs"]
mod seen;
#[path = "random_lives/views.rs"]
mod views;

use std::collections::BTreeMap;

use life::Life;

/// What the default lives must meet, or they prove little.
const REACHED: &[&str] = &[
    "first",
    "lease_expired",
    "nacked",
    "consumer_lost",
    "released",
    "third attempt",
    "unsent",
    "member left",
    "a publish lost in a crash was stored",
    "a publish lost in a crash was not stored",
    "death at a disk operation",
    "death between",
    "power loss",
    "start from a checkpoint",
    "torn tail",
    "recovery cut",
    "another boot",
    "gap",
    "record read from disk",
    "stretch read from disk",
    "a message waits for its key",
    "a message is delivered alone",
    "messages wait packed behind a crowded key",
    "others passed a delayed message",
    "pull filled later",
    "pull ended empty",
    "pull too small",
    "resumed",
    "resumed after a restart",
    "sent again",
    "not sent again",
    "sent for the first time after a resume",
    "too late to resume",
    "resume with a wrong secret",
    "settle stale",
    "settle unknown",
    "topic deleted",
    "topic made again",
    "trace",
    "overdue",
    "a member that held more than a batch ends is gone",
    "settled messages went",
    "settings of a group changed",
    "a topic grew",
    "a key repeated",
    "a key repeated after a crash",
    "dead",
    "redriven",
    "redriven and acked",
    "redriven and dead again",
    "redriven after a restart",
];

const STEPS: u64 = 300;

#[test]
fn every_promise_holds_in_random_lives() {
    let (first, lives) = (number("MORTARMQ_SEED", 1), number("MORTARMQ_LIVES", 60));
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in first..first + lives {
        let told = Told(seed);
        let mut life = Life::new(seed);
        life.live(STEPS);
        life.end();
        for (what, times) in &life.record.reached {
            *reached.entry(what).or_default() += times;
        }
        std::mem::forget(told);
    }
    println!("{lives} lives: {reached:#?}");
    for what in REACHED.iter().filter(|_| lives >= 60) {
        assert!(reached.contains_key(what), "no life met {what:?}: {reached:#?}");
    }
}

/// Says how to play the life again if it ends in a panic.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        let replay = "cargo test -p mortarmq-node --test random_lives";
        println!("play this life again: MORTARMQ_SEED={} MORTARMQ_LIVES=1 {replay}", self.0);
    }
}

#[expect(clippy::disallowed_methods, reason = "the seed of a test comes from outside")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
