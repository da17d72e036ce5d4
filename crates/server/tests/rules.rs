//! Statements of docs/reference/wire.md over a real socket, one test each, where no other test is named for them.

mod support;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use mortarmq_server::{Config, Running, Server};
use mortarmq_types::{Cause, Partition, ProducerId, ProducerSeq};
use mortarmq_wire::ops::{
    Ack, Credit, CreditMode, CreditOk, DeliveryRef, Heartbeat, HeartbeatState, Message, MetadataOk, Nack, NackReason,
    Ping, Publish, PublishBatch, PublishOk, PublishOptions, PublishRecord, Pull, Settle, SettleItem, SettleKind,
    StartPolicy, Subscribe, SubscribeOk,
};
use mortarmq_wire::{ErrorCode, List, Op, RecordBody, ServerFrame, write_body};
use support::{
    Client, Received, ack_frame, config, heartbeat_frame, publish_frame, publish_frame_with, pull_of, settle_item,
    subscribe_frame_with,
};

const ONE: &str = "{\"partitions\":1}";
/// Long enough for a push that should not come, short enough for a test.
const A_WHILE: Duration = Duration::from_millis(100);

struct Node {
    running: Running,
    _folder: tempfile::TempDir,
}

impl Node {
    fn start() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut config = config(folder.path(), &[("poll-max-wait-ms", "60000")]);
        change(&mut config);
        Self { running: Server::start(config).expect("the node starts"), _folder: folder }
    }

    fn client(&self) -> Client {
        Client::connect(self.running.addresses().client)
    }
}

fn delivery_of(joined: &SubscribeOk, topic_id: u16, message: &Received, ownership_epoch: u64) -> DeliveryRef {
    DeliveryRef {
        subscription_id: joined.subscription_id,
        topic_id,
        partition: message.partition,
        seq: message.seq,
        delivery_id: message.delivery_id,
        ownership_epoch,
    }
}

fn credit(joined: &SubscribeOk, mode: CreditMode, credit_count: u16, credit_bytes: u32) -> Credit {
    let subscription_id = joined.subscription_id;
    Credit { subscription_id, membership_epoch: 0, ownership_epoch: 0, mode, credit_count, credit_bytes }
}

/// Sends CREDIT; what is granted and what is held, in messages and bytes.
fn ask_credit(client: &mut Client, credit: &Credit) -> [u64; 4] {
    client.send(|out| credit.encode(out));
    let (op, result) = client.ok();
    assert_eq!(op, Op::Credit);
    let answer = CreditOk::decode(&result).expect("a good result");
    [
        u64::from(answer.granted_count),
        u64::from(answer.granted_bytes),
        u64::from(answer.outstanding_count),
        u64::from(answer.outstanding_bytes),
    ]
}

#[test]
fn rule_9_the_default_window_is_256_messages_a_full_one_is_silence_and_each_settle_makes_room() {
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", ONE);
    let mut all = BytesMut::new();
    for _ in 0..300 {
        publish_frame(&mut all, topic, 0, 0, b"", b"12345");
    }
    client.write(&all);
    for _ in 0..300 {
        client.published();
    }
    let joined = client.subscribe(topic, "g", u16::MAX);
    let mut held: Vec<Received> = (0..256).map(|_| client.message()).collect();
    assert!(!client.has_message_within(A_WHILE), "the window is full");
    // Requests are served all the same, and a pull takes nothing of the window.
    assert_eq!(
        ask_credit(&mut client, &credit(&joined, CreditMode::Set, u16::MAX, u32::MAX)),
        [256, 2 << 20, 256, 1280]
    );
    let pulled = client.pull(&joined, 10, 0);
    assert_eq!(pulled.len(), 10, "NO_CREDIT is never for PULL");
    assert_eq!(client.ack_all(joined.subscription_id, &pulled), [0; 10]);
    assert!(!client.has_message_within(A_WHILE), "and gives nothing back to it");
    let first = held.remove(0);
    assert_eq!(client.ack_all(joined.subscription_id, &[first]), [0]);
    assert_eq!(client.message().seq.get(), 267);
    assert!(!client.has_message_within(A_WHILE), "one for one");
    node.running.stop();
}

