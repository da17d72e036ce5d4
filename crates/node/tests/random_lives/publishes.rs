//! Producers: numbered and not, one by one and in batches, with repetitions, gaps and foreign bytes.

use bytes::{BufMut, BytesMut};
use mortarmq_node::Request;
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{Asked, IdempotencyKey, PublishRunBuilder, Times};
use mortarmq_types::{CommitIndex, ConnectionId, Partition, ProducerId, ProducerSeq, TopicIncarnation};
use mortarmq_wire::ErrorCode;

use crate::life::{Expect, Life};
use crate::record::Sent;

/// One line of numbers: a producer on a topic, with one partition as it stands in the request.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) topic: TopicIncarnation,
    requested: Partition,
    producer: u64,
    /// Where it is connected; its requests must stay in order.
    connection: Option<ConnectionId>,
    /// What was sent under 1, 2, 3 …
    messages: Vec<u64>,
}

/// One publish: a producer number, and which message is sent under it.
type Numbered = (u64, u64);

impl Life {
    pub(crate) fn new_line(&mut self, topic: TopicIncarnation) {
        let requested = self.random_target(topic);
        self.last_producer += 1;
        let producer = self.last_producer;
        self.lines.push(Line { topic, requested, producer, connection: None, messages: Vec::new() });
    }

    /// A connection is gone: its lines go on elsewhere, and repeat there what was not confirmed.
    pub(crate) fn cut_lines(&mut self, connection: ConnectionId) {
        for line in self.lines.iter_mut().filter(|line| line.connection == Some(connection)) {
            line.connection = None;
        }
    }

    /// Publishes without identity.
    pub(crate) fn publish_unnumbered(&mut self, connection: ConnectionId, count: u64) {
        let Some(topic) = self.random_topic() else { return };
        let requested = self.random_target(topic);
        let messages: Vec<Numbered> = (0..count).map(|_| (0, self.new_message(topic, requested))).collect();
        self.send_publishes(connection, (topic, requested, 0), &messages, &[]);
    }

    /// The next numbers of a line, after whatever it must repeat.
    pub(crate) fn publish_numbered(&mut self, count: u64) {
        let Some((place, connection)) = self.open_line() else { return };
        let (topic, requested, producer) = self.target(place);
        let mut messages: Vec<Numbered> = Vec::new();
        for _ in 0..count {
            let message = self.new_message(topic, requested);
            self.lines[place].messages.push(message);
            messages.push((self.lines[place].messages.len() as u64, message));
        }
        if self.random.one_in(3) {
            // A batch may overlap what is known.
            let overlap = self.random.below(3).min(self.lines[place].messages.len() as u64 - count);
            let first = self.lines[place].messages.len() as u64 - count - overlap;
            let known = (first..first + overlap).map(|at| (at + 1, self.message_at(place, at)));
            let all: Vec<Numbered> = known.chain(messages).collect();
            self.send_batch(connection, (topic, requested, producer), &all);
        } else {
            self.send_publishes(connection, (topic, requested, producer), &messages, &[]);
        }
    }

    /// Repeats numbers that were confirmed: the answers are the first ones (P3).
    pub(crate) fn repeat_numbers(&mut self) {
        let Some((place, connection)) = self.open_line() else { return };
        let known = self.lines[place].messages.len() as u64;
        if known == 0 {
            return;
        }
        let first = self.random.below(known).max(known.saturating_sub(500));
        let messages: Vec<Numbered> =
            (first..known.min(first + 3)).map(|at| (at + 1, self.message_at(place, at))).collect();
        let target = self.target(place);
        self.send_publishes(connection, target, &messages, &[]);
    }

    /// Uses a known number for other bytes, or one that is not next: nothing is stored.
    pub(crate) fn misuse_numbers(&mut self) {
        let Some((place, connection)) = self.open_line() else { return };
        let (topic, requested, producer) = self.target(place);
        let known = self.lines[place].messages.len() as u64;
        let confirmed = known.checked_sub(1).filter(|at| {
            let message = self.message_at(place, *at);
            self.record.sent[&message].confirmed.is_some()
        });
        let message = self.new_message(topic, requested);
        match confirmed {
            Some(at) if self.random.one_in(2) => {
                let expected = [ErrorCode::ProducerSeqInvalid];
                self.send_publishes(connection, (topic, requested, producer), &[(at + 1, message)], &expected);
            }
            _ => {
                // A producer that is not known begins with 1: anything else may be an old number.
                let ahead = known + 2 + self.random.below(3);
                let expected = [if known == 0 { ErrorCode::SeqExpired } else { ErrorCode::SeqGap }];
                self.send_publishes(connection, (topic, requested, producer), &[(ahead, message)], &expected);
            }
        }
    }

