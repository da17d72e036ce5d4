//! A batch waits for as many publishes as the one before had, but only while the driver waits for them too.

mod support;

use mortarmq_node::Request;
use mortarmq_shard::SettleKind;
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{ConnectionId, TopicIncarnation};
use support::{CONNECTION, Rig, RigOptions, publish, settle, subscribe};

/// A node that has just answered a batch of so many publishes, and waits for more.
fn gathering(publishes: u64) -> (Rig, TopicIncarnation) {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    assert_eq!(answers(&mut rig, publish(topic, 9, 0..publishes, b"")), publishes);
    rig.node.handle_gathering(true);
    (rig, topic)
}

/// How many answers there are once everything was carried out.
fn answers(rig: &mut Rig, request: Request) -> u64 {
    rig.ask(CONNECTION, vec![request]).expect("no crash").len() as u64
}

#[test]
fn a_batch_is_closed_when_as_many_publishes_are_there_as_the_last_one_had() {
    let (mut rig, topic) = gathering(10);
    assert_eq!(rig.node.missing(), 10);
    assert_eq!(answers(&mut rig, publish(topic, 9, 10..14, b"")), 0);
    assert_eq!((answers(&mut rig, publish(topic, 9, 14..19, b"")), rig.node.missing()), (0, 1));
    assert_eq!(answers(&mut rig, publish(topic, 9, 19..20, b"")), 10, "all in one batch");
    assert_eq!(rig.node.missing(), 10);
}

#[test]
fn nothing_is_held_back_once_the_driver_waits_no_more() {
    let (mut rig, topic) = gathering(10);
    assert_eq!(answers(&mut rig, publish(topic, 9, 10..14, b"")), 0);
    rig.node.handle_gathering(false);
    rig.pump().expect("no crash");
    assert_eq!(rig.replies.remove(&CONNECTION).map(|replies| replies.len()), Some(4));
    assert_eq!(answers(&mut rig, publish(topic, 9, 14..15, b"")), 1);
}

#[test]
fn whoever_comes_alone_waits_for_nobody() {
    let (mut rig, topic) = gathering(1);
    for number in 1..10 {
        assert_eq!(rig.node.missing(), 0);
        assert_eq!(answers(&mut rig, publish(topic, 9, number..number + 1, b"")), 1);
    }
}

#[test]
fn a_delivery_for_new_credit_is_not_held_back() {
    let (mut rig, topic) = gathering(10);
    rig.node.handle_gathering(false);
    let consumer = ConnectionId::new(2);
    rig.connect(consumer);
    rig.ask(consumer, vec![subscribe(topic, "billing", 1, 70, 4)]).expect("no crash");
    assert_eq!(rig.take_deliveries().len(), 4);
    answers(&mut rig, publish(topic, 9, 10..20, b""));
    rig.node.handle_gathering(true);
    assert_eq!(answers(&mut rig, publish(topic, 9, 20..21, b"")), 0, "it waits for nine more");
    let more = Request::Credit { subscription: 1, add: true, messages: 3, bytes: 0 };
    rig.ask(consumer, vec![more]).expect("no crash");
    assert_eq!(rig.take_deliveries().len(), 3);
    assert_eq!(rig.replies.remove(&CONNECTION).map(|replies| replies.len()), Some(1), "and takes it along");
}

#[test]
fn a_settle_is_not_held_back_as_its_consumer_waits_for_what_comes_next() {
    let (mut rig, topic) = gathering(10);
    rig.node.handle_gathering(false);
    let consumer = ConnectionId::new(2);
    rig.connect(consumer);
    rig.ask(consumer, vec![subscribe(topic, "billing", 1, 70, 4)]).expect("no crash");
    let first = rig.take_deliveries();
    answers(&mut rig, publish(topic, 9, 10..20, b""));
    rig.node.handle_gathering(true);
    assert_eq!(answers(&mut rig, publish(topic, 9, 20..21, b"")), 0, "it waits for nine more");
    let replies = rig.ask(consumer, vec![settle(1, &first[0], SettleKind::Ack)]).expect("no crash");
    assert_eq!((replies.len(), rig.take_deliveries().len()), (1, 1));
}

#[test]
fn a_batch_that_nothing_more_goes_into_is_not_held_back() {
    let (mut rig, topic) = gathering(10_000);
    let key = [7; 1024];
    assert_eq!(answers(&mut rig, publish(topic, 9, 10_000..11_000, &key)), 0, "it waits for nine thousand more");
    // With these it is full, though it has fewer than the one before.
    let full = [11_000..13_000, 13_000..16_000].map(|numbers| publish(topic, 9, numbers, &key));
    let replies = rig.ask(CONNECTION, full.into()).expect("no crash");
    assert_eq!(replies.len(), 6000, "all in one batch");
    // The one that found no room joins the next batch, and waits there as it came.
    let over = [16_000..21_000, 21_000..21_001].map(|numbers| publish(topic, 9, numbers, &key));
    let replies = rig.ask(CONNECTION, over.into()).expect("no crash");
    assert_eq!((replies.len(), rig.node.missing()), (5000, 4999));
}
