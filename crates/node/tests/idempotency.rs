//! Goal: whatever disk operation is the last one, a publish under an idempotency key is stored at most once, and one that was
//! answered keeps its answer (P1, P3). Method: one script of publishes and repeats, with checkpoints, and the power cut at each
//! operation in turn; after the recovery every key is sent again, by another producer and with other bytes.

mod support;

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use mortarmq_node::{Answer, ErrorCode, Query, QueryAnswer, Request};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{Asked, IdempotencyKey, PublishRunBuilder};
use mortarmq_storage::MemoryDisk;
use mortarmq_types::{Partition, ProducerId, ProducerSeq, TopicIncarnation};
use support::{CONNECTION, Crashed, Rig, RigOptions};

const KEYS: u64 = 24;

/// Publishes of these keys, in one read; the value is text.
fn publish_once(topic: TopicIncarnation, producer: (u64, u64), keys: &[u64], text: &str) -> Request {
    let mut run = PublishRunBuilder::default();
    for (place, key) in (0..).zip(keys) {
        let mut body = BytesMut::new();
        body.put_u16(0);
        body.put_u32(u32::try_from(text.len()).expect("short"));
        body.put_slice(text.as_bytes());
        let number = if producer.0 == 0 { 0 } else { producer.1 + place };
        let (producer_id, producer_seq) = (ProducerId::new(producer.0), ProducerSeq::new(number));
        let record = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: &body };
        let once = Some(IdempotencyKey::of(format!("key {key}").as_bytes()));
        let asked = Asked { idempotency_key: once, ..Asked::default() };
        run.add_asked(topic, Partition::ANY, (4, 4), &record, asked);
    }
    Request::Publish(run.take().expect("at least one key"))
}

type Place = (u16, u64);

/// Sends keys and holds each answer against the first of its key.
fn send(rig: &mut Rig, first: &mut BTreeMap<u64, Place>, request: Request, keys: &[u64]) -> Result<(), Crashed> {
    let replies = rig.ask(CONNECTION, vec![request])?;
    for (key, reply) in keys.iter().zip(&replies) {
        let Ok(Answer::Published(published)) = &reply.result else { panic!("{reply:?}") };
        let place = (published.partition.get(), published.seq.get());
        match first.get(key) {
            Some(known) => assert_eq!((place, published.deduplicated), (*known, true), "P3: key {key}"),
            None => _ = first.insert(*key, place),
        }
    }
    Ok(())
}

fn script(rig: &mut Rig, first: &mut BTreeMap<u64, Place>, topic: &mut TopicIncarnation) -> Result<(), Crashed> {
    rig.connect(CONNECTION);
    *topic = rig.declare("orders", 3)?;
    for from in (0..KEYS).step_by(4) {
        let keys: Vec<u64> = (from..from + 4).collect();
        send(rig, first, publish_once(*topic, (0, 0), &keys, "one"), &keys)?;
        // Those of just before, and older ones, under numbers of a producer.
        let again = [from + 3, from / 2, from];
        send(rig, first, publish_once(*topic, (7, 1 + from / 4 * 3), &again, "two"), &again)?;
        if from % 8 == 0 {
            rig.node.handle_checkpoint_wanted(rig.now);
            rig.catch_up()?;
        }
    }
    Ok(())
}

#[test]
fn p3_wherever_the_power_is_cut_a_key_is_stored_once_and_what_was_answered_keeps_its_answer() {
    let options = RigOptions { journal_file_bytes: 1 << 16, ..RigOptions::default() };
    let disk = MemoryDisk::new();
    let (mut whole, mut topic) = (BTreeMap::new(), TopicIncarnation::default());
    let mut rig = Rig::start(&disk, options).expect("a fresh disk");
    script(&mut rig, &mut whole, &mut topic).expect("this disk does not fail");
    assert_eq!(whole.len() as u64, KEYS);
    let operations = disk.operations();
    let (mut cut_within, mut unanswered) = (0, 0);
    for operation in 1..=operations {
        let disk = MemoryDisk::new();
        disk.crash_at(operation);
        let (mut first, mut topic) = (BTreeMap::new(), TopicIncarnation::default());
        let crashed = Rig::start(&disk, options).and_then(|mut rig| script(&mut rig, &mut first, &mut topic));
        assert!(crashed.is_err(), "operation {operation} of {operations}");
        let after = RigOptions { boot: 2, ..options };
        let mut rig = Rig::start(&disk.after_power_loss(operation), after).expect("it recovers");
        rig.connect(CONNECTION);
        let topic = rig.declare("orders", 3).expect("no crash");
        cut_within += u32::from(!first.is_empty());
        let answered = first.len();
        let keys: Vec<u64> = (0..KEYS).collect();
        send(&mut rig, &mut first, publish_once(topic, (0, 0), &keys, "three"), &keys).expect("no crash");
        send(&mut rig, &mut first, publish_once(topic, (8, 1), &keys, "four"), &keys).expect("no crash");
        unanswered += u32::from(answered < whole.len());
        let stored: u64 =
            rig.node.shard().state().topics[&topic].partitions.iter().map(|partition| partition.last_seq.get()).sum();
        assert_eq!(stored, KEYS, "P3: operation {operation}: each key once");
        rig.node.check();
    }
    assert!(cut_within > 10 && unanswered > 10, "{cut_within} {unanswered} of {operations}");
}

#[test]
fn rule_9_at_the_bound_a_new_key_is_refused_by_name_and_the_known_ones_are_answered_on() {
    let mut rig = Rig::start(&MemoryDisk::new(), RigOptions::default()).expect("a fresh disk");
    rig.connect(CONNECTION);
    let topic = rig.declare("orders", 1).expect("no crash");
    let values = serde_json::from_str(r#"{"state_entries_max":1000}"#).expect("an object");
    let reply = rig.act(mortarmq_node::Act::ChangeDefaults { values }).expect("no crash");
    assert!(matches!(&reply.result, Ok(QueryAnswer::Defaults(view)) if view.defaults["state_entries_max"] == 1000));
    let keys: Vec<u64> = (0..1001).collect();
    let replies = rig.ask(CONNECTION, vec![publish_once(topic, (0, 0), &keys, "x")]).expect("no crash");
    let refused = replies[1000].result.as_ref().expect_err("there is no room");
    assert_eq!(refused.code, ErrorCode::QuotaExceeded);
    assert!(refused.message.contains("remembers no new idempotency key"), "{}", refused.message);
    let replies = rig.ask(CONNECTION, vec![publish_once(topic, (0, 0), &keys[..1000], "y")]).expect("no crash");
    for (place, reply) in (1..).zip(&replies) {
        assert!(
            matches!(&reply.result, Ok(Answer::Published(known)) if known.deduplicated && known.seq.get() == place),
            "{reply:?}"
        );
    }
    let Ok(QueryAnswer::Defaults(_)) = rig.query(Query::Defaults).expect("no crash").result else { panic!("defaults") };
    // A minute later they may go.
    rig.pass(61_000).expect("no crash");
    let replies = rig.ask(CONNECTION, vec![publish_once(topic, (0, 0), &[5000], "x")]).expect("no crash");
    assert!(replies[0].result.is_ok(), "{replies:?}");
}
