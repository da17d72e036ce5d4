//! A whole node over a socket: raw frames in and out, a stop, and a start on the same folder.

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use mortarmq_server::{Server, StartError};
use mortarmq_types::{Cause, MemberId, Partition};
use mortarmq_wire::ops::{
    HeartbeatState, Metadata, MetadataOk, Ping, PublishBatch, PublishBatchOk, PublishOptions, PublishRecord, SettleKind,
};
use mortarmq_wire::{ErrorCode, List, Op, Outcome, RecordBody, ServerFrame, write_body};
use support::{
    Client, Received, ack_frame, config, connect_frame, declare_frame, heartbeat_frame, publish_frame,
    publish_frame_with, pull_of, start, subscribe_frame,
};

const ONE_PARTITION: &str = "{\"partitions\":1}";

#[test]
fn a_pipeline_cut_at_odd_places_is_answered_in_order() {
    // Goal: frames do not depend on how they arrive. Method: 100 publishes, the first half in one write together with
    // other requests, the rest a few bytes at a time.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::open(node.addresses().client);
    let mut first = BytesMut::new();
    connect_frame(&mut first);
    declare_frame(&mut first, "orders", ONE_PARTITION);
    client.write(&first);
    assert_eq!((client.ok().0, client.ok().0), (Op::Connect, Op::Declare));
    let mut pipeline = BytesMut::new();
    for number in 0..50u32 {
        publish_frame(&mut pipeline, 1, 0, 0, b"", format!("value {number}").as_bytes());
    }
    Ping.encode(&mut pipeline);
    client.write(&pipeline);
    let mut rest = BytesMut::new();
    for number in 50..100u32 {
        publish_frame(&mut rest, 1, 0, 0, b"k", format!("value {number}").as_bytes());
    }
    for piece in rest.chunks(7) {
        client.write(piece);
    }
    let seqs: Vec<u64> = (0..50).map(|_| client.published().seq.get()).collect();
    assert_eq!(seqs, (1..=50).collect::<Vec<_>>());
    assert_eq!(client.ok().0, Op::Ping);
    let seqs: Vec<u64> = (0..50).map(|_| client.published().seq.get()).collect();
    assert_eq!(seqs, (51..=100).collect::<Vec<_>>());
    drop(client);
    node.stop();
}

#[test]
fn p1_p6_a_restart_keeps_what_is_unsettled_and_nothing_that_was_acked() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    assert!(node.recovery().is_new);
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", ONE_PARTITION);
    for number in 0..20u32 {
        client.publish(topic, format!("value {number}").as_bytes());
    }
    let joined = client.subscribe(topic, "billing", 0);
    let messages = client.pull(&joined, 12, 5000);
    assert_eq!(messages.len(), 12);
    assert!(messages.iter().all(|message| message.attempt == 1 && (1..=30_000).contains(&message.lease_ms)));
    assert_eq!(messages[3].value, b"value 3");
    assert_eq!(client.ack_all(joined.subscription_id, &messages), [0; 12]);
    // Repeated with the kind that ended it: OK again. With another kind it is not known.
    assert_eq!(client.ack_all(joined.subscription_id, &messages[..1]), [0]);
    let other = client.settle(joined.subscription_id, &messages[..1], SettleKind::Nack);
    assert_eq!(other, [ErrorCode::UnknownDelivery.number()]);
    drop(client);
    node.stop();

    let node = start(folder.path());
    assert_eq!((node.recovery().is_new, node.recovery().messages), (false, 20));
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "");
    client.subscribe(topic, "billing", u16::MAX);
    let left: Vec<Vec<u8>> = (0..8).map(|_| client.message().value).collect();
    let expected: Vec<Vec<u8>> = (12..20).map(|number| format!("value {number}").into_bytes()).collect();
    assert_eq!(left, expected);
    assert!(!client.has_message_within(Duration::from_millis(100)), "nothing that was acked is delivered");
    node.stop();
}

