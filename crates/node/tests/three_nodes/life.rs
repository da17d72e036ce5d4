//! A random life of a cluster: publishers and consumers, and whatever can go wrong between, on and under the nodes.

use std::collections::BTreeMap;

use super::clients::Client;
use super::machine::NodeOptions;
use super::net::Shape;
use super::random::Random;
use super::setup::OPTIONS;
use super::world::{Event, World};

/// Plays a life; what it met.
pub(crate) fn live(seed: u64, steps: u64) -> BTreeMap<String, u64> {
    let (mut random, mut of_logs) = (Random::of(seed, 1), Random::of(seed, 5));
    let nodes = if random.one_in(4) { 5 } else { 3 };
    let options = NodeOptions {
        nodes,
        checkpoint_after_bytes: *random.pick(&[1 << 30, 4 << 20, 1 << 20]),
        recent_bytes: *random.pick(&[1 << 20, 20_000]),
        publish_timeout_ms: *random.pick(&[300, 5000]),
        peer_lag_bytes: *of_logs.pick(&[64 << 20, 20_000]),
        journal_keep_bytes: *of_logs.pick(&[256 << 20, 0]),
        ..OPTIONS
    };
    let mut world = World::new(seed, options);
    world.net.late_one_in = *random.pick(&[0, 100]);
    let topic = world.declare("orders", 2);
    for id in 0..3 {
        let every_us = random.between(8000, 60_000);
        let producer = world.add_producer(topic, id, every_us);
        if let (true, Client::Producer(found)) = (random.one_in(2), &mut world.clients[producer]) {
            found.line.stays = true;
        }
    }
    for _ in 0..random.between(1, 4) {
        world.add_consumer(topic);
    }
    for _ in 0..steps {
        let pause_ms = *random.pick(&[5, 60, 300, 1200, 3000]);
        world.run_for(1 + random.below(pause_ms));
        let node = usize::try_from(random.below(nodes as u64)).expect("few");
        strike(&mut world, &mut random, node);
    }
    world.record.reach(if nodes == 5 { "five nodes" } else { "three nodes" });
    world.end();
    if world.forwarded > 0 {
        world.record.reach("forwarded");
    }
    world.record.reached
}

fn strike(world: &mut World, random: &mut Random, node: usize) {
    let back_us = 1000 * random.between(50, 3000);
    match random.below(16) {
        0 => {
            let leader = world.leader().unwrap_or(node);
            world.record.reach("the leader is killed");
            world.kill(leader);
            world.at(back_us, Event::Start { node: leader });
        }
        1 => {
            world.kill(node);
            world.at(back_us, Event::Start { node });
        }
        2 => {
            world.record.reach("power loss");
            world.lose_power(node);
            world.at(back_us, Event::Start { node });
        }
        3 if random.one_in(3) => {
            world.record.reach("power loss of all");
            for node in 0..world.machines.len() {
                world.lose_power(node);
                world.at(back_us + random.below(300_000), Event::Start { node });
            }
        }
        3 | 4 => {
            cut(world, random, node);
            world.at(back_us, Event::Heal);
        }
        8 => {
            world.record.reach("pause");
            let node = if random.one_in(2) { world.leader().unwrap_or(node) } else { node };
            let until_us = world.now_us + 1000 * random.between(50, 4000);
            let paused_until_us = &mut world.machines[node].paused_until_us;
            *paused_until_us = until_us.max(*paused_until_us);
        }
        9 => {
            world.record.reach("slow disk");
            world.machines[node].sync_us = *random.pick(&[5000, 50_000, 900_000]);
            world.at(back_us, Event::FastDisk { node });
        }
        10 | 11 => {
            world.net.lost_one_in = *random.pick(&[0, 5, 20]);
            world.net.doubled_one_in = *random.pick(&[0, 5, 20]);
            world.at(back_us, Event::Heal);
        }
        13 => {
            if let Some(leader) = world.leader() {
                let now = world.now(leader);
                let leading = world.node_mut(leader).expect("it leads");
                if leading.handle_hand_over(now, None).is_ok() {
                    world.record.reach("hand over");
                }
                world.dispatch(leader);
            }
        }
        6 | 7 | 14 => {
            sleep(world, random);
        }
        _ => {
            let now = world.now(node);
            if let Some(found) = world.node_mut(node) {
                found.handle_checkpoint_wanted(now);
                world.dispatch(node);
            }
        }
    }
}

/// Cuts links in one of the shapes.
fn cut(world: &mut World, random: &mut Random, node: usize) {
    let other = (node + 1) % world.machines.len();
    let shape = match random.below(7) {
        0 => Shape::Alone(node),
        1 => Shape::Halves(1 + node / 2),
        2 => Shape::Ring,
        3 => Shape::Bridge(node, other),
        4 => Shape::OneWay(node, other),
        5 => Shape::Mute(node),
        _ => Shape::Alone(world.leader().unwrap_or(node)),
    };
    let name = format!("{shape:?}");
    world.record.reach(name.split('(').next().unwrap_or_default());
    world.net.cut(shape);
}

/// A consumer does nothing for a while: its session may end.
fn sleep(world: &mut World, random: &mut Random) {
    let until_us = world.now_us + 1000 * random.between(500, 6000);
    let consumers = world.clients.iter_mut().filter_map(|client| match client {
        Client::Consumer(consumer) => Some(consumer),
        Client::Producer(_) => None,
    });
    if let Some(consumer) = consumers.last() {
        consumer.sleeps_until_us = until_us;
    }
}
