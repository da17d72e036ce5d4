//! Goal: a shard on three or five nodes keeps every promise while its leader changes. Method: the real nodes, driven through
//! `node::drive` on disks in memory, in simulated time, with links that can be cut in each direction, lose, double and
//! delay; a record kept outside the broker judges every answer and every delivery at once, and the world compares the states
//! of all nodes at every commit index.

mod support;

#[path = "three_nodes/catch_up.rs"]
mod catch_up;
#[path = "three_nodes/clients.rs"]
mod clients;
#[path = "three_nodes/consumer.rs"]
mod consumer;
#[path = "three_nodes/duties.rs"]
mod duties;
#[path = "three_nodes/failover.rs"]
mod failover;
#[path = "three_nodes/forward.rs"]
mod forward;
#[path = "three_nodes/hand_over.rs"]
mod hand_over;
#[path = "three_nodes/leases.rs"]
mod leases;
#[path = "three_nodes/life.rs"]
mod life;
#[path = "three_nodes/machine.rs"]
mod machine;
#[path = "three_nodes/net.rs"]
mod net;
#[path = "three_nodes/producer.rs"]
mod producer;
#[path = "three_nodes/quorum.rs"]
mod quorum;
#[path = "random_lives/random.rs"]
mod random;
#[path = "three_nodes/readmit.rs"]
mod readmit;
#[path = "three_nodes/record.rs"]
mod record;
#[path = "three_nodes/rejoin.rs"]
mod rejoin;
#[path = "three_nodes/repair.rs"]
mod repair;
#[path = "three_nodes/setup.rs"]
mod setup;
#[path = "three_nodes/world.rs"]
mod world;

use net::Shape;
use setup::OPTIONS;
use world::World;

#[test]
fn p1_every_node_has_the_same_state_and_the_same_files() {
    let mut world = World::new(1, OPTIONS);
    let topic = world.declare("orders", 2);
    for id in 0..3 {
        world.add_producer(topic, id, 2000);
    }
    world.add_consumer(topic);
    world.add_consumer(topic);
    world.run_for(3000);
    assert!(world.record.published_us.len() > 1000, "{} publishes", world.record.published_us.len());
    world.end();
    assert!(world.record.deliveries() > 1000);
    let leaders: Vec<bool> = (0..3).map(|node| world.node(node).expect("it runs").is_leader()).collect();
    assert_eq!(leaders.iter().filter(|leads| **leads).count(), 1);
}

#[test]
fn p1_what_a_cut_off_leader_wrote_is_replaced_and_nothing_confirmed_is_lost() {
    let mut world = World::new(2, OPTIONS);
    let topic = world.declare("orders", 2);
    for id in 0..3 {
        world.add_producer(topic, id, 2000);
    }
    world.add_consumer(topic);
    world.run_for(1000);
    let leader = world.leader().expect("all is well");
    world.net.cut(Shape::Alone(leader));
    world.run_for(3000);
    assert_ne!(world.leader(), Some(leader));
    world.net.heal();
    world.run_for(1000);
    // What is replaced in the journal is so after a restart, too.
    (0..3).for_each(|node| world.kill(node));
    (0..3).for_each(|node| world.start(node));
    world.run_for(2000);
    world.end();
    assert!(world.record.reached.contains_key("publish unknown"), "{:?}", world.record.reached);
}

/// What the default lives must meet, or they prove little.
const REACHED: &[&str] = &[
    "the leader is killed",
    "power loss",
    "power loss of all",
    "Alone",
    "Halves",
    "Ring",
    "Bridge",
    "OneWay",
    "Mute",
    "pause",
    "slow disk",
    "hand over",
    "checkpoint",
    "snapshot installed",
    "five nodes",
    "forwarded",
    "publish refused",
    "publish unknown",
    "deduplicated",
    "resumed",
    "too late to resume",
    "sent again",
    "LeaseExpired",
    "Nacked",
    "Released",
    "ConsumerLost",
    "settled before, or too late",
];

/// `MORTARMQ_LIVES=500` plays more of them; `MORTARMQ_SEED=N MORTARMQ_LIVES=1` plays one again.
#[test]
fn every_promise_holds_in_random_lives_of_a_cluster() {
    let (first, lives) = (number("MORTARMQ_SEED", 1), number("MORTARMQ_LIVES", LIVES));
    let mut reached = std::collections::BTreeMap::<String, u64>::new();
    for seed in first..first + lives {
        let told = Told(seed);
        for (what, times) in life::live(seed, STEPS) {
            *reached.entry(what).or_default() += times;
        }
        std::mem::forget(told);
    }
    println!("{lives} lives: {reached:#?}");
    for what in REACHED.iter().filter(|_| lives >= LIVES) {
        assert!(reached.contains_key(*what), "no life met {what:?}: {reached:#?}");
    }
}

const LIVES: u64 = 10;
const STEPS: u64 = 12;

/// Says how to play the life again if it ends in a panic.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        let replay = "cargo test -p mortarmq-node --test three_nodes random_lives";
        println!("play this life again: MORTARMQ_SEED={} MORTARMQ_LIVES=1 {replay}", self.0);
    }
}

#[expect(clippy::disallowed_methods, reason = "the seed of a test comes from outside")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
