//! Leases and sessions across offices (P5, P6).

use mortarmq_types::Cause;

use super::clients::Client;
use super::machine::{NodeOptions, node_id};
use super::net::Shape;
use super::producer::Producer;
use super::setup::OPTIONS;
use super::world::World;

/// A cluster with one consumer that holds some messages for ever, and nothing else to do.
fn holding(seed: u64) -> World {
    holding_with(seed, OPTIONS)
}

fn holding_with(seed: u64, options: NodeOptions) -> World {
    let mut world = World::new(seed, options);
    let topic = world.declare("orders", 1);
    let producer = world.add_producer(topic, 1, 5000);
    let consumer = world.add_consumer(topic);
    let Client::Consumer(found) = &mut world.clients[consumer] else { unreachable!("just added") };
    found.holds = true;
    assert!(world.run_until(3000, |world| world.record.deliveries() >= 8), "its window is full");
    let Client::Producer(found) = &mut world.clients[producer] else { unreachable!("just added") };
    found.stops = true;
    world.run_for(50);
    world
}

/// Lets its consumer go on, and sees that it settles all that it held under the first lease.
fn settles_under_its_first_leases(mut world: World) {
    for client in &mut world.clients {
        if let Client::Consumer(consumer) = client {
            (consumer.holds, consumer.is_careful) = (false, true);
        }
    }
    world.end();
    for cause in [Cause::LeaseExpired, Cause::ConsumerLost, Cause::Released] {
        let reached = &world.record.reached;
        assert!(!reached.contains_key(&format!("{cause:?}")), "P5: a lease ended: {reached:?}");
    }
}

#[test]
fn p5_no_outage_ends_a_lease_or_a_session_however_long() {
    // Goal: leases of 2 s and sessions of 3 s live through 20 s without a majority. Method: all links are cut.
    let mut world = holding(6);
    (0..3).for_each(|node| world.net.cut(Shape::Alone(node)));
    world.run_for(20_000);
    world.net.heal();
    assert!(world.run_until(5000, |world| world.leader().is_some()));
    world.run_for(300);
    settles_under_its_first_leases(world);
}

#[test]
fn p5_leases_live_on_when_the_leader_is_killed_again_and_again() {
    let mut world = holding(7);
    for _ in 0..10 {
        let leader = world.wait_for_leader();
        world.kill(leader);
        assert!(world.run_until(5000, |world| world.leader().is_some()));
        world.start(leader);
        world.run_for(60);
    }
    settles_under_its_first_leases(world);
}

#[test]
fn p5_leases_live_on_when_all_processes_are_gone_for_long() {
    let mut world = holding(8);
    (0..3).for_each(|node| world.kill(node));
    world.run_for(20_000);
    (0..3).for_each(|node| world.start(node));
    settles_under_its_first_leases(world);
}

#[test]
fn p5_no_outage_ends_a_lease_though_a_leader_without_a_stamp_comes_and_goes_behind_it() {
    // Goal: the gap is told by whoever stamps first. Method: 20 s without a majority, and the next leader is killed before
    // any batch of its own.
    for seed in 20..23 {
        let mut world = holding(seed);
        (0..3).for_each(|node| world.net.cut(Shape::Alone(node)));
        world.run_for(20_000);
        world.net.heal();
        let leads = |world: &World| (0..3).find(|node| world.node(*node).is_some_and(mortarmq_node::Node::is_leader));
        assert!(world.run_until(5000, |world| leads(world).is_some()));
        // The others have heard it.
        let leader = leads(&world).expect("just seen");
        let knows = |world: &World| {
            let heard = |node: usize| world.node(node).and_then(|node| node.leader()) == Some(node_id(leader));
            (0..3).all(heard)
        };
        world.run_until(100, knows);
        world.kill(leader);
        assert!(world.run_until(5000, |world| world.leader().is_some()));
        world.start(leader);
        settles_under_its_first_leases(world);
    }
}

#[test]
fn p5_a_pause_of_the_followers_ends_no_lease_though_the_leader_dies_in_it() {
    // Goal: what waited in the network while a node stood still is no sign that its leader lived till then.
    for seed in 30..33 {
        let mut world = holding(seed);
        let leader = world.wait_for_leader();
        let until_us = world.now_us + 20_000_000;
        for node in (0..3).filter(|node| *node != leader) {
            world.machines[node].paused_until_us = until_us;
        }
        // What it says meanwhile is heard when they go on.
        world.run_for(300);
        world.kill(leader);
        assert!(world.run_until(25_000, |world| world.leader().is_some()));
        world.start(leader);
        settles_under_its_first_leases(world);
    }
}

#[test]
fn p5_a_leader_that_is_heard_and_confirms_nothing_ends_no_lease() {
    // Goal: a follower that has what was never committed does not take the time since for one in which members could settle.
    // Method: of five nodes, three answer and drop what they are sent; one takes it, and leads when the leader is killed.
    let mut world = holding_with(40, NodeOptions { nodes: 5, unwritten_bytes_max: 4000, ..OPTIONS });
    let leader = world.wait_for_leader();
    let heir = (leader + 1) % 5;
    let topic = world.topic("orders");
    for node in (0..5).filter(|node| *node != leader && *node != heir) {
        world.machines[node].holds_segments = true;
    }
    let producers: Vec<usize> =
        (0..4).map(|_| world.add_client(|me| Client::Producer(Producer::new(me, leader, topic, 0, 100)))).collect();
    let is_halted = |world: &World| world.node(leader).expect("it runs").quorum_state() == 2;
    assert!(world.run_until(1500, is_halted), "three of five take nothing any more");
    for producer in producers {
        let Client::Producer(found) = &mut world.clients[producer] else { unreachable!("just added") };
        found.stops = true;
    }
    world.run_for(500);
    let written = world.machines[leader].journal_writes;
    world.run_for(6000);
    let written = world.machines[leader].journal_writes - written;
    assert!(written < 10, "a moment that is due is stamped once, not {written} times");
    assert!(!world.record.reached.contains_key("LeaseExpired"), "{:?}", world.record.reached);
    assert!(world.node(leader).expect("it runs").is_leader(), "it is heard");
    world.kill(leader);
    world.machines.iter_mut().for_each(|machine| machine.holds_segments = false);
    assert!(world.run_until(5000, |world| world.leader() == Some(heir)), "it has most");
    world.start(leader);
    settles_under_its_first_leases(world);
}

#[test]
fn p5_a_lease_that_nobody_renews_ends_in_time_all_the_same() {
    // Otherwise the tests above would prove nothing.
    let mut world = holding(9);
    world.run_for(2500);
    assert!(world.record.reached.contains_key("LeaseExpired"), "{:?}", world.record.reached);
}
