//! Dead letters over a socket: both ways to say that a message is dead, and what is read from the dead-letter topic.

mod support;

use mortarmq_wire::ops::{DeliveryRef, Metadata, MetadataOk, Nack, NackReason, Settle, SettleItem, SettleKind};
use mortarmq_wire::{ErrorCode, List, Op};
use support::{Client, publish_frame, settle_item, start};

#[test]
fn a_message_is_dead_lettered_by_settle_and_by_nack_and_consumed_from_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "{\"partitions\":1}");
    let subscription = client.subscribe(topic, "g", u16::MAX).subscription_id;
    client.publish(topic, b"first");
    client.publish(topic, b"second");
    let (first, second) = (client.message(), client.message());
    client.send(|out| {
        let item = SettleItem { error_text: b"broken", ..settle_item(&first, SettleKind::DeadLetter) };
        let items = List::from(std::slice::from_ref(&item));
        Settle { subscription_id: subscription, items }.encode(out).expect("it fits");
    });
    assert_eq!(client.ok().0, Op::Settle);
    let (partition, seq, delivery_id) = (second.partition, second.seq, second.delivery_id);
    let delivery =
        DeliveryRef { subscription_id: subscription, topic_id: topic, partition, seq, delivery_id, ownership_epoch: 0 };
    client.send(|out| {
        let nack = Nack { delivery, reason: NackReason::DeadLetter, delay_ms: 0, error_text: b"" };
        nack.encode(out).expect("it fits");
    });
    assert_eq!(client.ok().0, Op::Nack);
    // Only METADATA gives a handle for it: nobody declares it.
    let names: [&[u8]; 1] = [b"$dlq.orders"];
    client.send(|out| Metadata { topics: List::from(&names[..]) }.encode(out).expect("it fits"));
    let (_, result) = client.ok();
    let dead = MetadataOk::decode(&result).expect("a good result").topics.iter().next().expect("it exists").topic_id;
    client.subscribe(dead, "default", u16::MAX);
    let mut values: Vec<Vec<u8>> = (0..2).map(|_| client.message().value).collect();
    values.sort();
    assert_eq!(values, [b"first".to_vec(), b"second".to_vec()]);
    client.send(|out| publish_frame(out, dead, 0, 0, b"", b"mine"));
    assert_eq!(client.err().code, Some(ErrorCode::InvalidTopic), "only the broker adds to it");
    client.send(|out| support::declare_frame(out, "$dlq.other", ""));
    assert_eq!(client.err().code, Some(ErrorCode::InvalidTopic), "only the broker makes one");
    node.stop();
}
