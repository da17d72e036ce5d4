//! From received bytes to requests of the node: every complete frame of a read, in order.

use std::time::Instant;

use bytes::{Buf, BytesMut};
use mortarmq_node::{Failure, Request};
use mortarmq_types::NodeId;
use mortarmq_wire::{DecodeError, ErrorCode, Op, Split, split_frame};

use super::requests;
use super::session::{Session, Stage};

/// What was found in the receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// How many whole frames.
    pub(crate) frames: usize,
    /// The whole length of the frame that is not complete yet; 0 if there is none.
    pub(crate) pending_bytes: usize,
    /// Bytes were left alone because too many requests are open.
    pub(crate) is_held: bool,
    /// The next frame is for another node, and so is all behind it.
    pub(crate) moves_to: Option<NodeId>,
}

/// Takes whole frames off the front of `input` until too many requests are open. Answers that take no place in the order are appended to `out`.
pub(crate) fn take_frames(session: &mut Session, input: &mut BytesMut, out: &mut BytesMut, now: Instant) -> Taken {
    session.expected.handle_read(now);
    let mut taken = Taken::default();
    let mut at = 0;
    while !matches!(session.stage, Stage::Ending | Stage::Rejected) {
        if session.expected.is_full() {
            taken.is_held = at < input.len();
            break;
        }
        match split_frame(&input[at..]) {
            Ok(Split::Frame { op, payload, consumed }) => {
                taken.moves_to = session.moving.as_ref().and_then(|moving| moving.target(op));
                if taken.moves_to.is_some() {
                    break;
                }
                take_frame(session, op, payload, consumed, out);
                at += consumed;
                taken.frames += 1;
            }
            Ok(Split::Incomplete { needed }) => {
                let begun = &input[at..];
                taken.pending_bytes = if begun.is_empty() { 0 } else { begun.len() + needed };
                match begun.get(OP_AT) {
                    Some(op) if session.stage == Stage::BeforeConnect && taken.pending_bytes > EARLY_FRAME_BYTES => {
                        refuse_large(session, *op, taken.pending_bytes);
                    }
                    Some(_) | None => break,
                }
            }
            Err(error) => session.refuse(NO_OP, 0, Failure::new(error.code(), error.to_string())),
        }
    }
    input.advance(at);
    taken
}

/// Nobody has shown who it is yet: a frame that is too large for a CONNECT is refused by its first bytes, so that strangers
/// take no room from those who have (failure rule 9).
fn refuse_large(session: &mut Session, op: u8, frame_bytes: usize) {
    let failure = match Op::from_number(op) {
        None => failure_of(&DecodeError::UnknownOp { number: op }),
        Some(op) if !op.allowed_before_connect() => not_authenticated(),
        Some(_) => {
            let text = format!(
                "before CONNECT is answered a frame takes at most {EARLY_FRAME_BYTES} bytes, this one {frame_bytes}; \
                 send CONNECT first"
            );
            Failure::new(ErrorCode::BadLength, text)
        }
    };
    session.refuse(op, 0, failure);
}

fn not_authenticated() -> Failure {
    Failure::new(ErrorCode::NotAuthenticated, "send CONNECT first")
}

/// No op was read.
pub(crate) const NO_OP: u8 = 0;
/// Where the op of a frame stands.
const OP_AT: usize = 4;
/// The largest CONNECT takes 65,806 bytes; a newer client may add something to it.
const EARLY_FRAME_BYTES: usize = 66 << 10;

