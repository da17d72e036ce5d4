//! A node on a free port, and a client that speaks raw frames.
#![allow(unreachable_pub, reason = "a module of test files, each of which is a crate")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use mortarmq_server::{Config, Running, Server};
use mortarmq_types::{DeliveryId, Partition, ProducerId, ProducerSeq, Seq};
use mortarmq_wire::ops::{
    Ack, Connect, Declare, DeclareOk, DeliveryRef, ErrorAnswer, Heartbeat, HeartbeatState, Message, Metadata,
    MetadataOk, OkAnswer, Publish, PublishOk, PublishOptions, Pull, PullOk, Settle, SettleItem, SettleKind, SettleOk,
    StartPolicy, Subscribe, SubscribeOk,
};
use mortarmq_wire::{ErrorCode, List, Op, RecordBody, ServerFrame, Split, split_frame, write_body};

/// A node on free ports with its data in `data_dir`.
pub fn start(data_dir: &Path) -> Running {
    Server::start(config(data_dir, &[])).expect("the node starts")
}

/// The configuration of such a node, with more flags.
pub fn config(data_dir: &Path, more: &[(&str, &str)]) -> Config {
    let data_dir = data_dir.to_str().expect("a temporary folder has a plain name");
    let mut flags = vec![("data-dir", data_dir), ("listen-client", "127.0.0.1:0"), ("listen-admin", "127.0.0.1:0")];
    flags.extend_from_slice(more);
    let flags = flags.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    Config::load(None, [], flags).expect("a good configuration").0
}

/// A client that speaks raw frames.
pub struct Client {
    pub stream: TcpStream,
    buffer: BytesMut,
    /// Messages that came while an answer was waited for: pushes take no place in the order.
    early: VecDeque<Received>,
}

/// A message, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub partition: Partition,
    pub seq: Seq,
    pub delivery_id: DeliveryId,
    pub attempt: u32,
    pub cause: mortarmq_types::Cause,
    pub lease_ms: u32,
    pub value: Vec<u8>,
}

/// An error answer, owned.
#[derive(Debug)]
pub struct Refused {
    pub code: Option<ErrorCode>,
    pub request_op: u8,
    pub text: String,
    pub outcome: mortarmq_wire::Outcome,
}

