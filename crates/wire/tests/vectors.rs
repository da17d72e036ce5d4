//! The golden vectors: every frame in `vectors/v1.json` says what its fields say, both ways. The file was written
//! from the specification and not by this crate, and is for clients in other languages too.

mod common;

use bytes::BytesMut;
use common::{encode_request, golden_file, golden_frame as frame_of, one_frame};
use mortarmq_types::Position;
use mortarmq_wire::ops::{
    AckOk, ConnectOk, CreditOk, DeclareOk, DeliveryRef, ErrorAnswer, HeartbeatOk, Message, MetadataOk, NackOk,
    OkAnswer, PingOk, PublishBatchOk, PublishOk, PublishOptions, PullOk, SettleItem, SettleOk, SubscribeOk,
};
use mortarmq_wire::{ErrorCode, Op, RecordBody, Request, ServerFrame, split_frame};
use serde_json::{Map, Value, json};

fn vectors() -> Vec<Value> {
    golden_file()["vectors"].as_array().expect("a list").clone()
}

/// Decodes a frame: what it says, and the bytes of the same said by this crate.
fn decode(vector: &Value, frame: &[u8]) -> Result<(Value, BytesMut), ErrorCode> {
    split_frame(frame).map_err(|error| error.code())?;
    let (op, payload) = one_frame(frame);
    let mut again = BytesMut::new();
    let fields = if vector["from"] == "client" {
        let request = Request::decode(op, payload).map_err(|error| error.code())?;
        assert_eq!(request.op().name(), vector["op"]);
        encode_request(&request, &mut again);
        request_fields(&request)
    } else {
        match ServerFrame::decode(op, payload).map_err(|error| error.code())? {
            ServerFrame::Ok(answer) => {
                assert_eq!(answer.request_op.name(), vector["request_op"]);
                ok_fields(&answer, &vector["fields"], &mut again).map_err(|error| error.code())?
            }
            ServerFrame::Error(answer) => {
                answer.encode(&mut again);
                error_fields(&answer)
            }
            ServerFrame::Message(message) => {
                message.encode(&mut again);
                message_fields(&message)
            }
        }
    };
    Ok((fields, again))
}

#[test]
fn every_vector_says_its_fields_and_is_written_as_its_bytes() {
    let mut compared = 0;
    for vector in vectors().iter().filter(|vector| vector.get("error").is_none()) {
        let name = &vector["name"];
        let frame = frame_of(vector);
        let (fields, again) = decode(vector, &frame).unwrap_or_else(|code| panic!("{name}: {code}"));
        assert_eq!(fields, vector["fields"], "{name}");
        if vector["canonical"] != false && *name != "err_of_a_client_is_dropped" {
            assert_eq!(again, frame, "{name}");
            compared += 1;
        }
    }
    assert!(compared > 40, "only {compared} vectors were compared both ways");
}

#[test]
fn every_bad_vector_is_answered_with_its_code() {
    let mut refused = 0;
    for vector in vectors().iter().filter(|vector| vector.get("error").is_some()) {
        let code = decode(vector, &frame_of(vector)).map(|(fields, _)| fields).expect_err("it must be refused");
        assert_eq!(code.name(), vector["error"], "{}", vector["name"]);
        refused += 1;
    }
    assert!(refused > 30, "only {refused} vectors are bad");
}

#[test]
fn every_op_and_every_ok_with_a_codec_has_a_vector() {
    let without_codec = [Op::Notice, Op::ControlAck, Op::Transaction];
    let vectors = vectors();
    for op in Op::ALL.iter().filter(|op| !without_codec.contains(op)) {
        let good = |key: &str| vectors.iter().any(|vector| vector[key] == op.name() && vector.get("error").is_none());
        assert!(good("op"), "{op} has no vector");
        let is_answered = !matches!(op, Op::Err | Op::Ok | Op::Message);
        assert_eq!(good("request_op"), is_answered, "OK of {op}");
    }
}

