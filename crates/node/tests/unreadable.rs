//! Goal: a record whose bytes have changed is never served, and stops nobody but its own key; a damaged index stops nobody
//! (failure rule 3, P8, P11). Method: bytes of a segment or an index are changed under a node that reads everything from
//! its disk, and changed back.

mod support;

use std::path::{Path, PathBuf};

use mortarmq_node::{Act, Query, QueryAnswer, Request, SeekTarget};
use mortarmq_shard::SettleKind;
use mortarmq_storage::{Disk, MemoryDisk};
use mortarmq_types::{Cause, Partition, Seq};
use support::{CONNECTION, Rig, RigOptions, number_of, publish, settle, subscribe};

const NO_MEMORY: RigOptions = RigOptions { recent_bytes: 0, ..DEFAULT };
const DEFAULT: RigOptions = RigOptions::DEFAULT;

fn start(disk: &MemoryDisk) -> Rig {
    let mut rig = Rig::start(disk, NO_MEMORY).expect("the journal is sound");
    rig.connect(CONNECTION);
    rig
}

/// The one file of topic and partition with this ending.
fn file(disk: &MemoryDisk, ending: &str) -> PathBuf {
    let mut path = PathBuf::from("data/topics");
    for _ in 0..2 {
        let names = disk.list(&path).expect("a folder");
        path.push(&names[0]);
    }
    let name = disk.list(&path).expect("a folder").into_iter().find(|name| name.ends_with(ending));
    path.join(name.expect("a file of this kind"))
}

/// Changes a byte, or changes it back.
fn flip(disk: &MemoryDisk, path: &Path, offset: u64) {
    let file = disk.open(path).expect("the file is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("inside the file");
    file.write_all_at(&[byte[0] ^ 0x10], offset).expect("no crash");
}

/// Where the record of a sequence ends in the segment, by the index: its last byte is one of its checksum.
fn end_of_record(disk: &MemoryDisk, seq: u64) -> u64 {
    let (index, line) = (disk.open(&file(disk, ".index")).expect("an index"), 32 + seq * 24);
    let mut offset = [0; 4];
    index.read_exact_at(&mut offset, line + 12).expect("the next record has a line");
    u64::from(u32::from_le_bytes(offset))
}

fn numbers(rig: &mut Rig) -> Vec<u64> {
    rig.take_deliveries().iter().map(number_of).collect()
}

/// Acks whatever comes until nothing does; says what came.
fn drain(rig: &mut Rig) -> Vec<u64> {
    let mut seen = Vec::new();
    loop {
        let delivered = rig.take_deliveries();
        if delivered.is_empty() {
            return seen;
        }
        seen.extend(delivered.iter().map(number_of));
        let acks = delivered.iter().map(|delivery| settle(1, delivery, SettleKind::Ack)).collect();
        rig.ask(CONNECTION, acks).expect("no crash");
    }
}

fn standing(rig: &mut Rig, seq: u64) -> &'static str {
    let (topic, partition, seq) = ("orders".to_owned(), Partition::ZERO, Seq::new(seq));
    match rig.query(Query::Trace { topic, partition, seq }).expect("no crash").result {
        Ok(QueryAnswer::Trace(view)) => view.standing[0].standing,
        other => panic!("a trace, not {other:?}"),
    }
}

#[test]
fn rule_3_a_rotten_record_is_held_and_only_its_key_waits() {
    let disk = MemoryDisk::new();
    let mut rig = start(&disk);
    let topic = rig.declare("orders", 1).expect("no crash");
    // 1 a, 2 b, 3 a, 4 b, 5 a, 6 without a key.
    for (number, key) in [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a"), (6, "")] {
        rig.ask(CONNECTION, vec![publish(topic, 9, number..number + 1, key.as_bytes())]).expect("no crash");
    }
    // Without a checkpoint a start would write the segment anew from the journal.
    rig.node.handle_checkpoint_wanted(rig.now);
    rig.pump().expect("no crash");
    let (segment, rotten) = (file(&disk, ".segment"), end_of_record(&disk, 3) - 1);
    flip(&disk, &segment, rotten);
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    let delivered = rig.take_deliveries();
    assert_eq!(delivered.iter().map(number_of).collect::<Vec<_>>(), [1, 2, 4, 6], "P8: nothing passes 3 in its key");
    let acks = delivered.iter().map(|delivery| settle(1, delivery, SettleKind::Ack)).collect();
    rig.ask(CONNECTION, acks).expect("no crash");
    // However long nobody looks, it is neither delivered nor dropped, and nothing of it costs an attempt.
    rig.pass(120_000).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 2, 71, 100)]).expect("no crash");
    assert_eq!(numbers(&mut rig), [0_u64; 0]);
    assert_eq!(
        (standing(&mut rig, 3), standing(&mut rig, 5), rig.node.gauges().unreadable),
        ("unreadable", "pending", 1)
    );
    rig.node.check();

    // A start tries again, and holds it again; its cause is told.
    drop(rig);
    let mut rig = start(&disk);
    assert_eq!(standing(&mut rig, 3), "pending", "tried again");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 72, 100)]).expect("no crash");
    assert_eq!((numbers(&mut rig), standing(&mut rig, 3)), (Vec::new(), "unreadable"));

    // Mended, everything comes, in order, at its first attempt.
    drop(rig);
    flip(&disk, &segment, rotten);
    let mut rig = start(&disk);
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 73, 100)]).expect("no crash");
    for (number, cause) in [(3, Cause::Released), (5, Cause::Released)] {
        let delivered = rig.take_deliveries();
        let told: Vec<_> = delivered.iter().map(|one| (number_of(one), one.attempt.get(), one.cause)).collect();
        assert_eq!(told, [(number, 1, cause)]);
        rig.ask(CONNECTION, vec![settle(1, &delivered[0], SettleKind::Ack)]).expect("no crash");
    }
    rig.node.check();
}

