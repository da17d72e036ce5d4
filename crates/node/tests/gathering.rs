//! A batch waits for the connections that are expected to publish again, but only while the driver waits for them too.

mod support;

use mortarmq_node::Request;
use mortarmq_shard::SettleKind;
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{ConnectionId, TopicIncarnation};
use std::ops::Range;
use support::{Rig, RigOptions, publish, settle, subscribe};

const CONSUMER: ConnectionId = ConnectionId::new(1000);

/// A node, and publishers with a connection each.
struct Crowd {
    rig: Rig,
    topic: TopicIncarnation,
    /// The next number of each.
    numbers: Vec<u64>,
}

impl Crowd {
    /// Publishers of which each has come back whenever it was answered, and was answered just now.
    fn eager(publishers: usize) -> Self {
        let mut crowd = Self::new(publishers);
        for _ in 0..20 {
            crowd.round(0..publishers);
        }
        crowd.rig.node.handle_gathering(true);
        crowd
    }

    fn new(publishers: usize) -> Self {
        let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
        for publisher in 0..publishers {
            rig.connect(connection(publisher));
        }
        let topic = rig.declare("orders", 1).expect("no crash");
        Self { rig, topic, numbers: vec![0; publishers] }
    }

    /// All of these publish at once, and one batch answers them.
    fn round(&mut self, publishers: Range<usize>) {
        self.rig.node.handle_gathering(false);
        let count = publishers.len();
        for publisher in publishers {
            let (now, request) = (self.rig.now, self.next(publisher));
            self.rig.node.handle_requests(now, connection(publisher), vec![request]);
        }
        self.rig.pump().expect("no crash");
        assert_eq!(self.replies(), count);
    }

    fn next(&mut self, publisher: usize) -> Request {
        let number = self.numbers[publisher];
        self.numbers[publisher] += 1;
        publish(self.topic, publisher as u64 + 1, number..number + 1, b"")
    }

    /// One publishes; how many answers there are once everything was carried out.
    fn publish(&mut self, publisher: usize) -> usize {
        let request = self.next(publisher);
        self.ask(connection(publisher), request)
    }

    fn ask(&mut self, connection: ConnectionId, request: Request) -> usize {
        let replies = self.rig.ask(connection, vec![request]).expect("no crash").len();
        replies + self.replies()
    }

    fn replies(&mut self) -> usize {
        std::mem::take(&mut self.rig.replies).values().map(Vec::len).sum()
    }
}

fn connection(publisher: usize) -> ConnectionId {
    ConnectionId::new(publisher as u64 + 1)
}

#[test]
fn a_batch_is_closed_when_all_are_back_that_were_answered_before() {
    let mut crowd = Crowd::eager(10);
    assert_eq!(crowd.rig.node.missing(), 10);
    assert_eq!((0..9).map(|publisher| crowd.publish(publisher)).sum::<usize>(), 0);
    assert_eq!(crowd.rig.node.missing(), 1);
    assert_eq!(crowd.publish(9), 10, "all in one batch");
    assert_eq!(crowd.rig.node.missing(), 10);
}

#[test]
fn nobody_is_waited_for_who_does_not_use_to_come_back() {
    let mut crowd = Crowd::new(30);
    for _ in 0..20 {
        // Ten come back at once; the others take turns.
        crowd.round(0..15);
        crowd.round(0..10);
        crowd.round(0..10);
        crowd.round(0..10);
    }
    let expected = crowd.rig.node.missing();
    assert!((8..=10).contains(&expected), "{expected}");
    let mut crowd = Crowd::new(30);
    for first in (0..30).cycle().step_by(10).take(30) {
        crowd.round(first..first + 10);
    }
    assert_eq!(crowd.rig.node.missing(), 0);
}

#[test]
fn nobody_is_waited_for_who_is_gone() {
    let mut crowd = Crowd::eager(2);
    assert_eq!(crowd.publish(0), 0, "it waits for the other");
    let now = crowd.rig.now;
    crowd.rig.node.handle_disconnected(now, connection(1));
    crowd.rig.pump().expect("no crash");
    assert_eq!(crowd.replies(), 1);
}

