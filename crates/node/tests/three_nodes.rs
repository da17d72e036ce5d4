//! Goal: a shard on three or five nodes keeps every promise while its leader changes. Method: the real nodes, driven through
//! `node::drive` on disks in memory, in simulated time, with links that can be cut in each direction, lose, double and
//! delay; a record kept outside the broker judges every answer and every delivery at once, and the world compares the states
//! of all nodes at every commit index.

mod support;

#[path = "three_nodes/clients.rs"]
mod clients;
#[path = "three_nodes/consumer.rs"]
mod consumer;
#[path = "three_nodes/machine.rs"]
mod machine;
#[path = "three_nodes/net.rs"]
mod net;
#[path = "three_nodes/producer.rs"]
mod producer;
#[path = "random_lives/random.rs"]
mod random;
#[path = "three_nodes/record.rs"]
mod record;
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