#[test]
fn credit_sets_or_raises_the_window_and_every_end_of_a_delivery_frees_its_place() {
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", "{\"partitions\":1,\"retry_backoff_base_ms\":60000}");
    for _ in 0..10 {
        client.publish(topic, b"12345");
    }
    let joined = client.subscribe(topic, "g", 0);
    assert!(!client.has_message_within(A_WHILE), "without credit nothing is pushed");
    let set = |count, bytes| credit(&joined, CreditMode::Set, count, bytes);
    assert_eq!(ask_credit(&mut client, &set(2, 1000)), [2, 1000, 0, 0]);
    let mut held = vec![client.message(), client.message()];
    assert!(!client.has_message_within(A_WHILE));
    assert_eq!(ask_credit(&mut client, &credit(&joined, CreditMode::Add, 1, 500)), [3, 1500, 2, 10]);
    held.push(client.message());
    for kind in [SettleKind::Ack, SettleKind::Nack, SettleKind::DeadLetter] {
        let ended = held.remove(0);
        assert_eq!(client.settle(joined.subscription_id, &[ended], kind), [0]);
        held.push(client.message());
        assert!(!client.has_message_within(A_WHILE), "{kind:?} frees one place");
    }
    // A smaller window takes nothing back; it is filled again when there is room.
    assert_eq!(ask_credit(&mut client, &set(1, 1000)), [1, 1000, 3, 15]);
    for left in [2, 1] {
        let ended = held.remove(0);
        assert_eq!(client.ack_all(joined.subscription_id, &[ended]), [0]);
        assert!(!client.has_message_within(A_WHILE), "{left} are held");
    }
    let last = held.remove(0);
    assert_eq!(client.ack_all(joined.subscription_id, &[last]), [0]);
    client.message();
    node.running.stop();
}

#[test]
fn a_message_larger_than_the_byte_window_comes_alone_when_the_window_is_empty() {
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", ONE);
    for size in [60, 500, 60] {
        client.publish(topic, &vec![7; size]);
    }
    let joined = client.subscribe_with(topic, "g", "{\"credit_bytes\":100,\"order\":\"none\"}");
    let small = client.message();
    assert_eq!(small.value.len(), 60);
    assert!(!client.has_message_within(A_WHILE), "the large one waits until nothing is held");
    assert_eq!(client.ack_all(joined.subscription_id, &[small]), [0]);
    let large = client.message();
    assert_eq!(large.value.len(), 500);
    assert!(!client.has_message_within(A_WHILE), "it is alone");
    assert_eq!(client.ack_all(joined.subscription_id, &[large]), [0]);
    assert_eq!(client.message().value.len(), 60);
    node.running.stop();
}

#[test]
fn epochs_of_a_shared_group_are_0_in_answers_and_ignored_in_requests() {
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", ONE);
    for _ in 0..4 {
        client.publish(topic, b"x");
    }
    let joined = client.subscribe(topic, "g", 2);
    assert_eq!((joined.membership_epoch, joined.assignment_epoch), (0, 0));
    let (op, payload) = client.frame();
    let Ok(ServerFrame::Message(message)) = ServerFrame::decode(op, &payload) else { panic!("a MSG") };
    assert_eq!(message.ownership_epoch, 0);
    let second = client.message();
    let (subscription_id, member_id) = (joined.subscription_id, joined.member_id);
    let first = DeliveryRef {
        subscription_id,
        topic_id: topic,
        partition: message.partition,
        seq: message.seq,
        delivery_id: message.delivery_id,
        ownership_epoch: 9,
    };
    client.send(|out| Ack { delivery: first, is_progress: false }.encode(out));
    assert_eq!(client.ok().0, Op::Ack);
    let item = SettleItem { ownership_epoch: 9, ..settle_item(&second, SettleKind::Ack) };
    let items = List::from(std::slice::from_ref(&item));
    client.send(|out| Settle { subscription_id, items }.encode(out).expect("it fits"));
    assert_eq!(client.ok().0, Op::Settle);
    let (membership_epoch, assignment_epoch, state) = (9, 9, HeartbeatState::Active);
    client.send(|out| Heartbeat { subscription_id, member_id, membership_epoch, assignment_epoch, state }.encode(out));
    assert_eq!(client.ok().0, Op::Heartbeat);
    let zero = credit(&joined, CreditMode::Set, 0, 0);
    ask_credit(&mut client, &Credit { membership_epoch: 9, ownership_epoch: 9, ..zero });
    let epochs = [9_u64, 8];
    let pull = Pull {
        membership_epoch,
        assignment_epoch,
        ownership_epochs: List::from(&epochs[..]),
        ..pull_of(&joined, 9, 0)
    };
    client.send(|out| pull.encode(out).expect("it fits"));
    assert_eq!(client.ok().0, Op::Pull);
    node.running.stop();
}