#[test]
fn nothing_is_held_back_once_the_driver_waits_no_more() {
    let mut crowd = Crowd::eager(10);
    assert_eq!(crowd.publish(0), 0);
    crowd.rig.node.handle_gathering(false);
    crowd.rig.pump().expect("no crash");
    assert_eq!(crowd.replies(), 1);
    assert_eq!(crowd.publish(1), 1);
}

#[test]
fn whoever_comes_alone_waits_for_nobody() {
    let mut crowd = Crowd::eager(1);
    for _ in 0..10 {
        assert_eq!(crowd.publish(0), 1);
    }
}

#[test]
fn a_delivery_for_new_credit_is_not_held_back() {
    let mut crowd = Crowd::eager(10);
    crowd.rig.node.handle_gathering(false);
    crowd.rig.connect(CONSUMER);
    crowd.ask(CONSUMER, subscribe(crowd.topic, "billing", 1, 70, 4));
    assert_eq!(crowd.rig.take_deliveries().len(), 4);
    crowd.round(0..10);
    crowd.rig.node.handle_gathering(true);
    assert_eq!(crowd.publish(0), 0, "it waits for nine more");
    let more = Request::Credit { subscription: 1, add: true, messages: 3, bytes: 0 };
    assert_eq!(crowd.ask(CONSUMER, more), 2, "and takes the publish along");
    assert_eq!(crowd.rig.take_deliveries().len(), 3);
}

#[test]
fn a_settle_is_not_held_back_as_its_consumer_waits_for_what_comes_next() {
    let mut crowd = Crowd::eager(10);
    crowd.rig.node.handle_gathering(false);
    crowd.rig.connect(CONSUMER);
    crowd.ask(CONSUMER, subscribe(crowd.topic, "billing", 1, 70, 4));
    let first = crowd.rig.take_deliveries();
    crowd.round(0..10);
    crowd.rig.node.handle_gathering(true);
    assert_eq!(crowd.publish(0), 0, "it waits for nine more");
    assert_eq!(crowd.ask(CONSUMER, settle(1, &first[0], SettleKind::Ack)), 2);
    assert_eq!(crowd.rig.take_deliveries().len(), 1);
}

#[test]
fn an_ack_of_a_consumer_that_keeps_up_joins_the_batch_of_the_publishes_and_any_other_settle_ends_the_wait() {
    for kind in [SettleKind::Ack, SettleKind::Release] {
        let mut crowd = Crowd::eager(10);
        crowd.rig.node.handle_gathering(false);
        crowd.rig.connect(CONSUMER);
        crowd.ask(CONSUMER, subscribe(crowd.topic, "billing", 1, 70, 1000));
        let first = crowd.rig.take_deliveries();
        assert_eq!(first.len(), 190, "it has all there is; a publish with number 0 is refused");
        // While it joined nobody published: who comes back is learned anew.
        (0..20).for_each(|_| crowd.round(0..10));
        crowd.rig.take_deliveries();
        crowd.rig.node.handle_gathering(true);
        assert_eq!(crowd.publish(0), 0, "it waits for nine more");
        let is_ack = kind == SettleKind::Ack;
        let answers = crowd.ask(CONSUMER, settle(1, &first[0], kind));
        assert_eq!(answers, if is_ack { 0 } else { 2 });
        if is_ack {
            assert_eq!(crowd.rig.node.missing(), 9);
            assert_eq!((1..10).map(|publisher| crowd.publish(publisher)).sum::<usize>(), 11, "all in one batch");
            assert_eq!(crowd.rig.take_deliveries().len(), 10);
        }
    }
}

#[test]
fn a_batch_that_nothing_more_goes_into_is_not_held_back() {
    let mut crowd = Crowd::eager(10);
    let (topic, key) = (crowd.topic, [7; 1024]);
    assert_eq!(crowd.publish(0), 0, "it waits for nine more");
    crowd.rig.connect(STRANGER);
    let full = [0..2000, 2000..5000].map(|numbers| publish(topic, 90, numbers, &key));
    let replies = crowd.rig.ask(STRANGER, full.into()).expect("no crash");
    assert_eq!(replies.len(), 5000, "with these it is full");
}

/// A publisher that was never answered.
const STRANGER: ConnectionId = ConnectionId::new(2000);
