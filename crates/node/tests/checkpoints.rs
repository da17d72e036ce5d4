//! Checkpoints from the node's side: what a start goes on from, what may go, and when.

mod support;

use std::path::Path;

use mortarmq_node::{Answer, Query, QueryAnswer, Request};
use mortarmq_shard::SettleKind;
use mortarmq_storage::{Disk, MemoryDisk};
use mortarmq_types::{Partition, Seq};
use support::{CONNECTION, Rig, RigOptions, number_of, publish, settle, subscribe};

fn options() -> RigOptions {
    RigOptions {
        journal_file_bytes: 1 << 18,
        checkpoint_after_bytes: 1 << 18,
        recent_bytes: 4096,
        ..RigOptions::default()
    }
}

fn rig() -> Rig {
    let mut rig = Rig::start(&MemoryDisk::new(), options()).expect("a fresh disk");
    rig.connect(CONNECTION);
    rig
}

fn journal_files(rig: &Rig) -> Vec<String> {
    let names = rig.disk.list(Path::new("data/journal")).expect("the journal's folder");
    names.into_iter().filter(|name| name.ends_with(".journal")).collect()
}

#[test]
fn p1_a_start_goes_on_from_a_checkpoint_and_the_journal_before_it_is_gone() {
    let mut rig = rig();
    let topic = rig.declare("orders", 2).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    let mut acked = Vec::new();
    for first in (1..4001).step_by(50) {
        rig.ask(CONNECTION, vec![publish(topic, 9, first..first + 50, b"")]).expect("no crash");
        for delivery in rig.take_deliveries() {
            if !number_of(&delivery).is_multiple_of(7) || number_of(&delivery) < 3000 {
                rig.ask(CONNECTION, vec![settle(1, &delivery, SettleKind::Ack)]).expect("no crash");
                acked.push(number_of(&delivery));
            }
        }
    }
    assert!(rig.checkpoints > 5, "{} checkpoints", rig.checkpoints);
    let files = journal_files(&rig);
    assert!(files.len() <= 3 && !files.contains(&"00000001.journal".to_owned()), "old journal stays: {files:?}");
    let before = rig.node.shard().state().clone();
    let now = rig.now;
    let mut rig = Rig::start(&rig.disk.after_power_loss(7), RigOptions { now, ..options() }).expect("a clean stop");
    assert!(rig.from_checkpoint);
    let after = rig.node.shard().state();
    let books = |state: &mortarmq_shard::State| state.paths.values().map(|path| state.books(path)).collect::<Vec<_>>();
    assert_eq!(books(after), books(&before), "P9");
    assert_eq!(after.last_delivery, before.last_delivery, "P10");
    rig.connect(CONNECTION);
    let replies = rig.ask(CONNECTION, vec![publish(topic, 9, 4000..4001, b"")]).expect("no crash");
    assert!(
        matches!(&replies[0].result, Ok(Answer::Published(published)) if published.deduplicated),
        "P3: {replies:?}"
    );
    let peek =
        |from| Query::Peek { topic: "orders".to_owned(), partition: Partition::ZERO, from: Seq::new(from), max: 3 };
    for from in [1, 1000, 1998] {
        let Ok(QueryAnswer::Peek(view)) = rig.query(peek(from)).expect("no crash").result else { panic!("a peek") };
        assert_eq!(view.messages.len(), 3, "P1: messages from {from} on are there");
    }
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 71, 1000)]).expect("no crash");
    let mut again = Vec::new();
    for _ in 0..15 {
        for delivery in rig.take_deliveries() {
            assert!(!acked.contains(&number_of(&delivery)), "P6: an acked message came again");
            again.push(number_of(&delivery));
            rig.ask(CONNECTION, vec![settle(1, &delivery, SettleKind::Ack)]).expect("no crash");
        }
        rig.pass(3000).expect("no crash");
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
    }
    assert_eq!(again.len() + acked.len(), 4000, "P4: the rest came");
}

#[test]
fn no_file_of_a_deleted_topic_goes_before_a_checkpoint_covers_the_deletion() {
    let mut rig = rig();
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..50, b"")]).expect("no crash");
    let folder = format!("data/topics/{}", topic.to_hex());
    rig.ask(CONNECTION, vec![Request::Delete { name: "orders".to_owned() }]).expect("no crash");
    assert!(rig.disk.exists(Path::new(&folder)).expect("a look"), "no checkpoint covers the deletion yet");
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump().expect("no crash");
    assert!(!rig.disk.exists(Path::new(&folder)).expect("a look"), "the checkpoint freed it");
}

#[test]
fn a_checkpoint_is_not_taken_twice_of_the_same_state() {
    let mut rig = rig();
    rig.declare("orders", 1).expect("no crash");
    for _ in 0..3 {
        rig.node.handle_checkpoint_wanted(rig.now);
        rig.pump().expect("no crash");
    }
    assert_eq!(rig.checkpoints, 1);
}

#[test]
fn the_journal_of_a_small_state_stays_short_and_its_files_are_used_in_turn() {
    // Goal: nobody pays twice for journal, by files filled with zeros for each byte that is written. Method: 200 MiB of
    // publishes with a checkpoint due after 1 GiB; what the journal keeps, and how many files it ever filled.
    let options = RigOptions {
        journal_file_bytes: 16 << 20,
        spare_files: 9,
        checkpoint_after_bytes: 1 << 30,
        recent_bytes: 0,
        ..RigOptions::default()
    };
    let mut rig = Rig::start(&MemoryDisk::new(), options).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    let key = vec![7; 1 << 15];
    for first in (1..6401).step_by(16) {
        rig.ask(CONNECTION, vec![publish(topic, 9, first..first + 16, &key)]).expect("no crash");
    }
    assert_eq!(rig.checkpoints, 3, "one for each 64 MiB");
    let files = rig.disk.list(Path::new("data/journal")).expect("the journal's folder").len();
    assert!(files <= 6, "{files} files for 64 MiB between checkpoints");
}
