//! Topics, subscribers with credit, and what waits for them.
//!
//! # Invariants
//! 1. A subscriber holds no more messages than its window.
//! 2. What waits is bounded by [`MAX_WAITING_BYTES`]; beyond it publishes are refused.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use mortarmq_types::{
    Attempt, Cause, CommitIndex, DeliveryId, Epoch, MemberId, NodeId, Partition, Position, ProducerId, ProducerSeq,
    Seq, TopicIncarnation, WallTime,
};
use mortarmq_wire::ops::{
    self, ConnectOk, Credit, CreditMode, CreditOk, Declare, DeclareOk, ErrorAnswer, Heartbeat, HeartbeatOk,
    HeartbeatState, ItemCode, MetadataNode, MetadataOk, MetadataTopic, PingOk, Publish, PublishBatch, PublishBatchOk,
    PublishOk, RecordOk, Settle, SettleKind, SettleOk, Subscribe, SubscribeOk, TopicState,
};
use mortarmq_wire::{EncodeError, ErrorCode, List, RecordBody, Request};

use super::desk::{ConnectionNumber, Outgoing};

/// Everything a floor knows.
#[derive(Debug, Default)]
pub(super) struct Hub {
    /// A topic's handle is its place and one; all connections have the same.
    topics: Vec<Topic>,
    subscribers: BTreeMap<SubscriberId, Subscriber>,
    commit_index: u64,
    deliveries: u64,
    members: u64,
    waiting_bytes: usize,
    /// What is to be written, if anything is.
    pub(super) records: Option<Vec<u8>>,
}

/// A subscription of a connection.
type SubscriberId = (ConnectionNumber, u16);

