//! What ends a PULL: as many messages or bytes as it asks for, a message that does not fit, or its time.

mod support;

use std::collections::BTreeMap;

use mortarmq_server::Server;
use mortarmq_wire::ErrorCode;
use mortarmq_wire::Op;
use mortarmq_wire::ops::{Ping, Pull, PullOk};
use support::{Client, config, pull_of};

#[test]
fn a_pull_ends_at_once_when_nothing_more_can_come() {
    // Goal: no pull waits for what its own limits keep from it. Method: three messages of 10 bytes; each row waits a
    // minute if nothing ends it, which is more patience than the test has.
    let folder = tempfile::tempdir().expect("a folder");
    let node = Server::start(config(folder.path(), &[("poll-max-wait-ms", "60000")])).expect("the node starts");
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "{\"partitions\":1}");
    for _ in 0..3 {
        client.publish(topic, b"ten bytes.");
    }
    for (name, max_msgs, max_bytes, min_bytes, count) in [
        ("no limit and no wish: what is there", 10, 0, 0, 3),
        ("max_msgs", 2, 0, 1000, 2),
        ("max_bytes that two fit into", 10, 25, 0, 2),
        ("max_bytes, and a wish that they cannot fulfil", 10, 25, 1000, 2),
        ("max_bytes to the byte", 10, 30, 1000, 3),
        ("one fits exactly", 10, 10, 0, 1),
        ("min_bytes", 10, 0, 30, 3),
    ] {
        let joined = client.subscribe(topic, &name.replace([' ', ',', ':'], "-"), 0);
        let pull = Pull { max_bytes, min_bytes, ..pull_of(&joined, max_msgs, 60_000) };
        client.send(|out| pull.encode(out).expect("it fits"));
        let (op, result) = client.ok();
        assert_eq!((op, PullOk::decode(&result).expect("a good result").message_count), (Op::Pull, count), "{name}");
        for _ in 0..count {
            client.message();
        }
    }
    let joined = client.subscribe(topic, "too-small", 0);
    let pull = Pull { max_bytes: 9, ..pull_of(&joined, 10, 60_000) };
    client.send(|out| pull.encode(out).expect("it fits"));
    assert_eq!(client.err().code, Some(ErrorCode::MessageExceedsCredit));
    assert_eq!(client.pull(&joined, 10, 60_000).len(), 3, "nothing was leased by the pull that was refused");
    assert_eq!(client.pull(&joined, 10, 0).len(), 0, "nothing within its time is no error");
    node.stop();
}

#[test]
fn a_client_that_asks_nothing_more_gets_the_answers_to_its_pulls_and_then_the_end() {
    // Goal: a peer that has shut down its side of the connection is owed what it asked for; a pull waits no longer, as nobody
    // may be left. Method: pulls of a minute, one that finds something and one that does not, sent in one go with the end.
    let folder = tempfile::tempdir().expect("a folder");
    let node = Server::start(config(folder.path(), &[("poll-max-wait-ms", "60000")])).expect("the node starts");
    let mut producer = Client::connect(node.addresses().client);
    let topic = producer.declare("orders", "{\"partitions\":1}");
    producer.declare("none", "{\"partitions\":1}");
    for value in [b"first".as_slice(), b"second"] {
        producer.publish(topic, value);
    }
    let mut client = Client::connect(node.addresses().client);
    let (orders, none) = (client.declare("orders", ""), client.declare("none", ""));
    let (full, empty) = (client.subscribe(orders, "g", 0), client.subscribe(none, "g", 0));
    client.send(|out| {
        // As many bytes as never come.
        let pull = Pull { min_bytes: 1 << 20, ..pull_of(&full, 10, 60_000) };
        pull.encode(out).expect("it fits");
        pull_of(&empty, 10, 60_000).encode(out).expect("it fits");
        Ping.encode(out);
    });
    client.stream.shutdown(std::net::Shutdown::Write).expect("half closed");
    let (mut counts, mut pongs) = (BTreeMap::new(), 0);
    for _ in 0..3 {
        match client.ok() {
            (Op::Pull, result) => {
                let answer = PullOk::decode(&result).expect("a good result");
                counts.insert(answer.subscription_id, answer.message_count);
            }
            (op, _) => pongs += u32::from(op == Op::Ping),
        }
    }
    assert_eq!(counts, BTreeMap::from([(full.subscription_id, 2), (empty.subscription_id, 0)]));
    assert_eq!((pongs, client.message().value, client.message().value), (1, b"first".to_vec(), b"second".to_vec()));
    assert_eq!(client.try_frame(), None, "everything is answered");
    node.stop();
}

#[test]
fn a_stop_answers_the_pulls_that_are_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let node = Server::start(config(folder.path(), &[("poll-max-wait-ms", "60000")])).expect("the node starts");
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "{\"partitions\":1}");
    let joined = client.subscribe(topic, "g", 0);
    client.send(|out| {
        pull_of(&joined, 10, 60_000).encode(out).expect("it fits");
        Ping.encode(out);
    });
    assert_eq!(client.ok().0, Op::Ping, "the pull in front of it was taken");
    node.stop();
    let (op, result) = client.ok();
    assert_eq!((op, PullOk::decode(&result).expect("a good result").message_count), (Op::Pull, 0));
    assert_eq!(client.try_frame(), None);
}
