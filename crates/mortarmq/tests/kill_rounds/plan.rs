//! Which round aims at what, and how many must have hit.

use crate::random::Random;

/// What a kill is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Any moment under load.
    Anywhere,
    /// Between the first and the last step of a checkpoint.
    Checkpoint,
    /// Between the first step of a new journal file and its first batch.
    RollOver,
    /// A kill at any moment, then some of the starts that follow.
    Recovery,
}

/// One round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// From 1.
    pub(crate) round: u64,
    pub(crate) aim: Aim,
    /// Whether files are so small that a round goes over several of them.
    pub(crate) has_small_files: bool,
}

/// How many kills hit what.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hits {
    pub(crate) checkpoint: u64,
    pub(crate) roll_over: u64,
    pub(crate) recovery: u64,
}

impl Plan {
    /// The next round of so many. The first half has small files: a journal file keeps the size it was begun with, so that
    /// sizes that change with each round would all be the large one.
    pub(crate) fn next(round: u64, rounds: u64, hits: &Hits, random: &mut Random) -> Self {
        let has_small_files = round * 2 <= rounds + 1;
        let aim = if rounds < ROUNDS_WITH_FLOOR {
            match (has_small_files, round % 3) {
                (true, 1) => Aim::Checkpoint,
                (true, 2) => Aim::RollOver,
                (true, _) | (false, 0) => Aim::Recovery,
                (false, _) => Aim::Anywhere,
            }
        } else if has_small_files && round.is_multiple_of(2) {
            if hits.checkpoint <= hits.roll_over { Aim::Checkpoint } else { Aim::RollOver }
        } else if round.is_multiple_of(5) || random.below(5) == 0 {
            Aim::Recovery
        } else {
            Aim::Anywhere
        };
        Self { round, aim, has_small_files }
    }

    /// The settings of the broker of this round.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let sizes: &[&str] = if self.has_small_files { &SMALL_FILES } else { &[] };
        [&LOG[..], sizes].concat()
    }
}

impl Hits {
    /// Fails if fewer kills than 1 in 20 rounds hit one of the three; a run of fewer rounds proves nothing by its counts.
    pub(crate) fn check(&self, rounds: u64) {
        let floor = if rounds < ROUNDS_WITH_FLOOR { 0 } else { rounds / ROUNDS_WITH_FLOOR };
        for (what, hits) in
            [("a checkpoint", self.checkpoint), ("a roll-over", self.roll_over), ("a recovery", self.recovery)]
        {
            assert!(hits >= floor, "{hits} kills inside {what}; {rounds} rounds need {floor}");
        }
    }
}

impl std::fmt::Display for Hits {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { checkpoint, roll_over, recovery } = self;
        write!(formatter, "checkpoint {checkpoint}, roll-over {roll_over}, recovery {recovery}")
    }
}

/// From so many rounds on, one kill in so many rounds must hit each of the three.
const ROUNDS_WITH_FLOOR: u64 = 20;
/// A round goes over several journal files and checkpoints.
const SMALL_FILES: [&str; 8] = [
    "--segment-max-bytes",
    "1MiB",
    "--journal-file-bytes",
    "1MiB",
    "--snapshot-journal-bytes",
    "4MiB",
    "--journal-keep-bytes",
    "1MiB",
];
/// The lines between which a checkpoint or a start is under way.
const LOG: [&str; 2] = ["--log-level", "debug"];

#[cfg(test)]
mod tests {
    use super::{Aim, Hits, Plan};
    use crate::random::Random;

    fn plans(rounds: u64) -> Vec<Plan> {
        let mut random = Random::new(rounds);
        let mut hits = Hits::default();
        let plan = |round| {
            let plan = Plan::next(round, rounds, &hits, &mut random);
            match plan.aim {
                Aim::Checkpoint => hits.checkpoint += 1,
                Aim::RollOver => hits.roll_over += 1,
                Aim::Recovery => hits.recovery += 1,
                Aim::Anywhere => {}
            }
            plan
        };
        (1..=rounds).map(plan).collect()
    }

    #[test]
    fn half_of_the_rounds_have_small_files_and_all_three_are_aimed_at_often_enough() {
        for rounds in [3, 10, 20, 21, 50, 200] {
            let plans = plans(rounds);
            let small = plans.iter().filter(|plan| plan.has_small_files).count() as u64;
            assert_eq!(small, rounds.div_ceil(2), "of {rounds}");
            for aim in [Aim::Checkpoint, Aim::RollOver, Aim::Recovery] {
                let aimed = plans.iter().filter(|plan| plan.aim == aim).count() as u64;
                assert!(aimed > rounds / 20, "{aimed} of {rounds} rounds aim at {aim:?}");
            }
        }
    }

    #[test]
    fn ten_hits_of_each_in_200_rounds_are_enough() {
        Hits { checkpoint: 10, roll_over: 10, recovery: 10 }.check(200);
        Hits { checkpoint: 1, roll_over: 1, recovery: 1 }.check(20);
        Hits::default().check(3);
    }

    #[test]
    #[should_panic(expected = "9 kills inside a roll-over; 200 rounds need 10")]
    fn nine_are_too_few() {
        Hits { checkpoint: 10, roll_over: 9, recovery: 10 }.check(200);
    }
}