#[test]
fn every_good_vector_cut_at_any_place_is_malformed_or_says_less_than_it_did() {
    // Goal: no mandatory field can be missing unseen. Method: a cut payload is refused; where it is taken all the same,
    // what was cut was not read in the first place.
    for vector in vectors().iter().filter(|vector| vector.get("error").is_none()) {
        let frame = frame_of(vector);
        for end in 5..frame.len() {
            let mut cut = frame[..end].to_vec();
            cut[..4].copy_from_slice(&u32::try_from(end - 4).unwrap().to_be_bytes());
            match decode(vector, &cut) {
                Err(code) => assert_eq!(code, ErrorCode::MalformedPayload, "{} cut at {end}", vector["name"]),
                Ok((fields, _)) => {
                    assert_eq!(fields, vector["fields"], "{} cut at {end}", vector["name"]);
                    assert!(vector["canonical"] == false || vector["op"] == "ERR", "{} cut at {end}", vector["name"]);
                }
            }
        }
    }
}

#[test]
fn every_good_vector_of_a_client_with_more_behind_it_says_the_same() {
    // Goal: a newer peer may append fields. Method: bytes that no field has, behind every good request.
    let mut tried = 0;
    let of_clients = |vector: &&Value| vector["from"] == "client" && vector.get("error").is_none();
    for vector in vectors().iter().filter(of_clients) {
        for more in [&[0_u8][..], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
            let mut longer = [&frame_of(vector)[..], more].concat();
            let length = u32::try_from(longer.len() - 4).expect("a small frame");
            longer[..4].copy_from_slice(&length.to_be_bytes());
            let (fields, _) = decode(vector, &longer).unwrap_or_else(|code| panic!("{}: {code}", vector["name"]));
            assert_eq!(fields, vector["fields"], "{}", vector["name"]);
            tried += 1;
        }
    }
    assert!(tried > 40, "only {tried} were tried");
}

#[test]
fn registry_has_exactly_the_codes_of_the_specification() {
    let registry: Vec<Value> = ErrorCode::ALL
        .iter()
        .map(|code| {
            let outcome = code.outcome().word();
            json!({"code": code.number(), "name": code.name(), "closes": code.closes(), "outcome": outcome})
        })
        .collect();
    assert_eq!(Value::Array(registry), golden_file()["errors"]);
}

fn request_fields(request: &Request<'_>) -> Value {
    match request {
        Request::Ping(_) | Request::ClientError => json!({}),
        Request::Connect(connect) => json!({
            "protocol_version": 1, "token": bytes(connect.token), "client_name": bytes(connect.client_name),
        }),
        Request::Declare(declare) => json!({
            "topic": declare.topic, "partition_count": declare.partition_count, "delete": declare.delete,
            "options": bytes(declare.options),
        }),
        Request::Metadata(metadata) => json!({"topics": metadata.topics.iter().map(bytes).collect::<Vec<_>>()}),
        Request::Publish(publish) => joined(
            json!({
                "topic_id": publish.topic_id, "partition": publish.partition,
                "producer_id": publish.producer_id, "producer_seq": publish.producer_seq,
            }),
            record(&publish.body, Some(&publish.options)),
        ),
        Request::PublishBatch(batch) => {
            let records = batch.records.iter().map(|item| record(&item.body, Some(&item.options)));
            json!({
                "topic_id": batch.topic_id, "partition": batch.partition, "producer_id": batch.producer_id,
                "first_producer_seq": batch.first_producer_seq, "records": records.collect::<Vec<_>>(),
            })
        }
        Request::Subscribe(subscribe) => json!({
            "group": subscribe.group, "topic_id": subscribe.topic_id, "start_policy": subscribe.start as u8,
            "credit_count": subscribe.credit_count, "credit_bytes": subscribe.credit_bytes,
            "shared": subscribe.is_shared, "options": bytes(subscribe.options),
        }),
        Request::Ack(ack) => joined(delivery(&ack.delivery), json!({"progress": ack.is_progress})),
        Request::Nack(nack) => joined(
            delivery(&nack.delivery),
            json!({
                "reason": nack.reason as u8, "delay_ms": nack.delay_ms, "error_text": bytes(nack.error_text),
            }),
        ),
        Request::Settle(settle) => json!({
            "subscription_id": settle.subscription_id, "items": settle.items.iter().map(item).collect::<Vec<_>>(),
        }),
        Request::Pull(pull) => json!({
            "subscription_id": pull.subscription_id, "member_id": pull.member_id,
            "membership_epoch": pull.membership_epoch, "assignment_epoch": pull.assignment_epoch,
            "ownership_epochs": pull.ownership_epochs.iter().collect::<Vec<_>>(), "max_msgs": pull.max_msgs,
            "max_bytes": pull.max_bytes, "wait_ms": pull.wait_ms, "min_bytes": pull.min_bytes,
        }),
        Request::Heartbeat(heartbeat) => json!({
            "subscription_id": heartbeat.subscription_id, "member_id": heartbeat.member_id,
            "membership_epoch": heartbeat.membership_epoch, "assignment_epoch": heartbeat.assignment_epoch,
            "state": heartbeat.state as u8,
        }),
        Request::Credit(credit) => json!({
            "subscription_id": credit.subscription_id, "membership_epoch": credit.membership_epoch,
            "ownership_epoch": credit.ownership_epoch, "mode": credit.mode as u8,
            "credit_count": credit.credit_count, "credit_bytes": credit.credit_bytes,
        }),
    }
}

