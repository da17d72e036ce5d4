//! Without a majority: what is refused, what is answered all the same, and that nothing but the majority has to come back.

use mortarmq_node::{Answer, DiskState, PeerState, Query, QueryAnswer, Reply, Request, Subscribe};
use mortarmq_shard::StartPolicy;
use mortarmq_types::MemberId;

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
fn a_follower_that_is_not_brought_up_is_named_and_is_no_part_of_a_majority_that_confirms() {
    let mut world = World::new(5, NodeOptions { peer_lag_bytes: 20_000, ..OPTIONS });
    let topic = world.declare("orders", 2);
    world.add_producer(topic, 1, 1000);
    world.add_consumer(topic);
    world.run_for(500);
    let leader = world.leader().expect("all is well");
    let behind = (leader + 1) % 3;
    world.net.cut(Shape::Alone(behind));
    world.run_for(3000);
    let state = |world: &World| {
        let peers = world.node(leader).expect("it runs").peers();
        peers.iter().find(|peer| usize::from(peer.node_id.get()) == behind).expect("a peer").state
    };
    assert_eq!(state(&world), PeerState::Silent);
    let stood = world.node(behind).expect("it runs").position();
    // What it would fetch it cannot write.
    world.machines[behind].holds_segments = true;
    world.net.heal();
    world.run_for(3000);
    assert_eq!(world.leader(), Some(leader), "it is heard by all, and the others go on");
    assert_eq!(state(&world), PeerState::CatchUpRequired);
    let node = world.node(leader).expect("it runs");
    assert_eq!(node.quorum_state(), 1, "soft");
    assert!(node.position() > stood);
    assert_eq!(world.node(behind).expect("it runs").position(), stood, "it applies nothing, and does not end");
    let confirmed = world.record.published_us.len();
    world.run_for(500);
    assert!(world.record.published_us.len() > confirmed);
    // Without the third, nobody can acknowledge: the leader is heard, and takes nothing that it could not confirm.
    let third = 3 - leader - behind;
    world.net.cut(Shape::Alone(third));
    world.run_for(400);
    assert_eq!(world.node(leader).expect("it runs").quorum_state(), 2, "read-only");
    let unknown = world.record.reached.get("publish unknown").copied();
    world.add_client(|me| Client::Producer(Producer::new(me, leader, topic, 9, 5000)));
    world.run_for(6000);
    assert!(world.node(leader).expect("it runs").is_leader(), "the one behind is heard");
    assert_eq!(world.record.reached.get("publish unknown").copied(), unknown, "P2: all is refused");
    assert!(world.record.reached.contains_key("IN_SYNC_REPLICAS_NOT_ENOUGH"), "{:?}", world.record.reached);
}

#[test]
fn p2_a_leader_whose_followers_answer_and_acknowledge_nothing_refuses_what_it_could_not_confirm() {
    // Goal: whoever asks once it is known is refused at once, and not told `unknown` 5 s later. Method: the segment writers
    // of both followers stand still, so that they drop appends and answer heartbeats.
    let mut world = World::new(11, NodeOptions { unwritten_bytes_max: 20_000, ..OPTIONS });
    let topic = world.declare("orders", 2);
    world.add_producer(topic, 1, 1000);
    world.run_for(300);
    let leader = world.leader().expect("all is well");
    for node in (0..3).filter(|node| *node != leader) {
        world.machines[node].holds_segments = true;
    }
    world.run_for(4000);
    assert!(world.node(leader).expect("it runs").is_leader(), "it is heard");
    let unknown = world.record.reached.get("publish unknown").copied();
    world.add_client(|me| Client::Producer(Producer::new(me, leader, topic, 9, 5000)));
    world.run_for(1000);
    assert_eq!(world.record.reached.get("publish unknown").copied(), unknown, "P2");
    assert!(world.record.reached.contains_key("IN_SYNC_REPLICAS_NOT_ENOUGH"), "{:?}", world.record.reached);
    world.add_consumer(topic);
    world.end();
}

fn set_room(world: &mut World, node: usize, is_low: bool) {
    let (now, free_bytes) = (world.now(node), if is_low { 1 << 20 } else { 1 << 40 });
    world.node_mut(node).expect("it runs").handle_disk(now, DiskState { is_low, free_bytes });
    world.dispatch(node);
}

