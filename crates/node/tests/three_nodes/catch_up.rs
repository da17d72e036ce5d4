//! A follower that lacks more of the log than its leader has in memory: it fetches files, installs a snapshot and goes on.

use std::path::Path;

use mortarmq_node::PeerState;
use mortarmq_storage::Disk;

use super::machine::{Crash, NodeOptions};
use super::net::Shape;
use super::setup::{OPTIONS, loaded_for};
use super::world::{Event, World};

/// Little log in memory and in the journal: whoever is away for a second needs files.
const LITTLE: NodeOptions = NodeOptions { peer_lag_bytes: 20_000, journal_keep_bytes: 0, ..OPTIONS };

/// A cluster under load, with a follower that was cut off for a while.
fn behind(seed: u64, options: NodeOptions) -> (World, usize, usize) {
    let (mut world, leader, behind) = loaded_for(seed, options, 500);
    world.net.cut(Shape::Alone(behind));
    world.run_for(2000);
    (world, leader, behind)
}

fn state(world: &World, leader: usize, node: usize) -> PeerState {
    let peers = world.node(leader).expect("it runs").peers();
    peers.iter().find(|peer| usize::from(peer.node_id.get()) == node).expect("a peer").state
}

fn installed(world: &World, node: usize) -> u64 {
    world.node(node).map_or(0, mortarmq_node::Node::installed_snapshots)
}

#[test]
fn p1_a_follower_that_was_away_for_long_fetches_what_it_lacks_and_holds_the_same() {
    let (mut world, leader, behind) = behind(5, LITTLE);
    assert_eq!(state(&world, leader, behind), PeerState::Silent);
    world.net.heal();
    let is_behind = |world: &World| {
        world.node(leader).expect("it runs").is_leader() && state(world, leader, behind) == PeerState::CatchUpRequired
    };
    assert!(world.run_until(2000, is_behind));
    assert_eq!(world.node(leader).expect("it runs").quorum_state(), 1, "soft");
    assert!(world.run_until(10_000, |world| installed(world, behind) == 1), "it installs a snapshot");
    assert!(
        world.run_until(3000, |world| state(world, leader, behind) == PeerState::Current),
        "the log goes on from there"
    );
    world.run_for(500);
    // It holds the same after a restart, too, and can be the leader.
    world.kill(behind);
    world.start(behind);
    world.run_for(500);
    world.end();
}

/// A short life in which a follower catches up, with a crash in it; whether the crash was met.
fn crashed(seed: u64, crash: Crash) -> bool {
    let mut world = World::new(seed, NodeOptions { peer_lag_bytes: 3000, ..LITTLE });
    let topic = world.declare("orders", 1);
    let producer = world.add_producer(topic, 1, 4000);
    world.add_consumer(topic);
    world.run_for(300);
    let leader = world.leader().expect("all is well");
    let behind = (leader + 1) % 3;
    world.machines[behind].crash = Some(crash);
    world.net.cut(Shape::Alone(behind));
    world.run_for(400);
    world.net.heal();
    let is_over = |world: &World| installed(world, behind) > 0 || world.machines[behind].crash.is_none();
    assert!(world.run_until(10_000, is_over), "{crash:?}");
    // A crash behind the install is met by what the node writes next.
    world.run_until(300, |world| world.machines[behind].crash.is_none());
    let was_met = world.machines[behind].crash.take().is_none();
    let _ = producer;
    world.end();
    was_met
}

#[test]
fn p1_a_crash_at_any_operation_of_an_install_leaves_a_node_that_goes_on() {
    // Goal: whatever of the install a crash leaves, the next start finds the old state or the new one, and the node ends up with
    // what the others have. Method: the same life, with the disk of the follower stopped at each of its operations from the
    // beginning of the install on, up to some that come after it; a kill and a power loss by turns.
    let mut met = 0;
    for operation in 1..=OPERATIONS {
        let crash = Crash { pieces: None, operation, is_power: operation % 2 == 0, is_armed: false };
        met += u64::from(crashed(7, crash));
    }
    assert!(met > OPERATIONS * 2 / 3, "{met} crashes");
}

#[test]
fn a_crash_at_a_fetch_loses_nothing_that_is_there_in_whole() {
    let mut world = fetching(8);
    let behind = world.behind;
    world.world.machines[behind].crash =
        Some(Crash { pieces: Some(4), operation: 1, is_power: false, is_armed: false });
    let world = &mut world.world;
    assert!(world.run_until(10_000, |world| world.machines[behind].crash.is_none()), "it crashes");
    assert!(world.pieces.len() >= 5, "{:?}", world.pieces);
    assert!(world.run_until(20_000, |world| installed(world, behind) == 1), "it goes on");
    let twice: Vec<_> = world.pieces.iter().filter(|(_, times)| **times > 1).collect();
    // The one that was written, and what was on its way.
    assert!(twice.len() <= 2, "{twice:?} of {}", world.pieces.len());
    world.end();
}