#[test]
fn p5_p7_leases_outlive_a_restart_and_end_with_the_session_that_held_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", ONE_PARTITION);
    client.publish(topic, b"work");
    client.subscribe_with(topic, "g", "{\"session_ms\":1000,\"retry_backoff_base_ms\":0}");
    let first = client.message();
    drop(client);
    node.stop();
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", "");
    let joined = client.subscribe(topic, "g", u16::MAX);
    assert!(!client.has_message_within(Duration::from_millis(300)), "the lease is still live");
    while !client.has_message_within(Duration::from_millis(200)) {
        client.heartbeat(&joined);
    }
    let second = client.message();
    assert_eq!((second.attempt, second.cause), (2, Cause::ConsumerLost));
    assert!(second.delivery_id > first.delivery_id && second.seq == first.seq);
    node.stop();
}

#[test]
fn a_pull_waits_for_messages_and_takes_no_place_in_the_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("jobs", ONE_PARTITION);
    let joined = client.subscribe(topic, "workers", 0);
    assert_eq!(client.pull(&joined, 10, 0), []);
    client.send(|out| {
        pull_of(&joined, 1, 5000).encode(out).expect("it fits");
        Ping.encode(out);
        publish_frame(out, topic, 0, 0, b"", b"work");
    });
    assert_eq!(client.ok().0, Op::Ping, "the pull holds nothing up");
    let mut seen = BTreeMap::new();
    for place in 0..3 {
        let (op, payload) = client.frame();
        let name = match ServerFrame::decode(op, &payload).expect("a good frame") {
            ServerFrame::Message(message) => {
                assert_eq!(message.body.value(), b"work");
                "MSG"
            }
            ServerFrame::Ok(answer) => answer.request_op.name(),
            ServerFrame::Error(error) => panic!("{error:?}"),
        };
        seen.insert(name, place);
    }
    assert!(seen["MSG"] < seen["PULL"] && seen.contains_key("PUB"), "{seen:?}");
    let mut stranger = pull_of(&joined, 1, 0);
    stranger.member_id = MemberId::new(1);
    client.send(|out| stranger.encode(out).expect("it fits"));
    let refused = client.err();
    assert_eq!((refused.code, refused.request_op), (Some(ErrorCode::UnknownMember), Op::Pull.number()));
    node.stop();
}

#[test]
fn metadata_gives_handles_and_a_leave_gives_leases_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut producer = Client::connect(node.addresses().client);
    let topic = producer.declare("orders", ONE_PARTITION);
    producer.publish(topic, b"once");
    let mut client = Client::connect(node.addresses().client);
    client.send(|out| Metadata { topics: List::default() }.encode(out).expect("it fits"));
    let (_, result) = client.ok();
    let metadata = MetadataOk::decode(&result).expect("a good result");
    let found: Vec<(u16, &str, u16)> =
        metadata.topics.iter().map(|topic| (topic.topic_id, topic.name, topic.partition_count)).collect();
    assert_eq!(found, [(1, "orders", 1)]);
    let addresses: Vec<String> = metadata.nodes.iter().map(|node| node.client_address.to_owned()).collect();
    assert_eq!(addresses, [node.addresses().client.to_string()]);
    let joined = client.subscribe(1, "billing", u16::MAX);
    let first = client.message();
    client.send(|out| heartbeat_frame(out, &joined, HeartbeatState::Leave));
    assert_eq!(client.ok().0, Op::Heartbeat);
    client.subscribe(1, "billing", u16::MAX);
    let second = client.message();
    assert_eq!((second.value.as_slice(), second.attempt), (b"once".as_slice(), 1), "a release counts no attempt");
    assert_eq!(second.cause, Cause::Released);
    assert!(second.delivery_id > first.delivery_id);
    node.stop();
}