impl Client {
    /// A connection without CONNECT.
    pub fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, buffer: BytesMut::new(), early: VecDeque::new() }
    }

    /// A connection that has greeted.
    pub fn connect(address: SocketAddr) -> Self {
        let mut client = Self::open(address);
        client.send(connect_frame);
        assert_eq!(client.ok().0, Op::Connect);
        client
    }

    pub fn send(&mut self, encode: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        encode(&mut out);
        self.write(&out);
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the node takes what is sent");
    }

    /// The next frame: op and payload.
    pub fn frame(&mut self) -> (u8, Vec<u8>) {
        self.try_frame().expect("a frame before the end of the connection")
    }

    /// The next frame, or `None` at the end of the connection.
    pub fn try_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Ok(Split::Frame { op, payload, consumed }) = split_frame(&self.buffer) {
                let frame = (op, payload.to_vec());
                let _ = self.buffer.split_to(consumed);
                return Some(frame);
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(bytes) => self.buffer.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no frame within {PATIENCE:?}: {error}"),
            }
        }
    }

    /// The next answer, which is an OK: request op and result. Messages in front of it are kept.
    pub fn ok(&mut self) -> (Op, Vec<u8>) {
        loop {
            let (op, payload) = self.frame();
            match ServerFrame::decode(op, &payload).expect("a good frame") {
                ServerFrame::Ok(OkAnswer { request_op, result }) => return (request_op, result.to_vec()),
                ServerFrame::Message(message) => self.early.push_back(received(&message)),
                ServerFrame::Error(error) => panic!("OK expected, got {:?}", refused(&error)),
            }
        }
    }

    /// The next answer, which is an ERR. Messages in front of it are kept.
    pub fn err(&mut self) -> Refused {
        loop {
            let (op, payload) = self.frame();
            match ServerFrame::decode(op, &payload).expect("a good frame") {
                ServerFrame::Error(error) => return refused(&error),
                ServerFrame::Message(message) => self.early.push_back(received(&message)),
                ServerFrame::Ok(answer) => panic!("ERR expected, got OK to {}", answer.request_op),
            }
        }
    }

    /// The next message: one that was kept, or the next frame.
    pub fn message(&mut self) -> Received {
        if let Some(message) = self.early.pop_front() {
            return message;
        }
        let (op, payload) = self.frame();
        match ServerFrame::decode(op, &payload).expect("a good frame") {
            ServerFrame::Message(message) => received(&message),
            ServerFrame::Ok(answer) => panic!("MSG expected, got OK to {}", answer.request_op),
            ServerFrame::Error(error) => panic!("MSG expected, got {:?}", refused(&error)),
        }
    }

    /// Whether a message comes within the time.
    pub fn has_message_within(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).expect("a time-out");
        let mut byte = [0];
        let found = !self.early.is_empty() || !self.buffer.is_empty() || self.stream.peek(&mut byte).is_ok();
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        found
    }

    /// Says that the member lives, and waits for the answer.
    pub fn heartbeat(&mut self, joined: &SubscribeOk) {
        self.send(|out| heartbeat_frame(out, joined, HeartbeatState::Active));
        assert_eq!(self.ok().0, Op::Heartbeat);
    }

    /// An ERR that closes: nothing follows it.
    pub fn closing_err(&mut self) -> Refused {
        let refused = self.err();
        assert_eq!(self.try_frame(), None, "a closing ERR is the last frame");
        refused
    }

    /// Declares a topic and returns its handle.
    pub fn declare(&mut self, topic: &str, options: &str) -> u16 {
        self.send(|out| declare_frame(out, topic, options));
        let (op, result) = self.ok();
        assert_eq!(op, Op::Declare);
        DeclareOk::decode(&result).expect("a good result").topic_id
    }

    /// The handle of a topic that exists, without declaring it.
    pub fn metadata_of(&mut self, topic: &str) -> u16 {
        let names = [topic.as_bytes()];
        self.send(|out| Metadata { topics: List::from(&names[..]) }.encode(out).expect("it fits"));
        let (op, result) = self.ok();
        assert_eq!(op, Op::Metadata);
        let answer = MetadataOk::decode(&result).expect("a good result");
        answer.topics.iter().next().expect("the topic is there").topic_id
    }

    /// Joins a group with the group's window and returns the subscription.
    pub fn subscribe(&mut self, topic_id: u16, group: &str, credit_count: u16) -> SubscribeOk {
        self.send(|out| subscribe_frame(out, topic_id, group, credit_count));
        let (op, result) = self.ok();
        assert_eq!(op, Op::Subscribe);
        SubscribeOk::decode(&result).expect("a good result")
    }

    /// Joins a group with settings.
    pub fn subscribe_with(&mut self, topic_id: u16, group: &str, options: &str) -> SubscribeOk {
        self.send(|out| subscribe_frame_with(out, topic_id, group, u16::MAX, options));
        SubscribeOk::decode(&self.ok().1).expect("a good result")
    }

    /// Goes on as a member, which holds these messages.
    pub fn resume(&mut self, topic_id: u16, group: &str, member: &SubscribeOk, held: &[Received]) -> SubscribeOk {
        self.send(|out| {
            subscribe_frame_with(out, topic_id, group, u16::MAX, &resume_options(member, member.secret, held))
        });
        SubscribeOk::decode(&self.ok().1).expect("a good result")
    }

    /// Pulls up to so many messages.
    pub fn pull(&mut self, joined: &SubscribeOk, max_msgs: u16, wait_ms: u16) -> Vec<Received> {
        self.send(|out| pull_of(joined, max_msgs, wait_ms).encode(out).expect("it fits"));
        let (op, result) = self.ok();
        assert_eq!(op, Op::Pull);
        let count = PullOk::decode(&result).expect("a good result").message_count;
        (0..count).map(|_| self.message()).collect()
    }

    /// Publishes one value and waits for its answer.
    pub fn publish(&mut self, topic_id: u16, value: &[u8]) -> PublishOk {
        self.send(|out| publish_frame(out, topic_id, 0, 0, b"", value));
        self.published()
    }

    /// The answer to a PUB.
    pub fn published(&mut self) -> PublishOk {
        let (op, result) = self.ok();
        assert_eq!(op, Op::Publish);
        PublishOk::decode(&result).expect("a good result")
    }

    /// Acks deliveries with one SETTLE and returns the codes.
    pub fn ack_all(&mut self, subscription_id: u16, messages: &[Received]) -> Vec<u16> {
        self.settle(subscription_id, messages, SettleKind::Ack)
    }

    /// Settles deliveries with one SETTLE and returns the codes.
    pub fn settle(&mut self, subscription_id: u16, messages: &[Received], kind: SettleKind) -> Vec<u16> {
        let items: Vec<SettleItem<'_>> = messages.iter().map(|message| settle_item(message, kind)).collect();
        self.send(|out| {
            Settle { subscription_id, items: List::from(&items[..]) }.encode(out).expect("it fits");
        });
        let (op, result) = self.ok();
        assert_eq!(op, Op::Settle);
        let answer = SettleOk::decode(&result, items.len()).expect("a good result");
        answer.codes.iter().map(|code| code.number()).collect()
    }
}

