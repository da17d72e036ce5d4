//! What holds for all frames and for all bytes: a round trip changes nothing, no input panics, no split matters.

mod common;

use std::sync::OnceLock;

use bytes::BytesMut;
use common::{encode_request, golden_file, golden_frame, one_frame};
use mortarmq_types::{
    Attempt, Cause, CommitIndex, DeliveryId, Epoch, MemberId, NodeId, Partition, Position, ProducerId, ProducerSeq,
    Seq, TopicIncarnation, WallTime,
};
use mortarmq_wire::ops::{
    Ack, AckOk, Connect, ConnectOk, Credit, CreditMode, CreditOk, Declare, DeclareOk, DeliveryRef, ErrorAnswer,
    Heartbeat, HeartbeatOk, HeartbeatState, ItemCode, Message, Metadata, MetadataNode, MetadataOk, MetadataTopic, Nack,
    NackOk, NackReason, OkAnswer, Ping, PingOk, Publish, PublishBatch, PublishBatchOk, PublishOk, PublishOptions,
    PublishRecord, Pull, PullOk, RecordOk, Settle, SettleItem, SettleKind, SettleOk, StartPolicy, Subscribe,
    SubscribeOk, TopicState,
};
use mortarmq_wire::{ErrorCode, List, Op, Outcome, RecordBody, Request, ServerFrame, Split, split_frame, write_body};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq, proptest};

/// What is `Copy` owns no memory: no field of it was allocated.
const fn owns_nothing<T: Copy>() {}

#[test]
fn what_is_decoded_owns_nothing_but_borrows_from_the_buffer() {
    owns_nothing::<Request<'_>>();
    owns_nothing::<ServerFrame<'_>>();
    owns_nothing::<(ConnectOk<'_>, DeclareOk, PublishOk, PublishBatchOk<'_>, SubscribeOk, AckOk, NackOk, PingOk)>();
    owns_nothing::<(PullOk, HeartbeatOk, CreditOk, SettleOk<'_>, MetadataOk<'_>, RecordBody<'_>)>();
    // And bytes are those of the buffer, not others like them.
    let mut frame = BytesMut::new();
    Connect { token: b"a token", client_name: b"a name" }.encode(&mut frame).expect("it fits");
    let (op, payload) = one_frame(&frame);
    let Ok(Request::Connect(connect)) = Request::decode(op, payload) else { panic!("a CONNECT") };
    assert!(frame.as_ptr_range().contains(&connect.token.as_ptr()));
}

/// A record with its own bytes.
#[derive(Clone, Debug)]
struct OwnedRecord {
    key: Vec<u8>,
    headers: Option<Vec<(Vec<u8>, Vec<u8>)>>,
    value: Vec<u8>,
    delay_ms: Option<u64>,
    ttl_ms: Option<u64>,
    idempotency_key: Option<Vec<u8>>,
}

impl OwnedRecord {
    fn body(&self) -> BytesMut {
        let pairs: Option<Vec<(&[u8], &[u8])>> =
            self.headers.as_ref().map(|pairs| pairs.iter().map(|(name, value)| (&name[..], &value[..])).collect());
        let mut out = BytesMut::new();
        write_body(&mut out, &self.key, pairs.as_deref(), &self.value).expect("drawn within the limits");
        out
    }

    fn options(&self) -> PublishOptions<'_> {
        PublishOptions {
            delay_ms: self.delay_ms,
            ttl_ms: self.ttl_ms,
            idempotency_key: self.idempotency_key.as_deref(),
        }
    }

    fn parsed<'a>(&'a self, body: &'a BytesMut) -> PublishRecord<'a> {
        let (body, rest) = RecordBody::parse(body, self.headers.is_some()).expect("written by this crate");
        assert!(rest.is_empty());
        PublishRecord { body, options: self.options() }
    }
}

fn record() -> impl Strategy<Value = OwnedRecord> {
    let headers = option::of(vec((vec(any::<u8>(), 0..8), vec(any::<u8>(), 0..16)), 0..5));
    let key = vec(any::<u8>(), 0..=255);
    let value = vec(any::<u8>(), 0..300);
    let idempotency_key = option::of(vec(any::<u8>(), 1..=255));
    (key, headers, value, option::of(any::<u64>()), option::of(1..=u64::MAX), idempotency_key).prop_map(
        |(key, headers, value, delay_ms, ttl_ms, idempotency_key)| OwnedRecord {
            key,
            headers,
            value,
            delay_ms,
            ttl_ms,
            idempotency_key,
        },
    )
}