    /// A line with a connection; what it was not answered is repeated first, with the same numbers.
    fn open_line(&mut self) -> Option<(usize, ConnectionId)> {
        let place = usize::try_from(self.random.below(self.lines.len() as u64)).expect("a length");
        let topic = self.lines.get(place)?.topic;
        if self.record.topics[&topic].delete_sent {
            self.lines.swap_remove(place);
            return None;
        }
        if let Some(connection) = self.lines[place].connection {
            return Some((place, connection));
        }
        let connection = self.random_connection()?;
        self.lines[place].connection = Some(connection);
        let all = self.lines[place].messages.iter().enumerate();
        let open: Vec<Numbered> = all
            .map(|(at, message)| (at as u64 + 1, *message))
            .filter(|(_, message)| self.record.sent[message].confirmed.is_none())
            .collect();
        let target = self.target(place);
        if !open.is_empty() {
            self.send_publishes(connection, target, &open, &[]);
        }
        Some((place, connection))
    }

    /// Connects every line, so that each repeats what it was not answered.
    pub(crate) fn repeat_everything(&mut self, connection: ConnectionId) {
        for place in 0..self.lines.len() {
            if self.record.topics[&self.lines[place].topic].delete_sent {
                continue;
            }
            self.lines[place].connection = Some(connection);
            let messages: Vec<Numbered> =
                self.lines[place].messages.iter().enumerate().map(|(at, message)| (at as u64 + 1, *message)).collect();
            let target = self.target(place);
            let recent = messages.len().saturating_sub(1000);
            if !messages.is_empty() {
                self.send_publishes(connection, target, &messages[recent..], &[]);
            }
        }
    }

    fn target(&self, place: usize) -> (TopicIncarnation, Partition, u64) {
        let line = &self.lines[place];
        (line.topic, line.requested, line.producer)
    }

    fn message_at(&self, place: usize, at: u64) -> u64 {
        self.lines[place].messages[usize::try_from(at).expect("small")]
    }

    fn random_target(&mut self, topic: TopicIncarnation) -> Partition {
        let partitions = u64::from(self.record.topics[&topic].partitions);
        let named = u16::try_from(self.random.below(partitions)).expect("few");
        if self.random.one_in(3) { Partition::new(named) } else { Partition::ANY }
    }

    /// A message under an idempotency key of its own, or once more one that was sent under its key: by whom, with which bytes
    /// and whether it was answered does not matter.
    pub(crate) fn publish_keyed(&mut self, connection: ConnectionId) {
        let is_open = |sent: &Sent, life: &Self| {
            let age_ms = life.record.total_ms - sent.sent_at_ms.unwrap_or(life.record.total_ms);
            age_ms < KEY_WINDOW_MS && !life.record.topics[&sent.topic].delete_sent
        };
        let recent: Vec<u64> =
            self.keyed.iter().copied().filter(|message| is_open(&self.record.sent[message], self)).collect();
        self.keyed.clone_from(&recent);
        if !recent.is_empty() && self.random.one_in(2) {
            let message = *self.random.pick(&recent);
            let sent = &self.record.sent[&message];
            let after_crash = sent.lost_in_crash && sent.confirmed.is_none();
            self.record.reach(if after_crash { "a key repeated after a crash" } else { "a key repeated" });
            let text = format!("{message}:another text");
            return self.send_keyed(connection, message, &text);
        }
        let Some(topic) = self.random_topic() else { return };
        for _ in 0..self.random.between(1, 4) {
            let message = self.new_message(topic, Partition::ANY);
            self.record.sent.get_mut(&message).expect("it was just made").once = true;
            self.keyed.push(message);
            self.send_keyed(connection, message, &self.value(message));
        }
    }

    fn send_keyed(&mut self, connection: ConnectionId, message: u64, value: &str) {
        let (topic, times) = (self.record.sent[&message].topic, self.times(message));
        let key = self.note_sent(message);
        let body = body(&key, value);
        let idempotency_key = Some(IdempotencyKey::of(format!("message {message}").as_bytes()));
        let mut run = PublishRunBuilder::default();
        let sizes = (payload_bytes(&key, &body), value_bytes(&key, &body));
        run.add_asked(topic, Partition::ANY, sizes, &record(0, 0, &key, &body), Asked { times, idempotency_key });
        let expect = Expect::Publish { messages: vec![message], errors: Vec::new() };
        self.send(connection, Request::Publish(run.take().expect("one message")), vec![expect]);
    }

