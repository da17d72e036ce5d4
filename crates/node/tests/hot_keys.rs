//! Goal: one hot key stops nothing but itself: while thousands of its messages wait behind a lease, all others pass; and its
//! order is exact to the end (P4, P8, P9). Method: a whole node with real limits, a broker that crashes in between, with and
//! without a checkpoint, and an index that is read for what the state forgot.

mod support;

use mortarmq_node::{Query, QueryAnswer, Request};
use mortarmq_shard::SettleKind;
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{ConnectionId, TopicIncarnation};
use support::{CONNECTION, Rig, RigOptions, number_of, publish, settle, subscribe};

const OTHER: ConnectionId = ConnectionId::new(2);

/// Publishes hot messages, numbered from 1, with one of another key behind each, numbered from 1,000,001.
fn publish_all(rig: &mut Rig, topic: TopicIncarnation, count: u64) {
    for first in (1..=count).step_by(50) {
        let numbers = first..(first + 50).min(count + 1);
        rig.ask(CONNECTION, vec![publish(topic, 9, numbers.clone(), b"hot")]).expect("no crash");
        for number in numbers {
            let key = format!("key-{number}");
            let number = 1_000_000 + number;
            rig.ask(CONNECTION, vec![publish(topic, 0, number..number + 1, key.as_bytes())]).expect("no crash");
        }
    }
}

/// Acks everything that a connection is given, until there is nothing more; gives the numbers in order.
fn consume(rig: &mut Rig, connection: ConnectionId) -> Vec<u64> {
    let mut numbers = Vec::new();
    loop {
        let mine: Vec<_> = rig.take_deliveries();
        if mine.is_empty() {
            return numbers;
        }
        numbers.extend(mine.iter().map(number_of));
        let settles: Vec<Request> = mine.iter().map(|one| settle(1, one, SettleKind::Ack)).collect();
        rig.ask(connection, settles).expect("no crash");
    }
}

fn standing(rig: &mut Rig, seq: u64) -> &'static str {
    let (partition, seq) = (mortarmq_types::Partition::ZERO, mortarmq_types::Seq::new(seq));
    let query = Query::Trace { topic: "orders".to_owned(), partition, seq };
    let Ok(QueryAnswer::Trace(view)) = rig.query(query).expect("no crash").result else { panic!("a trace") };
    view.standing[0].standing
}

fn depth(rig: &mut Rig) -> (u64, u64) {
    let query = Query::Stats { topic: Some("orders".to_owned()) };
    let Ok(QueryAnswer::Stats(view)) = rig.query(query).expect("no crash").result else { panic!("stats") };
    let group = &view.topics[0].groups[0];
    assert_eq!(group.produced, group.delivered + group.dropped + group.dlq + group.depth, "P9");
    (group.delivered, group.depth)
}

fn hot_key(count: u64, options: RigOptions, checkpoint: bool) {
    let disk = MemoryDisk::new();
    let mut rig = Rig::start(&disk, options).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    // The first hot message is in the hands of a member that does nothing.
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 1)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(topic, 8, 1..2, b"hot")]).expect("no crash");
    let first = rig.take_deliveries();
    assert_eq!(first.len(), 1);
    publish_all(&mut rig, topic, count);
    rig.connect(OTHER);
    rig.ask(OTHER, vec![subscribe(topic, "billing", 1, 71, 256)]).expect("no crash");
    let others = consume(&mut rig, OTHER);
    assert!(others.iter().copied().eq(1_000_001..1_000_001 + count), "all others, in their order: {}", others.len());
    assert_eq!(depth(&mut rig), (count, count + 1), "P9");
    let packed = |rig: &Rig| rig.node.shard().state().paths.values().next().expect("a path").partitions[0].packed();
    assert_eq!(packed(&rig), count - 1023, "1,023 of them are entries behind the first, the rest is packed");
    // The last 50 hot ones stand before the last 50 others.
    for (seq, expected) in [(1, "leased"), (2, "pending"), (2 * count - 50, "pending"), (2 * count, "acked")] {
        assert_eq!(standing(&mut rig, seq), expected, "message {seq}");
    }
    if checkpoint {
        rig.node.handle_checkpoint_wanted(rig.now);
        rig.pump().expect("no crash");
    }
    let mut rig = Rig::start(&disk, RigOptions { now: rig.now, ..options }).expect("it recovers");
    assert_eq!((rig.from_checkpoint, packed(&rig)), (checkpoint, count - 1023));
    assert_eq!(depth(&mut rig), (count, count + 1), "P9");
    // The lease of the first ends with its session, and comes first again.
    rig.pass(40_000).expect("no crash");
    rig.connect(OTHER);
    rig.ask(OTHER, vec![subscribe(topic, "billing", 1, 72, 256)]).expect("no crash");
    let hot = consume(&mut rig, OTHER);
    assert_eq!(hot.len() as u64, count + 1);
    assert!(hot[0] == 1 && hot[1..].iter().copied().eq(1..=count), "P8: exact to the end");
    assert_eq!((depth(&mut rig), packed(&rig)), ((2 * count + 1, 0), 0));
    rig.node.shard().check();
}

#[test]
fn p8_thousands_of_one_key_wait_while_all_others_pass_over_a_crash() {
    hot_key(3000, RigOptions::default(), false);
}

#[test]
fn p8_thousands_of_one_key_wait_while_all_others_pass_over_a_checkpoint_and_from_the_index() {
    hot_key(2500, RigOptions { recent_bytes: 0, ..RigOptions::default() }, true);
}
