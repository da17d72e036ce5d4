//! From the node's answers to frames.

use bytes::BytesMut;
use mortarmq_node::views::MetadataView;
use mortarmq_node::{Answer, Delivery, ErrorCode, Failure, Outcome, Reply, settle_code};
use mortarmq_shard::{Published, SettleCode};
use mortarmq_types::{MonotonicTime, Position, TopicIncarnation};
use mortarmq_wire::frame::WIRE_VERSION;
use mortarmq_wire::ops::{
    AckOk, ConnectOk, CreditOk, DeclareOk, ErrorAnswer, HeartbeatOk, ItemCode, Message, MetadataNode, MetadataOk,
    MetadataTopic, NackOk, PingOk, PublishBatchOk, PublishOk, PullOk, RecordOk, SettleOk, SubscribeOk, TopicState,
};
use mortarmq_wire::{EncodeError, List, Op, RecordBody};

use super::session::{Identity, Session};
use crate::random;

/// What is to become of the connection behind an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// It goes on.
    GoesOn,
    /// It closes once the answer is written.
    Closes,
}

/// Appends the answer to the oldest open request.
pub(crate) fn write_reply(session: &mut Session, reply: Reply, out: &mut BytesMut) -> Behind {
    let op = session.expected.pop();
    let position = reply.position;
    let failure = match reply.result {
        Ok(answer) => match write_answer(session, op, position, answer, out) {
            Ok(()) => {
                count(session, op, None);
                return Behind::GoesOn;
            }
            Err(failure) => failure,
        },
        Err(failure) => failure,
    };
    count(session, op, Some(failure.code));
    write_failure(op, 0, position, &failure, out);
    if failure.code.closes() { Behind::Closes } else { Behind::GoesOn }
}

/// Appends the answer to a pull.
pub(crate) fn write_pull_end(
    session: &mut Session,
    subscription: u16,
    position: Position,
    result: &Result<u16, Failure>,
    out: &mut BytesMut,
) {
    session.expected.pop_pull();
    session.metrics.count_request(Op::Pull, result.as_ref().err().map(|failure| failure.code));
    match result {
        Ok(message_count) => {
            PullOk { subscription_id: subscription, message_count: *message_count, position }.encode(out);
        }
        Err(failure) => write_failure(Op::Pull.number(), subscription, position, failure, out),
    }
}

/// Appends a message with what is left of its lease.
///
/// # Panics
/// When the record is no body: only bodies that were parsed are stored, and its checksum was verified.
pub(crate) fn write_message(
    handle: u16,
    subscription: u16,
    delivery: &Delivery,
    now: MonotonicTime,
    out: &mut BytesMut,
) {
    let record = &delivery.record;
    let (body, _) = RecordBody::parse_stored(record.body(), record.has_headers)
        .expect("P11: a record with a right checksum holds a body that was parsed before it was stored");
    let message = Message {
        subscription_id: subscription,
        topic_id: handle,
        partition: delivery.partition,
        seq: delivery.seq,
        delivery_id: delivery.delivery_id,
        attempt: delivery.attempt,
        ownership_epoch: 0,
        producer_id: record.producer_id,
        producer_seq: record.producer_seq,
        body,
        cause: delivery.cause,
        previous_delivery_id: delivery.previous,
        lease_ms: u32::try_from(delivery.lease_until.since_ms(now)).unwrap_or(u32::MAX),
        published_at: delivery.published_at,
        position: delivery.position,
    };
    message.encode(out);
}