    /// A message that nobody sent before.
    pub(crate) fn new_message(&mut self, topic: TopicIncarnation, requested: Partition) -> u64 {
        self.last_message += 1;
        let key = match self.random.below(4) {
            0 => String::new(),
            1 => format!("many-{}", self.random.below(1000)),
            _ => format!("few-{}", self.random.below(3)),
        };
        let delay_ms = match self.random.below(30) {
            0 => 8000,
            1..=5 => self.random.between(1, 3000),
            _ => 0,
        };
        let sent = Sent {
            delay_ms,
            sent_at_ms: None,
            topic,
            requested,
            key: key.into_bytes(),
            open: 0,
            maybe: false,
            lost_in_crash: false,
            once: false,
            stored_told: false,
            confirmed: None,
            commit_index: CommitIndex::ZERO,
        };
        self.record.sent.insert(self.last_message, sent);
        self.last_message
    }

    /// Sends publishes, each a command of its own. Without expected errors they are to be stored.
    fn send_publishes(
        &mut self,
        connection: ConnectionId,
        (topic, requested, producer): (TopicIncarnation, Partition, u64),
        messages: &[Numbered],
        expected: &[ErrorCode],
    ) {
        let mut run = PublishRunBuilder::default();
        let mut expects = Vec::new();
        for (number, message) in messages {
            let body = self.body(*message);
            let key = self.note_sent(*message);
            let record = record(producer, *number, &key, &body);
            let sizes = (payload_bytes(&key, &body), value_bytes(&key, &body));
            run.add_timed(topic, requested, sizes, &record, self.times(*message));
            expects.push(Expect::Publish { messages: vec![*message], errors: expected.to_vec() });
        }
        self.send(connection, Request::Publish(run.take().expect("at least one message")), expects);
    }

    /// Sends publishes as one command: all or none.
    pub(crate) fn send_batch(
        &mut self,
        connection: ConnectionId,
        (topic, requested, producer): (TopicIncarnation, Partition, u64),
        messages: &[Numbered],
    ) {
        let bodies: Vec<(u64, Vec<u8>, BytesMut)> =
            messages.iter().map(|(number, message)| (*number, self.note_sent(*message), self.body(*message))).collect();
        let mut run = PublishRunBuilder::default();
        let records = bodies.iter().map(|(number, key, body)| {
            ((payload_bytes(key, body), value_bytes(key, body)), record(producer, *number, key, body))
        });
        let times: Vec<Times> = messages.iter().map(|(_, message)| self.times(*message)).collect();
        let records = records.zip(times).map(|((sizes, record), times)| (sizes, record, times));
        run.add_timed_batch(topic, requested, ProducerId::new(producer), records);
        let messages = messages.iter().map(|(_, message)| *message).collect();
        let request = Request::Publish(run.take().expect("one batch"));
        self.send(connection, request, vec![Expect::Publish { messages, errors: Vec::new() }]);
    }

    fn note_sent(&mut self, message: u64) -> Vec<u8> {
        let sent = self.record.sent.get_mut(&message).expect("made before it is sent");
        sent.open += 1;
        sent.sent_at_ms.get_or_insert(self.record.total_ms);
        sent.key.clone()
    }

    fn times(&self, message: u64) -> Times {
        Times { delay_ms: self.record.sent[&message].delay_ms, ttl_ms: 0 }
    }

    fn body(&self, message: u64) -> BytesMut {
        body(&self.record.sent[&message].key, &self.value(message))
    }

    /// The value follows from the number alone, so that a repetition has the same bytes.
    fn value(&self, message: u64) -> String {
        let padding = usize::try_from(message % 7 * 20).expect("small");
        format!("{message}:{}", ".".repeat(padding))
    }
}

/// A key is remembered at least so long, of which a moment is left.
const KEY_WINDOW_MS: u64 = 59_000;

fn body(key: &[u8], value: &str) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u16(u16::try_from(key.len()).expect("short"));
    out.put_slice(key);
    out.put_u32(u32::try_from(value.len()).expect("short"));
    out.put_slice(value.as_bytes());
    out
}

fn record<'a>(producer: u64, number: u64, key: &'a [u8], body: &'a [u8]) -> NewRecord<'a> {
    let producer_seq = if producer == 0 { ProducerSeq::ZERO } else { ProducerSeq::new(number) };
    NewRecord { producer_id: ProducerId::new(producer), producer_seq, key, has_headers: false, body }
}

fn value_bytes(key: &[u8], body: &[u8]) -> u32 {
    u32::try_from(body.len() - key.len() - 6).expect("short")
}

fn payload_bytes(key: &[u8], body: &[u8]) -> u32 {
    u32::try_from(body.len() - 6).expect("short").max(u32::try_from(key.len()).expect("short"))
}