#[test]
fn only_heartbeat_sub_and_pull_renew_a_session() {
    // Goal: a consumer whose settles go on by themselves, though nobody is there any more, is found. Method: a member that
    // renews its lease, sets its credit and pings, much oftener than its session time, and beats no heart.
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", ONE);
    client.publish(topic, b"work");
    let settings = "{\"session_ms\":1000,\"retry_backoff_base_ms\":0}";
    let joined = client.subscribe_with(topic, "g", settings);
    let message = client.message();
    let mut other = node.client();
    let handle = other.declare("orders", "");
    let alive = other.subscribe_with(handle, "g", "");
    let begun = Instant::now();
    while !other.has_message_within(Duration::from_millis(100)) {
        assert!(begun.elapsed() < Duration::from_secs(20), "it was never missed");
        other.heartbeat(&alive);
        client.send(|out| {
            ack_frame(out, joined.subscription_id, topic, &message, true);
            credit(&joined, CreditMode::Set, 1, 1000).encode(out);
            Ping.encode(out);
        });
        while client.ok().0 != Op::Ping {}
    }
    let again = other.message();
    assert_eq!((again.cause, again.attempt), (Cause::ConsumerLost, 2));
    assert!(begun.elapsed() >= Duration::from_millis(900), "too early");
    // A pull and a heartbeat do renew it.
    let mut puller = node.client();
    let handle = puller.declare("orders", "");
    let joined = puller.subscribe_with(handle, "other", "{\"session_ms\":1000,\"start\":\"latest\"}");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        puller.pull(&joined, 1, 200);
    }
    while begun.elapsed() < Duration::from_millis(3000) {
        puller.heartbeat(&joined);
        std::thread::sleep(Duration::from_millis(200));
    }
    puller.heartbeat(&joined);
    node.running.stop();
}

#[test]
fn a_nack_releases_without_counting_and_its_delay_is_for_a_retry_alone() {
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", "{\"partitions\":1,\"retry_backoff_base_ms\":0}");
    client.publish(topic, b"work");
    let joined = client.subscribe(topic, "g", u16::MAX);
    let first = client.message();
    let mut nack = |message: &Received, reason, delay_ms| {
        let delivery = delivery_of(&joined, topic, message, 0);
        client.send(|out| Nack { delivery, reason, delay_ms, error_text: b"why" }.encode(out).expect("it fits"));
        assert_eq!(client.ok().0, Op::Nack);
        let asked = Instant::now();
        let next = client.message();
        (next, asked.elapsed())
    };
    let (released, took) = nack(&first, NackReason::Release, 3_600_000);
    assert_eq!((released.attempt, released.cause), (1, Cause::Released));
    assert!(took < Duration::from_secs(15), "a release is not delayed");
    let (retried, _) = nack(&released, NackReason::Retry, 0);
    assert_eq!((retried.attempt, retried.cause), (2, Cause::Nacked));
    let (late, took) = nack(&retried, NackReason::Retry, 700);
    assert_eq!((late.attempt, late.cause), (3, Cause::Nacked));
    assert!(took >= Duration::from_millis(600), "its own delay, not the group's backoff: {took:?}");
    node.running.stop();
}

#[test]
fn a_settle_says_delay_for_a_nack_only() {
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", "{\"partitions\":1,\"retry_backoff_base_ms\":0}");
    client.publish(topic, b"work");
    let joined = client.subscribe(topic, "g", u16::MAX);
    let message = client.message();
    let item = SettleItem { delay_ms: 3_600_000, ..settle_item(&message, SettleKind::Release) };
    let items = List::from(std::slice::from_ref(&item));
    client.send(|out| {
        Settle { subscription_id: joined.subscription_id, items }.encode(out).expect("it fits");
    });
    assert_eq!(client.ok().0, Op::Settle);
    assert_eq!(client.message().cause, Cause::Released, "at once");
    node.running.stop();
}

