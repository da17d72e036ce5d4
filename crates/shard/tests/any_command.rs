//! Goal: any command that decodes applies without panic, and leaves a state whose invariants hold (DESIGN: assertions
//! speak of the state, never of a command's fields). Method: random commands over few names and numbers, so that they
//! meet; with odd stamps, limits at both ends, and facts that are not true.
//!
//! `MORTARMQ_SEED=N` begins with another seed.

mod random;

use mortarmq_shard::{Shard, Topic};
use mortarmq_types::{Epoch, Seq};
use random::{Random, batch, first_seed};

#[test]
fn any_command_that_decodes_applies_without_panic_and_the_invariants_hold() {
    let (mut trimmed, mut held_back) = (0, 0);
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
            let state = shard.state();
            let kept = |topic: &Topic| topic.partitions.iter().any(|partition| partition.kept.first_seq > Seq::FIRST);
            trimmed += u32::from(state.topics.values().any(|topic| kept(topic)));
            let below = |seq: Seq, topic, number: usize| seq < state.topics[&topic].partitions[number].kept.first_seq;
            held_back += u32::from(state.paths.values().any(|path| {
                let mut partitions = path.partitions.made();
                partitions.any(|(at, found)| found.lowest_offered().is_some_and(|seq| below(seq, path.topic, at)))
            }));
        }
    }
    assert!(trimmed > 200 && held_back > 3, "retention is hardly reached: {trimmed} states, {held_back} with a lease");
}
