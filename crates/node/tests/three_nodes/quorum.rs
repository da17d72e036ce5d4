//! Without a majority: what is refused, what is answered all the same, and that nothing but the majority has to come back.

use mortarmq_node::{Query, QueryAnswer};

use super::clients::Client;
use super::machine::NodeOptions;
use super::net::Shape;
use super::producer::Producer;
use super::setup::OPTIONS;
use super::world::World;

fn quorum_states(world: &World) -> Vec<u8> {
    (0..world.machines.len()).map(|node| world.node(node).expect("it runs").quorum_state()).collect()
}

#[test]
fn p12_without_a_majority_nothing_is_taken_or_leased_and_with_one_all_goes_on() {
    let mut world = World::new(3, OPTIONS);
    let topic = world.declare("orders", 2);
    for id in 0..3 {
        world.add_producer(topic, id, 5000);
    }
    world.add_consumer(topic);
    world.run_for(1000);
    assert_eq!(quorum_states(&world), [0, 0, 0]);
    let leader = world.leader().expect("all is well");
    for node in 0..3 {
        world.net.cut(Shape::Alone(node));
    }
    // Known to be missing, and still in office: the leader says so.
    world.run_for(400);
    world.add_client(|me| Client::Producer(Producer::new(me, leader, topic, 9, 5000)));
    world.run_for(10);
    let node = world.node(leader).expect("it runs");
    assert!(node.is_leader() && node.quorum_state() == 2);
    world.run_for(1500);
    assert_eq!(quorum_states(&world), [2, 2, 2]);
    assert!((0..3).all(|node| !world.node(node).expect("it runs").is_leader()));
    let (confirmed, delivered) = (world.record.published_us.len(), world.record.deliveries());
    // A question is answered from what is here, and says so.
    let number = world.ask(1, Query::Stats { topic: Some("orders".to_owned()) });
    let reply = &world.answers[&number];
    let Ok(QueryAnswer::Stats(stats)) = &reply.result else { panic!("{:?}", reply.result) };
    assert!(reply.is_stale && stats.stale && stats.quorum_state == 2 && stats.topics[0].produced > 0);
    world.run_for(2000);
    assert_eq!(confirmed, world.record.published_us.len(), "P1");
    assert_eq!(delivered, world.record.deliveries(), "no new lease");
    world.net.heal();
    world.run_for(1500);
    assert_eq!(quorum_states(&world), [0, 0, 0]);
    assert!(world.record.published_us.len() > confirmed && world.record.deliveries() > delivered);
    let leader = world.leader().expect("all is well");
    let number = world.ask(leader, Query::Stats { topic: None });
    world.run_for(10);
    assert!(!world.answers[&number].is_stale);
    world.end();
    for code in ["IN_SYNC_REPLICAS_NOT_ENOUGH", "READ_ONLY_DEGRADED"] {
        assert!(world.record.reached.contains_key(code), "{:?}", world.record.reached);
    }
}

#[test]
fn rule_6_what_was_proposed_and_finds_no_majority_in_time_is_unknown() {
    let mut world = World::new(4, NodeOptions { publish_timeout_ms: 300, ..OPTIONS });
    let topic = world.declare("orders", 2);
    for id in 0..3 {
        world.add_producer(topic, id, 5000);
    }
    world.add_consumer(topic);
    world.run_for(1000);
    let leader = world.leader().expect("all is well");
    world.net.cut(Shape::Alone(leader));
    world.run_for(450);
    assert!(world.node(leader).expect("it runs").is_leader(), "it does not know yet");
    for what in ["QUORUM_LOST", "publish unknown"] {
        assert!(world.record.reached.contains_key(what), "{:?}", world.record.reached);
    }
    world.end();
}

#[test]
fn rule_9_a_follower_whose_segments_are_not_written_takes_no_more_than_its_bound_and_catches_up() {
    let bound = 30_000;
    let mut world = World::new(10, NodeOptions { unwritten_bytes_max: bound, ..OPTIONS });
    let topic = world.declare("orders", 2);
    for id in 1..=2 {
        world.add_producer(topic, id, 1000);
    }
    world.run_for(300);
    let leader = world.leader().expect("all is well");
    let slow = (leader + 1) % 3;
    world.machines[slow].holds_segments = true;
    world.run_for(2000);
    let confirmed = world.record.published_us.len();
    world.run_for(500);
    assert!(world.record.published_us.len() > confirmed, "P12: the others go on");
    let gauges = world.node(slow).expect("it runs").gauges();
    assert!(gauges.unwritten_bytes > bound, "it met its bound");
    assert!(gauges.unwritten_bytes < 3 * bound, "{} bytes", gauges.unwritten_bytes);
    world.add_consumer(topic);
    world.end();
}
