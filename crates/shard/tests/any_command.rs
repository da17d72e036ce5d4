//! Goal: any command that decodes applies without panic, and leaves a state whose invariants hold (DESIGN: assertions
//! speak of the state, never of a command's fields). Method: random commands over few names and numbers, so that they
//! meet; with odd stamps, limits at both ends, and facts that are not true.
//!
//! `MORTARMQ_SEED=N` begins with another seed.

mod random;

use mortarmq_shard::Shard;
use mortarmq_types::Epoch;
use random::{Random, batch, first_seed};

#[test]
fn any_command_that_decodes_applies_without_panic_and_the_invariants_hold() {
    for seed in first_seed()..first_seed() + 400 {
        let mut random = Random::of(seed);
        let mut shard = Shard::default();
        let mut time: u64 = 0;
        for _ in 0..60 {
            let bytes = batch(&mut random, &mut time, shard.state());
            let twin = shard.clone().apply(bytes.clone(), Epoch::new(1)).expect("these commands decode");
            let applied = shard.apply(bytes, Epoch::new(1)).expect("these commands decode");
            assert_eq!(twin.effects, applied.effects, "seed {seed}: apply is a function of state and batch");
            shard.check();
        }
    }
}
