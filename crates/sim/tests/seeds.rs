//! Goal: no seed breaks a promise, and one seed always does the same. Method: a share of seeds, each a world of its own, judged
//! by every invariant of the node and by the judge of histories.
//!
//! `MORTARMQ_SIM_SEEDS=100..200` plays others.

use std::path::Path;

use mortarmq_sim::{Keep, Tally, draw, play};

#[test]
fn every_promise_holds_in_simulated_lives() {
    let mut tally = Tally::default();
    let seeds = seeds();
    for seed in seeds.clone() {
        let outcome = play(&draw(seed), Keep::default());
        if let Some(failure) = outcome.failure {
            panic!("seed {seed} (play it again: MORTARMQ_SIM_SEEDS={seed}..{}): {failure}", seed + 1);
        }
        tally.add(&outcome.tally);
    }
    let played = seeds.end - seeds.start;
    println!("{played} lives: {tally:#?}");
    assert!(tally.operations > 2000 * played, "too little work: {} operations", tally.operations);
    if played >= 200 {
        let missed = tally.missed();
        assert!(missed.is_empty(), "no life met {missed:?}");
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

/// Goal: a seed does the same in every build, so that what one found can be played again by anyone. Method: the digests of some
/// seeds stand in `digests.txt`, and every build has to come to them: with and without optimisation, here and elsewhere.
///
/// Whatever changes what happens in a world changes them. `MORTARMQ_RENEW_DIGESTS=1 cargo test -p mortarmq-sim --test seeds
/// every_build` writes them anew; then the same test is run with `--release`.
#[test]
fn one_seed_does_the_same_in_every_build() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/digests.txt");
    let digest = |seed: u64| format!("{seed} {:016x}\n", play(&draw(seed), Keep::default()).digest);
    let found: String = PINNED.into_iter().map(digest).collect();
    if std::env::var_os("MORTARMQ_RENEW_DIGESTS").is_some() {
        std::fs::write(&file, &found).expect("the source is there");
    }
    let expected = std::fs::read_to_string(&file).expect("it is there");
    assert_eq!(found, expected, "if more than the build has changed: MORTARMQ_RENEW_DIGESTS=1 renews them");
}

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("MORTARMQ_SIM_SEEDS").unwrap_or_else(|_| "1..25".to_owned());
    let (first, end) = text.split_once("..").expect("MORTARMQ_SIM_SEEDS is FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

/// Worlds of one, three and five nodes are among them.
const PINNED: [u64; 5] = [1, 2, 3, 4, 13];