#[test]
fn single_acks_progress_and_batches_speak_the_same_contract() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", ONE_PARTITION);
    let mut body = BytesMut::new();
    write_body(&mut body, b"", None, b"of a batch").expect("within the limits");
    let (body, _) = RecordBody::parse(&body, false).expect("within the limits");
    let records = [PublishRecord { body, options: PublishOptions::default() }; 3];
    let batch = PublishBatch {
        topic_id: topic,
        partition: Partition::ANY,
        producer_id: 7.into(),
        first_producer_seq: 1.into(),
        records: List::from(&records[..]),
    };
    for is_repeated in [false, true] {
        client.send(|out| batch.encode(out).expect("it fits"));
        let (op, result) = client.ok();
        assert_eq!(op, Op::PublishBatch);
        let answer = PublishBatchOk::decode(&result, 3).expect("a good result");
        let rows: Vec<_> = answer.records.iter().map(|record| (record.seq.get(), record.deduplicated)).collect();
        assert_eq!(rows, [(1, is_repeated), (2, is_repeated), (3, is_repeated)]);
    }
    client.send(|out| publish_frame(out, topic, 7, 9, b"", b"ahead"));
    let refused = client.err();
    assert_eq!((refused.code, refused.outcome), (Some(ErrorCode::SeqGap), Outcome::Refused));
    let subscription = client.subscribe(topic, "g", u16::MAX).subscription_id;
    let message = client.message();
    client.send(|out| ack_frame(out, subscription, topic, &message, true));
    assert_eq!(client.ok().0, Op::Ack);
    client.send(|out| ack_frame(out, subscription, topic, &message, false));
    assert_eq!(client.ok().0, Op::Ack);
    let stranger = Received { delivery_id: 9999.into(), ..message };
    client.send(|out| ack_frame(out, subscription, topic, &stranger, false));
    let refused = client.err();
    assert_eq!((refused.code, refused.outcome), (Some(ErrorCode::UnknownDelivery), Outcome::Unknown));
    client.send(|out| ack_frame(out, 99, topic, &stranger, false));
    assert_eq!(client.err().code, Some(ErrorCode::UnknownMember));
    node.stop();
}

#[test]
fn what_breaks_the_protocol_is_answered_behind_earlier_answers_and_closes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let address = node.addresses().client;
    let cases: [(&[u8], ErrorCode, u8, &str); 6] = [
        (&[0, 0, 0, 0], ErrorCode::BadLength, 0, "length 0"),
        (&[0xFF, 0xFF, 0xFF, 0xFF], ErrorCode::BadLength, 0, "4294967295"),
        (&[0, 0, 0, 1, 0x7F], ErrorCode::UnknownOp, 0x7F, "0x7f"),
        (&[0, 0, 0, 1, 0x13], ErrorCode::UnknownOp, 0x13, "TXN"),
        (&[0, 0, 0, 1, 0x0E], ErrorCode::UnknownOp, 0x0E, "CONTROL_ACK"),
        (&[0, 0, 0, 2, 0x03, 1], ErrorCode::MalformedPayload, 0x03, "topic_id"),
    ];
    for (bytes, code, op, words) in cases {
        let mut client = Client::connect(address);
        let mut all = BytesMut::new();
        declare_frame(&mut all, "orders", "");
        all.extend_from_slice(bytes);
        // What follows is not looked at.
        Ping.encode(&mut all);
        client.write(&all);
        assert_eq!(client.ok().0, Op::Declare);
        let refused = client.closing_err();
        assert_eq!((refused.code, refused.request_op), (Some(code), op), "{}", refused.text);
        assert!(refused.text.contains(words), "{}", refused.text);
    }
    let mut twice = Client::connect(address);
    twice.send(connect_frame);
    assert_eq!(twice.closing_err().code, Some(ErrorCode::MalformedPayload));
    node.stop();
}

#[test]
fn before_connect_only_ping_and_err_are_taken() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let address = node.addresses().client;
    let mut early = Client::open(address);
    early.send(|out| {
        Ping.encode(out);
        // ERR of a client is dropped without an answer.
        out.extend_from_slice(&[0, 0, 0, 1, 0x08]);
        connect_frame(out);
    });
    assert_eq!((early.ok().0, early.ok().0), (Op::Ping, Op::Connect));
    let mut hasty = Client::open(address);
    hasty.send(|out| {
        Ping.encode(out);
        declare_frame(out, "orders", "");
    });
    assert_eq!(hasty.ok().0, Op::Ping);
    assert_eq!(hasty.closing_err().code, Some(ErrorCode::NotAuthenticated));
    let mut newer = Client::open(address);
    newer.write(&[0, 0, 0, 2, 0x01, 9]);
    let refused = newer.closing_err();
    assert_eq!(refused.code, Some(ErrorCode::UnsupportedVersion));
    assert!(refused.text.contains("version 1") && refused.text.contains("asked for 9"), "{}", refused.text);
    node.stop();
}