fn write_answer(
    session: &mut Session,
    op: u8,
    position: Position,
    answer: Answer,
    out: &mut BytesMut,
) -> Result<(), Failure> {
    match answer {
        Answer::Published(published) => {
            if published.deduplicated {
                session.metrics.count_deduplicated();
            }
            published_ok(published, position).encode(out);
        }
        Answer::PublishedBatch(records) => return write_batch(&records, position, out),
        Answer::Settled(codes) => return write_settled(op, &codes, position, out),
        Answer::Pong if op == Op::Connect.number() => return write_connected(&session.identity, out),
        Answer::Pong => PingOk.encode(out),
        Answer::Declared { topic, name, partitions, existed } => {
            let topic_id = handle_of(session, topic, &name)?;
            DeclareOk { topic_id, partition_count: partitions, existed, incarnation: topic, position }.encode(out);
        }
        Answer::Deleted { existed } => {
            let incarnation = TopicIncarnation::ZERO;
            DeclareOk { topic_id: 0, partition_count: 0, existed, incarnation, position }.encode(out);
        }
        Answer::Metadata(view) => return write_metadata(session, &view, position, out),
        Answer::Subscribed { subscription, member, secret } => {
            if let Some(known) = session.subscriptions.get_mut(&subscription) {
                known.member = Some(member);
            }
            let (membership_epoch, assignment_epoch) = (0, 0);
            let (subscription_id, member_id) = (subscription, member);
            SubscribeOk { subscription_id, member_id, membership_epoch, assignment_epoch, secret, position }
                .encode(out);
        }
        Answer::Credit(granted) => {
            let answer = CreditOk {
                granted_count: granted.window_messages,
                granted_bytes: granted.window_bytes,
                outstanding_count: granted.held_messages,
                outstanding_bytes: granted.held_bytes,
                credit_epoch: granted.credit_epoch,
                position,
            };
            answer.encode(out);
        }
        Answer::Heartbeat => HeartbeatOk { position }.encode(out),
    }
    Ok(())
}

/// Counts an answer; numbers that no op has are not told apart from one another, and not counted.
fn count(session: &Session, op: u8, code: Option<ErrorCode>) {
    if let Some(op) = Op::from_number(op) {
        session.metrics.count_request(op, code);
    }
}

fn published_ok(published: Published, position: Position) -> PublishOk {
    let Published { partition, seq, deduplicated } = published;
    PublishOk { seq, position, deduplicated, partition }
}

fn write_batch(records: &[Published], position: Position, out: &mut BytesMut) -> Result<(), Failure> {
    let records: Vec<RecordOk> = records
        .iter()
        .map(|record| RecordOk { partition: record.partition, seq: record.seq, deduplicated: record.deduplicated })
        .collect();
    PublishBatchOk { records: List::from(&records[..]), position }.encode(out).map_err(unfit)
}

/// SETTLE has a code for each delivery; ACK and NACK have one, which is their answer.
fn write_settled(op: u8, codes: &[SettleCode], position: Position, out: &mut BytesMut) -> Result<(), Failure> {
    if op == Op::Settle.number() {
        let code = |code: &SettleCode| settle_code(*code).map_or(ItemCode::OK, ItemCode::from);
        let codes: Vec<ItemCode> = codes.iter().map(code).collect();
        return SettleOk { codes: List::from(&codes[..]), position }.encode(out).map_err(unfit);
    }
    assert_eq!(codes.len(), 1, "one delivery was settled and has one code");
    match settle_code(codes[0]) {
        Some(code) => return Err(Failure::new(code, format!("{}; {}", code.meaning(), code.remedy()))),
        None if op == Op::Ack.number() => AckOk { position }.encode(out),
        None => NackOk { position }.encode(out),
    }
    Ok(())
}

fn write_connected(identity: &Identity, out: &mut BytesMut) -> Result<(), Failure> {
    let server_version = env!("CARGO_PKG_VERSION").as_bytes();
    ConnectOk { node_id: identity.node_id, wire_version: WIRE_VERSION, server_version }.encode(out).map_err(unfit)
}