/// A cluster in the middle of a catch-up, over links on which that takes a while.
struct Fetching {
    world: World,
    leader: usize,
    behind: usize,
}

fn fetching(seed: u64) -> Fetching {
    let (mut world, leader, behind) = behind(seed, LITTLE);
    world.net.delay_us = 20_000;
    world.net.heal();
    assert!(world.run_until(5000, |world| world.pieces.len() >= 2), "it fetches");
    assert_eq!((world.leader(), installed(&world, behind)), (Some(leader), 0), "in the middle");
    Fetching { world, leader, behind }
}

fn checkpoints(world: &World, node: usize) -> usize {
    let names = world.machines[node].disk.list(Path::new("/data/checkpoints")).expect("a folder");
    names.iter().filter(|name| name.ends_with(".checkpoint")).count()
}

fn take_checkpoint(world: &mut World, node: usize) {
    let now = world.now(node);
    world.node_mut(node).expect("it runs").handle_checkpoint_wanted(now);
    world.dispatch(node);
    world.run_for(50);
}

#[test]
fn what_a_follower_fetches_stays_while_the_leader_makes_checkpoints_and_goes_when_it_is_there() {
    let Fetching { mut world, leader, behind } = fetching(9);
    take_checkpoint(&mut world, leader);
    take_checkpoint(&mut world, leader);
    assert_eq!(checkpoints(&world, leader), 2, "the newest, and the one that is fetched");
    assert!(world.run_until(20_000, |world| installed(world, behind) == 1));
    let is_checkpoint = |(file, offset): &&(String, u64)| file.starts_with("checkpoints") && *offset == 0;
    assert_eq!(world.pieces.keys().filter(is_checkpoint).count(), 1, "one round was enough");
    world.net.delay_us = 400;
    world.wind_down();
    world.run_for(11_000);
    take_checkpoint(&mut world, leader);
    assert_eq!(checkpoints(&world, leader), 1, "nobody needs it any more");
    world.end();
}

#[test]
fn a_follower_that_goes_away_in_the_middle_is_not_waited_for() {
    let Fetching { mut world, leader, behind } = fetching(10);
    world.kill(behind);
    take_checkpoint(&mut world, leader);
    assert_eq!(checkpoints(&world, leader), 2);
    world.wind_down();
    world.run_for(11_000);
    take_checkpoint(&mut world, leader);
    assert_eq!(checkpoints(&world, leader), 1, "10 s are over");
    world.net.delay_us = 400;
    world.start(behind);
    assert!(world.run_until(10_000, |world| installed(world, behind) == 1), "a later round has another snapshot");
    world.end();
}

#[test]
fn p12_another_leader_offers_a_snapshot_of_its_own_and_what_is_there_serves() {
    let Fetching { mut world, leader, behind } = fetching(11);
    let fetched = world.pieces.len();
    world.run_until(2000, |world| world.pieces.len() > fetched + 3);
    world.kill(leader);
    world.at(3_000_000, Event::Start { node: leader });
    assert!(world.run_until(30_000, |world| installed(world, behind) == 1), "{:?}", world.leader());
    let of_topics = |(file, _): &&(String, u64)| file.starts_with("topics");
    let twice = world.pieces.iter().filter(|(_, times)| **times > 1).map(|(piece, _)| piece).filter(of_topics).count();
    assert!(twice <= 8, "what had grown, and what was on its way: {twice} of {}", world.pieces.len());
    world.net.delay_us = 400;
    world.end();
}

#[test]
fn two_followers_behind_fetch_at_the_same_time() {
    let mut world = World::new(12, NodeOptions { nodes: 5, ..LITTLE });
    let topic = world.declare("orders", 2);
    for id in 1..=2 {
        world.add_producer(topic, id, 2000);
    }
    world.add_consumer(topic);
    world.run_for(500);
    let leader = world.leader().expect("all is well");
    let both = [(leader + 1) % 5, (leader + 3) % 5];
    both.into_iter().for_each(|node| world.net.cut(Shape::Alone(node)));
    world.run_for(1500);
    world.net.heal();
    assert!(world.run_until(20_000, |world| both.into_iter().all(|node| installed(world, node) > 0)));
    world.end();
}

/// An install has about 30.
const OPERATIONS: u64 = 45;
