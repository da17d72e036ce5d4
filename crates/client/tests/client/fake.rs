//! A small broker for tests: rule 1 for producers, one shared group with order by key, handles that differ from
//! connection to connection, and faults by request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use mortarmq_types::{
    Attempt, Cause, CommitIndex, DeliveryId, Epoch, MemberId, NodeId, Partition, Position, ProducerId, ProducerSeq,
    Seq, TopicIncarnation, WallTime,
};
use mortarmq_wire::ops::{
    ConnectOk, Credit, CreditMode, CreditOk, Declare, DeclareOk, ErrorAnswer, Heartbeat, HeartbeatOk, HeartbeatState,
    ItemCode, Message, Metadata, MetadataNode, MetadataOk, MetadataTopic, PingOk, Publish, PublishBatch,
    PublishBatchOk, PublishOk, Pull, PullOk, RecordOk, Settle, SettleItem, SettleKind, SettleOk, Subscribe,
    SubscribeOk, TopicState,
};
use mortarmq_wire::{ErrorCode, List, Op, RecordBody, Request, Split, split_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What a test sees of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Connect {
        token: Vec<u8>,
    },
    Declare {
        name: String,
    },
    Metadata,
    Publish {
        producer_id: u64,
        number: u64,
        value: String,
    },
    Batch {
        number: u64,
        count: usize,
    },
    /// With the deliveries that it names if it resumes.
    Subscribe {
        credit: u16,
        resumes: Option<Vec<u64>>,
    },
    Settle {
        items: Vec<(SettleKind, u64)>,
    },
    Heartbeat {
        is_leave: bool,
    },
    Pull,
    Credit {
        count: u16,
    },
    Ping,
}

/// What a test does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The connection breaks before the request arrives.
    CutBefore,
    /// The request is done, and the connection breaks before its answer.
    CutAfter,
    Refuse(ErrorCode),
    /// Every member's session ends before the request is looked at.
    EndSessions,
}

type Faults = Box<dyn FnMut(&Seen) -> Fault + Send>;

pub(crate) struct Fake {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Fake {
    pub(crate) async fn start(topics: &[&str]) -> Self {
        Self::start_with(topics, |_| Fault::None).await
    }

    pub(crate) async fn start_with(topics: &[&str], faults: impl FnMut(&Seen) -> Fault + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket").to_string();
        let mut state = State { faults: Some(Box::new(faults)), ..State::default() };
        for name in topics {
            state.declare(name);
        }
        let state = Arc::new(Mutex::new(state));
        let accepting = tokio::spawn(accept(listener, Arc::clone(&state)));
        Self { address, state, accepting }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the fake broker did not panic")
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }

    /// Cuts every connection, now.
    pub(crate) fn cut(&self) {
        self.state().outlets.clear();
    }

    /// Stops for good: nobody can connect any more.
    pub(crate) fn stop(&self) {
        self.accepting.abort();
        self.cut();
    }

