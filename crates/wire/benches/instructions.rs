//! How many instructions frames cost, 100 of each at a time, with values of 256 bytes. A count over its limit fails.
//!
//! `cargo bench --profile instructions -p mortarmq-wire --bench instructions`; docs/performance.md says what is needed, and how
//! a limit is set anew.

#![allow(
    missing_docs,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the macros make public items, and talk to the program that counts"
)]

use std::hint::black_box;

use bytes::BytesMut;
use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use mortarmq_types::{
    Attempt, Cause, CommitIndex, DeliveryId, Epoch, Partition, Position, ProducerId, ProducerSeq, Seq, WallTime,
};
use mortarmq_wire::ops::{
    ItemCode, Message, Publish, PublishBatch, PublishOk, PublishOptions, PublishRecord, Settle, SettleItem, SettleKind,
    SettleOk,
};
use mortarmq_wire::{List, RecordBody, Request, ServerFrame, Split, split_frame, write_body};

const FRAMES: u64 = 100;
const POSITION: Position = Position { epoch: Epoch::new(1), commit_index: CommitIndex::new(9) };

/// What was measured, and 3 % more.
fn limit(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, instructions + instructions * 3 / 100)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

fn body_bytes() -> BytesMut {
    let mut bytes = BytesMut::new();
    write_body(&mut bytes, b"key-1234", None, &[b'm'; 256]).expect("within the limits");
    bytes
}

/// A body, and room for all frames.
fn to_encode() -> (BytesMut, BytesMut) {
    (body_bytes(), BytesMut::with_capacity(1 << 20))
}

