//! Rounds of start, load and kill on one data folder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::evidence::Stage;
use crate::ground::Ground;
use crate::load::Load;
use crate::plan::{Aim, Hits, Plan};
use crate::random::Random;
use crate::record::{Counts, Record};
use crate::support::{self, Broker};
use crate::{books, evidence};

/// A broker that is killed again and again, and what the clients saw of it.
pub(crate) struct Rounds<G: Ground> {
    ground: G,
    broker: Broker,
    record: Arc<Record>,
    load: Load,
    random: Random,
    hits: Hits,
    /// How many kills hit which state of what.
    states: BTreeMap<(&'static str, &'static str), u64>,
    /// How long the last start took, and what it found.
    start_time: Duration,
    recovered: String,
}

/// Plays so many rounds and the drain after them, and checks every promise on the way. `seed` repeats the choices of a
/// run, not its moments.
pub(crate) fn play(ground: impl Ground, rounds: u64, seed: u64) -> Hits {
    let mut random = Random::new(seed);
    let mut plan = Plan::next(1, rounds, &Hits::default(), &mut random);
    let broker = Broker::start_with(&ground.data_dir(), &plan.flags());
    let record = Arc::new(Record::default());
    broker.rows(&["topics", "create", "orders", "--partitions", "4"]);
    let load = Load::start(&broker.client_addr, &record, seed);
    let (hits, states) = (Hits::default(), BTreeMap::new());
    let (start_time, recovered) = (Duration::ZERO, broker.found.clone());
    let mut running = Rounds { ground, broker, record, load, random, hits, states, start_time, recovered };
    running.round(&plan);
    for round in 2..=rounds {
        plan = Plan::next(round, rounds, &running.hits, &mut running.random);
        running.start(&plan);
        running.round(&plan);
    }
    running.start(&plan);
    running.finish()
}

impl<G: Ground> Rounds<G> {
    /// Starts the broker after a kill. The books must balance and agree with the clients as soon as it answers.
    fn start(&mut self, plan: &Plan) {
        let begun = Instant::now();
        self.broker.restart_with(&plan.flags());
        self.start_time = begun.elapsed();
        self.recovered.clone_from(&self.broker.found);
        books::check(&self.broker, &self.record);
    }

    /// Load, and a kill as it is planned.
    fn round(&mut self, plan: &Plan) {
        let before = self.record.counts();
        // What a start is to be killed in must be worth a replay.
        let publishes = if plan.aim == Aim::Recovery { 3 * PUBLISHES_PER_ROUND } else { PUBLISHES_PER_ROUND };
        self.wait_until("a round's work", |rounds| {
            let now = rounds.record.counts();
            now.publishes - before.publishes >= publishes && now.settles - before.settles >= SETTLES_PER_ROUND
        });
        self.wait_for_aim(plan.aim);
        let (killed, mut found) = self.kill();
        if plan.aim == Aim::Recovery {
            found.extend(self.kill_starts(plan));
        }
        self.print(plan, &before, &killed, &found);
    }

    /// Waits for the moment of the kill, with the broker stopped if it was found in the middle of what is aimed at.
    fn wait_for_aim(&mut self, aim: Aim) {
        match aim {
            // Most of a checkpoint goes before its file: it would hardly ever be hit by chance.
            Aim::Checkpoint if self.random.below(2) == 0 => self.wait_inside(|rounds| {
                let is_inside = evidence::unnamed_checkpoint(&rounds.ground.data_dir());
                (is_inside, 1)
            }),
            Aim::Checkpoint => self.wait_inside(|rounds| {
                let log = rounds.broker.log_since_start();
                (evidence::checkpoint(&rounds.ground.data_dir(), &log).is_some(), 2000)
            }),
            Aim::RollOver => self.wait_inside(|rounds| (evidence::roll_over(&rounds.ground.data_dir()).is_some(), 500)),
            Aim::Anywhere | Aim::Recovery => std::thread::sleep(Duration::from_millis(self.random.below(300))),
        }
    }

