//! What metrics tell of how long messages wait: nobody has to keep the time of each for it.

mod support;

use mortarmq_node::{Query, QueryAnswer, Request};
use mortarmq_shard::SettleKind;
use mortarmq_storage::MemoryDisk;
use support::{CONNECTION, Rig, RigOptions, publish, settle, subscribe};

/// For how many seconds the oldest message has been ready, and the oldest lease has lasted.
fn ages(rig: &mut Rig) -> (u64, u64) {
    let reply = rig.query(Query::Stats { topic: None }).expect("no crash");
    let Ok(QueryAnswer::Stats(stats)) = reply.result else { panic!("stats") };
    let group = &stats.topics[0].groups[0];
    (group.oldest_ready_s, group.oldest_leased_s)
}

/// Time passes, and the member says that it lives.
fn live(rig: &mut Rig, seconds: u64) {
    for _ in 0..seconds {
        rig.pass(1000).expect("no crash");
        rig.ask(CONNECTION, vec![Request::Heartbeat { subscription: 1, leave: false }]).expect("no crash");
    }
}

/// An age is told a little too low at most.
fn is_about(told: u64, age: u64) -> bool {
    told <= age && told + age / 4 + 2 >= age
}

#[test]
fn the_oldest_ready_message_and_the_oldest_lease_have_their_ages() {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    rig.ask(CONNECTION, vec![subscribe(topic, "billing", 1, 70, 1)]).expect("no crash");
    assert_eq!(ages(&mut rig), (0, 0), "there is nothing");
    rig.ask(CONNECTION, vec![publish(topic, 9, 1..2, b"")]).expect("no crash");
    let first = rig.take_deliveries();
    live(&mut rig, 10);
    let (ready, leased) = ages(&mut rig);
    assert!(ready == 0 && is_about(leased, 10), "{ready} {leased}: it is leased, and nothing else is there");
    rig.ask(CONNECTION, vec![publish(topic, 9, 2..4, b"")]).expect("no crash");
    live(&mut rig, 12);
    let (ready, leased) = ages(&mut rig);
    assert!(is_about(ready, 12) && is_about(leased, 22), "{ready} {leased}");
    // The second is leased from now on, the third still waits; a retry that backs off is not ready.
    rig.ask(CONNECTION, vec![settle(1, &first[0], SettleKind::Ack)]).expect("no crash");
    let second = rig.take_deliveries();
    live(&mut rig, 4);
    let (ready, leased) = ages(&mut rig);
    assert!(is_about(ready, 16) && is_about(leased, 4), "{ready} {leased}");
    rig.ask(CONNECTION, vec![settle(1, &second[0], SettleKind::Nack { delay_ms: 3_600_000, error: String::new() })])
        .expect("no crash");
    let third = rig.take_deliveries();
    rig.ask(CONNECTION, vec![settle(1, &third[0], SettleKind::Ack)]).expect("no crash");
    live(&mut rig, 3);
    assert_eq!(ages(&mut rig), (0, 0), "all that is left is not due");
}

#[test]
fn where_there_are_many_partitions_each_is_looked_at_too() {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    // More than one tick looks at; all that is published is in those that come last.
    let topics = ["a", "b", "c", "d", "orders"].map(|name| rig.declare(name, 1024).expect("no crash"));
    let last = topics[4];
    rig.ask(CONNECTION, vec![subscribe(last, "billing", 1, 70, 0)]).expect("no crash");
    rig.ask(CONNECTION, vec![publish(last, 9, 1..2, b"")]).expect("no crash");
    live(&mut rig, 20);
    rig.ask(CONNECTION, vec![publish(last, 9, 2..3, b"")]).expect("no crash");
    live(&mut rig, 10);
    let reply = rig.query(Query::Stats { topic: None }).expect("no crash");
    let Ok(QueryAnswer::Stats(stats)) = reply.result else { panic!("stats") };
    let ready = stats.topics[4].groups[0].oldest_ready_s;
    assert!(is_about(ready, 30), "{ready}");
}
