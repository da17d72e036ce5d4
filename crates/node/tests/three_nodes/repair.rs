//! Bytes that rot on one of three nodes: they are repaired from another, whatever file they stand in and whoever leads, and a message
//! that was held for them is delivered (failure rule 3, P11).

use std::path::{Path, PathBuf};

use mortarmq_node::{Request, Subscribe};
use mortarmq_shard::{SettleItem, SettleKind, StartPolicy};
use mortarmq_storage::{Disk, Scrub, ScrubStep};
use mortarmq_types::{MemberId, Partition, Seq, TopicIncarnation};

use super::machine::{Crash, DATA_DIR, NodeOptions};
use super::setup::{GROUP, OPTIONS};
use super::world::World;

/// Everything is read from the disk.
const FROM_DISK: NodeOptions = NodeOptions { recent_bytes: 0, ..OPTIONS };

/// The first file of a topic with this ending.
fn file(world: &World, node: usize, topic: TopicIncarnation, ending: &str) -> PathBuf {
    let disk = &world.machines[node].disk;
    let folder = Path::new(DATA_DIR).join("topics").join(topic.to_hex()).join("0");
    let name = disk.list(&folder).expect("a folder").into_iter().find(|name| name.ends_with(ending));
    folder.join(name.expect("a file of this kind"))
}

/// Some bytes of a file rot: every bit of a stretch is another.
fn rot(world: &World, node: usize, path: &Path, offset: u64, bytes: usize) {
    let file = world.machines[node].disk.open(path).expect("it is there");
    let mut found = vec![0; bytes];
    file.read_exact_at(&mut found, offset).expect("inside the file");
    found.iter_mut().for_each(|byte| *byte = !*byte);
    file.write_all_at(&found, offset).and_then(|()| file.sync_data()).expect("no crash");
}

/// Where the record of a sequence begins, by the index of the first segment.
fn begin_of(world: &World, node: usize, topic: TopicIncarnation, seq: u64) -> u64 {
    let index = world.machines[node].disk.open(&file(world, node, topic, ".index")).expect("an index");
    let mut offset = [0; 4];
    index.read_exact_at(&mut offset, 32 + (seq - 1) * 24 + 12).expect("it has a line");
    u64::from(u32::from_le_bytes(offset))
}

/// Every node makes a checkpoint.
fn checkpoint_everywhere(world: &mut World) {
    for node in 0..3 {
        let now = world.now(node);
        world.node_mut(node).expect("it runs").handle_checkpoint_wanted(now);
        world.dispatch(node);
    }
    world.run_for(300);
}

/// A topic with messages that nobody has read, on the disks of all nodes.
fn filled(seed: u64) -> (World, TopicIncarnation, usize) {
    let mut world = World::new(seed, FROM_DISK);
    let topic = world.declare("orders", 1);
    world.add_producer(topic, 1, 4000);
    world.run_for(600);
    world.wind_down();
    world.run_for(500);
    checkpoint_everywhere(&mut world);
    let leader = world.leader().expect("all is well");
    (world, topic, leader)
}

fn repaired(world: &World, node: usize) -> u64 {
    world.node(node).map_or(0, |found| found.gauges().repaired)
}

/// The scrub of a node reads everything once, and tells what it finds.
fn scrub(world: &mut World, node: usize) -> usize {
    let mut scrub = Scrub::new(std::sync::Arc::new(world.machines[node].disk.clone()), PathBuf::from(DATA_DIR));
    let mut found = Vec::new();
    loop {
        let step = scrub.step(1 << 20, &mut |finding| found.extend(finding.stretch())).expect("the disk is there");
        if let ScrubStep::PassDone(_) = step {
            break;
        }
    }
    let now = world.now(node);
    for stretch in &found {
        world.node_mut(node).expect("it runs").handle_damage(now, *stretch, false);
    }
    world.dispatch(node);
    found.len()
}