#[test]
fn rule_8_publishes_stop_when_no_majority_has_room_and_what_frees_room_goes_on() {
    let mut world = World::new(16, OPTIONS);
    let topic = world.declare("orders", 1);
    world.declare("audit", 1);
    let leader = world.wait_for_leader();
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    world.add_client(|me| Client::Producer(Producer::new(me, leader, topic, 1, 2000)));
    world.add_consumer(topic);
    world.run_for(500);
    // One of three: a majority has room.
    set_room(&mut world, others[0], true);
    world.run_for(500);
    assert!(!world.record.reached.contains_key("publish refused"), "{:?}", world.record.reached);
    set_room(&mut world, others[1], true);
    world.run_for(300);
    let confirmed = world.record.published_us.len();
    let connection = world.connect(usize::MAX, leader).expect("it runs");
    world.send(connection, Request::Delete { name: "audit".to_owned() });
    world.run_for(1000);
    assert_eq!(world.record.published_us.len(), confirmed);
    assert!(world.record.reached.contains_key("STORAGE_HIGH_WATERMARK"), "{:?}", world.record.reached);
    assert!(matches!(world.heard[..], [(_, Reply { result: Ok(Answer::Deleted { existed: true }), .. })]));
    assert_eq!(world.leader(), Some(leader), "nobody could do better");
    // Nothing is written meanwhile, and the leader hears all the same that there is room again.
    others.iter().for_each(|node| set_room(&mut world, *node, false));
    world.run_for(500);
    assert!(world.record.published_us.len() > confirmed);
    world.end();
}

#[test]
fn rule_8_a_leader_without_room_gives_way_to_one_that_has_it() {
    let mut world = World::new(17, OPTIONS);
    let topic = world.declare("orders", 1);
    for id in 1..=3 {
        world.add_producer(topic, id, 2000);
    }
    world.add_consumer(topic);
    world.run_for(500);
    let leader = world.wait_for_leader();
    let (full, free) = ((leader + 1) % 3, (leader + 2) % 3);
    set_room(&mut world, leader, true);
    world.run_for(500);
    assert_ne!(world.leader(), Some(leader));
    let heir = world.wait_for_leader();
    // With a second one full no majority has room, so there is nobody to give way to.
    let confirmed = world.record.published_us.len();
    world.run_for(200);
    assert!(world.record.published_us.len() > confirmed, "P12");
    set_room(&mut world, full, true);
    set_room(&mut world, free, true);
    world.run_for(500);
    assert_eq!(world.leader(), Some(heir));
    (0..3).for_each(|node| set_room(&mut world, node, false));
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

#[test]
fn p12_a_leader_that_stood_still_does_not_say_that_there_is_nothing() {
    // Goal: an empty pull rests on a read index, as what another leader has taken meanwhile may be there. Method: a leader that
    // nobody hears any more stands still until another one leads, and is asked before it has noticed.
    let mut world = World::new(15, OPTIONS);
    let topic = world.declare("orders", 1);
    let leader = world.wait_for_leader();
    let connection = world.connect(usize::MAX, leader).expect("it runs");
    let join = Request::Subscribe(Subscribe {
        topic,
        group: "workers".to_owned(),
        start: StartPolicy::Earliest,
        credit_messages: 0,
        credit_bytes: 0,
        options: String::new(),
        subscription: 1,
        member: MemberId::new(1),
        secret: 1,
    });
    let pull = || Request::Pull { subscription: 1, max_messages: 1, max_bytes: 0, min_bytes: 0, wait_ms: 0 };
    world.send(connection, join);
    world.run_for(100);
    world.send(connection, pull());
    world.run_for(100);
    assert_eq!(world.pulls_ended, [Ok(0)]);
    world.net.cut(Shape::Alone(leader));
    world.machines[leader].paused_until_us = world.now_us + 2_000_000;
    world.add_client(|me| Client::Producer(Producer::new(me, (leader + 1) % 3, topic, 9, 5000)));
    world.send(connection, pull());
    world.run_for(1900);
    assert!(!world.record.published_us.is_empty() && world.pulls_ended.len() == 1);
    assert!(world.run_until(2000, |world| world.pulls_ended.len() == 2));
    assert!(world.pulls_ended[1].is_err(), "{:?}", world.pulls_ended);
}
