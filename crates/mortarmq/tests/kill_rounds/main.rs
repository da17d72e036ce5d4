//! Goal: SIGKILL under load, also inside a checkpoint, a roll-over and a recovery, loses no acknowledged message, repeats
//! no acked one, reuses no number, gives every repeat a true cause, and leaves books that balance. Method: real processes,
//! real disk, and a record of what the clients saw kept in this process, against which every delivery and every restart
//! is held. What a kill hit is told by what it left in the folder and the log, not by what it was aimed at.
//!
//! A second run does the same on a file system that forgets at every kill what was not synced.
//!
//! `MORTARMQ_KILL_ROUNDS=20 MORTARMQ_POWER_ROUNDS=10 cargo test --profile ci -p mortarmq --test kill_rounds -- --nocapture` plays 20 rounds and 10;
//! `MORTARMQ_SEED` repeats the choices (not the moments) of a run.

mod books;
mod evidence;
mod ground;
mod load;
mod message;
mod plan;
mod power;
mod random;
mod record;
mod rounds;
#[path = "../support/mod.rs"]
mod support;

#[test]
fn p1_p3_p6_p7_p9_p10_hold_through_kill_rounds() {
    let rounds = number("MORTARMQ_KILL_ROUNDS").unwrap_or(3);
    let seed = number("MORTARMQ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("{rounds} rounds, MORTARMQ_SEED={seed}");
    rounds::play(ground::Folder::new(), rounds, seed).check(rounds);
}

#[test]
fn p1_p3_p6_p7_p9_p10_hold_through_power_losses() {
    if let Err(missing) = mortarmq_lossyfs::LossyFs::is_available() {
        eprintln!("SKIPPED: no file system that loses power can be mounted here: {missing}");
        return;
    }
    let rounds = number("MORTARMQ_POWER_ROUNDS").unwrap_or(2);
    let seed = number("MORTARMQ_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("{rounds} rounds, MORTARMQ_SEED={seed}");
    rounds::play(power::PowerLoss::new(), rounds, seed).check(rounds);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}
