//! A journal or a checkpoint that rots on one of three nodes: the node begins with nothing but its vote, votes and acknowledges nothing, and is
//! brought up by the others (failure rule 3, P1).

use std::path::{Path, PathBuf};

use mortarmq_storage::Disk;

use super::machine::{Crash, DATA_DIR, NodeOptions};
use super::net::Shape;
use super::setup::{OPTIONS, loaded};
use super::world::World;

/// Checkpoints now and then, and a journal that goes on for a while behind them.
const SHORT: NodeOptions = NodeOptions { checkpoint_after_bytes: 1_500_000, ..OPTIONS };

/// The newest file of a folder of the data directory with this ending.
fn newest(world: &World, node: usize, folder: &str, ending: &str) -> PathBuf {
    let folder = Path::new(DATA_DIR).join(folder);
    let names = world.machines[node].disk.list(&folder).expect("a folder");
    folder.join(names.into_iter().rfind(|name| name.ends_with(ending)).expect("a file of this kind"))
}

/// Where the last batch of a journal file begins: behind it are zeros, or what was there before the file was used again.
fn last_written(world: &World, node: usize, path: &Path) -> u64 {
    let bytes = world.machines[node].disk.contents(path).expect("it is there");
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("something is written");
    u64::try_from(last / 4096 * 4096).expect("small")
}

fn flip(world: &World, node: usize, path: &Path, offset: u64) {
    world.machines[node].disk.flip_bit(path, offset, 5).expect("inside the file");
}

fn is_rejoining(world: &World, node: usize) -> bool {
    world.node(node).is_some_and(mortarmq_node::Node::is_rejoining)
}

/// What of a node rots while it is down.
fn rot(world: &World, node: usize, part: &str) {
    match part {
        "journal" => flip(world, node, &newest(world, node, "journal", ".journal"), 3 * 4096 + 100),
        "header" => flip(world, node, &Path::new(DATA_DIR).join("journal/00000001.journal"), 17),
        "checkpoint" => {
            let path = newest(world, node, "checkpoints", ".checkpoint");
            flip(world, node, &path, 5);
        }
        "image" => {
            let path = newest(world, node, "checkpoints", ".checkpoint");
            let bytes = world.machines[node].disk.contents(&path).expect("it is there").len() as u64;
            flip(world, node, &path, bytes - 20);
        }
        "missing" => {
            let topics = Path::new(DATA_DIR).join("topics");
            let disk = &world.machines[node].disk;
            let topic = topics.join(&disk.list(&topics).expect("a folder")[0]).join("0");
            let name = disk.list(&topic).expect("a folder").into_iter().find(|name| name.ends_with(".segment"));
            disk.remove(&topic.join(name.expect("a segment"))).expect("it is there");
        }
        other => panic!("{other}"),
    }
}

fn take_checkpoint(world: &mut World, node: usize) {
    let now = world.now(node);
    world.node_mut(node).expect("it runs").handle_checkpoint_wanted(now);
    world.dispatch(node);
    world.run_for(100);
}

#[test]
fn p1_a_follower_whose_journal_or_checkpoint_rots_is_brought_up_by_the_others() {
    for (part, seed) in [("journal", 31), ("checkpoint", 32), ("image", 33), ("missing", 34)] {
        let (mut world, _, node) = loaded(seed, SHORT);
        take_checkpoint(&mut world, node);
        world.run_for(300);
        world.kill(node);
        rot(&world, node, part);
        world.run_for(200);
        world.start(node);
        assert!(is_rejoining(&world, node), "{part}");
        assert!(world.run_until(10_000, |world| !is_rejoining(world, node)), "{part}");
        world.run_for(500);
        let left: Vec<_> = ["journal", "checkpoints"]
            .into_iter()
            .flat_map(|dir| world.machines[node].disk.list(&Path::new(DATA_DIR).join(dir)).expect("a folder"))
            .filter(|name| name.ends_with(".rotten"))
            .collect();
        assert!(left.is_empty(), "{part}: {left:?}");
        // It is one as any other from now on, through a restart and as leader.
        world.kill(node);
        world.start(node);
        assert!(!is_rejoining(&world, node), "{part}");
        world.run_for(500);
        world.end();
    }
}

#[test]
fn p1_a_leader_whose_journal_rots_while_it_is_down_is_brought_up_by_its_follower() {
    let (mut world, leader, _) = loaded(35, SHORT);
    world.kill(leader);
    rot(&world, leader, "journal");
    world.run_for(1500);
    assert!(world.leader().is_some_and(|other| other != leader));
    world.start(leader);
    assert!(is_rejoining(&world, leader));
    assert!(world.run_until(10_000, |world| !is_rejoining(world, leader)));
    world.end();
}

#[test]
fn p1_a_node_that_is_brought_up_at_once_under_the_same_leader_is_heard_by_it_again() {
    // The leader still remembers what it had acknowledged.
    let (mut world, leader, node) = loaded(36, SHORT);
    world.lose_power(node);
    rot(&world, node, "journal");
    world.start(node);
    assert!(is_rejoining(&world, node));
    assert!(world.run_until(10_000, |world| !is_rejoining(world, node)));
    assert_eq!(world.leader(), Some(leader));
    let lag = |world: &World| {
        let peers = world.node(leader).expect("it runs").peers();
        peers.iter().find(|peer| usize::from(peer.node_id.get()) == node).expect("a peer").state
    };
    assert!(world.run_until(2000, |world| lag(world) == mortarmq_node::PeerState::Current));
    world.end();
}

