//! PUB and PUB_BATCH.

use bytes::{BufMut, BytesMut};
use mortarmq_types::{Partition, ProducerId, ProducerSeq};
use mortarmq_wire::ErrorCode::{
    MalformedPayload, ProducerSeqInvalid, SeqExpired, SeqGap, TooLarge, UnknownPartition, UnknownTopic,
};
use mortarmq_wire::ops::{Declare, Publish, PublishBatch, PublishOptions, PublishRecord};
use mortarmq_wire::{List, Op, RecordBody, write_body};

use crate::support::{publish_frame, publish_frame_with};
use crate::{Row, closing, frame, raw, refused};

const OP: u8 = Op::Publish as u8;

pub(crate) const ROWS: &[Row] = &[
    refused("a handle that was not given", UnknownTopic, Op::Publish, &["topic_id 9", "topics create"], |node| {
        (node.client(), publish(9, 0, 0, b"x"))
    }),
    refused("handle 0", UnknownTopic, Op::Publish, &["topic_id 0"], |node| (node.client(), publish(0, 0, 0, b"x"))),
    refused("a topic that was deleted", UnknownTopic, Op::Publish, &["topics create"], |node| {
        let (mut client, topic) = node.with_topic("gone");
        let delete = Declare { topic: "gone", partition_count: 0, delete: true, options: b"" };
        client.send(|out| delete.encode(out).expect("it fits"));
        client.ok();
        (client, publish(topic, 0, 0, b"x"))
    }),
    refused("a deleted topic whose name is there again", UnknownTopic, Op::Publish, &["topics create"], |node| {
        let (mut client, topic) = node.with_topic("again");
        let delete = Declare { topic: "again", partition_count: 0, delete: true, options: b"" };
        client.send(|out| delete.encode(out).expect("it fits"));
        client.ok();
        assert_ne!(client.declare("again", ""), topic);
        (client, publish(topic, 0, 0, b"x"))
    }),
    refused("a partition that is not there", UnknownPartition, Op::Publish, &["1"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, frame(|out| to_partition(topic, 1).encode(out).expect("it fits")))
    }),
    refused("a value above max_message_bytes", TooLarge, Op::Publish, &["1048577", "1048576"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, publish(topic, 0, 0, &vec![0; (1 << 20) + 1]))
    }),
    refused("a key of 256 bytes", TooLarge, Op::Publish, &["key", "255", "send less"], |node| {
        let (client, topic) = node.with_topic("one");
        (
            client,
            written(topic, 0, |out| {
                out.put_u16(256);
                out.put_bytes(b'k', 256);
                out.put_u32(0);
            }),
        )
    }),
    refused("65 headers", TooLarge, Op::Publish, &["headers", "64", "send less"], |node| {
        let (client, topic) = node.with_topic("one");
        (
            client,
            written(topic, 1, |out| {
                out.put_u16(0);
                out.put_u16(65);
                out.put_bytes(0, 65 * 3);
                out.put_u32(0);
            }),
        )
    }),
    refused("a number without a producer", ProducerSeqInvalid, Op::Publish, &["producer_id 0"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, publish(topic, 0, 1, b"x"))
    }),
    refused("a producer without a number", ProducerSeqInvalid, Op::Publish, &["producer_seq 0"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, publish(topic, 77, 0, b"x"))
    }),
    refused("a gap", SeqGap, Op::Publish, &["publish the missing number first", "new producer"], |node| {
        let (mut client, topic) = node.with_topic("one");
        client.send(|out| publish_frame(out, topic, 101, 1, b"", b"x"));
        client.published();
        (client, publish(topic, 101, 3, b"x"))
    }),
    refused("a producer that is not known and does not begin", SeqExpired, Op::Publish, &["new producer"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, publish(topic, 102, 5, b"x"))
    })
    .unknown(),
    refused("a number older than the window", SeqExpired, Op::Publish, &["new producer"], |node| {
        let (mut client, topic) = node.with_topic("one");
        for number in 1..=1025 {
            client.send(|out| publish_frame(out, topic, 103, number, b"", b"x"));
        }
        for _ in 1..=1025 {
            client.published();
        }
        (client, publish(topic, 103, 1, b"x"))
    })
    .unknown(),
    refused(
        "a foreign identity",
        ProducerSeqInvalid,
        Op::Publish,
        &["two producers share one identity", "nothing was stored"],
        |node| {
            let (mut client, topic) = node.with_topic("one");
            client.send(|out| publish_frame(out, topic, 104, 1, b"", b"mine"));
            client.published();
            (client, publish(topic, 104, 1, b"yours"))
        },
    ),
    closing("an unknown flag", MalformedPayload, OP, &["PUB flags", "upgrade the server"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, written(topic, 0x10, |out| out.put_bytes(0, 6)))
    }),
    closing("a publish that ends early", MalformedPayload, OP, &["value", "fix the client"], |node| {
        let (client, topic) = node.with_topic("one");
        (
            client,
            written(topic, 0, |out| {
                out.put_u16(0);
                out.put_u32(10);
                out.put_slice(b"short");
            }),
        )
    }),
    closing("an empty idempotency key", MalformedPayload, OP, &["idempotency"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, written(topic, 8, |out| out.put_bytes(0, 2 + 4 + 1)))
    }),
    closing("a delay of more than a hundred years", MalformedPayload, OP, &["delay_ms", "3153600000000"], |node| {
        let (client, topic) = node.with_topic("one");
        let options = PublishOptions { delay_ms: Some(u64::MAX), ..PublishOptions::default() };
        (client, frame(|out| publish_frame_with(out, topic, (0, 0), b"", b"x", options)))
    }),
    closing("a batch of none", MalformedPayload, Op::PublishBatch as u8, &["1..=1024"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, batch_of(topic, 0))
    }),
    closing("a batch of 1025", MalformedPayload, Op::PublishBatch as u8, &["1025", "1..=1024", "split"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, batch_of(topic, 1025))
    }),
    refused("a batch with one that is too large", TooLarge, Op::PublishBatch, &["1048576"], |node| {
        let (client, topic) = node.with_topic("one");
        (client, frame(|out| small_and_large(topic, out)))
    }),
    refused("a batch to a topic that is not there", UnknownTopic, Op::PublishBatch, &["topic_id 9"], |node| {
        (node.client(), frame(|out| small_and_large(9, out)))
    }),
];