#[test]
fn the_err_of_a_batch_is_that_of_its_first_refused_record() {
    let node = Node::start();
    let mut client = node.client();
    let topic_id = client.declare("orders", "{\"partitions\":1,\"max_message_bytes\":10}");
    let mut bodies = Vec::new();
    for size in [5, 11, 12] {
        let mut body = BytesMut::new();
        write_body(&mut body, b"", None, &vec![7; size]).expect("within the limits");
        bodies.push(body);
    }
    let records: Vec<PublishRecord<'_>> = bodies
        .iter()
        .map(|body| PublishRecord {
            body: RecordBody::parse(body, false).expect("a body").0,
            options: PublishOptions::default(),
        })
        .collect();
    let batch = PublishBatch {
        topic_id,
        partition: Partition::ANY,
        producer_id: ProducerId::ZERO,
        first_producer_seq: ProducerSeq::ZERO,
        records: List::from(&records[..]),
    };
    client.send(|out| batch.encode(out).expect("it fits"));
    let refused = client.err();
    assert_eq!(refused.code, Some(ErrorCode::TooLarge));
    assert!(refused.text.contains("11 bytes") && !refused.text.contains("12 bytes"), "{}", refused.text);
    assert_eq!(client.publish(topic_id, b"x").seq.get(), 1, "all or nothing: nothing of it was stored");
    node.running.stop();
}

#[test]
fn p3_behind_a_refused_publish_a_pipeline_is_a_gap_until_the_client_renumbers() {
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", "{\"partitions\":1,\"max_message_bytes\":10}");
    client.send(|out| {
        publish_frame(out, topic, 7, 1, b"", b"first");
        publish_frame(out, topic, 7, 2, b"", b"more than ten bytes");
        publish_frame(out, topic, 7, 3, b"", b"third");
        publish_frame(out, topic, 7, 4, b"", b"fourth");
    });
    assert_eq!(client.published().seq.get(), 1);
    let codes: Vec<_> = (0..3).map(|_| client.err().code.expect("known")).collect();
    assert_eq!(codes, [ErrorCode::TooLarge, ErrorCode::SeqGap, ErrorCode::SeqGap]);
    // The refused one used up no number: the client goes on from there.
    client.send(|out| {
        publish_frame(out, topic, 7, 2, b"", b"third");
        publish_frame(out, topic, 7, 3, b"", b"fourth");
    });
    assert_eq!([client.published(), client.published()].map(|stored| stored.seq.get()), [2, 3]);
    node.running.stop();
}