    /// Waits for something short, and stops the broker in the middle of it: one that stands still goes nowhere between
    /// the look and the kill. Gives up after a while; the kill then comes at any moment. `look` says whether it is under
    /// way, and how much later at most, in microseconds, the broker is stopped.
    fn wait_inside(&mut self, look: impl Fn(&Self) -> (bool, u64)) {
        let begun = Instant::now();
        while begun.elapsed() < AIM_TIME {
            self.load.check_alive();
            let (is_inside, later_us) = look(self);
            if is_inside {
                let later_us = self.random.below(later_us);
                if later_us > 0 {
                    std::thread::sleep(Duration::from_micros(later_us));
                }
                self.broker.pause();
                if look(self).0 {
                    return;
                }
                self.broker.resume();
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Starts the broker and kills it before it is ready, once or more.
    fn kill_starts(&mut self, plan: &Plan) -> Vec<String> {
        let wanted = 1 + self.random.below(3);
        let mut found = Vec::new();
        for _ in 0..wanted * 2 {
            self.broker.spawn_again_with(&plan.flags());
            // Also while files are cut back to the checkpoint, which is before the journal's turn and does not count.
            let (stage, share) = match self.random.below(4) {
                0 => (Stage::Begun, 4),
                1 => (Stage::Replayed, 16),
                _ => (Stage::Replaying, 2),
            };
            self.wait_until("a start", |rounds| {
                stage.is_reached(&rounds.broker.log_since_start()) || rounds.broker.has_become_ready()
            });
            let moment_us = self.random.below(self.start_time.as_micros() as u64 / share + 1);
            std::thread::sleep(Duration::from_micros(moment_us));
            let inside = self.kill().1;
            found.extend(inside);
            if found.len() as u64 >= wanted {
                break;
            }
        }
        found
    }

    /// Kills the broker and counts what it was doing; then the power goes too, where this can happen.
    fn kill(&mut self) -> (Counts, Vec<String>) {
        let killed = self.record.kill(|| self.broker.kill());
        let (data_dir, log) = (self.ground.data_dir(), self.broker.log_since_start());
        let has_become_ready = self.broker.has_become_ready();
        let mut found = Vec::new();
        let mut note = |what, hits: &mut u64, state: Option<&'static str>| {
            let Some(state) = state else { return };
            *hits += 1;
            *self.states.entry((what, state)).or_default() += 1;
            found.push(format!("{what} ({state})"));
        };
        if has_become_ready {
            note("checkpoint", &mut self.hits.checkpoint, evidence::checkpoint(&data_dir, &log));
            note("roll-over", &mut self.hits.roll_over, evidence::roll_over(&data_dir));
        } else {
            note("recovery", &mut self.hits.recovery, evidence::recovery(&log));
        }
        self.ground.after_kill(self.random.below(u64::MAX));
        (killed, found)
    }

    /// Drains everything, holds the books against the record for the last time, and reads the whole folder.
    fn finish(mut self) -> Hits {
        self.load.stop_producers();
        self.wait_until("the drain", |rounds| books::depth(&rounds.broker) == 0);
        self.load.stop();
        let traces = books::check_final(&self.broker, &self.record);
        self.broker.kill();
        let verified = support::run(&["verify", &self.broker.data_dir()]);
        assert_eq!(verified.code, Some(0), "P11: {}{}", verified.stdout, verified.stderr);
        let counts = self.record.counts();
        println!(
            "{} publishes and {} settles confirmed, {} deliveries, {} repeats by cause {:?}, {traces} traces read",
            counts.publishes,
            counts.settles,
            counts.deliveries,
            counts.repeats.values().sum::<u64>(),
            counts.repeats,
        );
        for ((what, state), kills) in &self.states {
            println!("{kills} kills inside a {what}: {state}");
        }
        println!("kills inside: {}", self.hits);
        self.hits
    }

    fn print(&self, plan: &Plan, before: &Counts, killed: &Counts, found: &[String]) {
        let files = if plan.has_small_files { "small" } else { "default" };
        let inside = if found.is_empty() { String::new() } else { format!(" inside {}", found.join(", ")) };
        println!(
            "round {}: {files} files, ready after {:.2} s ({}); aimed at {:?}, killed after {} publishes and {} settles{inside}",
            plan.round,
            self.start_time.as_secs_f64(),
            self.recovered,
            plan.aim,
            killed.publishes - before.publishes,
            killed.settles - before.settles,
        );
    }

    fn wait_until(&mut self, what: &str, mut is_done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !is_done(self) {
            self.load.check_alive();
            assert!(begun.elapsed() < PATIENCE, "{what} did not end within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl<G: Ground> Drop for Rounds<G> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What is looked at later must not go on.
            self.broker.kill();
            println!("all is kept in {}", self.ground.keep().display());
        }
    }
}

/// Each round goes on until so much is confirmed since the last kill.
const PUBLISHES_PER_ROUND: u64 = 1000;
const SETTLES_PER_ROUND: u64 = 500;
/// A round or a drain that takes longer has stopped moving.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a checkpoint or a roll-over is waited for: many times what the load takes to bring one about.
const AIM_TIME: Duration = Duration::from_secs(10);