    /// Waits for a condition, 20 s at most.
    pub(crate) async fn until(&self, what: &str, mut condition: impl FnMut(&mut State) -> bool) {
        for _ in 0..4000 {
            if condition(&mut self.state()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("waited in vain until {what}; seen: {:?}", self.seen());
    }
}

#[derive(Default)]
pub(crate) struct State {
    faults: Option<Faults>,
    pub(crate) seen: Vec<Seen>,
    topics: BTreeMap<String, u64>,
    connections: u16,
    outlets: BTreeMap<u16, UnboundedSender<BytesMut>>,
    commit_index: u64,
    known: BTreeMap<(u64, u64), (Vec<u8>, u64)>,
    next_number: BTreeMap<u64, u64>,
    /// The bodies of the one topic's one partition.
    pub(crate) stored: Vec<Vec<u8>>,
    members: BTreeMap<u16, Member>,
    leases: BTreeMap<u64, Lease>,
    next_delivery: u64,
    /// Settled for good, by sequence.
    pub(crate) settled: BTreeSet<u64>,
    last_delivery: BTreeMap<u64, (u64, Cause)>,
    /// The answers that settles get by themselves, by delivery.
    ended_by: BTreeMap<u64, SettleKind>,
    pub(crate) lease_ms: u32,
    /// Whether messages are leased and lost on their way.
    pub(crate) loses_messages: bool,
    /// Whether nothing is answered, though connections stand.
    pub(crate) is_mute: bool,
    /// Whether a pull that finds nothing waits, and the subscription whose pull does.
    pub(crate) parks_pulls: bool,
    parked: Option<u16>,
    /// Whether nothing is pushed for now.
    pub(crate) is_paused: bool,
}

#[derive(Clone, Copy)]
struct Member {
    /// As SUB tells it; a resume keeps it under another subscription.
    member_id: u64,
    connection: u16,
    topic_id: u16,
    credit: u16,
}

struct Lease {
    seq: u64,
    member: u16,
    commit_index: u64,
    key: Vec<u8>,
    previous: u64,
    cause: Cause,
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("an open socket");
        let (outlet, answers) = unbounded_channel();
        let connection = {
            let mut state = state.lock().unwrap();
            state.connections += 1;
            let connection = state.connections;
            state.outlets.insert(connection, outlet);
            connection
        };
        tokio::spawn(serve(stream, connection, Arc::clone(&state), answers));
    }
}

/// Ends when the outlet is gone from the state, which is how a test cuts.
async fn serve(
    mut stream: TcpStream,
    connection: u16,
    state: Arc<Mutex<State>>,
    mut answers: UnboundedReceiver<BytesMut>,
) {
    let mut read = BytesMut::new();
    loop {
        tokio::select! {
            answer = answers.recv() => match answer {
                Some(answer) => if stream.write_all(&answer).await.is_err() { break },
                None => break,
            },
            count = stream.read_buf(&mut read) => {
                if matches!(count, Ok(0) | Err(_)) { break }
                let mut state = state.lock().unwrap();
                while let Ok(Split::Frame { op, payload, consumed }) = split_frame(&read) {
                    let request = Request::decode(op, payload).expect("the client sends what can be read");
                    state.on_request(connection, &request);
                    read.advance(consumed);
                    if !state.outlets.contains_key(&connection) { break }
                }
                state.deliver();
            }
        }
    }
    let mut state = state.lock().unwrap();
    state.outlets.remove(&connection);
}

impl State {
    fn on_request(&mut self, connection: u16, request: &Request<'_>) {
        let seen = seen(request);
        self.seen.push(seen.clone());
        if self.is_mute {
            return;
        }
        let mut faults = self.faults.take().expect("one request at a time");
        let fault = faults(&seen);
        self.faults = Some(faults);
        let mut out = BytesMut::new();
        match fault {
            Fault::CutBefore => drop(self.outlets.remove(&connection)),
            Fault::CutAfter => {
                self.answer(connection, request, &mut out);
                self.outlets.remove(&connection);
            }
            Fault::Refuse(code) => refuse(code, request.op(), &mut out),
            Fault::EndSessions => {
                self.end_all_sessions();
                self.answer(connection, request, &mut out);
            }
            Fault::None => self.answer(connection, request, &mut out),
        }
        self.send(connection, out);
    }

    fn answer(&mut self, connection: u16, request: &Request<'_>, out: &mut BytesMut) {
        self.commit_index += 1;
        match request {
            Request::Connect(_) => {
                let node_id = NodeId::new(1);
                ConnectOk { node_id, wire_version: 1, server_version: b"fake" }.encode(out).unwrap();
            }
            Request::Ping(_) => PingOk.encode(out),
            Request::Declare(declare) => self.on_declare(connection, declare, out),
            Request::Metadata(metadata) => self.on_metadata(connection, metadata, out),
            Request::Publish(publish) => self.on_publish(connection, publish, out),
            Request::PublishBatch(batch) => self.on_batch(connection, batch, out),
            Request::Subscribe(subscribe) => self.on_subscribe(connection, subscribe, out),
            Request::Settle(settle) => self.on_settle(settle, out),
            Request::Heartbeat(heartbeat) => self.on_heartbeat(heartbeat, out),
            Request::Pull(pull) => self.on_pull(pull, out),
            Request::Credit(credit) => self.on_credit(credit, out),
            other => panic!("not used by the client: {other:?}"),
        }
    }

    fn position(&self) -> Position {
        Position { epoch: Epoch::new(1), commit_index: CommitIndex::new(self.commit_index) }
    }

    pub(crate) fn declare(&mut self, name: &str) -> bool {
        let incarnation = self.connections as u64 * 1000 + self.topics.len() as u64 + 1;
        let is_new = !self.topics.contains_key(name);
        self.topics.entry(name.to_owned()).or_insert(incarnation);
        !is_new
    }

    pub(crate) fn delete(&mut self, name: &str) -> bool {
        self.topics.remove(name).is_some()
    }

