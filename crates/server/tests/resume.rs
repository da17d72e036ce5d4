//! A member over sockets: it is a session, and neither a connection nor a process of the node.

mod support;

use std::time::Duration;

use mortarmq_types::Cause;
use mortarmq_wire::ErrorCode;
use support::{Client, Received, resume_options, start, subscribe_frame_with};

#[test]
fn p5_p7_a_member_goes_on_over_a_broken_connection_and_a_restart_without_a_redelivery() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "{\"partitions\":1}");
    let joined = client.subscribe(topic, "g", u16::MAX);
    for number in 0..4u8 {
        client.publish(topic, &[number]);
    }
    let mut first: Vec<Received> = (0..4).map(|_| client.message()).collect();
    let mut thief = Client::connect(node.addresses().client);
    let handle = thief.declare("orders", "");
    thief
        .send(|out| subscribe_frame_with(out, handle, "g", u16::MAX, &resume_options(&joined, joined.secret ^ 1, &[])));
    assert_eq!(thief.err().code, Some(ErrorCode::UnknownMember));

    drop(client);
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "");
    let again = client.resume(topic, "g", &joined, &first[..1]);
    assert_eq!((again.member_id, again.secret), (joined.member_id, joined.secret));
    let unchanged = |message: &Received| (message.seq, message.delivery_id, message.attempt, message.cause);
    let sent_again: Vec<_> = (0..3).map(|_| unchanged(&client.message())).collect();
    assert_eq!(sent_again, first[1..].iter().map(unchanged).collect::<Vec<_>>());

    // The connection is open when the node stops, and what it had to send then is not lost either.
    client.publish(topic, b"late");
    node.stop();
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "");
    let again = client.resume(topic, "g", &joined, &first);
    first.push(client.message());
    assert_eq!((first[4].attempt, first[4].cause), (1, Cause::First));
    assert_eq!(
        client.ack_all(again.subscription_id, &first),
        [0; 5],
        "acks name the deliveries of the first connection"
    );
    assert!(!client.has_message_within(Duration::from_millis(100)));
    node.stop();
}

#[test]
fn p7_what_never_left_a_broken_connection_comes_at_its_first_delivery() {
    // Method: more than the sockets hold is on its way to a client that reads nothing and is gone.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "{\"partitions\":1}");
    let joined = client.subscribe_with(topic, "g", "{\"credit_bytes\":67108864}");
    let mut producer = Client::connect(node.addresses().client);
    let handle = producer.declare("orders", "");
    for number in 0..24_u8 {
        producer.publish(handle, &vec![number; 1 << 20]);
    }
    let mut rival = Client::connect(node.addresses().client);
    let handle = rival.declare("orders", "");
    rival.subscribe_with(handle, "g", "");
    drop(client);
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "");
    client.resume(topic, "g", &joined, &[]);
    let mut seen = std::collections::BTreeSet::new();
    while client.has_message_within(Duration::from_millis(500)) {
        let message = client.message();
        assert_eq!((message.cause, message.attempt), (Cause::First, 1));
        assert!(seen.insert(message.seq.get()), "once each");
    }
    assert!(seen.len() >= 4, "{seen:?}");
    while rival.has_message_within(Duration::from_millis(100)) {
        let message = rival.message();
        assert_eq!((message.cause, message.attempt), (Cause::First, 1), "it was never leased to the other");
        assert!(seen.insert(message.seq.get()), "once each");
    }
    node.stop();
}