fn take_frame(session: &mut Session, op: u8, payload: &[u8], frame_bytes: usize, out: &mut BytesMut) {
    use mortarmq_wire::Request as Wire;
    let is_early = session.stage == Stage::BeforeConnect;
    if is_early && Op::from_number(op).is_some_and(|op| !op.allowed_before_connect()) {
        return session.refuse(op, frame_bytes, not_authenticated());
    }
    let request = match Wire::decode(op, payload) {
        Ok(request) => request,
        Err(error) => return session.refuse(op, frame_bytes, failure_of(&error)),
    };
    match request {
        Wire::Publish(publish) => requests::publish::one(session, frame_bytes, &publish),
        Wire::PublishBatch(batch) => requests::publish::batch(session, frame_bytes, &batch),
        Wire::Settle(settle) => requests::settle::many(session, frame_bytes, &settle),
        Wire::Ack(ack) => requests::settle::ack(session, frame_bytes, &ack),
        Wire::Nack(nack) => requests::settle::nack(session, frame_bytes, &nack),
        Wire::Credit(credit) => requests::consume::credit(session, frame_bytes, &credit),
        Wire::Pull(pull) => requests::consume::pull(session, &pull, out),
        Wire::Heartbeat(heartbeat) => requests::consume::heartbeat(session, frame_bytes, &heartbeat),
        Wire::Subscribe(subscribe) => requests::consume::subscribe(session, frame_bytes, &subscribe),
        Wire::Declare(declare) => requests::topics::declare(session, frame_bytes, &declare),
        Wire::Metadata(metadata) => requests::topics::metadata(session, frame_bytes, &metadata),
        Wire::Ping(_) => session.ask(op, frame_bytes, Request::Ping),
        Wire::Connect(connect) => requests::connect(session, frame_bytes, &connect),
        Wire::ClientError => {}
    }
}

pub(super) fn failure_of(error: &DecodeError) -> Failure {
    Failure::new(error.code(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{Taken, take_frames};
    use crate::connection::session::{Identity, Session};
    use crate::metrics::Metrics;
    use bytes::BytesMut;
    use mortarmq_types::NodeId;
    use mortarmq_wire::List;
    use mortarmq_wire::ops::{Connect, Metadata, Ping};
    use std::sync::Arc;
    use std::time::Instant;

    fn greeted() -> Session {
        let client_address = ([127, 0, 0, 1], 7188).into();
        let identity = Identity { node_id: NodeId::new(0), client_address, poll_max_wait_ms: 0, is_carried: false };
        let mut session = Session::new(identity, Arc::default(), Arc::new(Metrics::new()));
        let mut input = BytesMut::new();
        Connect { token: b"", client_name: b"" }.encode(&mut input).expect("it fits");
        assert_eq!(take(&mut session, &mut input).frames, 1);
        session.expected.pop();
        session
    }

    fn take(session: &mut Session, input: &mut BytesMut) -> Taken {
        take_frames(session, input, &mut BytesMut::new(), Instant::now())
    }

    #[test]
    fn rule_9_one_read_brings_no_more_requests_than_may_be_open() {
        let (mut session, mut input) = (greeted(), BytesMut::new());
        for _ in 0..3000 {
            Ping.encode(&mut input);
        }
        let first = take(&mut session, &mut input);
        assert_eq!((first.frames, first.is_held), (1024, true));
        assert_eq!(take(&mut session, &mut input).frames, 0);
        session.expected.pop();
        assert_eq!(take(&mut session, &mut input).frames, 1);
    }

    #[test]
    fn rule_9_a_connection_has_one_answer_at_a_time_that_may_be_large() {
        let (mut session, mut input) = (greeted(), BytesMut::new());
        for _ in 0..2 {
            Metadata { topics: List::default() }.encode(&mut input).expect("it fits");
        }
        input.extend_from_slice(&[0, 0]);
        assert_eq!(take(&mut session, &mut input), Taken { frames: 1, is_held: true, ..Taken::default() });
        session.expected.pop();
        assert_eq!(take(&mut session, &mut input), Taken { frames: 1, is_held: true, ..Taken::default() });
        session.expected.pop();
        let rest = take(&mut session, &mut input);
        assert_eq!((rest.frames, rest.pending_bytes, rest.is_held), (0, 4, false));
    }
}