fn publish(topic: u16, producer_id: u64, seq: u64, value: &[u8]) -> BytesMut {
    frame(|out| publish_frame(out, topic, producer_id, seq, b"", value))
}

fn to_partition(topic_id: u16, partition: u16) -> Publish<'static> {
    const BODY: &[u8] = &[0, 0, 0, 0, 0, 1, b'x'];
    let (body, _) = RecordBody::parse(BODY, false).expect("a body");
    Publish {
        topic_id,
        partition: Partition::new(partition),
        producer_id: ProducerId::ZERO,
        producer_seq: ProducerSeq::ZERO,
        body,
        options: PublishOptions::default(),
    }
}

/// A PUB whose fields behind the flags are written out.
fn written(topic: u16, flags: u16, rest: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut payload = BytesMut::new();
    payload.put_u16(topic);
    payload.put_u16(u16::MAX);
    payload.put_bytes(0, 16);
    payload.put_u16(flags);
    rest(&mut payload);
    raw(OP, &payload)
}

/// A PUB_BATCH of so many empty records.
fn batch_of(topic: u16, count: u16) -> BytesMut {
    let mut payload = BytesMut::new();
    payload.put_u16(topic);
    payload.put_u16(u16::MAX);
    payload.put_bytes(0, 16);
    payload.put_u16(0);
    payload.put_u16(count);
    payload.put_bytes(0, usize::from(count) * (2 + 2 + 4));
    raw(Op::PublishBatch as u8, &payload)
}

fn small_and_large(topic_id: u16, out: &mut BytesMut) {
    let mut bodies = [BytesMut::new(), BytesMut::new()];
    write_body(&mut bodies[0], b"", None, b"small").expect("within the limits");
    write_body(&mut bodies[1], b"", None, &vec![0; (1 << 20) + 1]).expect("within the limits");
    let record = |body| PublishRecord {
        body: RecordBody::parse(body, false).expect("a body").0,
        options: PublishOptions::default(),
    };
    let records = [record(&bodies[0]), record(&bodies[1])];
    let batch = PublishBatch {
        topic_id,
        partition: Partition::ANY,
        producer_id: ProducerId::ZERO,
        first_producer_seq: ProducerSeq::ZERO,
        records: List::from(&records[..]),
    };
    batch.encode(out).expect("it fits");
}