#[test]
fn rule_3_many_rotten_records_stop_nobody_else() {
    let disk = MemoryDisk::new();
    let mut rig = start(&disk);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..61, b"")]).expect("no crash");
    let (segment, rotten) = (file(&disk, ".segment"), 10_u64..50);
    for seq in rotten.clone().step_by(3) {
        flip(&disk, &segment, end_of_record(&disk, seq) - 1);
    }
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 7)]).expect("no crash");
    let mut seen = drain(&mut rig);
    seen.sort_unstable();
    let sound = (1..61).filter(|seq| !rotten.clone().step_by(3).any(|rotten| rotten == *seq));
    assert_eq!(seen, sound.collect::<Vec<u64>>(), "credit of what never left is free again");
    rig.node.check();
}

#[test]
fn rule_3_a_damaged_index_stops_nobody() {
    // What the index says can be read from the records: their place from those before them, their key from themselves.
    for damaged in [&[1_u64][..], &[2, 3, 4], &[6], &[1, 2, 3, 4, 5, 6]] {
        let disk = MemoryDisk::new();
        let mut rig = start(&disk);
        let topic = rig.declare("orders", 1).expect("no crash");
        for (number, key) in [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "a"), (6, "")] {
            rig.ask(CONNECTION, vec![publish(topic, 9, number..number + 1, key.as_bytes())]).expect("no crash");
        }
        let index = file(&disk, ".index");
        for seq in damaged {
            flip(&disk, &index, 32 + (seq - 1) * 24 + seq % 24);
        }
        rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
        let seen = drain(&mut rig);
        let mut all = seen.clone();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4, 5, 6], "damaged: {damaged:?}");
        let place = |number| seen.iter().position(|seen| *seen == number).expect("it came");
        assert!(place(1) < place(3) && place(3) < place(5) && place(2) < place(4), "P8: {seen:?}");
        assert_eq!(rig.node.gauges().unreadable, 0);
    }
}

#[test]
fn p4_a_path_that_is_moved_past_damage_while_it_is_read_goes_on_by_itself() {
    // Goal: what lies behind is delivered although nobody publishes or settles any more. Method: neither index nor record of 1
    // can be read; while that is tried an operator moves the group behind it.
    let disk = MemoryDisk::new();
    let mut rig = start(&disk);
    let topic = rig.declare("orders", 1).expect("no crash");
    for number in 1..7 {
        rig.ask(CONNECTION, vec![publish(topic, 9, number..number + 1, b"")]).expect("no crash");
    }
    let (record, index) = (end_of_record(&disk, 1) - 1, file(&disk, ".index"));
    flip(&disk, &file(&disk, ".segment"), record);
    flip(&disk, &index, 33);
    rig.slow = true;
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    while rig.record_reads == 0 {
        assert!(rig.finish_one(0).expect("no crash"), "the records are read in place of the index");
    }
    let to = SeekTarget::At(vec![(Partition::ZERO, Seq::new(4))]);
    let act = Act::Seek { topic: "orders".to_owned(), group: "billing".to_owned(), to };
    rig.begin_act(act).expect("no crash");
    while rig.finish_journal().expect("no crash") {
        rig.pump().expect("no crash");
    }
    let position = |rig: &Rig| rig.node.shard().state().paths.values().next().expect("a path").partitions[0].position();
    assert_eq!((position(&rig), rig.record_reads), (Seq::new(4), 1), "it moved while the read is under way");
    assert_eq!(numbers(&mut rig), [0_u64; 0]);
    rig.slow = false;
    rig.catch_up().expect("no crash");
    assert_eq!(numbers(&mut rig), [4, 5, 6]);
    assert_eq!(rig.node.gauges().unreadable, 0, "nobody waits for 1");
    rig.node.check();
}

#[test]
fn p7_what_waits_for_a_read_until_its_lease_has_ended_is_sent_under_the_next_one_only() {
    let disk = MemoryDisk::new();
    let mut rig = start(&disk);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..4, b"")]).expect("no crash");
    rig.slow = true;
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 100)]).expect("no crash");
    while rig.record_reads == 0 {
        assert!(rig.finish_one(0).expect("no crash"), "leased, and being read");
    }
    // The member lives on; the disk takes longer than the lease.
    for _ in 0..9 {
        rig.pass(4_000).expect("no crash");
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
        while rig.finish_journal().expect("no crash") {
            rig.pump().expect("no crash");
        }
    }
    assert_eq!(numbers(&mut rig), [0_u64; 0]);
    rig.slow = false;
    rig.catch_up().expect("no crash");
    let told: Vec<_> = rig.take_deliveries().iter().map(|one| (number_of(one), one.attempt.get(), one.cause)).collect();
    assert_eq!(told, [1, 2, 3].map(|number| (number, 2, Cause::LeaseExpired)));
    rig.node.check();
}
