use std::sync::Weak;

use bytes::{BufMut, BytesMut};
use mortarmq_types::{Epoch, NodeId, Position, TopicIncarnation};
use mortarmq_wire::ops::{MetadataOk, MetadataTopic, PingOk, TopicState};
use mortarmq_wire::{List, Op, Split, split_frame};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Engine, PING_EVERY, Settings, Weight};
use crate::message::Message;
use crate::options::{ConsumerOptions, ProducerOptions, ReconnectOptions};

fn connected() -> (Engine, Instant) {
    let (mut engine, now) = (Engine::new(ReconnectOptions::default(), None), Instant::now());
    engine.connected(now);
    (engine, now)
}

/// The ops of the frames that are to be sent.
fn outgoing(engine: &mut Engine) -> Vec<Op> {
    let mut write = BytesMut::new();
    engine.take_turn(&mut write);
    let (mut at, mut ops) = (0, Vec::new());
    while let Ok(Split::Frame { op, consumed, .. }) = split_frame(&write[at..]) {
        ops.push(Op::from_number(op).expect("an op of this protocol"));
        at += consumed;
    }
    assert_eq!(at, write.len());
    ops
}

#[test]
fn a_ping_goes_out_every_15_s_and_its_answer_is_taken() {
    let (mut engine, start) = connected();
    let turn = engine.take_turn(&mut BytesMut::new());
    assert_eq!((turn.deadline, turn.is_finished), (start + PING_EVERY, false));
    engine.on_timer(start + PING_EVERY / 2);
    assert!(outgoing(&mut engine).is_empty());
    engine.on_timer(start + PING_EVERY);
    assert_eq!(outgoing(&mut engine), [Op::Ping]);
    assert_eq!(engine.turn().deadline, start + 2 * PING_EVERY);
    let mut answer = BytesMut::new();
    PingOk.encode(&mut answer);
    engine.on_bytes(&mut answer, start).expect("it was asked");
    let mut again = BytesMut::new();
    PingOk.encode(&mut again);
    let reason = engine.on_bytes(&mut again, start).expect_err("it was asked once");
    assert_eq!(reason, "the broker answered PING, which was not asked");
}

/// An engine with every kind of request under way: PUB, SUB, METADATA.
fn busy() -> (Engine, Instant) {
    let (mut engine, now) = connected();
    let (line, _) = engine.open_line("orders", &ProducerOptions::default(), oneshot::channel().0).unwrap();
    let settings = Settings::new("billing", ConsumerOptions::default());
    engine.open_subscription("orders", settings, Weak::new(), oneshot::channel().0).unwrap();
    let topic = MetadataTopic {
        topic_id: 1,
        incarnation: TopicIncarnation::new(1),
        name: "orders",
        partition_count: 1,
        state: TopicState::Active,
        created_epoch: Epoch::new(1),
        leader_id: NodeId::new(1),
        leader_epoch: Epoch::new(1),
    };
    let topics = [topic];
    let ok = MetadataOk { nodes: List::default(), topics: List::from(&topics[..]), position: Position::default() };
    let mut answers = BytesMut::new();
    (0..2).for_each(|_| ok.encode(&mut answers).unwrap());
    engine.on_bytes(&mut answers, now).expect("both were asked");
    for _ in 0..3 {
        engine.publish(line, &Message::of(b"value"), Weight::default(), oneshot::channel().0).unwrap();
    }
    assert!(engine.link.sent.len() == 4, "{:?}", engine.link.sent);
    (engine, now)
}

#[test]
fn a_broker_that_answers_nonsense_costs_the_connection_and_never_a_panic() {
    // Method: frames of every op with random payloads, against an engine that waits for several answers.
    let mut draw = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        draw ^= draw << 13;
        draw ^= draw >> 7;
        draw ^= draw << 17;
        draw
    };
    for round in 0..2000 {
        let (mut engine, now) = busy();
        for _ in 0..20 {
            let mut frame = BytesMut::new();
            let length = next() % 80;
            frame.put_u32(length as u32 + 1);
            frame.put_u8([8, 9, 10, next() as u8][(next() % 4) as usize]);
            // Small bytes make lengths, ops and flags that are often valid.
            frame.extend((0..length).map(|_| (next() % 12 * (next() % 2)) as u8));
            let result = engine.on_bytes(&mut frame, now);
            if result.is_err() {
                engine.disconnected();
                engine.connected(now);
            }
        }
        assert!(engine.lines.len() + engine.subscriptions.len() <= 2, "round {round}");
    }
}