    fn on_declare(&mut self, connection: u16, declare: &Declare<'_>, out: &mut BytesMut) {
        let existed = if declare.delete { self.delete(declare.topic) } else { self.declare(declare.topic) };
        let incarnation = self.topics.get(declare.topic).copied().unwrap_or_default();
        let partition_count = declare.partition_count.max(1);
        let (incarnation, position) = (TopicIncarnation::new(incarnation), self.position());
        DeclareOk { topic_id: handle(connection), partition_count, existed, incarnation, position }.encode(out);
    }

    fn on_metadata(&mut self, connection: u16, metadata: &Metadata<'_>, out: &mut BytesMut) {
        let is_asked =
            |name: &str| metadata.topics.is_empty() || metadata.topics.iter().any(|it| it == name.as_bytes());
        let asked = self.topics.iter().filter(|(name, _)| is_asked(name));
        let topics: Vec<MetadataTopic<'_>> = asked
            .map(|(name, incarnation)| MetadataTopic {
                topic_id: handle(connection),
                incarnation: TopicIncarnation::new(*incarnation),
                name,
                partition_count: 1,
                state: TopicState::Active,
                created_epoch: Epoch::new(1),
                leader_id: NodeId::new(1),
                leader_epoch: Epoch::new(1),
            })
            .collect();
        let nodes = [MetadataNode { node_id: NodeId::new(1), client_address: "127.0.0.1:1" }];
        let position = self.position();
        MetadataOk { nodes: List::from(&nodes[..]), topics: List::from(&topics[..]), position }.encode(out).unwrap();
    }

    /// Rule 1.
    fn store(&mut self, id: ProducerId, number: ProducerSeq, body: &RecordBody<'_>) -> Result<(u64, bool), ErrorCode> {
        let (id, number) = (id.get(), number.get());
        if let Some((known, seq)) = self.known.get(&(id, number)) {
            return if known == body.bytes() { Ok((*seq, true)) } else { Err(ErrorCode::ProducerSeqInvalid) };
        }
        match self.next_number.get(&id).copied() {
            None if number != 1 => Err(ErrorCode::SeqExpired),
            Some(next) if number != next => Err(if number > next { ErrorCode::SeqGap } else { ErrorCode::SeqExpired }),
            None | Some(_) => {
                self.stored.push(body.bytes().to_vec());
                let seq = self.stored.len() as u64;
                self.known.insert((id, number), (body.bytes().to_vec(), seq));
                self.next_number.insert(id, number + 1);
                Ok((seq, false))
            }
        }
    }

    /// Puts a message in without a producer.
    pub(crate) fn put(&mut self, key: &str, value: &str) {
        let mut body = BytesMut::new();
        mortarmq_wire::write_body(&mut body, key.as_bytes(), None, value.as_bytes()).unwrap();
        self.stored.push(body.to_vec());
        self.deliver();
    }

    fn on_publish(&mut self, connection: u16, publish: &Publish<'_>, out: &mut BytesMut) {
        if publish.topic_id != handle(connection) {
            return refuse(ErrorCode::UnknownTopic, Op::Publish, out);
        }
        match self.store(publish.producer_id, publish.producer_seq, &publish.body) {
            Ok((seq, deduplicated)) => {
                let (seq, partition, position) = (Seq::new(seq), Partition::new(0), self.position());
                PublishOk { seq, position, deduplicated, partition }.encode(out);
            }
            Err(code) => refuse(code, Op::Publish, out),
        }
    }

    fn on_batch(&mut self, connection: u16, batch: &PublishBatch<'_>, out: &mut BytesMut) {
        assert_eq!(batch.topic_id, handle(connection), "a handle of another connection");
        let numbers = batch.first_producer_seq.get()..;
        let stored: Result<Vec<RecordOk>, ErrorCode> = numbers
            .zip(batch.records)
            .map(|(number, record)| {
                let (seq, deduplicated) = self.store(batch.producer_id, ProducerSeq::new(number), &record.body)?;
                Ok(RecordOk { partition: Partition::new(0), seq: Seq::new(seq), deduplicated })
            })
            .collect();
        match stored {
            Ok(records) => {
                let position = self.position();
                PublishBatchOk { records: List::from(&records[..]), position }.encode(out).unwrap();
            }
            Err(code) => refuse(code, Op::PublishBatch, out),
        }
    }

