//! What the leader proposes by itself while the log is nearly full.

use mortarmq_node::Request;
use mortarmq_types::TopicIncarnation;

use super::clients::Client;
use super::net::Shape;
use super::setup::OPTIONS;
use super::support::run_of;
use super::world::World;

/// What may be proposed and not committed.
const UNDER_WAY_MAX: usize = 64 << 20;
/// What opens each batch.
const BATCH_HEADER: usize = 29;

/// Members whose sessions all began with one office, and nobody who renews them.
fn deserted(seed: u64) -> (World, TopicIncarnation) {
    let mut world = World::new(seed, OPTIONS);
    let topic = world.declare("orders", 1);
    let consumers: Vec<usize> = (0..8).map(|_| world.add_consumer(topic)).collect();
    assert!(world.run_until(3000, |world| members(world) == 8), "{}", members(&world));
    for consumer in consumers {
        let Client::Consumer(found) = &mut world.clients[consumer] else { unreachable!("just added") };
        found.sleeps_until_us = u64::MAX;
    }
    let leader = world.wait_for_leader();
    let now = world.now(leader);
    let heir = world.node_mut(leader).expect("it runs").handle_hand_over(now, None).expect("others are heard");
    world.dispatch(leader);
    assert!(world.run_until(1000, |world| world.leader() == Some(usize::from(heir.get()))));
    (world, topic)
}

fn members(world: &World) -> usize {
    let Some(node) = world.leader().and_then(|leader| world.node(leader)) else { return 0 };
    node.shard().state().paths.values().map(|path| path.members.len()).sum()
}

/// Publishes to the leader, as one batch, a message that makes an entry of so many bytes. It is too large to be stored.
fn fill(world: &mut World, leader: usize, topic: TopicIncarnation, entry_bytes: usize) {
    let overhead = BATCH_HEADER + run_of(topic, 0, 0, b"", b"").commands.len();
    let run = run_of(topic, 0, 0, &vec![0; entry_bytes - overhead], b"");
    assert_eq!(run.commands.len() + BATCH_HEADER, entry_bytes);
    let connection = world.connect(usize::MAX, leader).expect("it runs");
    world.connections.remove(&connection);
    let now = world.now(leader);
    world.node_mut(leader).expect("it runs").handle_requests(now, connection, vec![Request::Publish(run)]);
    world.dispatch(leader);
    world.run_for(5);
}

#[test]
fn the_end_of_a_member_is_proposed_also_when_the_log_has_no_room_for_it_at_first() {
    // Goal: what the leader has to propose by itself is not lost with a batch that the log does not take. Method: at the
    // moment in which the sessions of eight members end, a little less room is left than their ends need.
    let (mut world, _) = deserted(13);
    assert!(world.run_until(5000, |world| members(world) == 0), "nobody renews");
    let lost_us = world.now_us;
    let (mut world, topic) = deserted(13);
    world.run_for((lost_us - world.now_us) / 1000 - 100);
    let leader = world.wait_for_leader();
    world.net.cut(Shape::Alone(leader));
    (0..4).for_each(|_| fill(&mut world, leader, topic, UNDER_WAY_MAX / 4 - 25));
    assert_eq!(members(&world), 8);
    world.run_for(150);
    world.net.heal();
    assert!(world.run_until(5000, |world| members(world) == 0), "{} members stay for ever", members(&world));
    world.end();
}
