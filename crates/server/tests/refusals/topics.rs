//! DECLARE and METADATA.

use bytes::BytesMut;
use mortarmq_wire::ErrorCode::{InvalidTopic, MalformedPayload, TooLarge, TopicExistsMismatch};
use mortarmq_wire::ops::{Declare, Metadata};
use mortarmq_wire::{List, Op};

use crate::support::declare_frame;
use crate::{Row, closing, frame, refused, with_byte};

const OP: u8 = Op::Declare as u8;

pub(crate) const ROWS: &[Row] = &[
    refused("an empty name", InvalidTopic, Op::Declare, &["empty", "1 to 200"], |node| {
        (node.client(), declare("", ""))
    }),
    refused("a name with a blank", InvalidTopic, Op::Declare, &["not allowed", "A-Z a-z 0-9 . _ -"], |node| {
        (node.client(), declare("two words", ""))
    }),
    refused("a name that leads up", InvalidTopic, Op::Declare, &["\"..\""], |node| (node.client(), declare("..", ""))),
    refused("a name of the broker", InvalidTopic, Op::Declare, &["broker"], |node| {
        (node.client(), declare("$dlq.orders", ""))
    }),
    refused("a name longer than the wire has for one", InvalidTopic, Op::Declare, &["too long", "200"], |node| {
        (node.client(), declare(&"n".repeat(300), ""))
    }),
    closing("options that are no JSON", MalformedPayload, OP, &["JSON"], |node| (node.client(), declare("a", "{"))),
    closing("options that are no object", MalformedPayload, OP, &["object"], |node| {
        (node.client(), declare("a", "[]"))
    }),
    closing("options that are no text", MalformedPayload, OP, &["UTF-8"], |node| {
        let bad = Declare { topic: "a", partition_count: 0, delete: false, options: b"{\"\xFF\":1}" };
        (node.client(), frame(|out| bad.encode(out).expect("it fits")))
    }),
    refused("an unknown key", InvalidTopic, Op::Declare, &["retention_mss", "retention_ms"], |node| {
        (node.client(), declare("a", "{\"retention_mss\":1}"))
    }),
    refused("a value out of range", InvalidTopic, Op::Declare, &["partitions", "1024"], |node| {
        (node.client(), declare("a", "{\"partitions\":1025}"))
    }),
    refused("a partition_count out of range", InvalidTopic, Op::Declare, &["partitions", "1024"], |node| {
        (node.client(), with_count(1025, ""))
    }),
    refused(
        "a count that contradicts the options",
        InvalidTopic,
        Op::Declare,
        &["partition_count 3", "one of"],
        |node| (node.client(), with_count(3, "{\"partitions\":2}")),
    ),
    refused("other settings than it has", TopicExistsMismatch, Op::Declare, &["partitions"], |node| {
        let mut client = node.client();
        client.declare("settled", "{\"partitions\":2}");
        (client, declare("settled", "{\"partitions\":3}"))
    }),
    refused("a name that differs in case only", TopicExistsMismatch, Op::Declare, &["settled"], |node| {
        let mut client = node.client();
        client.declare("settled", "");
        (client, declare("SETTLED", ""))
    }),
    closing("an unknown flag", MalformedPayload, OP, &["DECLARE flags"], |node| {
        // topic (2 + 1), partition_count 2, flags.
        (node.client(), with_byte(declare("a", ""), 6, 2))
    }),
    refused("options of more than 256 KiB", TooLarge, Op::Declare, &["262144", "send less"], |node| {
        (node.client(), declare("a", &" ".repeat((256 << 10) + 1)))
    }),
    refused("METADATA of too many names", TooLarge, Op::Metadata, &["1024", "ask for fewer"], |node| {
        let names = vec![&b"n"[..]; 1025];
        let metadata = Metadata { topics: List::from(&names[..]) };
        (node.client(), frame(|out| metadata.encode(out).expect("it fits")))
    }),
];

fn declare(topic: &str, options: &str) -> BytesMut {
    frame(|out| declare_frame(out, topic, options))
}

fn with_count(partition_count: u16, options: &str) -> BytesMut {
    let declare = Declare { topic: "a", partition_count, delete: false, options: options.as_bytes() };
    frame(|out| declare.encode(out).expect("it fits"))
}