/// Decodes the result of an OK; `expected` only says how many items were asked for.
fn ok_fields(
    answer: &OkAnswer<'_>,
    expected: &Value,
    again: &mut BytesMut,
) -> Result<Value, mortarmq_wire::DecodeError> {
    let result = answer.result;
    let count = |field: &str| expected[field].as_array().map_or(0, Vec::len);
    Ok(match answer.request_op {
        Op::Ping => {
            PingOk.encode(again);
            json!({})
        }
        Op::Ack => {
            let ok = AckOk::decode(result)?;
            ok.encode(again);
            position(ok.position)
        }
        Op::Nack => {
            let ok = NackOk::decode(result)?;
            ok.encode(again);
            position(ok.position)
        }
        Op::Heartbeat => {
            let ok = HeartbeatOk::decode(result)?;
            ok.encode(again);
            position(ok.position)
        }
        Op::Connect => {
            let ok = ConnectOk::decode(result)?;
            ok.encode(again).expect("fits");
            let version = bytes(ok.server_version);
            json!({"node_id": ok.node_id, "wire_version": ok.wire_version, "server_version": version})
        }
        Op::Declare => declare_ok(&DeclareOk::decode(result)?, again),
        Op::Publish => publish_ok(&PublishOk::decode(result)?, again),
        Op::PublishBatch => publish_batch_ok(&PublishBatchOk::decode(result, count("records"))?, again),
        Op::Subscribe => subscribe_ok(&SubscribeOk::decode(result)?, again),
        Op::Settle => settle_ok(&SettleOk::decode(result, count("codes"))?, again),
        Op::Pull => pull_ok(&PullOk::decode(result)?, again),
        Op::Credit => credit_ok(&CreditOk::decode(result)?, again),
        Op::Metadata => metadata_ok(&MetadataOk::decode(result)?, again),
        op => panic!("{op} has no OK"),
    })
}

fn declare_ok(ok: &DeclareOk, again: &mut BytesMut) -> Value {
    ok.encode(again);
    let fields = json!({
        "topic_id": ok.topic_id, "partition_count": ok.partition_count, "existed": ok.existed,
        "incarnation": ok.incarnation,
    });
    joined(fields, position(ok.position))
}

fn publish_ok(ok: &PublishOk, again: &mut BytesMut) -> Value {
    ok.encode(again);
    let fields = json!({
        "sequence": ok.seq, "durability": 1, "deduplicated": ok.deduplicated, "partition": ok.partition,
    });
    joined(fields, position(ok.position))
}

fn publish_batch_ok(ok: &PublishBatchOk<'_>, again: &mut BytesMut) -> Value {
    ok.encode(again).expect("fits");
    let record = |record: mortarmq_wire::ops::RecordOk| json!({"partition": record.partition, "sequence": record.seq, "deduplicated": record.deduplicated});
    joined(json!({"records": ok.records.iter().map(record).collect::<Vec<_>>()}), position(ok.position))
}

fn subscribe_ok(ok: &SubscribeOk, again: &mut BytesMut) -> Value {
    ok.encode(again);
    let fields = json!({
        "subscription_id": ok.subscription_id, "member_id": ok.member_id, "membership_epoch": ok.membership_epoch,
        "assignment_epoch": ok.assignment_epoch, "secret": ok.secret,
    });
    joined(fields, position(ok.position))
}

fn settle_ok(ok: &SettleOk<'_>, again: &mut BytesMut) -> Value {
    ok.encode(again).expect("fits");
    let name = |code: mortarmq_wire::ops::ItemCode| code.error().map_or("", ErrorCode::name);
    joined(json!({"codes": ok.codes.iter().map(name).collect::<Vec<_>>()}), position(ok.position))
}