/// An identity that rule 1 allows: both numbers or none.
fn producer() -> impl Strategy<Value = (ProducerId, ProducerSeq)> {
    let some = (1..=u64::MAX, 1..=u64::MAX - 1024).prop_map(|(id, seq)| (ProducerId::new(id), ProducerSeq::new(seq)));
    prop_oneof![Just((ProducerId::ZERO, ProducerSeq::ZERO)), some]
}

fn position() -> impl Strategy<Value = Position> {
    any::<(u64, u64)>().prop_map(|(epoch, commit_index)| Position {
        epoch: Epoch::new(epoch),
        commit_index: CommitIndex::new(commit_index),
    })
}

fn delivery() -> impl Strategy<Value = DeliveryRef> {
    any::<(u16, u16, u16, u64, u64, u64)>().prop_map(|(subscription_id, topic_id, partition, seq, id, epoch)| {
        DeliveryRef {
            subscription_id,
            topic_id,
            partition: Partition::new(partition),
            seq: Seq::new(seq),
            delivery_id: DeliveryId::new(id),
            ownership_epoch: epoch,
        }
    })
}

fn kind() -> impl Strategy<Value = SettleKind> {
    use SettleKind::{Ack, DeadLetter, Nack, Progress, Release};
    prop_oneof![Just(Ack), Just(Nack), Just(DeadLetter), Just(Progress), Just(Release)]
}

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}"
}

/// The request comes back from its bytes as it went in, behind whatever the buffer held before.
fn round_trip(request: &Request<'_>) -> Result<(), TestCaseError> {
    let mut out = BytesMut::from(b"before".as_slice());
    encode_request(request, &mut out);
    prop_assert_eq!(&out[..6], b"before");
    let (op, payload) = one_frame(&out[6..]);
    prop_assert_eq!(op, request.op().number());
    prop_assert_eq!(&Request::decode(op, payload).expect("written by this crate"), request);
    // Bytes that a newer peer adds change nothing.
    let longer = [payload, b"\x01\x02\x03"].concat();
    prop_assert_eq!(&Request::decode(op, &longer).expect("trailing bytes are ignored"), request);
    Ok(())
}

/// The result inside an OK frame.
fn result_of(out: &BytesMut, request_op: Op) -> &[u8] {
    let (op, payload) = one_frame(out);
    let Ok(ServerFrame::Ok(OkAnswer { request_op: found, result })) = ServerFrame::decode(op, payload) else {
        panic!("not an OK");
    };
    assert_eq!(found, request_op);
    assert_eq!(payload.len(), 5 + result.len(), "the result length counts all of the result");
    result
}

/// Encodes an OK and decodes it again, also with bytes of a newer server behind it.
macro_rules! ok_round_trip {
    ($op:expr, $ok:expr, $encode:expr, $decode:expr) => {{
        let ok = $ok;
        let mut out = BytesMut::new();
        $encode(&ok, &mut out);
        let result = result_of(&out, $op);
        let longer = [result, b"\x01\x02\x03"].concat();
        prop_assert_eq!(&$decode(result).expect("written by this crate"), &ok);
        prop_assert_eq!(&$decode(&longer).expect("trailing bytes are ignored"), &ok);
    }};
}