#[test]
fn p3_a_retry_is_found_before_it_is_placed_and_lines_are_by_the_partition_of_the_request() {
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", "{\"partitions\":3}");
    let mut publish = |partition: Partition, seq: u64, key: &[u8], value: &[u8]| {
        let mut body = BytesMut::new();
        write_body(&mut body, key, None, value).expect("within the limits");
        let (body, _) = RecordBody::parse(&body, false).expect("within the limits");
        let (producer_id, producer_seq) = (ProducerId::new(7), ProducerSeq::new(seq));
        let options = PublishOptions::default();
        client.send(|out| {
            Publish { topic_id: topic, partition, producer_id, producer_seq, body, options }
                .encode(out)
                .expect("it fits");
        });
        client.published()
    };
    let at = |stored: &PublishOk| (stored.partition.get(), stored.seq.get());
    // One line of numbers for the topic, whatever partition the broker picks: it takes them in turn.
    let first: Vec<PublishOk> = (1..=6).map(|seq| publish(Partition::ANY, seq, b"", b"x")).collect();
    let places: BTreeSet<u16> = first.iter().map(|stored| stored.partition.get()).collect();
    assert_eq!((places.len(), first.iter().filter(|stored| stored.deduplicated).count()), (3, 0));
    // A retry is told the first place, and moves nothing: what comes next goes where it would have gone.
    for seq in [1, 2, 3] {
        let again = publish(Partition::ANY, seq, b"", b"x");
        assert_eq!((at(&again), again.deduplicated), (at(&first[seq as usize - 1]), true));
    }
    assert_eq!(publish(Partition::ANY, 7, b"", b"x").partition, first[0].partition);
    // A line of its own where the client chooses the partition: its numbers begin with 1.
    let chosen = publish(Partition::new(1), 1, b"", b"x");
    assert!(!chosen.deduplicated && chosen.partition.get() == 1);
    // By key: fnv1a32 of it, as any client can reckon.
    for key in [b"anna".as_slice(), b"bob", b"\xff\x00"] {
        let mut hash = 0x811C_9DC5_u32;
        for byte in key {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
        let mut other = node.client();
        let topic = other.declare("orders", "");
        other.send(|out| publish_frame(out, topic, 0, 0, key, b"x"));
        assert_eq!(u32::from(other.published().partition.get()), hash % 3, "{key:?}");
    }
    node.running.stop();
}

#[test]
fn a_start_counts_when_the_group_is_made_and_the_options_win_over_start_policy() {
    let node = Node::start();
    let mut client = node.client();
    let topic_id = client.declare("orders", ONE);
    for value in [b"1".as_slice(), b"2", b"3"] {
        client.publish(topic_id, value);
    }
    let mut join = |group: &str, start: StartPolicy, options: &str| {
        let subscribe = Subscribe {
            group,
            topic_id,
            start,
            credit_count: 0,
            credit_bytes: Subscribe::GROUP_CREDIT_BYTES,
            is_shared: true,
            options: options.as_bytes(),
        };
        client.send(|out| subscribe.encode(out).expect("it fits"));
        let joined = SubscribeOk::decode(&client.ok().1).expect("a good result");
        let found = client.pull(&joined, 10, 0);
        let seqs: Vec<u64> = found.iter().map(|message| message.seq.get()).collect();
        if !found.is_empty() {
            assert_eq!(client.settle(joined.subscription_id, &found, SettleKind::Release).iter().sum::<u16>(), 0);
        }
        client.send(|out| heartbeat_frame(out, &joined, HeartbeatState::Leave));
        assert_eq!(client.ok().0, Op::Heartbeat);
        (seqs, joined.member_id)
    };
    assert_eq!(join("earliest", StartPolicy::Earliest, "").0, [1, 2, 3]);
    assert_eq!(join("latest", StartPolicy::Latest, "").0, [0; 0]);
    assert_eq!(join("at", StartPolicy::FromSequence, "{\"start\":{\"0\":3}}").0, [3]);
    assert_eq!(join("options-win", StartPolicy::Latest, "{\"start\":\"earliest\"}").0, [1, 2, 3]);
    assert_eq!(join("options-win-2", StartPolicy::Earliest, "{\"start\":{\"0\":2}}").0, [2, 3]);
    // The group is there: its start is never compared, and each SUB is a new member.
    let (found, first) = join("options-win-2", StartPolicy::Latest, "{\"start\":\"latest\"}");
    let (_, second) = join("options-win-2", StartPolicy::Latest, "");
    assert_eq!((found, first != second), (vec![2, 3], true));
    for member in [first, second] {
        assert!(member.get() > 0 && member.get() >> 63 == 0, "63 random bits");
    }
    node.running.stop();
}

#[test]
fn headers_pass_through_as_they_are() {
    let node = Node::start();
    let mut client = node.client();
    let topic_id = client.declare("orders", ONE);
    let headers: &[(&[u8], &[u8])] = &[
        (b"traceparent", b"00-4bf92f3577b34da6-00f067aa0ba902b7-01"),
        (b"content-type", b"a/b"),
        (b"bin", b"\xff\0"),
        (b"bin", b""),
    ];
    let mut body = BytesMut::new();
    write_body(&mut body, b"key", Some(headers), b"value").expect("within the limits");
    let (parsed, _) = RecordBody::parse(&body, true).expect("within the limits");
    let publish = Publish {
        topic_id,
        partition: Partition::ANY,
        producer_id: ProducerId::ZERO,
        producer_seq: ProducerSeq::ZERO,
        body: parsed,
        options: PublishOptions::default(),
    };
    client.send(|out| publish.encode(out).expect("it fits"));
    client.published();
    client.subscribe(topic_id, "g", u16::MAX);
    let (op, payload) = client.frame();
    let Ok(ServerFrame::Message(Message { body: found, .. })) = ServerFrame::decode(op, &payload) else {
        panic!("a MSG")
    };
    assert_eq!(found.bytes(), parsed.bytes(), "key, headers and value, byte for byte");
    node.running.stop();
}

#[test]
fn publishes_that_cannot_be_repeated_are_counted() {
    let node = Node::start();
    let mut client = node.client();
    let topic_id = client.declare("orders", ONE);
    let with_key = PublishOptions { idempotency_key: Some(b"k"), ..PublishOptions::default() };
    client.send(|out| {
        publish_frame(out, topic_id, 7, 1, b"", b"has a number");
        publish_frame_with(out, topic_id, (0, 0), b"", b"has a key", with_key);
        publish_frame(out, topic_id, 0, 0, b"", b"has neither");
    });
    for _ in 0..3 {
        client.published();
    }
    let mut body = BytesMut::new();
    write_body(&mut body, b"", None, b"x").expect("within the limits");
    let body = RecordBody::parse(&body, false).expect("a body").0;
    let records =
        [PublishOptions::default(), with_key, PublishOptions::default()].map(|options| PublishRecord { body, options });
    let batch = |producer_id, first_producer_seq| PublishBatch {
        topic_id,
        partition: Partition::ANY,
        producer_id: ProducerId::new(producer_id),
        first_producer_seq: ProducerSeq::new(first_producer_seq),
        records: List::from(&records[..]),
    };
    client.send(|out| {
        batch(0, 0).encode(out).expect("it fits");
        batch(7, 2).encode(out).expect("it fits");
    });
    assert_eq!([client.ok().0, client.ok().0], [Op::PublishBatch; 2]);
    assert_eq!(metric(&node, "mortarmq_publishes_not_idempotent_total"), 3, "one alone, and two of the first batch");
    node.running.stop();
}

/// A row of a scrape.
fn metric(node: &Node, name: &str) -> u64 {
    let mut stream = TcpStream::connect(node.running.addresses().admin).expect("the node listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let row = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).expect("a row");
    row.parse().expect("a number")
}

#[test]
fn rule_9_a_group_has_at_most_4096_members() {
    let node = Node::start();
    let mut client = node.client();
    let topic = client.declare("orders", ONE);
    let mut all = BytesMut::new();
    for _ in 0..4097 {
        subscribe_frame_with(&mut all, topic, "g", 0, "{\"session_ms\":600000}");
    }
    client.write(&all);
    for _ in 0..4096 {
        assert_eq!(client.ok().0, Op::Subscribe);
    }
    let refused = client.err();
    assert_eq!((refused.code, refused.request_op), (Some(ErrorCode::GroupMemberLimit), Op::Subscribe.number()));
    assert!(refused.text.contains("4096"), "{}", refused.text);
    node.running.stop();
}

#[test]
fn a_node_on_every_address_names_the_one_that_the_client_reached() {
    // Goal: the address of METADATA leads somewhere. Method: a node that listens on 0.0.0.0, asked over loopback, and one that
    // names its address.
    for (listen, reached) in [("0.0.0.0:0", "127.0.0.1"), ("127.0.0.1:0", "127.0.0.1"), ("[::]:0", "::1")] {
        let node = Node::with(|config| config.listen_client = listen.parse().expect("an address"));
        let port = node.running.addresses().client.port();
        let address = std::net::SocketAddr::new(reached.parse().expect("an address"), port);
        let mut client = Client::connect(address);
        client.send(|out| mortarmq_wire::ops::Metadata { topics: List::default() }.encode(out).expect("it fits"));
        let (_, result) = client.ok();
        let metadata = MetadataOk::decode(&result).expect("a good result");
        let addresses: Vec<&str> = metadata.nodes.iter().map(|node| node.client_address).collect();
        assert_eq!(addresses, [address.to_string()], "{listen}");
        Client::connect(addresses[0].parse().expect("an address of the node"));
        node.running.stop();
    }
}
