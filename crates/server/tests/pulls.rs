//! What ends a PULL: as many messages or bytes as it asks for, a message that does not fit, or its time.

mod support;

use mortarmq_server::Server;
use mortarmq_wire::ErrorCode;
use mortarmq_wire::Op;
use mortarmq_wire::ops::{Pull, PullOk};
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