fn write_metadata(
    session: &mut Session,
    view: &MetadataView,
    position: Position,
    out: &mut BytesMut,
) -> Result<(), Failure> {
    let mut topics = Vec::with_capacity(view.topics.len());
    for topic in &view.topics {
        // Whoever has no grant on a topic does not learn that it is there.
        if !session.may_see(&topic.name) {
            continue;
        }
        topics.push(MetadataTopic {
            topic_id: handle_of(session, topic.topic, &topic.name)?,
            incarnation: topic.topic,
            name: &topic.name,
            partition_count: topic.partitions,
            state: TopicState::Active,
            created_epoch: topic.created_epoch,
            leader_id: view.leader,
            leader_epoch: view.leader_epoch,
        });
    }
    let client_address = session.identity.client_address.to_string();
    let nodes = [MetadataNode { node_id: session.identity.node_id, client_address: &client_address }];
    let (nodes, topics) = (List::from(&nodes[..]), List::from(&topics[..]));
    MetadataOk { nodes, topics, position }.encode(out).map_err(|error| {
        Failure::new(ErrorCode::TooLarge, format!("the answer does not fit a frame ({error}); ask for fewer names"))
    })
}

fn handle_of(session: &mut Session, topic: TopicIncarnation, name: &str) -> Result<u16, Failure> {
    session.handle_of(topic, name).ok_or_else(|| {
        // A DECLARE was carried out nevertheless.
        let text = "this connection used up its 65535 topic handles; open another one";
        Failure { outcome: Outcome::Unknown, ..Failure::new(ErrorCode::QuotaExceeded, text) }
    })
}

fn write_failure(op: u8, subscription: u16, position: Position, failure: &Failure, out: &mut BytesMut) {
    let numbered = (failure.code == ErrorCode::Internal).then(|| numbered(op, &failure.message));
    let message = numbered.as_ref().unwrap_or(&failure.message);
    let answer = ErrorAnswer {
        code: failure.code.number(),
        request_op: op,
        message: message.as_bytes(),
        outcome: failure.outcome,
        retry_after_ms: failure.retry_after_ms,
        position,
        subscription_id: subscription,
    };
    answer.encode(out);
}

/// The text of a fault of ours, with a number that stands in the log too: whoever reports it says which one it was.
fn numbered(op: u8, message: &str) -> String {
    // Without random numbers it is still told, and found by its time.
    let number = random::bits_63().unwrap_or(0);
    tracing::error!(diagnostic_id = %format_args!("{number:016x}"), op, message, "a request is answered INTERNAL");
    format!("{message}; diagnostic id {number:016x}, as in the node's log")
}

/// An answer that does not fit a frame although its request did is a fault of ours; its request was carried out.
fn unfit(error: EncodeError) -> Failure {
    tracing::error!(%error, "an answer does not fit a frame");
    Failure::new(ErrorCode::Internal, format!("the answer does not fit a frame ({error})"))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use mortarmq_node::{ErrorCode, Failure};
    use mortarmq_types::Position;
    use mortarmq_wire::{Op, ServerFrame, Split, split_frame};

    use super::write_failure;

    fn text_of(code: ErrorCode) -> String {
        let mut out = BytesMut::new();
        write_failure(Op::Publish.number(), 0, Position::default(), &Failure::new(code, "it is broken"), &mut out);
        let Ok(Split::Frame { op, payload, .. }) = split_frame(&out) else { panic!("a frame") };
        let Ok(ServerFrame::Error(error)) = ServerFrame::decode(op, payload) else { panic!("an ERR") };
        String::from_utf8_lossy(error.message).into_owned()
    }

    #[test]
    fn only_an_internal_fault_has_a_number_and_each_has_its_own() {
        let numbers: Vec<String> = (0..2)
            .map(|_| {
                let text = text_of(ErrorCode::Internal);
                let number = text.strip_prefix("it is broken; diagnostic id ").expect("what happened, and the number");
                number.split(',').next().expect("it ends").to_owned()
            })
            .collect();
        assert!(
            numbers.iter().all(|number| u64::from_str_radix(number, 16).is_ok() && number.len() == 16),
            "{numbers:?}"
        );
        assert_ne!(numbers[0], numbers[1]);
        assert_eq!(text_of(ErrorCode::TooLarge), "it is broken");
    }
}