    fn on_subscribe(&mut self, connection: u16, subscribe: &Subscribe<'_>, out: &mut BytesMut) {
        assert_eq!(subscribe.topic_id, handle(connection), "a handle of another connection");
        assert!(subscribe.is_shared);
        let subscription_id = connection * 10 + self.members.len() as u16;
        let credit = subscribe.credit_count.min(256);
        let resume = resume_of(subscribe);
        let found = resume.as_ref().map(|(member_id, ..)| {
            self.members.iter().find(|(_, member)| member.member_id == *member_id).map(|(id, _)| *id)
        });
        if found == Some(None) {
            return refuse(ErrorCode::UnknownMember, Op::Subscribe, out);
        }
        let member_id = resume.as_ref().map_or(u64::from(subscription_id), |(member_id, ..)| *member_id);
        let member = Member { member_id, connection, topic_id: subscribe.topic_id, credit };
        self.members.insert(subscription_id, member);
        let ok = SubscribeOk {
            subscription_id,
            member_id: MemberId::new(member_id),
            membership_epoch: 0,
            assignment_epoch: 0,
            secret: u64::MAX - 7,
            position: self.position(),
        };
        ok.encode(out);
        if let (Some(Some(before)), Some((_, held))) = (found, resume) {
            self.members.remove(&before);
            self.leases
                .values_mut()
                .filter(|lease| lease.member == before)
                .for_each(|lease| lease.member = subscription_id);
            let leases = self.leases.iter().filter(|(id, lease)| lease.member == subscription_id && !held.contains(id));
            for delivery_id in leases.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.write_message(delivery_id, member, out);
            }
        }
    }

    fn on_settle(&mut self, settle: &Settle<'_>, out: &mut BytesMut) {
        if !self.members.contains_key(&settle.subscription_id) {
            return refuse(ErrorCode::UnknownMember, Op::Settle, out);
        }
        let codes: Vec<ItemCode> = settle.items.iter().map(|item| self.settle_one(&item)).collect();
        SettleOk { codes: List::from(&codes[..]), position: self.position() }.encode(out).unwrap();
    }

    fn settle_one(&mut self, item: &SettleItem<'_>) -> ItemCode {
        let delivery_id = item.delivery_id.get();
        if self.ended_by.get(&delivery_id) == Some(&item.kind) {
            return ItemCode::OK;
        }
        let Some(lease) = self.leases.get(&delivery_id) else {
            let is_newer = self.last_delivery.get(&item.seq.get()).is_some_and(|(last, _)| *last > delivery_id);
            return ItemCode::from(if is_newer { ErrorCode::StaleOwner } else { ErrorCode::UnknownDelivery });
        };
        assert_eq!(lease.seq, item.seq.get());
        match item.kind {
            SettleKind::Progress => return ItemCode::OK,
            SettleKind::Ack => {
                self.settled.insert(lease.seq);
                self.leases.remove(&delivery_id);
            }
            SettleKind::DeadLetter => {
                self.settled.insert(lease.seq);
                self.end_lease(delivery_id, Cause::Nacked);
            }
            SettleKind::Nack => self.end_lease(delivery_id, Cause::Nacked),
            SettleKind::Release => self.end_lease(delivery_id, Cause::Released),
        }
        self.ended_by.insert(delivery_id, item.kind);
        ItemCode::OK
    }

    /// Ends a lease, and as released those of its key that left with it behind it.
    fn end_lease(&mut self, delivery_id: u64, cause: Cause) {
        let Some(ended) = self.leases.remove(&delivery_id) else { return };
        self.last_delivery.insert(ended.seq, (delivery_id, cause));
        let is_behind = |lease: &Lease| !lease.key.is_empty() && lease.key == ended.key && lease.seq > ended.seq;
        let behind: Vec<(u64, u64)> =
            self.leases.iter().filter(|(_, lease)| is_behind(lease)).map(|(id, lease)| (*id, lease.seq)).collect();
        for (id, seq) in behind {
            self.leases.remove(&id);
            self.last_delivery.insert(seq, (id, Cause::Released));
        }
    }

    /// How many deliveries were given.
    pub(crate) fn deliveries(&self) -> u64 {
        self.next_delivery
    }

    /// Ends a lease as its time does.
    pub(crate) fn expire(&mut self, delivery_id: u64) {
        self.end_lease(delivery_id, Cause::LeaseExpired);
    }

    /// Sends every live lease again, though nobody asked.
    pub(crate) fn send_everything_again(&mut self) {
        for delivery_id in self.leases.keys().copied().collect::<Vec<_>>() {
            let member = self.members[&self.leases[&delivery_id].member];
            let mut out = BytesMut::new();
            self.write_message(delivery_id, member, &mut out);
            self.send(member.connection, out);
        }
    }