pub fn settle_item(message: &Received, kind: SettleKind) -> SettleItem<'static> {
    SettleItem {
        kind,
        partition: message.partition,
        seq: message.seq,
        delivery_id: message.delivery_id,
        ownership_epoch: 0,
        delay_ms: 0,
        error_text: b"",
    }
}

pub fn connect_frame(out: &mut BytesMut) {
    Connect { token: b"", client_name: b"test" }.encode(out).expect("it fits");
}

pub fn declare_frame(out: &mut BytesMut, topic: &str, options: &str) {
    let declare = Declare { topic, partition_count: 0, delete: false, options: options.as_bytes() };
    declare.encode(out).expect("it fits");
}

pub fn pull_of(joined: &SubscribeOk, max_msgs: u16, wait_ms: u16) -> Pull<'static> {
    Pull {
        subscription_id: joined.subscription_id,
        member_id: joined.member_id,
        membership_epoch: 0,
        assignment_epoch: 0,
        ownership_epochs: List::default(),
        max_msgs,
        max_bytes: 0,
        wait_ms,
        min_bytes: 0,
    }
}

pub fn heartbeat_frame(out: &mut BytesMut, joined: &SubscribeOk, state: HeartbeatState) {
    let (subscription_id, member_id) = (joined.subscription_id, joined.member_id);
    Heartbeat { subscription_id, member_id, membership_epoch: 0, assignment_epoch: 0, state }.encode(out);
}

pub fn subscribe_frame(out: &mut BytesMut, topic_id: u16, group: &str, credit_count: u16) {
    subscribe_frame_with(out, topic_id, group, credit_count, "");
}

pub fn subscribe_frame_with(out: &mut BytesMut, topic_id: u16, group: &str, credit_count: u16, options: &str) {
    let subscribe = Subscribe {
        group,
        topic_id,
        start: StartPolicy::Earliest,
        credit_count,
        credit_bytes: Subscribe::GROUP_CREDIT_BYTES,
        is_shared: true,
        options: options.as_bytes(),
    };
    subscribe.encode(out).expect("it fits");
}

/// The options of a SUB that resumes.
pub fn resume_options(member: &SubscribeOk, secret: u64, held: &[Received]) -> String {
    let held: Vec<String> = held.iter().map(|message| message.delivery_id.to_string()).collect();
    format!("{{\"resume\":{{\"member_id\":{},\"secret\":{secret},\"held\":[{}]}}}}", member.member_id, held.join(","))
}

pub fn publish_frame(out: &mut BytesMut, topic_id: u16, producer_id: u64, seq: u64, key: &[u8], value: &[u8]) {
    publish_frame_with(out, topic_id, (producer_id, seq), key, value, PublishOptions::default());
}

pub fn publish_frame_with(
    out: &mut BytesMut,
    topic_id: u16,
    (producer_id, seq): (u64, u64),
    key: &[u8],
    value: &[u8],
    options: PublishOptions<'_>,
) {
    let mut body = BytesMut::new();
    write_body(&mut body, key, None, value).expect("within the limits");
    let (body, _) = RecordBody::parse(&body, false).expect("within the limits");
    let publish = Publish {
        topic_id,
        partition: Partition::ANY,
        producer_id: ProducerId::new(producer_id),
        producer_seq: ProducerSeq::new(seq),
        body,
        options,
    };
    publish.encode(out).expect("it fits");
}

pub fn ack_frame(out: &mut BytesMut, subscription_id: u16, topic_id: u16, message: &Received, is_progress: bool) {
    let delivery = DeliveryRef {
        subscription_id,
        topic_id,
        partition: message.partition,
        seq: message.seq,
        delivery_id: message.delivery_id,
        ownership_epoch: 0,
    };
    Ack { delivery, is_progress }.encode(out);
}

fn refused(error: &ErrorAnswer<'_>) -> Refused {
    Refused {
        code: error.known_code(),
        request_op: error.request_op,
        text: String::from_utf8_lossy(error.message).into_owned(),
        outcome: error.outcome,
    }
}

fn received(message: &Message<'_>) -> Received {
    Received {
        partition: message.partition,
        seq: message.seq,
        delivery_id: message.delivery_id,
        attempt: message.attempt.get(),
        cause: message.cause,
        lease_ms: message.lease_ms,
        value: message.body.value().to_vec(),
    }
}

const PATIENCE: Duration = Duration::from_secs(20);