#[test]
fn a_client_that_never_greets_is_told_so_and_closed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::open(node.addresses().client);
    client.send(|out| Ping.encode(out));
    assert_eq!(client.ok().0, Op::Ping);
    let refused = client.closing_err();
    assert_eq!((refused.code, refused.request_op), (Some(ErrorCode::AuthTimeout), 0));
    node.stop();
}

#[test]
fn what_this_version_does_not_have_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", ONE_PARTITION);
    client.send(|out| publish_frame(out, 99, 0, 0, b"", b"x"));
    let refused = client.err();
    assert_eq!(refused.code, Some(ErrorCode::UnknownTopic));
    assert!(refused.text.contains("mortarmq topics create"), "{}", refused.text);
    // Flags of SUB without bit 0.
    client.send(|out| {
        let at = out.len();
        subscribe_frame(out, topic, "h", 1);
        let flags_at = at + 4 + 1 + 3 + 2 + 2 + 1 + 2 + 4;
        out[flags_at..flags_at + 2].copy_from_slice(&[0, 0]);
    });
    let refused = client.err();
    assert_eq!(refused.code, Some(ErrorCode::InvalidTopic));
    assert!(refused.text.contains("exclusive"), "{}", refused.text);
    let keyed = PublishOptions { idempotency_key: Some(b"once"), ..PublishOptions::default() };
    client.send(|out| publish_frame_with(out, topic, (0, 0), b"", b"x", keyed));
    client.send(|out| publish_frame_with(out, topic, (7, 1), b"", b"other bytes", keyed));
    let (first, again) = (client.published(), client.published());
    assert_eq!((first.seq.get(), first.deduplicated), (1, false));
    assert_eq!((again.seq.get(), again.partition, again.deduplicated), (1, first.partition, true), "P3");
    // An empty one is none that could be repeated.
    client.send(|out| {
        let at = out.len();
        publish_frame_with(out, topic, (0, 0), b"", b"x", keyed);
        out.truncate(out.len() - b"once".len());
        let last = out.len() - 1;
        out[last] = 0;
        let length = u32::try_from(out.len() - at - 4).expect("short");
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    });
    let refused = client.closing_err();
    assert_eq!(refused.code, Some(ErrorCode::MalformedPayload));
    assert!(refused.text.contains("idempotency key"), "{}", refused.text);
    node.stop();
}

#[test]
fn p4_publishes_with_a_delay_and_a_life_come_late_or_never() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", ONE_PARTITION);
    let options = |delay_ms, ttl_ms| PublishOptions { delay_ms, ttl_ms, idempotency_key: None };
    client.send(|out| publish_frame_with(out, topic, (9, 1), b"", b"late", options(Some(300), None)));
    client.send(|out| publish_frame_with(out, topic, (9, 2), b"", b"stale", options(Some(200), Some(1))));
    assert_eq!((client.published().seq.get(), client.published().seq.get()), (1, 2), "sequences are given at once");
    client.send(|out| {
        let mut body = BytesMut::new();
        write_body(&mut body, b"", None, b"batch").expect("within the limits");
        let (body, _) = RecordBody::parse(&body, false).expect("within the limits");
        let records = [PublishRecord { body, options: options(Some(100), None) }];
        let (partition, producer_id) = (Partition::ANY, mortarmq_types::ProducerId::new(9));
        let batch = PublishBatch {
            topic_id: topic,
            partition,
            producer_id,
            first_producer_seq: mortarmq_types::ProducerSeq::new(3),
            records: List::from(&records[..]),
        };
        batch.encode(out).expect("it fits");
    });
    assert_eq!(client.ok().0, Op::PublishBatch);
    client.send(|out| publish_frame_with(out, topic, (9, 1), b"", b"late", options(Some(300), None)));
    let repeated = client.published();
    assert_eq!((repeated.seq.get(), repeated.deduplicated), (1, true), "P3");
    client.subscribe(topic, "g", u16::MAX);
    let values: Vec<Vec<u8>> = (0..2).map(|_| client.message().value.to_vec()).collect();
    assert_eq!(values, [b"batch".to_vec(), b"late".to_vec()], "by due time, and what expired never");
    node.stop();
}

