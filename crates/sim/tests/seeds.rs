//! Goal: no seed breaks a promise, and one seed always does the same. Method: a share of seeds, each a world of its own, judged
//! by every invariant of the node and by the judge of histories.
//!
//! `MORTARMQ_SIM_SEEDS=100..200` plays others.

use mortarmq_sim::{Keep, draw, play};

#[test]
fn every_promise_holds_in_simulated_lives() {
    for seed in seeds() {
        let outcome = play(&draw(seed), Keep::default());
        if let Some(failure) = outcome.failure {
            panic!("seed {seed} (play it again: MORTARMQ_SIM_SEEDS={seed}..{}): {failure}", seed + 1);
        }
        assert!(outcome.tally.operations > 1000, "seed {seed} has too little work: {}", outcome.tally.operations);
    }
}

#[test]
fn one_seed_always_does_the_same() {
    for seed in [2, 3] {
        let [one, other] = [(); 2].map(|()| play(&draw(seed), Keep::default()));
        assert_eq!((one.digest, one.events), (other.digest, other.events), "seed {seed}");
        assert_ne!(one.digest, play(&draw(seed + 1), Keep::default()).digest);
    }
}

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("MORTARMQ_SIM_SEEDS").unwrap_or_else(|_| "1..25".to_owned());
    let (first, end) = text.split_once("..").expect("MORTARMQ_SIM_SEEDS is FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}
