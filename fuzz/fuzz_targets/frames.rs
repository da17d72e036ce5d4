//! Any bytes, in any pieces: the same frames, no panic, and what was understood is written as something that says the same.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mortarmq_wire::ops::{
    AckOk, ConnectOk, CreditOk, DeclareOk, ErrorAnswer, HeartbeatOk, MetadataOk, NackOk, OkAnswer, PublishBatchOk,
    PublishOk, PullOk, SettleOk, SubscribeOk,
};
use mortarmq_wire::{Op, RecordBody, Request, ServerFrame, Split, split_frame};

fuzz_target!(|input: &[u8]| {
    let Some((cut, stream)) = input.split_first() else { return };
    let whole = frames(stream);
    assert_eq!(whole, frames_in_pieces(stream, usize::from(*cut).max(1)), "frames depend on how they arrive");
    for (op, payload) in &whole.0 {
        request(*op, payload);
        answer(*op, payload);
    }
    for has_headers in [false, true] {
        // A record read back from a disk goes through the same parser.
        let _ = RecordBody::parse_stored(stream, has_headers);
    }
});

type Frames = (Vec<(u8, Vec<u8>)>, bool);

/// The frames of a stream, and whether it is broken behind them.
fn frames(mut stream: &[u8]) -> Frames {
    let mut found = Vec::new();
    loop {
        match split_frame(stream) {
            Ok(Split::Frame { op, payload, consumed }) => {
                found.push((op, payload.to_vec()));
                stream = &stream[consumed..];
            }
            Ok(Split::Incomplete { needed }) => {
                assert!(needed > 0);
                return (found, false);
            }
            Err(_) => return (found, true),
        }
    }
}

fn frames_in_pieces(stream: &[u8], piece_bytes: usize) -> Frames {
    let (mut found, mut buffer) = (Vec::new(), Vec::new());
    for piece in stream.chunks(piece_bytes) {
        buffer.extend_from_slice(piece);
        let (frames, is_broken) = frames(&buffer);
        let taken: usize = frames.iter().map(|(_, payload)| 5 + payload.len()).sum();
        found.extend(frames);
        buffer.drain(..taken);
        if is_broken {
            return (found, true);
        }
    }
    (found, false)
}

fn request(op: u8, payload: &[u8]) {
    let decoded = match Request::decode(op, payload) {
        Ok(decoded) => decoded,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let mut again = BytesMut::new();
    let written = match &decoded {
        Request::Connect(connect) => connect.encode(&mut again),
        Request::Declare(declare) => declare.encode(&mut again),
        Request::Metadata(metadata) => metadata.encode(&mut again),
        Request::Publish(publish) => publish.encode(&mut again),
        Request::PublishBatch(batch) => batch.encode(&mut again),
        Request::Subscribe(subscribe) => subscribe.encode(&mut again),
        Request::Pull(pull) => pull.encode(&mut again),
        Request::Settle(settle) => settle.encode(&mut again),
        Request::Nack(nack) => nack.encode(&mut again),
        Request::Ping(ping) => {
            ping.encode(&mut again);
            Ok(())
        }
        Request::Credit(credit) => {
            credit.encode(&mut again);
            Ok(())
        }
        Request::Heartbeat(heartbeat) => {
            heartbeat.encode(&mut again);
            Ok(())
        }
        Request::Ack(ack) => {
            ack.encode(&mut again);
            Ok(())
        }
        Request::ClientError => return,
    };
    written.expect("what was decoded fits a frame");
    let Ok(Split::Frame { op, payload, .. }) = split_frame(&again) else { panic!("no whole frame was written") };
    assert_eq!(Request::decode(op, payload).expect("written by this crate"), decoded);
}

fn answer(op: u8, payload: &[u8]) {
    let mut again = BytesMut::new();
    match ServerFrame::decode(op, payload) {
        Err(_) => return,
        Ok(ServerFrame::Ok(answer)) => return result(&answer),
        Ok(ServerFrame::Message(message)) => message.encode(&mut again),
        // A code that this version does not know is passed on as it came.
        Ok(ServerFrame::Error(error)) => ErrorAnswer::encode(&error, &mut again),
    }
    let Ok(Split::Frame { op, payload: written, .. }) = split_frame(&again) else { panic!("no whole frame") };
    let (first, second) = (ServerFrame::decode(op, payload), ServerFrame::decode(op, written));
    if !matches!(first, Ok(ServerFrame::Error(error)) if error.message.len() > 512) {
        assert_eq!(first, second);
    }
}

fn result(answer: &OkAnswer<'_>) {
    let result = answer.result;
    for count in [0, 1, 3, 1024] {
        let _ = SettleOk::decode(result, count);
        let _ = PublishBatchOk::decode(result, count);
    }
    match answer.request_op {
        Op::Connect => drop(ConnectOk::decode(result)),
        Op::Declare => drop(DeclareOk::decode(result)),
        Op::Publish => drop(PublishOk::decode(result)),
        Op::Subscribe => drop(SubscribeOk::decode(result)),
        Op::Ack => drop(AckOk::decode(result)),
        Op::Nack => drop(NackOk::decode(result)),
        Op::Pull => drop(PullOk::decode(result)),
        Op::Heartbeat => drop(HeartbeatOk::decode(result)),
        Op::Credit => drop(CreditOk::decode(result)),
        Op::Metadata => drop(MetadataOk::decode(result)),
        _ => {}
    }
}
