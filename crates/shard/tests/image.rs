//! Goal: a checkpoint loses nothing and changes nothing, and no damage of one is believed (P10, P11). Method: random
//! commands; at random moments the shard's image goes through its bytes, and what comes out lives on beside the shard.
//!
//! `MORTARMQ_SEED=N` begins with another seed.

mod random;

use bytes::{Bytes, BytesMut};
use mortarmq_delivery::{DuePosition, PathPartition};
use mortarmq_shard::{Image, Shard};
use mortarmq_types::{DropReason, Epoch};
use random::{Random, batch, first_seed};
use std::collections::BTreeMap;

/// An image can be encoded by any thread, for as long as it likes.
const fn assert_sendable<T: Send + 'static>() {}
const _: () = assert_sendable::<Image>();

fn encoded(image: &Image) -> Bytes {
    let mut bytes = BytesMut::new();
    image.encode(&mut bytes);
    bytes.freeze()
}

/// A shard after so many random batches.
fn lived(seed: u64, batches: u32) -> (Shard, Random, u64) {
    let (mut shard, mut random, mut time) = (Shard::default(), Random::of(seed), 0);
    for _ in 0..batches {
        let bytes = batch(&mut random, &mut time, shard.state());
        shard.apply(bytes, Epoch::new(1)).expect("these commands decode");
    }
    (shard, random, time)
}