#[test]
fn rule_3_a_record_that_rots_on_the_leader_is_repaired_from_a_follower_and_its_message_delivered() {
    let (mut world, topic, leader) = filled(21);
    let path = file(&world, leader, topic, ".segment");
    for seq in [3, 7, 8] {
        let at = begin_of(&world, leader, topic, seq);
        // Of one the position, of the others the record.
        rot(&world, leader, &path, at + if seq == 3 { 5 } else { 60 }, 8);
    }
    // With its neighbours.
    let at = begin_of(&world, leader, topic, 20);
    rot(&world, leader, &path, at, 500);
    world.add_consumer(topic);
    assert!(world.run_until(5000, |world| repaired(world, leader) >= 4), "{}", repaired(&world, leader));
    assert!(world.node(leader).expect("it runs").gauges().unreadable >= 4, "they were held");
    world.end();
    assert!(world.record.deliveries() > 50);
}

#[test]
fn rule_3_what_rots_on_a_follower_is_found_by_its_scrub_and_repaired_in_every_kind_of_file() {
    let (mut world, topic, leader) = filled(22);
    world.add_consumer(topic);
    world.run_for(1500);
    checkpoint_everywhere(&mut world);
    let follower = (leader + 1) % 3;
    for (ending, at, bytes) in [(".segment", 0, 4), (".segment", 700, 600), (".index", 90, 60), (".ledger", 300, 400)] {
        let path = file(&world, follower, topic, ending);
        rot(&world, follower, &path, at, bytes);
        // A header is read when a file is opened, so that of this one is met by the next process.
        assert!(scrub(&mut world, follower) > 0, "{ending} at {at}");
        assert!(
            world.run_until(3000, |world| world.node(follower).expect("it runs").gauges().repairing == 0),
            "{ending} at {at}"
        );
        for _ in 0..30 {
            // A ledger is read up to its first damage.
            if scrub(&mut world, follower) == 0 {
                break;
            }
            world.run_for(300);
        }
        assert_eq!(scrub(&mut world, follower), 0, "{ending} at {at}");
    }
    assert!(repaired(&world, follower) > 4);
    world.end();
}

#[test]
fn rule_3_what_no_other_node_has_stays_held_until_one_has_it() {
    let (mut world, topic, leader) = filled(23);
    let at = begin_of(&world, leader, topic, 5) + 60;
    for node in 0..3 {
        let path = file(&world, node, topic, ".segment");
        rot(&world, node, &path, at, 8);
    }
    world.add_consumer(topic);
    assert!(world.run_until(5000, |world| world.node(leader).expect("it runs").gauges().unreadable > 0));
    world.run_for(8000);
    assert_eq!((0..3).map(|node| repaired(&world, node)).sum::<u64>(), 0);
    // On one of them it is put right, as from a copy of its disk.
    let other = (leader + 2) % 3;
    let path = file(&world, other, topic, ".segment");
    rot(&world, other, &path, at, 8);
    assert!(world.run_until(60_000, |world| repaired(world, leader) == 1), "it asks again");
    assert!(world.run_until(60_000, |world| (0..3).all(|node| repaired(world, node) == 1 || node == other)));
    world.end();
}

/// Members of nobody take everything and dead-letter one message.
fn dead_letter(world: &mut World, topic: TopicIncarnation, leader: usize, seq: u64) {
    let connection = world.connect(usize::MAX, leader).expect("it runs");
    let subscribe = Request::Subscribe(Subscribe {
        topic,
        group: "workers".to_owned(),
        start: StartPolicy::Earliest,
        credit_messages: 1000,
        credit_bytes: u32::MAX,
        options: format!("{{{GROUP}}}"),
        subscription: 1,
        member: MemberId::new(99),
        secret: 99,
    });
    world.send(connection, subscribe);
    let delivery = |world: &World| {
        let state = world.node(leader).expect("it runs").shard().state();
        let path = state.paths.values().find(|path| path.topic == topic)?;
        let entry = path.partitions.get(0)?.lease_of(Seq::new(seq))?;
        Some(entry.lease()?.delivery_id)
    };
    assert!(world.run_until(1000, |world| delivery(world).is_some()), "it is leased");
    world.run_for(50);
    let first_delivery = delivery(world).expect("just seen");
    for node in 0..3 {
        // Of each node another message, and of all but one this one is sound.
        if node == leader || node == (leader + 1) % 3 {
            let at = begin_of(world, node, topic, if node == leader { seq } else { seq + 1 }) + 60;
            let path = file(world, node, topic, ".segment");
            rot(world, node, &path, at, 8);
        }
    }
    let item = |seq, first_delivery| SettleItem {
        partition: Partition::ZERO,
        first_seq: Seq::new(seq),
        first_delivery,
        count: 1,
        kind: SettleKind::DeadLetter { error: "no use".to_owned() },
    };
    let next = {
        let state = world.node(leader).expect("it runs").shard().state();
        let path = state.paths.values().find(|path| path.topic == topic).expect("it is there");
        path.partitions
            .get(0)
            .and_then(|partition| partition.lease_of(Seq::new(seq + 1))?.lease())
            .map(|lease| lease.delivery_id)
    };
    let items = vec![item(seq, first_delivery), item(seq + 1, next.expect("leased with it"))];
    world.send(connection, Request::Settle { subscription: 1, items });
    world.run_for(30);
    world.connections.remove(&connection);
    let now = world.now(leader);
    world.node_mut(leader).expect("it runs").handle_disconnected(now, connection);
}