    /// Ends the sessions of all connections that are gone.
    pub(crate) fn end_lost_sessions(&mut self) {
        let is_lost = |state: &Self, member: &Member| !state.outlets.contains_key(&member.connection);
        let lost: Vec<u16> =
            self.members.iter().filter(|(_, member)| is_lost(self, member)).map(|(id, _)| *id).collect();
        lost.into_iter().for_each(|member| self.end_member(member, Cause::ConsumerLost));
        self.deliver();
    }

    /// Ends every session, though the connections stand.
    pub(crate) fn end_all_sessions(&mut self) {
        let members: Vec<u16> = self.members.keys().copied().collect();
        members.into_iter().for_each(|member| self.end_member(member, Cause::ConsumerLost));
    }

    fn end_member(&mut self, member: u16, cause: Cause) {
        self.members.remove(&member);
        let leases = self.leases.iter().filter(|(_, lease)| lease.member == member);
        let leases: Vec<u64> = leases.map(|(id, _)| *id).collect();
        leases.into_iter().for_each(|delivery_id| self.end_lease(delivery_id, cause));
    }

    fn on_heartbeat(&mut self, heartbeat: &Heartbeat, out: &mut BytesMut) {
        if !self.members.contains_key(&heartbeat.subscription_id) {
            return refuse(ErrorCode::UnknownMember, Op::Heartbeat, out);
        }
        if heartbeat.state == HeartbeatState::Leave {
            self.end_member(heartbeat.subscription_id, Cause::Released);
            if self.parked.take_if(|parked| *parked == heartbeat.subscription_id).is_some() {
                refuse_pull(heartbeat.subscription_id, out);
            }
        }
        HeartbeatOk { position: self.position() }.encode(out);
    }

    fn on_credit(&mut self, credit: &Credit, out: &mut BytesMut) {
        let Some(member) = self.members.get_mut(&credit.subscription_id) else {
            return refuse(ErrorCode::UnknownMember, Op::Credit, out);
        };
        assert_eq!(credit.mode, CreditMode::Set);
        member.credit = credit.credit_count;
        let ok = CreditOk {
            granted_count: credit.credit_count,
            granted_bytes: credit.credit_bytes,
            outstanding_count: 0,
            outstanding_bytes: 0,
            credit_epoch: 1,
            position: self.position(),
        };
        ok.encode(out);
    }

    fn on_pull(&mut self, pull: &Pull<'_>, out: &mut BytesMut) {
        let subscription_id = pull.subscription_id;
        let Some(member) = self.members.get(&subscription_id).copied() else {
            return refuse_pull(subscription_id, out);
        };
        let message_count = self.lease_next(subscription_id, member, usize::from(pull.max_msgs), out);
        if message_count == 0 && self.parks_pulls {
            self.parked = Some(subscription_id);
            return;
        }
        PullOk { subscription_id, message_count: message_count as u16, position: self.position() }.encode(out);
    }

    /// Whether a pull waits.
    pub(crate) fn has_parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Pushes what the members' credit allows.
    pub(crate) fn deliver(&mut self) {
        if self.is_paused {
            return;
        }
        for (id, member) in self.members.clone() {
            if !self.outlets.contains_key(&member.connection) {
                continue;
            }
            let held = self.leases.values().filter(|lease| lease.member == id).count();
            let mut out = BytesMut::new();
            self.lease_next(id, member, usize::from(member.credit).saturating_sub(held), &mut out);
            self.send(member.connection, out);
        }
    }

    fn lease_next(&mut self, id: u16, member: Member, most: usize, out: &mut BytesMut) -> usize {
        self.commit_index += 1;
        let mut leased = 0;
        let held: BTreeSet<u64> = self.leases.values().map(|lease| lease.seq).collect();
        for seq in 1..=self.stored.len() as u64 {
            if leased == most {
                break;
            }
            if self.settled.contains(&seq) || held.contains(&seq) {
                continue;
            }
            let bytes = self.stored[seq as usize - 1].clone();
            let body = RecordBody::parse(&bytes, false).expect("tests store no headers").0;
            let is_busy = |lease: &Lease| {
                !body.key().is_empty() && lease.key == body.key() && lease.commit_index != self.commit_index
            };
            if self.leases.values().any(is_busy) {
                continue;
            }
            leased += 1;
            self.next_delivery += 1;
            let delivery_id = self.next_delivery;
            let (previous, cause) = self.last_delivery.get(&seq).copied().unwrap_or((0, Cause::First));
            self.last_delivery.insert(seq, (delivery_id, Cause::LeaseExpired));
            let (key, commit_index) = (body.key().to_vec(), self.commit_index);
            self.leases.insert(delivery_id, Lease { seq, member: id, commit_index, key, previous, cause });
            if !self.loses_messages {
                self.write_message(delivery_id, member, out);
            }
        }
        leased
    }

