//! Leases and sessions across offices (P5, P6).

use mortarmq_types::Cause;

use super::clients::Client;
use super::net::Shape;
use super::setup::OPTIONS;
use super::world::World;

/// A cluster with one consumer that holds some messages for ever, and nothing else to do.
fn holding(seed: u64) -> World {
    let mut world = World::new(seed, OPTIONS);
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
fn p5_a_lease_that_nobody_renews_ends_in_time_all_the_same() {
    // Otherwise the tests above would prove nothing.
    let mut world = holding(9);
    world.run_for(2500);
    assert!(world.record.reached.contains_key("LeaseExpired"), "{:?}", world.record.reached);
}