fn encode_each(body: &BytesMut, mut out: BytesMut, encode: impl Fn(RecordBody<'_>, u64, &mut BytesMut)) -> BytesMut {
    let body = RecordBody::parse(body, false).expect("a body").0;
    (1..=FRAMES).for_each(|number| encode(body, number, &mut out));
    out
}

fn encode_publish(body: RecordBody<'_>, number: u64, out: &mut BytesMut) {
    Publish {
        topic_id: 1,
        partition: Partition::ANY,
        producer_id: ProducerId::new(7),
        producer_seq: ProducerSeq::new(number),
        body,
        options: PublishOptions::default(),
    }
    .encode(out)
    .expect("it fits");
}

fn encode_message(body: RecordBody<'_>, number: u64, out: &mut BytesMut) {
    Message {
        subscription_id: 1,
        topic_id: 1,
        partition: Partition::ZERO,
        seq: Seq::new(number),
        delivery_id: DeliveryId::new(number),
        attempt: Attempt::new(1),
        ownership_epoch: 0,
        producer_id: ProducerId::new(7),
        producer_seq: ProducerSeq::new(number),
        body,
        cause: Cause::First,
        previous_delivery_id: DeliveryId::ZERO,
        lease_ms: 30_000,
        published_at: WallTime::new(1),
        position: POSITION,
    }
    .encode(out);
}

fn encode_publish_ok(number: u64, out: &mut BytesMut) {
    PublishOk { seq: Seq::new(number), position: POSITION, deduplicated: false, partition: Partition::ZERO }
        .encode(out);
}

fn encode_batch(body: RecordBody<'_>, out: &mut BytesMut) {
    let records = [PublishRecord { body, options: PublishOptions::default() }; FRAMES as usize];
    PublishBatch {
        topic_id: 1,
        partition: Partition::ANY,
        producer_id: ProducerId::new(7),
        first_producer_seq: ProducerSeq::new(1),
        records: List::from(&records[..]),
    }
    .encode(out)
    .expect("it fits");
}

fn encode_settle(out: &mut BytesMut) {
    let item = |number| SettleItem {
        kind: SettleKind::Ack,
        partition: Partition::ZERO,
        seq: Seq::new(number),
        delivery_id: DeliveryId::new(number),
        ownership_epoch: 0,
        delay_ms: 0,
        error_text: b"",
    };
    let items: Vec<SettleItem<'_>> = (1..=FRAMES).map(item).collect();
    Settle { subscription_id: 1, items: List::from(&items[..]) }.encode(out).expect("it fits");
}

fn publishes() -> BytesMut {
    let (body, out) = to_encode();
    encode_each(&body, out, encode_publish)
}

fn messages() -> BytesMut {
    let (body, out) = to_encode();
    encode_each(&body, out, encode_message)
}

fn batch() -> BytesMut {
    let (body, mut out) = to_encode();
    encode_batch(RecordBody::parse(&body, false).expect("a body").0, &mut out);
    out
}

fn settle() -> BytesMut {
    let mut out = BytesMut::new();
    encode_settle(&mut out);
    out
}

/// Cuts all frames and looks into each.
fn decode_each(mut input: &[u8], decode: impl Fn(u8, &[u8]) -> u64) -> u64 {
    let mut sum = 0;
    while let Ok(Split::Frame { op, payload, consumed }) = split_frame(input) {
        sum += decode(op, payload);
        input = &input[consumed..];
    }
    sum
}

fn seen(op: u8, payload: &[u8]) -> u64 {
    match Request::decode(op, payload).expect("a request") {
        Request::Publish(publish) => publish.body.value().len() as u64,
        Request::PublishBatch(batch) => batch.records.iter().map(|record| record.body.value().len() as u64).sum(),
        Request::Settle(settle) => settle.items.iter().map(|item| item.seq.get()).sum(),
        other => panic!("{other:?}"),
    }
}

#[library_benchmark]
#[bench::publish(args = (to_encode()), config = limit(25_964))]
fn encode_100_publishes((body, out): (BytesMut, BytesMut)) -> (BytesMut, BytesMut) {
    let out = encode_each(black_box(&body), out, encode_publish);
    black_box((body, out))
}

#[library_benchmark]
#[bench::message(args = (to_encode()), config = limit(29_492))]
fn encode_100_messages((body, out): (BytesMut, BytesMut)) -> (BytesMut, BytesMut) {
    let out = encode_each(black_box(&body), out, encode_message);
    black_box((body, out))
}

#[library_benchmark]
#[bench::answers(args = (BytesMut::with_capacity(1 << 20)), config = limit(11_012))]
fn encode_100_publish_oks(mut out: BytesMut) -> BytesMut {
    (1..=FRAMES).for_each(|number| encode_publish_ok(black_box(number), &mut out));
    black_box(out)
}

#[library_benchmark]
#[bench::settle_ok(args = (BytesMut::with_capacity(1 << 20)), config = limit(2_800))]
fn encode_settle_ok_of_100(mut out: BytesMut) -> BytesMut {
    let codes = black_box([ItemCode::OK; FRAMES as usize]);
    SettleOk { codes: List::from(&codes[..]), position: POSITION }.encode(&mut out).expect("it fits");
    black_box(out)
}

#[library_benchmark]
#[bench::publish(args = (publishes()), config = limit(21_250))]
fn decode_100_publishes(input: BytesMut) -> (BytesMut, u64) {
    let sum = decode_each(black_box(&input), seen);
    black_box((input, sum))
}

#[library_benchmark]
#[bench::batch(args = (batch()), config = limit(25_564))]
fn decode_batch_of_100(input: BytesMut) -> (BytesMut, u64) {
    let sum = decode_each(black_box(&input), seen);
    black_box((input, sum))
}

#[library_benchmark]
#[bench::settle(args = (settle()), config = limit(9_283))]
fn decode_settle_of_100(input: BytesMut) -> (BytesMut, u64) {
    let sum = decode_each(black_box(&input), seen);
    black_box((input, sum))
}

#[library_benchmark]
#[bench::message(args = (messages()), config = limit(24_333))]
fn decode_100_messages(input: BytesMut) -> (BytesMut, u64) {
    let sum = decode_each(black_box(&input), |op, payload| match ServerFrame::decode(op, payload) {
        Ok(ServerFrame::Message(message)) => message.body.value().len() as u64,
        other => panic!("{other:?}"),
    });
    black_box((input, sum))
}

library_benchmark_group!(
    name = encode;
    benchmarks = encode_100_publishes, encode_100_messages, encode_100_publish_oks, encode_settle_ok_of_100
);
library_benchmark_group!(
    name = decode;
    benchmarks = decode_100_publishes, decode_batch_of_100, decode_settle_of_100, decode_100_messages
);
main!(library_benchmark_groups = encode, decode);