#[derive(Debug)]
struct Topic {
    name: String,
    partitions: u16,
    is_deleted: bool,
    last_seq: u64,
    /// Somebody has subscribed, so its messages are kept. There is one group, whatever its name.
    is_kept: bool,
    subscribers: VecDeque<SubscriberId>,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Subscriber {
    topic: usize,
    member: MemberId,
    window: u16,
    held: u16,
}

#[derive(Debug)]
struct Waiting {
    seq: Seq,
    producer_id: ProducerId,
    producer_seq: ProducerSeq,
    has_headers: bool,
    body: Bytes,
}

/// Why a request is not done.
struct Refused(ErrorCode, &'static str);

impl Hub {
    /// Carries out a request. `payload` is what it borrows from.
    pub(super) fn handle(
        &mut self,
        connection: ConnectionNumber,
        request: &Request<'_>,
        payload: &Bytes,
        out: &mut BytesMut,
    ) {
        let done = match request {
            Request::Publish(publish) => self.publish(publish, payload, out),
            Request::PublishBatch(batch) => self.publish_batch(batch, payload, out),
            Request::Settle(settle) => self.settle(connection, settle, out),
            Request::Connect(_) => {
                fit(ConnectOk { node_id: NODE, wire_version: WIRE_VERSION, server_version: b"floor" }.encode(out))
            }
            Request::Ping(_) => {
                PingOk.encode(out);
                Ok(())
            }
            Request::Declare(declare) => self.declare(declare, out),
            Request::Metadata(metadata) => self.metadata(metadata, out),
            Request::Subscribe(subscribe) => self.subscribe(connection, subscribe, out),
            Request::Credit(credit) => self.credit(connection, credit, out),
            Request::Heartbeat(heartbeat) => self.heartbeat(connection, heartbeat, out),
            Request::Pull(_) | Request::Ack(_) | Request::Nack(_) => {
                Err(Refused(ErrorCode::UnknownOp, "a floor for measuring knows no PULL, ACK and NACK"))
            }
            Request::ClientError => Ok(()),
        };
        if let Err(Refused(code, text)) = done {
            ErrorAnswer::new(code, request.op().number(), text.as_bytes()).encode(out);
        }
    }

    /// Gives what waits to subscribers with room, one after the other.
    pub(super) fn deliver(&mut self, outgoing: &mut Outgoing, now: WallTime) {
        for index in 0..self.topics.len() {
            while !self.topics[index].waiting.is_empty() {
                let Some(subscriber) = self.next_with_room(index) else { break };
                let message = self.topics[index].waiting.pop_front().expect("it is not empty");
                self.waiting_bytes -= message.body.len();
                self.deliveries += 1;
                self.record(DELIVER, message.seq.get(), self.deliveries, &[]);
                self.send(index, subscriber, &message, now, outgoing.of(subscriber.0));
            }
        }
    }

    /// Forgets a connection's subscriptions, and what they hold.
    pub(super) fn disconnected(&mut self, connection: ConnectionNumber) {
        let of_it: Vec<SubscriberId> =
            self.subscribers.range((connection, 0)..=(connection, u16::MAX)).map(|(id, _)| *id).collect();
        of_it.into_iter().for_each(|id| self.leave(id));
    }

    fn publish(&mut self, publish: &Publish<'_>, payload: &Bytes, out: &mut BytesMut) -> Result<(), Refused> {
        let index = self.topic_of(publish.topic_id)?;
        self.check_room()?;
        self.commit_index += 1;
        let seq = self.store(index, publish.producer_id, publish.producer_seq, publish.body, payload);
        let position = self.position();
        PublishOk { seq, position, deduplicated: false, partition: PARTITION }.encode(out);
        Ok(())
    }

    fn publish_batch(&mut self, batch: &PublishBatch<'_>, payload: &Bytes, out: &mut BytesMut) -> Result<(), Refused> {
        let index = self.topic_of(batch.topic_id)?;
        self.check_room()?;
        self.commit_index += 1;
        let mut records = Vec::with_capacity(batch.records.len());
        for (place, record) in (0..).zip(batch.records) {
            let number = ProducerSeq::new(batch.first_producer_seq.get().wrapping_add(place));
            let seq = self.store(index, batch.producer_id, number, record.body, payload);
            records.push(RecordOk { partition: PARTITION, seq, deduplicated: false });
        }
        fit(PublishBatchOk { records: List::from(&records[..]), position: self.position() }.encode(out))
    }

    fn store(
        &mut self,
        index: usize,
        producer_id: ProducerId,
        producer_seq: ProducerSeq,
        body: RecordBody<'_>,
        payload: &Bytes,
    ) -> Seq {
        let topic = &mut self.topics[index];
        topic.last_seq += 1;
        let seq = Seq::new(topic.last_seq);
        if topic.is_kept {
            self.waiting_bytes += body.bytes().len();
            let (has_headers, body) = (body.has_headers(), payload.slice_ref(body.bytes()));
            topic.waiting.push_back(Waiting { seq, producer_id, producer_seq, has_headers, body });
        }
        self.record(PUBLISH, seq.get(), producer_seq.get(), body.bytes());
        seq
    }

    fn settle(&mut self, connection: ConnectionNumber, settle: &Settle<'_>, out: &mut BytesMut) -> Result<(), Refused> {
        self.commit_index += 1;
        let mut ended = 0;
        for item in settle.items {
            ended += u16::from(item.kind != SettleKind::Progress);
            self.record(SETTLE, item.seq.get(), item.delivery_id.get(), &[]);
        }
        let subscriber = self.subscribers.get_mut(&(connection, settle.subscription_id));
        let subscriber = subscriber.ok_or(Refused(ErrorCode::UnknownMember, "no such subscription"))?;
        subscriber.held = subscriber.held.saturating_sub(ended);
        let codes = vec![ItemCode::OK; settle.items.len()];
        fit(SettleOk { codes: List::from(&codes[..]), position: self.position() }.encode(out))
    }

    fn declare(&mut self, declare: &Declare<'_>, out: &mut BytesMut) -> Result<(), Refused> {
        let known = self.topics.iter().position(|topic| topic.name == declare.topic && !topic.is_deleted);
        let position = self.position();
        let index = match known {
            Some(index) => index,
            None if declare.delete => self.topics.len(),
            None => {
                if self.topics.len() >= usize::from(u16::MAX) - 1 {
                    return Err(Refused(ErrorCode::QuotaExceeded, "a floor has no more handles for topics"));
                }
                self.topics.push(Topic::new(declare));
                self.topics.len() - 1
            }
        };
        if declare.delete
            && let Some(topic) = self.topics.get_mut(index)
        {
            topic.is_deleted = true;
            self.waiting_bytes -= topic.waiting.drain(..).map(|message| message.body.len()).sum::<usize>();
        }
        DeclareOk {
            topic_id: handle(index),
            partition_count: declare.partition_count,
            existed: known.is_some(),
            incarnation: TopicIncarnation::new(index as u64 + 1),
            position,
        }
        .encode(out);
        Ok(())
    }

    fn metadata(&self, asked: &ops::Metadata<'_>, out: &mut BytesMut) -> Result<(), Refused> {
        let is_asked = |name: &str| asked.topics.is_empty() || asked.topics.iter().any(|it| it == name.as_bytes());
        let known = self.topics.iter().enumerate().filter(|(_, topic)| !topic.is_deleted && is_asked(&topic.name));
        let topics: Vec<MetadataTopic<'_>> = known
            .map(|(index, topic)| MetadataTopic {
                topic_id: handle(index),
                incarnation: TopicIncarnation::new(index as u64 + 1),
                name: &topic.name,
                partition_count: topic.partitions,
                state: TopicState::Active,
                created_epoch: EPOCH,
                leader_id: NODE,
                leader_epoch: EPOCH,
            })
            .collect();
        let nodes = [MetadataNode { node_id: NODE, client_address: "" }];
        let (nodes, topics) = (List::from(&nodes[..]), List::from(&topics[..]));
        fit(MetadataOk { nodes, topics, position: self.position() }.encode(out))
    }

    fn subscribe(
        &mut self,
        connection: ConnectionNumber,
        request: &Subscribe<'_>,
        out: &mut BytesMut,
    ) -> Result<(), Refused> {
        let topic = self.topic_of(request.topic_id)?;
        let last = self.subscribers.range((connection, 0)..=(connection, u16::MAX)).next_back();
        let id = last.map_or(Some(1), |((_, id), _)| id.checked_add(1));
        let subscription_id = id.ok_or(Refused(ErrorCode::QuotaExceeded, "a connection has no more subscriptions"))?;
        self.members += 1;
        let member = MemberId::new(self.members);
        let window =
            if request.credit_count == Subscribe::GROUP_CREDIT_COUNT { GROUP_WINDOW } else { request.credit_count };
        self.subscribers.insert((connection, subscription_id), Subscriber { topic, member, window, held: 0 });
        self.topics[topic].is_kept = true;
        self.topics[topic].subscribers.push_back((connection, subscription_id));
        SubscribeOk {
            subscription_id,
            member_id: member,
            membership_epoch: 0,
            assignment_epoch: 0,
            secret: self.members,
            position: self.position(),
        }
        .encode(out);
        Ok(())
    }

    fn credit(&mut self, connection: ConnectionNumber, credit: &Credit, out: &mut BytesMut) -> Result<(), Refused> {
        let position = self.position();
        let subscriber = self.subscribers.get_mut(&(connection, credit.subscription_id));
        let subscriber = subscriber.ok_or(Refused(ErrorCode::UnknownMember, "no such subscription"))?;
        subscriber.window = match credit.mode {
            CreditMode::Set => credit.credit_count,
            CreditMode::Add => subscriber.window.saturating_add(credit.credit_count),
        };
        CreditOk {
            granted_count: subscriber.window,
            granted_bytes: credit.credit_bytes,
            outstanding_count: subscriber.held,
            outstanding_bytes: 0,
            credit_epoch: 0,
            position,
        }
        .encode(out);
        Ok(())
    }

    fn heartbeat(
        &mut self,
        connection: ConnectionNumber,
        heartbeat: &Heartbeat,
        out: &mut BytesMut,
    ) -> Result<(), Refused> {
        let id = (connection, heartbeat.subscription_id);
        let is_known = self.subscribers.get(&id).is_some_and(|known| known.member == heartbeat.member_id);
        if !is_known {
            return Err(Refused(ErrorCode::UnknownMember, "no such member"));
        }
        if heartbeat.state == HeartbeatState::Leave {
            self.leave(id);
        }
        HeartbeatOk { position: self.position() }.encode(out);
        Ok(())
    }

    fn leave(&mut self, id: SubscriberId) {
        if let Some(subscriber) = self.subscribers.remove(&id) {
            self.topics[subscriber.topic].subscribers.retain(|other| *other != id);
        }
    }

    /// The next subscriber with room takes a place in it. Each gets its turn.
    fn next_with_room(&mut self, index: usize) -> Option<SubscriberId> {
        for _ in 0..self.topics[index].subscribers.len() {
            self.topics[index].subscribers.rotate_left(1);
            let id = *self.topics[index].subscribers.back().expect("there are some");
            let subscriber = self.subscribers.get_mut(&id).expect("a topic's subscribers are known");
            if subscriber.held < subscriber.window {
                subscriber.held += 1;
                return Some(id);
            }
        }
        None
    }

    fn send(&self, index: usize, subscriber: SubscriberId, message: &Waiting, now: WallTime, out: &mut BytesMut) {
        let body = RecordBody::parse_stored(&message.body, message.has_headers).expect("it was decoded before").0;
        ops::Message {
            subscription_id: subscriber.1,
            topic_id: handle(index),
            partition: PARTITION,
            seq: message.seq,
            delivery_id: DeliveryId::new(self.deliveries),
            attempt: Attempt::new(1),
            ownership_epoch: 0,
            producer_id: message.producer_id,
            producer_seq: message.producer_seq,
            body,
            cause: Cause::First,
            previous_delivery_id: DeliveryId::ZERO,
            lease_ms: LEASE_MS,
            published_at: now,
            position: self.position(),
        }
        .encode(out);
    }

    /// Adds a record of fixed size and its bytes to what is to be written.
    fn record(&mut self, kind: u64, seq: u64, number: u64, bytes: &[u8]) {
        if let Some(records) = &mut self.records {
            for word in [kind, seq, number, bytes.len() as u64] {
                records.extend_from_slice(&word.to_be_bytes());
            }
            records.extend_from_slice(bytes);
        }
    }

    fn topic_of(&self, handle: u16) -> Result<usize, Refused> {
        let index = usize::from(handle).checked_sub(1);
        let known = index.filter(|index| self.topics.get(*index).is_some_and(|topic| !topic.is_deleted));
        known.ok_or(Refused(ErrorCode::UnknownTopic, "no such topic"))
    }

    fn check_room(&self) -> Result<(), Refused> {
        let has_room = self.waiting_bytes < MAX_WAITING_BYTES;
        if has_room { Ok(()) } else { Err(Refused(ErrorCode::QuotaExceeded, "what waits in a floor is in memory")) }
    }

    const fn position(&self) -> Position {
        Position { epoch: EPOCH, commit_index: CommitIndex::new(self.commit_index) }
    }
}

impl Topic {
    fn new(declare: &Declare<'_>) -> Self {
        Self {
            name: declare.topic.to_owned(),
            partitions: declare.partition_count.max(1),
            is_deleted: false,
            last_seq: 0,
            is_kept: false,
            subscribers: VecDeque::new(),
            waiting: VecDeque::new(),
        }
    }
}

fn handle(index: usize) -> u16 {
    u16::try_from(index + 1).expect("declare looks at the limit")
}

/// What a request of this protocol asks for fits a frame, but for one that asks for too many names.
fn fit(encoded: Result<(), EncodeError>) -> Result<(), Refused> {
    encoded.map_err(|_| Refused(ErrorCode::TooLarge, "the answer does not fit a frame"))
}

const NODE: NodeId = NodeId::new(0);
const WIRE_VERSION: u8 = mortarmq_wire::frame::WIRE_VERSION;
const EPOCH: Epoch = Epoch::new(1);
/// One sequence for a topic is enough.
const PARTITION: Partition = Partition::new(0);
const LEASE_MS: u32 = 30_000;
/// As a group's default.
const GROUP_WINDOW: u16 = 256;
/// The backlog of a phase is smaller; a machine that runs a benchmark has as much.
const MAX_WAITING_BYTES: usize = 2 << 30;
const PUBLISH: u64 = 1;
const DELIVER: u64 = 2;
const SETTLE: u64 = 3;