#[test]
fn p1_a_node_that_is_brought_up_twice_in_a_row_has_all_that_it_confirmed_in_between() {
    // Its leader still remembers how far its log reached when it heard of the first time, and holds a checkpoint of then.
    let mut world = World::new(43, SHORT);
    let topic = world.declare("orders", 2);
    world.add_producer(topic, 1, 60_000);
    world.add_consumer(topic);
    world.run_for(1500);
    let leader = world.leader().expect("all is well");
    let node = (leader + 1) % 3;
    for _ in 0..3 {
        let had = world.node(node).expect("it runs").position().commit_index;
        world.kill(node);
        rot(&world, node, "journal");
        world.start(node);
        assert!(is_rejoining(&world, node));
        assert!(world.run_until(10_000, |world| !is_rejoining(world, node)));
        let has = world.node(node).expect("it runs").position().commit_index;
        assert!(has >= had, "from here on it votes, with {has} where it had {had}");
        world.run_for(400);
        assert_eq!(world.leader(), Some(leader));
    }
    world.end();
}

#[test]
fn p1_a_node_that_has_not_everything_yet_elects_nobody() {
    let (mut world, leader, node) = loaded(37, SHORT);
    let third = 3 - leader - node;
    world.kill(node);
    rot(&world, node, "journal");
    // All that was confirmed last, the leader and the node with the rotten journal had alone.
    world.kill(leader);
    world.start(node);
    world.run_for(5000);
    assert!(is_rejoining(&world, node) && world.leader().is_none(), "{:?}", world.leader());
    assert!(!world.node(third).expect("it runs").is_leader());
    world.start(leader);
    assert!(world.run_until(10_000, |world| !is_rejoining(world, node)));
    world.end();
}

#[test]
fn p1_what_only_the_leader_and_a_node_had_that_lost_it_is_not_lost() {
    let (mut world, leader, node) = loaded(38, SHORT);
    let third = 3 - leader - node;
    world.net.cut(Shape::Alone(third));
    world.run_for(1000);
    // What was confirmed since, the third has not. The other loses its journal, and the third comes back.
    world.kill(node);
    rot(&world, node, "journal");
    world.net.heal();
    world.start(node);
    assert!(world.run_until(10_000, |world| !is_rejoining(world, node)));
    world.kill(leader);
    assert!(world.run_until(5000, |world| world.leader().is_some()));
    world.run_for(500);
    world.start(leader);
    world.end();
}

#[test]
fn p12_a_node_that_lost_all_does_not_keep_another_from_catching_up_whose_word_is_needed() {
    let little = NodeOptions { peer_lag_bytes: 20_000, journal_keep_bytes: 0, ..SHORT };
    let (mut world, leader, node) = loaded(42, little);
    let third = 3 - leader - node;
    world.net.cut(Shape::Alone(third));
    world.run_for(2000);
    world.kill(node);
    rot(&world, node, "journal");
    // Nobody is left to confirm what the leader proposes now.
    world.run_for(100);
    world.net.heal();
    world.start(node);
    assert!(is_rejoining(&world, node));
    assert!(world.run_until(20_000, |world| !is_rejoining(world, node)), "{:?}", world.leader());
    world.end();
}

#[test]
fn rule_3_where_the_vote_may_be_lost_too_the_node_is_refused_by_name() {
    let (mut world, _, node) = loaded(39, SHORT);
    world.kill(node);
    let path = newest(&world, node, "journal", ".journal");
    let at = last_written(&world, node, &path) + 30;
    flip(&world, node, &path, at);
    let (now_us, options) = (world.now_us, world.options);
    let before = world.machines[node].disk.contents(&path).expect("it is there");
    let error = world.machines[node].start(node, now_us, options).expect_err("its last vote may be lost");
    assert!(error.contains("members readmit") && error.contains("offset") && error.contains(".journal"), "{error}");
    assert_eq!(world.machines[node].disk.contents(&path).expect("it is there"), before);
    // As from a copy of its disk.
    flip(&world, node, &path, at);
    world.start(node);
    assert!(!is_rejoining(&world, node));
    world.end();
}

#[test]
fn p1_a_crash_at_any_operation_of_such_a_start_leaves_a_node_that_is_brought_up() {
    let mut met = 0;
    for operation in (0..40).step_by(2) {
        let (mut world, _, node) = loaded(40, SHORT);
        world.kill(node);
        rot(&world, node, "journal");
        let disk = &world.machines[node].disk;
        disk.crash_at(disk.operations() + operation);
        let (now_us, options) = (world.now_us, world.options);
        let started = world.machines[node].start(node, now_us, options);
        met += u64::from(started.is_err());
        if operation % 2 == 0 {
            world.lose_power(node)
        } else {
            world.kill(node)
        }
        world.start(node);
        assert!(is_rejoining(&world, node), "{operation}");
        assert!(world.run_until(10_000, |world| !is_rejoining(world, node)), "{operation}");
        world.end();
    }
    assert!(met > 7, "{met}");
}

#[test]
fn p1_a_crash_at_any_operation_of_the_install_that_follows_leaves_a_node_that_is_brought_up() {
    let mut met = 0;
    for operation in (1..60).step_by(4) {
        let (mut world, _, node) = loaded(41, SHORT);
        world.kill(node);
        rot(&world, node, "journal");
        let is_power = operation % 8 == 1;
        world.machines[node].crash = Some(Crash { pieces: None, operation, is_power, is_armed: false });
        world.start(node);
        let is_over = |world: &World| world.node(node).is_some() && !is_rejoining(world, node);
        assert!(world.run_until(15_000, |world| is_over(world)), "{operation}");
        world.run_until(300, |world| world.machines[node].crash.is_none());
        met += u64::from(world.machines[node].crash.take().is_none());
        world.run_for(100);
        world.end();
    }
    assert!(met > 7, "{met}");
}