#[test]
fn rule_9_large_frames_go_through_a_small_budget_one_after_the_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = Server::start(config(folder.path(), &[("receive-budget-bytes", "32MiB")])).expect("the node starts");
    let address = node.addresses().client;
    Client::connect(address).declare("big", "{\"partitions\":1,\"max_message_bytes\":16000000}");
    let senders: Vec<_> = (0..4u8)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let topic = client.declare("big", "");
                let value = vec![number; 15_000_000];
                client.publish(topic, &value).seq.get()
            })
        })
        .collect();
    let mut seqs: Vec<u64> = senders.into_iter().map(|sender| sender.join().expect("it was stored")).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 2, 3, 4]);
    let mut client = Client::connect(address);
    let topic = client.declare("big", "");
    let joined = client.subscribe(topic, "g", u16::MAX);
    for _ in 0..4 {
        // A message above the byte window is delivered alone, when the window is empty.
        let message = client.message();
        assert_eq!(message.value.len(), 15_000_000);
        assert!(message.value.iter().all(|byte| *byte == message.value[0]));
        assert_eq!(client.ack_all(joined.subscription_id, &[message]), [0]);
    }
    node.stop();
}

#[test]
fn rule_10_two_nodes_that_share_a_data_directory_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let second = Server::start(config(folder.path(), &[]));
    assert!(matches!(second, Err(StartError::Lock(_))));
    node.stop();
    start(folder.path()).stop();
}

#[test]
fn beyond_the_limit_a_client_is_told_why_it_is_turned_away() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = Server::start(config(folder.path(), &[("max-connections", "1")])).expect("the node starts");
    let first = Client::connect(node.addresses().client);
    let refused = Client::open(node.addresses().client).closing_err();
    assert_eq!(refused.code, Some(ErrorCode::QuotaExceeded));
    assert!(refused.text.contains("max_connections"), "{}", refused.text);
    drop(first);
    node.stop();
}

#[test]
fn a_stop_answers_what_is_in_flight() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", ONE_PARTITION);
    client.send(|out| {
        for _ in 0..500 {
            publish_frame(out, topic, 0, 0, b"", b"x");
        }
    });
    assert_eq!(client.published().seq.get(), 1);
    node.stop();
    let mut answered = 1;
    while let Some((op, _)) = client.try_frame() {
        assert_eq!(op, Op::Ok.number());
        answered += 1;
    }
    let node = start(folder.path());
    // All of it was read in one go with the first, so all of it was answered.
    assert_eq!((answered, node.recovery().messages), (500, 500));
    node.stop();
}

#[test]
fn p9_the_admin_listener_tells_health_and_metrics() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = start(folder.path());
    let mut client = Client::connect(node.addresses().client);
    let topic = client.declare("orders", ONE_PARTITION);
    client.publish(topic, b"x");
    let subscription = client.subscribe(topic, "billing", u16::MAX).subscription_id;
    let message = client.message();
    assert_eq!(client.ack_all(subscription, &[message]), [0]);
    let admin = node.addresses().admin;
    assert!(get(admin, "/readyz").starts_with("HTTP/1.1 200"));
    let metrics = get(admin, "/metrics");
    for row in [
        "mortarmq_topic_messages_produced_total{topic=\"orders\"} 1",
        "mortarmq_topic_messages_delivered_total{topic=\"orders\",group=\"billing\"} 1",
        "mortarmq_group_lag{topic=\"orders\",group=\"billing\"} 0",
        "mortarmq_requests_total{op=\"PUB\",code=\"OK\"} 1",
        "mortarmq_connections 1",
        "mortarmq_quorum_state{shard=\"0\"} 0",
    ] {
        assert!(metrics.lines().any(|line| line == row), "{row} is missing in\n{metrics}");
    }
    assert!(get(admin, "/v1/balance").contains("\"delivered\":1"));
    node.stop();
}

/// A GET over a plain socket: the whole answer.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the admin listener listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}