fn pull_ok(ok: &PullOk, again: &mut BytesMut) -> Value {
    ok.encode(again);
    joined(json!({"subscription_id": ok.subscription_id, "count": ok.message_count}), position(ok.position))
}

fn credit_ok(ok: &CreditOk, again: &mut BytesMut) -> Value {
    ok.encode(again);
    let fields = json!({
        "granted_count": ok.granted_count, "granted_bytes": ok.granted_bytes, "credit_epoch": ok.credit_epoch,
        "outstanding_count": ok.outstanding_count, "outstanding_bytes": ok.outstanding_bytes,
    });
    joined(fields, position(ok.position))
}

fn metadata_ok(ok: &MetadataOk<'_>, again: &mut BytesMut) -> Value {
    ok.encode(again).expect("fits");
    let nodes = ok.nodes.iter().map(|node| json!({"node_id": node.node_id, "client_address": node.client_address}));
    let topics = ok.topics.iter().map(|topic| {
        json!({
            "topic_id": topic.topic_id, "incarnation": topic.incarnation, "name": topic.name,
            "partition_count": topic.partition_count, "state": topic.state as u8,
            "created_epoch": topic.created_epoch, "leader_node_id": topic.leader_id,
            "leader_epoch": topic.leader_epoch,
        })
    });
    let fields = json!({"nodes": nodes.collect::<Vec<_>>(), "topics": topics.collect::<Vec<_>>()});
    joined(fields, position(ok.position))
}

fn error_fields(answer: &ErrorAnswer<'_>) -> Value {
    let fields = json!({
        "code": answer.known_code().map_or(json!(answer.code), |code| json!(code.name())), "request_op": answer.request_op,
        "message": bytes(answer.message), "outcome": answer.outcome.number(),
        "retry_after_ms": answer.retry_after_ms,
    });
    let fields = joined(fields, position(answer.position));
    if answer.request_op == Op::Pull.number() {
        return joined(fields, json!({"subscription_id": answer.subscription_id}));
    }
    fields
}

fn message_fields(message: &Message<'_>) -> Value {
    let fields = json!({
        "subscription_id": message.subscription_id, "topic_id": message.topic_id, "partition": message.partition,
        "sequence": message.seq, "delivery_id": message.delivery_id, "attempt": message.attempt,
        "ownership_epoch": message.ownership_epoch, "producer_id": message.producer_id,
        "producer_seq": message.producer_seq, "cause": message.cause.number(),
        "previous_delivery_id": message.previous_delivery_id, "lease_ms": message.lease_ms,
        "published_at_ms": message.published_at,
    });
    joined(joined(fields, record(&message.body, None)), position(message.position))
}

fn record(body: &RecordBody<'_>, options: Option<&PublishOptions<'_>>) -> Value {
    let pair = |(name, value)| json!([bytes(name), bytes(value)]);
    let headers = body.headers().map(|pairs| pairs.map(pair).collect::<Vec<_>>());
    let fields = json!({"key": bytes(body.key()), "headers": headers, "value": bytes(body.value())});
    let Some(options) = options else { return fields };
    let key = options.idempotency_key.map(bytes);
    joined(fields, json!({"delay_ms": options.delay_ms, "ttl_ms": options.ttl_ms, "idempotency_key": key}))
}

fn delivery(delivery: &DeliveryRef) -> Value {
    json!({
        "subscription_id": delivery.subscription_id, "topic_id": delivery.topic_id, "partition": delivery.partition,
        "seq": delivery.seq, "delivery_id": delivery.delivery_id, "ownership_epoch": delivery.ownership_epoch,
    })
}

fn item(item: SettleItem<'_>) -> Value {
    json!({
        "kind": item.kind as u8, "partition": item.partition, "seq": item.seq, "delivery_id": item.delivery_id,
        "ownership_epoch": item.ownership_epoch, "delay_ms": item.delay_ms, "error_text": bytes(item.error_text),
    })
}

fn position(position: Position) -> Value {
    json!({"leader_epoch": position.epoch, "commit_index": position.commit_index})
}

/// Text as a string, anything else as hex.
fn bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({"hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()}),
    }
}

fn joined(first: Value, second: Value) -> Value {
    let (Value::Object(first), Value::Object(second)) = (first, second) else { panic!("both are objects") };
    Value::Object(first.into_iter().chain(second).collect::<Map<_, _>>())
}
