//! What the tests of the public interface share.

use bytes::BytesMut;
use mortarmq_wire::ops::ErrorAnswer;
use mortarmq_wire::{Request, Split, split_frame};

/// Cuts off the one frame that `bytes` is.
pub(crate) fn one_frame(bytes: &[u8]) -> (u8, &[u8]) {
    match split_frame(bytes) {
        Ok(Split::Frame { op, payload, consumed }) => {
            assert_eq!(consumed, bytes.len(), "bytes are left behind the frame");
            (op, payload)
        }
        other => panic!("not one frame: {other:?}"),
    }
}

/// Appends a request in wire form. What was decoded always fits, so this cannot fail.
pub(crate) fn encode_request(request: &Request<'_>, out: &mut BytesMut) {
    match request {
        Request::Connect(connect) => connect.encode(out).expect("fits"),
        Request::Ping(ping) => ping.encode(out),
        Request::Declare(declare) => declare.encode(out).expect("fits"),
        Request::Metadata(metadata) => metadata.encode(out).expect("fits"),
        Request::Publish(publish) => publish.encode(out).expect("fits"),
        Request::PublishBatch(batch) => batch.encode(out).expect("fits"),
        Request::Subscribe(subscribe) => subscribe.encode(out).expect("fits"),
        Request::Credit(credit) => credit.encode(out),
        Request::Pull(pull) => pull.encode(out).expect("fits"),
        Request::Settle(settle) => settle.encode(out).expect("fits"),
        Request::Heartbeat(heartbeat) => heartbeat.encode(out),
        Request::Ack(ack) => ack.encode(out),
        Request::Nack(nack) => nack.encode(out).expect("fits"),
        Request::ClientError => ErrorAnswer::new(mortarmq_wire::ErrorCode::Internal, 0, b"").encode(out),
    }
}

/// The golden vectors.
pub fn golden_file() -> serde_json::Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/v1.json");
    let text = std::fs::read_to_string(path).expect("the vectors are part of the crate");
    serde_json::from_str(&text).expect("the vectors are JSON")
}

/// The whole frame of a golden vector.
pub fn golden_frame(vector: &serde_json::Value) -> Vec<u8> {
    let digits: Vec<u8> = vector["hex"].as_str().expect("hex").bytes().filter(|byte| *byte != b' ').collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex digits");
    digits.chunks(2).map(pair).collect()
}