proptest! {
    #[test]
    fn connect_declare_and_metadata_come_back(
        token in vec(any::<u8>(), 0..300), client in vec(any::<u8>(), 0..=255), topic in name(),
        count in any::<u16>(), delete in any::<bool>(), options in vec(any::<u8>(), 1..300),
        names in vec(vec(any::<u8>(), 0..300), 0..5),
    ) {
        round_trip(&Request::Connect(Connect { token: &token, client_name: &client }))?;
        round_trip(&Request::Ping(Ping))?;
        let declare = Declare { topic: &topic, partition_count: count, delete, options: &options };
        round_trip(&Request::Declare(declare))?;
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        round_trip(&Request::Metadata(Metadata { topics: List::from(&names[..]) }))?;
    }

    #[test]
    fn publish_and_batch_come_back(
        records in vec(record(), 1..6), (producer_id, producer_seq) in producer(), topic_id in any::<u16>(),
        partition in any::<u16>(),
    ) {
        let partition = Partition::new(partition);
        let bodies: Vec<BytesMut> = records.iter().map(OwnedRecord::body).collect();
        let records: Vec<_> = records.iter().zip(&bodies).map(|(record, body)| record.parsed(body)).collect();
        let PublishRecord { body, options } = records[0];
        round_trip(&Request::Publish(Publish { topic_id, partition, producer_id, producer_seq, body, options }))?;
        let first_producer_seq = producer_seq;
        let records = List::from(&records[..]);
        round_trip(&Request::PublishBatch(PublishBatch {
            topic_id, partition, producer_id, first_producer_seq, records,
        }))?;
    }

    #[test]
    fn body_comes_back_with_its_parts(record in record(), behind in vec(any::<u8>(), 0..20)) {
        let mut bytes = record.body();
        let own = bytes.len();
        bytes.extend_from_slice(&behind);
        let (body, rest) = RecordBody::parse(&bytes, record.headers.is_some()).expect("written by this crate");
        prop_assert_eq!((body.bytes(), rest), (&bytes[..own], &behind[..]));
        prop_assert_eq!((body.key(), body.value()), (&record.key[..], &record.value[..]));
        let pairs = body.headers().map(|pairs| pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect());
        let pairs: Option<Vec<_>> = pairs;
        let lengths: usize = pairs.iter().flatten().map(|(name, value)| name.len() + value.len()).sum();
        prop_assert_eq!(body.payload_len(), record.key.len() + lengths + record.value.len());
        prop_assert_eq!(pairs, record.headers);
    }

    #[test]
    fn subscribe_pull_heartbeat_and_credit_come_back(
        group in name(), start in prop_oneof![
            Just(StartPolicy::Earliest), Just(StartPolicy::Latest), Just(StartPolicy::FromSequence)
        ],
        (id, count, wait_ms, member, bytes, epoch) in any::<(u16, u16, u16, u64, u32, u32)>(), flag in any::<bool>(),
        options in vec(any::<u8>(), 1..300), epochs in vec(any::<u64>(), 0..9), max_msgs in 1..=u16::MAX,
    ) {
        round_trip(&Request::Subscribe(Subscribe {
            group: &group, topic_id: id, start, credit_count: count, credit_bytes: bytes, is_shared: flag,
            options: &options,
        }))?;
        let member_id = MemberId::new(member);
        round_trip(&Request::Pull(Pull {
            subscription_id: id, member_id, membership_epoch: epoch, assignment_epoch: bytes,
            ownership_epochs: List::from(&epochs[..]), max_msgs, max_bytes: bytes, wait_ms, min_bytes: epoch,
        }))?;
        round_trip(&Request::Heartbeat(Heartbeat {
            subscription_id: id, member_id, membership_epoch: epoch, assignment_epoch: bytes,
            state: if flag { HeartbeatState::Leave } else { HeartbeatState::Active },
        }))?;
        round_trip(&Request::Credit(Credit {
            subscription_id: id, membership_epoch: epoch, ownership_epoch: member,
            mode: if flag { CreditMode::Add } else { CreditMode::Set }, credit_count: count, credit_bytes: bytes,
        }))?;
    }

    #[test]
    fn settles_come_back(
        delivery in delivery(), is_progress in any::<bool>(), delay_ms in any::<u32>(),
        reason in prop_oneof![Just(NackReason::Retry), Just(NackReason::DeadLetter), Just(NackReason::Release)],
        items in vec((kind(), any::<(u16, u64, u64, u64, u32)>(), vec(any::<u8>(), 0..40)), 1..20),
    ) {
        round_trip(&Request::Ack(Ack { delivery, is_progress }))?;
        round_trip(&Request::Nack(Nack { delivery, reason, delay_ms, error_text: &items[0].2 }))?;
        let items: Vec<SettleItem<'_>> = items
            .iter()
            .map(|(kind, (partition, seq, delivery_id, ownership_epoch, delay_ms), error_text)| SettleItem {
                kind: *kind,
                partition: Partition::new(*partition),
                seq: Seq::new(*seq),
                delivery_id: DeliveryId::new(*delivery_id),
                ownership_epoch: *ownership_epoch,
                delay_ms: *delay_ms,
                error_text,
            })
            .collect();
        let settle = Settle { subscription_id: delivery.subscription_id, items: List::from(&items[..]) };
        round_trip(&Request::Settle(settle))?;
    }

    #[test]
    fn message_and_error_come_back(
        record in record(), (delivery, producer_id, producer_seq) in (delivery(), any::<u64>(), any::<u64>()),
        attempt in any::<u16>(), cause in 0..=6u8, (previous, lease_ms, published_at) in any::<(u64, u32, u64)>(),
        position in position(), message_text in vec(any::<u8>(), 0..=512), code in any::<u16>(),
        request_op in any::<u8>(), is_unknown in any::<bool>(),
    ) {
        let body = record.body();
        let message = Message {
            subscription_id: delivery.subscription_id, topic_id: delivery.topic_id, partition: delivery.partition,
            seq: delivery.seq, delivery_id: delivery.delivery_id, attempt: Attempt::new(u32::from(attempt)),
            ownership_epoch: delivery.ownership_epoch, producer_id: ProducerId::new(producer_id),
            producer_seq: ProducerSeq::new(producer_seq), body: record.parsed(&body).body,
            cause: Cause::from_number(cause).expect("0 to 6"), previous_delivery_id: DeliveryId::new(previous),
            lease_ms, published_at: WallTime::new(published_at), position,
        };
        let mut out = BytesMut::new();
        message.encode(&mut out);
        let (op, payload) = one_frame(&out);
        prop_assert_eq!(ServerFrame::decode(op, payload), Ok(ServerFrame::Message(message)));

        let is_pull = request_op == Op::Pull.number();
        let answer = ErrorAnswer {
            code, request_op, message: &message_text,
            outcome: if is_unknown { Outcome::Unknown } else { Outcome::Refused }, retry_after_ms: lease_ms, position,
            subscription_id: if is_pull { delivery.subscription_id } else { 0 },
        };
        let mut out = BytesMut::new();
        answer.encode(&mut out);
        let (op, payload) = one_frame(&out);
        prop_assert_eq!(ServerFrame::decode(op, payload), Ok(ServerFrame::Error(answer)));
    }

    #[test]
    fn fixed_results_come_back(
        (short, other, long, longer) in any::<(u16, u16, u64, u64)>(), (first, second) in any::<(u32, u32)>(),
        flag in any::<bool>(), position in position(),
    ) {
        ok_round_trip!(Op::Ack, AckOk { position }, AckOk::encode, AckOk::decode);
        ok_round_trip!(Op::Nack, NackOk { position }, NackOk::encode, NackOk::decode);
        ok_round_trip!(Op::Heartbeat, HeartbeatOk { position }, HeartbeatOk::encode, HeartbeatOk::decode);
        let mut ping = BytesMut::new();
        PingOk.encode(&mut ping);
        prop_assert!(result_of(&ping, Op::Ping).is_empty());
        let incarnation = TopicIncarnation::new(long);
        let declare = DeclareOk { topic_id: short, partition_count: other, existed: flag, incarnation, position };
        ok_round_trip!(Op::Declare, declare, DeclareOk::encode, DeclareOk::decode);
        let partition = Partition::new(short);
        let publish = PublishOk { seq: Seq::new(long), position, deduplicated: flag, partition };
        ok_round_trip!(Op::Publish, publish, PublishOk::encode, PublishOk::decode);
        let subscribe = SubscribeOk {
            subscription_id: short, member_id: MemberId::new(long), membership_epoch: first, assignment_epoch: second,
            secret: longer, position,
        };
        ok_round_trip!(Op::Subscribe, subscribe, SubscribeOk::encode, SubscribeOk::decode);
        let credit = CreditOk {
            granted_count: short, granted_bytes: first, outstanding_count: other, outstanding_bytes: second,
            credit_epoch: long, position,
        };
        ok_round_trip!(Op::Credit, credit, CreditOk::encode, CreditOk::decode);
        let pull = PullOk { subscription_id: short, message_count: other, position };
        ok_round_trip!(Op::Pull, pull, PullOk::encode, PullOk::decode);
    }

    #[test]
    fn results_with_lists_come_back(
        version in vec(any::<u8>(), 0..=255), node in any::<u16>(), position in position(),
        records in vec(any::<(u16, u64, bool)>(), 1..20), codes in vec(0..ErrorCode::ALL.len(), 1..20),
        nodes in vec((any::<u16>(), ".{0,30}"), 0..5),
        topics in vec((any::<(u16, u64, u16, bool, u64, u16, u64)>(), ".{0,30}"), 0..5),
    ) {
        let connect = ConnectOk { node_id: NodeId::new(node), wire_version: 1, server_version: &version };
        let encode = |ok: &ConnectOk<'_>, out: &mut BytesMut| ok.encode(out).expect("fits");
        ok_round_trip!(Op::Connect, connect, encode, ConnectOk::decode);

        let records: Vec<RecordOk> = records.iter().map(|(partition, seq, deduplicated)| RecordOk {
            partition: Partition::new(*partition), seq: Seq::new(*seq), deduplicated: *deduplicated,
        }).collect();
        let batch = PublishBatchOk { records: List::from(&records[..]), position };
        let encode = |ok: &PublishBatchOk<'_>, out: &mut BytesMut| ok.encode(out).expect("fits");
        ok_round_trip!(Op::PublishBatch, batch, encode, |result| PublishBatchOk::decode(result, records.len()));

        let mut codes: Vec<ItemCode> = codes.iter().map(|at| ItemCode::from(ErrorCode::ALL[*at])).collect();
        codes.push(ItemCode::OK);
        let settle = SettleOk { codes: List::from(&codes[..]), position };
        let encode = |ok: &SettleOk<'_>, out: &mut BytesMut| ok.encode(out).expect("fits");
        ok_round_trip!(Op::Settle, settle, encode, |result| SettleOk::decode(result, codes.len()));

        let nodes: Vec<_> = nodes
            .iter()
            .map(|(id, address)| MetadataNode { node_id: NodeId::new(*id), client_address: address })
            .collect();
        let topics: Vec<_> = topics
            .iter()
            .map(|((id, incarnation, count, is_deleting, created, leader, epoch), name)| MetadataTopic {
                topic_id: *id, incarnation: TopicIncarnation::new(*incarnation), name, partition_count: *count,
                state: if *is_deleting { TopicState::Deleting } else { TopicState::Active },
                created_epoch: Epoch::new(*created), leader_id: NodeId::new(*leader), leader_epoch: Epoch::new(*epoch),
            })
            .collect();
        let metadata = MetadataOk { nodes: List::from(&nodes[..]), topics: List::from(&topics[..]), position };
        let encode = |ok: &MetadataOk<'_>, out: &mut BytesMut| ok.encode(out).expect("fits");
        ok_round_trip!(Op::Metadata, metadata, encode, MetadataOk::decode);
    }

    #[test]
    fn arbitrary_bytes_never_panic(op in any::<u8>(), payload in vec(any::<u8>(), 0..400)) {
        read_everything(op, &payload);
        let _ = split_frame(&payload);
    }

    /// Bytes that are nearly right reach further into a decoder than any that are drawn.
    #[test]
    fn damaged_frames_never_panic(
        records in vec(record(), 1..4), at in any::<proptest::sample::Index>(), byte in any::<u8>(),
        end in any::<proptest::sample::Index>(),
    ) {
        for mut frame in sample_frames(&records).into_iter().chain(golden_frames().iter().cloned()) {
            if frame.len() == 5 {
                continue;
            }
            let changed = 5 + at.index(frame.len() - 5);
            frame[changed] = byte;
            read_everything(frame[4], &frame[5..]);
            let shorter = 5 + end.index(frame.len() - 5);
            read_everything(frame[4], &frame[5..shorter]);
        }
    }

    #[test]
    fn any_split_of_the_input_gives_the_same_frames(
        records in vec(record(), 1..4), chunks in vec(1..2000usize, 1..60),
    ) {
        let mut frames = sample_frames(&records);
        frames.extend(golden_frames().iter().cloned());
        let stream = frames.concat();
        let mut found = Vec::new();
        let mut buffer = Vec::new();
        let mut at = 0;
        for chunk in chunks.iter().copied().chain(std::iter::once(stream.len())) {
            let end = stream.len().min(at + chunk);
            buffer.extend_from_slice(&stream[at..end]);
            at = end;
            loop {
                match split_frame(&buffer).expect("every length is good") {
                    Split::Frame { op, payload, consumed } => {
                        prop_assert_eq!((op, payload), (buffer[4], &buffer[5..consumed]));
                        found.push(buffer.drain(..consumed).collect::<Vec<u8>>());
                    }
                    Split::Incomplete { needed } => {
                        // What it says is needed is never more than the frame has: nobody waits for a byte too many.
                        let next = frames.get(found.len());
                        prop_assert!(needed > 0 && next.is_none_or(|next| buffer.len() + needed <= next.len()));
                        break;
                    }
                }
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(found, frames);
    }
}

/// A frame of every op and every answer: the golden ones.
fn golden_frames() -> &'static [Vec<u8>] {
    static FRAMES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    FRAMES.get_or_init(|| {
        let file = golden_file();
        let whole = file["vectors"].as_array().expect("a list").iter().filter(|vector| vector["error"] != "BAD_LENGTH");
        whole.map(golden_frame).collect()
    })
}

/// One frame of each shape that has lists or optional parts.
fn sample_frames(records: &[OwnedRecord]) -> Vec<Vec<u8>> {
    let bodies: Vec<BytesMut> = records.iter().map(OwnedRecord::body).collect();
    let parsed: Vec<_> = records.iter().zip(&bodies).map(|(record, body)| record.parsed(body)).collect();
    let PublishRecord { body, options } = parsed[0];
    let (topic_id, partition) = (1, Partition::ANY);
    let (producer_id, producer_seq) = (ProducerId::new(1), ProducerSeq::new(1));
    let error_text = records[0].value.as_slice();
    let item = SettleItem {
        kind: SettleKind::Nack,
        partition: Partition::ZERO,
        seq: Seq::FIRST,
        delivery_id: DeliveryId::new(1),
        ownership_epoch: 0,
        delay_ms: 1,
        error_text,
    };
    let items = [item; 3];
    let names = [b"orders".as_slice(), b"bills"];
    let requests = [
        Request::Publish(Publish { topic_id, partition, producer_id, producer_seq, body, options }),
        Request::PublishBatch(PublishBatch {
            topic_id,
            partition,
            producer_id,
            first_producer_seq: producer_seq,
            records: List::from(&parsed[..]),
        }),
        Request::Settle(Settle { subscription_id: 1, items: List::from(&items[..]) }),
        Request::Metadata(Metadata { topics: List::from(&names[..]) }),
        Request::Connect(Connect { token: b"token", client_name: b"client" }),
    ];
    let mut frames = Vec::new();
    for request in &requests {
        let mut out = BytesMut::new();
        encode_request(request, &mut out);
        frames.push(out.to_vec());
    }
    frames
}

/// Decodes a payload as everything it could be, and walks whatever comes out.
fn read_everything(op: u8, payload: &[u8]) {
    if let Ok(request) = Request::decode(op, payload) {
        let mut out = BytesMut::new();
        encode_request(&request, &mut out);
        if request != Request::ClientError {
            // What is taken can be written, and then says the same: nothing is taken that is not understood.
            assert_eq!(Request::decode(op, &out[5..]), Ok(request));
        }
    }
    if let Ok(frame) = ServerFrame::decode(op, payload) {
        let _ = format!("{frame:?}");
    }
    for has_headers in [false, true] {
        if let Ok((body, _)) = RecordBody::parse(payload, has_headers) {
            let stored = RecordBody::parse_stored(payload, has_headers).map(|(stored, _)| stored);
            assert_eq!(stored, Ok(body), "what is published can be stored");
        }
        if let Ok((body, rest)) = RecordBody::parse_stored(payload, has_headers) {
            assert_eq!([body.bytes(), rest].concat(), payload);
            let pairs = body.headers().map(|pairs| (pairs.len(), pairs.count()));
            assert!(pairs.is_none_or(|(promised, found)| promised == found));
            assert!(body.key().len() + body.value().len() <= body.payload_len());
        }
    }
    let count = payload.len() / 3;
    let _ = (ConnectOk::decode(payload), DeclareOk::decode(payload), PublishOk::decode(payload));
    let _ = (SubscribeOk::decode(payload), CreditOk::decode(payload), PullOk::decode(payload), AckOk::decode(payload));
    let _ = (PublishBatchOk::decode(payload, count), SettleOk::decode(payload, count), MetadataOk::decode(payload));
    let _ = (NackOk::decode(payload), HeartbeatOk::decode(payload), SettleOk::decode(payload, usize::MAX));
}