/// What of all that an image holds this shard has.
fn reached(shard: &Shard) -> [(&'static str, bool); 19] {
    let state = shard.state();
    let any = |test: fn(&PathPartition) -> bool| {
        state.paths.values().flat_map(|path| path.partitions.made()).any(|(_, it)| test(it))
    };
    let partitions = state.topics.values().flat_map(|topic| &topic.partitions);
    let delayed: usize = partitions.map(|partition| partition.schedule.len()).sum();
    let mut topics = state.topics.values();
    let mut held = state.paths.values().flat_map(|path| path.members.values());
    [
        ("several topics", state.topics.len() > 1),
        ("several paths", state.paths.len() > 1),
        ("facts", topics.any(|topic| topic.partitions.iter().any(|partition| !partition.facts.is_empty()))),
        ("credit taken", held.any(|member| member.held_messages > 0)),
        ("several leases", any(|partition| partition.in_flight() > 1)),
        ("retries", any(|partition| partition.scheduled() > 0)),
        (
            "messages behind their key",
            any(|partition| {
                partition.passed_over() > partition.in_flight() + partition.scheduled() + partition.ready_messages()
            }),
        ),
        ("messages packed behind a crowded key", any(|partition| partition.packed() > 0)),
        ("settles", any(|partition| partition.settled_runs() > 0)),
        ("dead letters", state.topics.values().any(|topic| topic.holds_dead_letters())),
        ("gaps", state.gaps_ms > 0),
        ("delayed messages", delayed > 0),
        ("delayed messages that a path has skipped", any(|partition| partition.delayed() > 0)),
        ("messages that fell due", any(|partition| partition.due_position() != DuePosition::default())),
        ("dropped messages", any(|partition| partition.dropped_by(DropReason::Ttl) > 0)),
        (
            "single messages that are settled ahead",
            any(|partition| partition.reached() > partition.replay_end() && !partition.is_moving()),
        ),
        ("dropped dead letters", any(|partition| partition.dropped_by(DropReason::Redriven) > 0)),
        ("redriven messages", any(|partition| partition.sources().next().is_some())),
        ("a replay", any(|partition| partition.position() < partition.replay_end())),
    ]
}

#[test]
fn p10_a_shard_from_its_image_goes_on_as_if_nothing_had_happened() {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in first_seed()..first_seed() + 900 {
        let (mut shard, mut random, mut time) = lived(seed, 0);
        let mut twin = Shard::default();
        for _ in 0..60 {
            let bytes = batch(&mut random, &mut time, shard.state());
            let applied = shard.apply(bytes.clone(), Epoch::new(1)).expect("these commands decode");
            let as_applied = twin.apply(bytes, Epoch::new(1)).expect("these commands decode");
            assert_eq!(as_applied.outcomes, applied.outcomes, "seed {seed}");
            assert_eq!(as_applied.effects, applied.effects, "seed {seed}");
            if random.below(6) == 0 {
                let image = shard.image();
                let bytes = encoded(&image);
                assert_eq!(image.commit_index(), shard.state().commit_index);
                twin = Shard::from_image(bytes.clone()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                assert_eq!(twin.state(), shard.state(), "seed {seed}");
                twin.check();
                assert_eq!(encoded(&twin.image()), bytes, "seed {seed}: equal states give equal bytes");
                for (what, is_there) in reached(&shard) {
                    *seen.entry(what).or_default() += u32::from(is_there);
                }
            }
        }
        assert_eq!(twin.state(), shard.state(), "seed {seed}");
        assert_eq!(encoded(&twin.image()), encoded(&shard.image()), "seed {seed}");
    }
    assert!(seen.values().all(|times| *times >= 20), "the images hardly hold some of this: {seen:?}");
}

#[test]
fn p10_an_image_stays_what_it_was_while_the_shard_goes_on() {
    for seed in first_seed()..first_seed() + 60 {
        let (mut shard, mut random, mut time) = lived(seed, 20);
        // The reference is encoded before anything can change behind the pointers.
        let mut images: Vec<(Image, Bytes)> = Vec::new();
        for _ in 0..40 {
            if random.below(4) == 0 {
                images.push((shard.image(), encoded(&shard.image())));
            }
            let bytes = batch(&mut random, &mut time, shard.state());
            shard.apply(bytes, Epoch::new(1)).expect("these commands decode");
        }
        for (image, bytes) in &images {
            assert_eq!(encoded(image), bytes, "seed {seed}: image at {}", image.commit_index());
        }
    }
}

#[test]
fn p11_damage_under_a_right_checksum_is_refused_or_harmless() {
    // Goal: nothing rests on the checksum alone: what decodes keeps the invariants, and no command breaks it later.
    // Method: change one byte of a section's body, put the checksum right, and live on with what is accepted.
    let (mut refused, mut accepted) = (0, 0);
    for seed in first_seed()..first_seed() + 40 {
        let (shard, mut random, time) = lived(seed, 40);
        let bytes = encoded(&shard.image());
        let sections = sections(&bytes);
        for _ in 0..150 {
            let (start, end) = sections[usize::try_from(random.below(sections.len() as u64)).expect("small")];
            if end - start == HEADER_BYTES {
                continue;
            }
            let body_bytes = (end - start - HEADER_BYTES) as u64;
            let place = start + HEADER_BYTES + usize::try_from(random.below(body_bytes)).expect("small");
            let mut changed = BytesMut::from(&bytes[..]);
            changed[place] ^= 1 << random.below(8);
            let checksum = crc32c::crc32c(&changed[start..end]);
            changed[end..end + 4].copy_from_slice(&checksum.to_be_bytes());
            let Ok(mut shard) = Shard::from_image(changed.freeze()) else {
                refused += 1;
                continue;
            };
            accepted += 1;
            shard.check();
            let mut time = time;
            for _ in 0..3 {
                let bytes = batch(&mut random, &mut time, shard.state());
                shard.apply(bytes, Epoch::new(1)).expect("these commands decode");
                shard.check();
            }
        }
    }
    assert!(refused > 500 && accepted > 500, "{refused} refused, {accepted} accepted");
}

/// Start and end of each section, without its checksum.
fn sections(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut sections, mut start) = (Vec::new(), 5);
    while start < bytes.len() {
        let length = bytes[start + HEADER_BYTES - 8..start + HEADER_BYTES].try_into().expect("eight bytes");
        let end = start + HEADER_BYTES + usize::try_from(u64::from_be_bytes(length)).expect("small");
        sections.push((start, end));
        start = end + 4;
    }
    sections
}

const HEADER_BYTES: usize = 1 + 8 + 2 + 8;