    fn write_message(&self, delivery_id: u64, member: Member, out: &mut BytesMut) {
        let lease = &self.leases[&delivery_id];
        let bytes = &self.stored[lease.seq as usize - 1];
        let message = Message {
            subscription_id: lease.member,
            topic_id: member.topic_id,
            partition: Partition::new(0),
            seq: Seq::new(lease.seq),
            delivery_id: DeliveryId::new(delivery_id),
            attempt: Attempt::FIRST,
            ownership_epoch: 0,
            producer_id: ProducerId::ZERO,
            producer_seq: ProducerSeq::ZERO,
            body: RecordBody::parse(bytes, false).expect("tests store no headers").0,
            cause: lease.cause,
            previous_delivery_id: DeliveryId::new(lease.previous),
            lease_ms: if self.lease_ms == 0 { 30_000 } else { self.lease_ms },
            published_at: WallTime::ZERO,
            position: Position { epoch: Epoch::new(1), commit_index: CommitIndex::new(lease.commit_index) },
        };
        message.encode(out);
    }

    fn send(&mut self, connection: u16, out: BytesMut) {
        if let Some(outlet) = self.outlets.get(&connection).filter(|_| !out.is_empty()) {
            let _ = outlet.send(out);
        }
    }
}

fn refuse(code: ErrorCode, op: Op, out: &mut BytesMut) {
    let mut answer = ErrorAnswer::new(code, op.number(), b"the fake broker refuses");
    answer.retry_after_ms = if code == ErrorCode::Backpressure { 5 } else { 0 };
    answer.encode(out);
}

/// The member that a SUB resumes, and what it holds. Only the secret that SUB's OK told resumes anything.
fn refuse_pull(subscription_id: u16, out: &mut BytesMut) {
    let mut answer = ErrorAnswer::new(ErrorCode::UnknownMember, Op::Pull.number(), b"no such member");
    answer.subscription_id = subscription_id;
    answer.encode(out);
}

fn resume_of(subscribe: &Subscribe<'_>) -> Option<(u64, BTreeSet<u64>)> {
    let options: serde_json::Value = serde_json::from_slice(subscribe.options).expect("options are JSON");
    let resume = options.get("resume")?;
    assert_eq!(resume["secret"].as_u64(), Some(u64::MAX - 7), "exact to 64 bits");
    let held = resume["held"].as_array().expect("a list").iter().map(|id| id.as_u64().expect("a number"));
    Some((resume["member_id"].as_u64().expect("a number"), held.collect()))
}

/// The handle of the one topic, another one on each connection.
fn handle(connection: u16) -> u16 {
    connection * 7
}

fn seen(request: &Request<'_>) -> Seen {
    match request {
        Request::Connect(connect) => Seen::Connect { token: connect.token.to_vec() },
        Request::Declare(declare) => Seen::Declare { name: declare.topic.to_owned() },
        Request::Metadata(_) => Seen::Metadata,
        Request::Publish(publish) => Seen::Publish {
            producer_id: publish.producer_id.get(),
            number: publish.producer_seq.get(),
            value: String::from_utf8_lossy(publish.body.value()).into_owned(),
        },
        Request::PublishBatch(batch) => {
            Seen::Batch { number: batch.first_producer_seq.get(), count: batch.records.len() }
        }
        Request::Subscribe(subscribe) => {
            let resumes = resume_of(subscribe).map(|(_, held)| held.into_iter().collect());
            Seen::Subscribe { credit: subscribe.credit_count, resumes }
        }
        Request::Settle(settle) => {
            Seen::Settle { items: settle.items.iter().map(|item| (item.kind, item.delivery_id.get())).collect() }
        }
        Request::Heartbeat(heartbeat) => Seen::Heartbeat { is_leave: heartbeat.state == HeartbeatState::Leave },
        Request::Pull(_) => Seen::Pull,
        Request::Credit(credit) => Seen::Credit { count: credit.credit_count },
        Request::Ping(_) => Seen::Ping,
        other => panic!("not used by the client: {other:?}"),
    }
}