#[test]
fn p4_a_dead_letter_waits_for_the_repair_of_its_message_and_has_its_value_on_every_node() {
    let (mut world, topic, leader) = filled(26);
    dead_letter(&mut world, topic, leader, 5);
    let follower = (leader + 1) % 3;
    assert!(world.run_until(5000, |world| repaired(world, leader) == 1 && repaired(world, follower) == 1));
    let letters = world.node(leader).expect("it runs").shard().state().dead_letters_of(topic).expect("it has some");
    world.run_for(500);
    for node in 0..3 {
        let reader = &world.machines[node].process.as_ref().expect("it runs").reader;
        let read = reader.read_records(letters, Partition::ZERO, Seq::FIRST, Seq::MAX, usize::MAX).expect("sound");
        assert_eq!(read.len(), 2, "node {node}");
        for letter in read {
            let record = mortarmq_shard::record::open_record(&letter.record).expect("sound");
            let (body, _) = mortarmq_wire::RecordBody::parse_stored(record.body(), true).expect("a body");
            assert!(!body.value().is_empty(), "node {node}: {body:?}");
        }
    }
    world.check_equal();
}

#[test]
fn p4_a_start_that_makes_dead_letters_anew_waits_for_the_repair_too() {
    let (mut world, topic, leader) = filled(27);
    let follower = (leader + 1) % 3;
    world.machines[follower].holds_segments = true;
    dead_letter(&mut world, topic, leader, 5);
    // Killed before it has made the letter: its next life makes it, and has nobody to ask at first.
    world.kill(follower);
    world.machines[follower].holds_segments = false;
    world.start(follower);
    assert!(world.run_until(5000, |world| repaired(world, follower) == 1));
    world.run_for(500);
    world.check_equal();
}

#[test]
fn p12_a_leader_that_is_gone_in_the_middle_of_a_repair_is_no_harm() {
    let (mut world, topic, leader) = filled(24);
    let path = file(&world, leader, topic, ".segment");
    let at = begin_of(&world, leader, topic, 5) + 60;
    rot(&world, leader, &path, at, 8);
    world.net.delay_us = 20_000;
    world.add_consumer(topic);
    assert!(world.run_until(5000, |world| world.node(leader).expect("it runs").gauges().repairing > 0));
    world.kill(leader);
    world.net.delay_us = 400;
    world.run_for(3000);
    world.start(leader);
    world.run_for(500);
    assert!(scrub(&mut world, leader) > 0, "a restart forgets what it was about; the scrub does not");
    assert!(world.run_until(5000, |world| repaired(world, leader) == 1));
    world.end();
}

#[test]
fn p1_a_crash_at_any_operation_of_a_repair_loses_nothing() {
    let mut met = 0;
    for operation in 0..6 {
        for is_power in [false, true] {
            let (mut world, topic, leader) = filled(25);
            let path = file(&world, leader, topic, ".segment");
            let at = begin_of(&world, leader, topic, 5) + 60;
            rot(&world, leader, &path, at, 8);
            world.machines[leader].crash = Some(Crash { pieces: None, operation, is_power, is_armed: false });
            world.add_consumer(topic);
            world.run_until(5000, |world| world.machines[leader].crash.is_none());
            met += u64::from(world.machines[leader].crash.take().is_none());
            world.run_for(2000);
            if repaired(&world, leader) == 0 {
                scrub(&mut world, leader);
                world.run_for(2000);
            }
            world.end();
        }
    }
    assert!(met >= 8, "{met} crashes");
}
