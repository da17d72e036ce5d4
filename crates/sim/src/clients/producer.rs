//! Producers: with an identity and numbers, with idempotency keys, and with neither. What has no certain answer is sent again
//! where that is safe.

mod answers;
mod records;

use std::collections::VecDeque;

use mortarmq_history::Outcome;
use mortarmq_node::{Answer, ErrorCode, Reply, Request};
use mortarmq_shard::record::NewRecord;
use mortarmq_shard::{Asked, IdempotencyKey, PublishRunBuilder, Published, Times};
use mortarmq_types::{ConnectionId, Partition, ProducerId, ProducerSeq, TopicIncarnation};

use super::value::{body_of, value_of};
use crate::random::Random;
use crate::world::{Client, Event, ToClient, World};

/// What makes a retry safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// Producer id and numbers.
    Numbered,
    /// An idempotency key per message.
    Keyed,
    /// Nothing.
    Plain,
}

/// A producer.
pub(crate) struct Producer {
    pub(crate) number: usize,
    topic: usize,
    identity: Identity,
    /// Grows when the producer begins anew: then it is another one.
    generation: u64,
    connection: Option<ConnectionId>,
    incarnation: Option<TopicIncarnation>,
    /// The incarnation that its numbers are of.
    confirmed_of: Option<TopicIncarnation>,
    expects: VecDeque<Expect>,
    /// Messages without a last word, in the order of their numbers.
    open: VecDeque<Sent>,
    last_seq: u64,
    /// What was confirmed lately: number, message, key and place.
    confirmed: VecDeque<Confirmed>,
    retry_is_planned: bool,
    chance: Random,
}

/// A message on its way.
#[derive(Clone, Debug)]
struct Sent {
    message: u64,
    seq: u64,
    key: u64,
    times: Times,
    /// When it was first sent, and in which life of the node.
    call: Option<u64>,
    first_life: u64,
    is_asked: bool,
    /// Whether an attempt was not answered, or not for certain.
    may_be_stored: bool,
}

#[derive(Clone, Debug)]
struct Confirmed {
    message: u64,
    seq: u64,
    key: u64,
    times: Times,
    published: Published,
}

#[derive(Debug)]
enum Expect {
    Declared,
    /// Messages of one command.
    Published(Vec<u64>),
    /// Messages that were confirmed before: message and call.
    Repeated(u64, u64),
}

impl Producer {
    pub(crate) fn new(number: usize, topic: usize, chance: Random) -> Self {
        let identity = match number % 4 {
            2 => Identity::Keyed,
            3 => Identity::Plain,
            _ => Identity::Numbered,
        };
        Self {
            number,
            topic,
            identity,
            generation: 1,
            connection: None,
            incarnation: None,
            confirmed_of: None,
            expects: VecDeque::new(),
            open: VecDeque::new(),
            last_seq: 0,
            confirmed: VecDeque::new(),
            retry_is_planned: false,
            chance,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.open.is_empty() && self.expects.is_empty()
    }

    pub(crate) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Whether it waits for an answer.
    pub(crate) fn waits(&self) -> bool {
        !self.expects.is_empty()
    }

    pub(crate) fn connection(&self) -> Option<ConnectionId> {
        self.connection
    }

    fn id(&self) -> u64 {
        match self.identity {
            Identity::Numbered => 1000 * self.generation + self.number as u64 + 1,
            Identity::Keyed | Identity::Plain => 0,
        }
    }

    /// The request for some messages; each is a command of its own, or all are one batch.
    fn request(&self, topic: TopicIncarnation, sent: &[Sent], is_batch: bool) -> Request {
        let mut run = PublishRunBuilder::default();
        let parts: Vec<_> = sent
            .iter()
            .map(|sent| {
                let value = value_of(sent.message);
                let key = key_bytes(sent.key);
                let body = body_of(&key, &value);
                (key, body, value.len(), sent)
            })
            .collect();
        let producer_id = ProducerId::new(self.id());
        let records: Vec<_> = parts
            .iter()
            .map(|(key, body, value_bytes, sent)| {
                let producer_seq = ProducerSeq::new(if self.id() == 0 { 0 } else { sent.seq });
                let record = NewRecord { producer_id, producer_seq, key, has_headers: false, body };
                let value_bytes = u32::try_from(*value_bytes).expect("small");
                let payload_bytes = value_bytes + u32::try_from(key.len()).expect("small");
                let idempotency_key = (self.identity == Identity::Keyed)
                    .then(|| IdempotencyKey::of(format!("m{}", sent.message).as_bytes()));
                ((payload_bytes, value_bytes), record, Asked { times: sent.times, idempotency_key })
            })
            .collect();
        if is_batch {
            run.add_asked_batch(topic, Partition::ANY, producer_id, records.into_iter());
        } else {
            for (sizes, record, asked) in records {
                run.add_asked(topic, Partition::ANY, sizes, &record, asked);
            }
        }
        Request::Publish(run.take().expect("at least one message"))
    }
}

impl World {
    /// A producer publishes new messages, unless too much waits for an answer already.
    pub(crate) fn publish(&mut self, number: usize, count: u64, key: u64, times: Times, is_batch: bool) {
        let Some(producer) = self.producers.get_mut(number) else { return };
        if producer.open.len() > OPEN_MAX {
            return;
        }
        for _ in 0..count.clamp(1, 200) {
            self.last_message += 1;
            producer.last_seq += 1;
            producer.open.push_back(Sent {
                message: self.last_message,
                seq: producer.last_seq,
                key,
                times,
                call: None,
                first_life: 0,
                is_asked: false,
                may_be_stored: false,
            });
        }
        self.send_open(number, is_batch);
    }

    /// Sends everything that is not under way, if nothing before it waits for a retry.
    fn send_open(&mut self, number: usize, is_batch: bool) {
        if self.waits_for_groups(self.producers[number].topic) {
            return self.plan_retry(number);
        }
        let (now_ns, life) = (self.now_ns(), self.era());
        let producer = &mut self.producers[number];
        let (Some(connection), Some(topic)) = (producer.connection, producer.incarnation) else { return };
        if producer.retry_is_planned {
            return;
        }
        let mut all = Vec::new();
        for sent in producer.open.iter_mut().filter(|sent| !sent.is_asked) {
            sent.is_asked = true;
            sent.call = Some(now_ns);
            if sent.first_life == 0 {
                sent.first_life = life + 1;
                if sent.times.delay_ms > 0 {
                    self.not_before.insert(sent.message, self.now_us + sent.times.delay_ms * 1000);
                }
            }
            all.push(sent.clone());
        }
        if all.is_empty() {
            return;
        }
        // What is sent again may have others under way behind it, and the numbers of a batch follow one another.
        let is_batch = is_batch && all.windows(2).all(|pair| pair[0].seq + 1 == pair[1].seq);
        let request = producer.request(topic, &all, is_batch);
        if is_batch {
            producer.expects.push_back(Expect::Published(all.iter().map(|sent| sent.message).collect()));
        } else {
            producer.expects.extend(all.iter().map(|sent| Expect::Published(vec![sent.message])));
        }
        self.tally.operations += all.len() as u64;
        self.send(connection, vec![request]);
    }

    /// A producer publishes once more what was confirmed: the answer must be the first one (P3).
    pub(crate) fn repeat(&mut self, number: usize) {
        let now_ns = self.now_ns();
        let Some(producer) = self.producers.get_mut(number) else { return };
        let (Some(connection), Some(topic)) = (producer.connection, producer.incarnation) else { return };
        if producer.identity != Identity::Numbered || producer.confirmed.is_empty() {
            return;
        }
        let place = usize::try_from(producer.chance.below(producer.confirmed.len() as u64)).expect("few");
        let Confirmed { message, seq, key, times, .. } = producer.confirmed[place].clone();
        let sent =
            Sent { message, seq, key, times, call: Some(now_ns), first_life: 0, is_asked: true, may_be_stored: true };
        let request = producer.request(topic, &[sent], false);
        producer.expects.push_back(Expect::Repeated(message, now_ns));
        self.tally.operations += 1;
        self.send(connection, vec![request]);
    }

    pub(crate) fn connect_producer(&mut self, number: usize) {
        if self.producers[number].connection.is_some() {
            return;
        }
        let client = Client::Producer(number);
        let Some(connection) = self.open_link(client) else {
            let at_us = self.now_us + self.net.delay(10_000, 60_000);
            return self.at(at_us, Event::Connect { client });
        };
        let producer = &mut self.producers[number];
        producer.connection = Some(connection);
        self.declare_for_producer(number);
    }

    fn declare_for_producer(&mut self, number: usize) {
        let producer = &mut self.producers[number];
        let Some(connection) = producer.connection else { return };
        producer.incarnation = None;
        producer.expects.push_back(Expect::Declared);
        let request = self.topics.declare(producer.topic);
        self.send(connection, vec![request]);
    }

    pub(crate) fn producer_lost(&mut self, number: usize) {
        let producer = &mut self.producers[number];
        producer.connection = None;
        producer.incarnation = None;
        producer.retry_is_planned = false;
        let mut repeated = Vec::new();
        for expect in std::mem::take(&mut producer.expects) {
            if let Expect::Repeated(message, call) = expect {
                repeated.push((message, call));
            }
        }
        let mut unanswered = Vec::new();
        for sent in producer.open.iter_mut().filter(|sent| sent.is_asked) {
            sent.is_asked = false;
            sent.may_be_stored = true;
            unanswered.push(sent.clone());
            // What is sent again is another call, which may be answered by what this one did.
            sent.call = None;
        }
        for (message, call) in repeated {
            self.record_repeated(number, message, call, None);
        }
        for sent in unanswered {
            self.record_publish(number, &sent, None, Outcome::Unknown);
        }
        if self.producers[number].identity == Identity::Plain {
            // Nothing makes a retry safe.
            self.producers[number].open.retain(|sent| !sent.may_be_stored);
        }
    }

    pub(crate) fn producer_receives(&mut self, number: usize, message: ToClient) {
        let ToClient::Replies(replies) = message else { return self.fail("a producer got a message".to_owned()) };
        for reply in replies {
            let Some(expect) = self.producers[number].expects.pop_front() else {
                return self.fail(format!("producer {number} got an answer to nothing: {reply:?}"));
            };
            match expect {
                Expect::Declared => self.producer_declared(number, reply),
                Expect::Published(messages) => self.producer_published(number, &messages, reply),
                Expect::Repeated(message, call) => self.producer_repeated(number, message, call, reply),
            }
        }
        let producer = &self.producers[number];
        let has_work = producer.incarnation.is_none() || producer.open.iter().any(|sent| !sent.is_asked);
        if producer.expects.is_empty() && has_work {
            self.plan_retry(number);
        }
    }

    fn plan_retry(&mut self, number: usize) {
        let producer = &mut self.producers[number];
        if !std::mem::replace(&mut producer.retry_is_planned, true) {
            let at_us = self.now_us + producer.chance.delay(5_000, 60_000);
            self.at(at_us, Event::Act { client: Client::Producer(number), token: RETRY });
        }
    }

    pub(crate) fn producer_acts(&mut self, number: usize, _: u64) {
        if !std::mem::replace(&mut self.producers[number].retry_is_planned, false) {
            return;
        }
        match self.producers[number].incarnation {
            Some(_) => self.send_open(number, false),
            None if self.producers[number].expects.is_empty() => self.declare_for_producer(number),
            None => {}
        }
    }

    fn producer_declared(&mut self, number: usize, reply: Reply) {
        let topic = self.producers[number].topic;
        match reply.result {
            Ok(Answer::Declared { topic: incarnation, .. }) => {
                if self.topics.learn(topic, incarnation) {
                    self.topic_is_new(incarnation);
                }
                let current = self.topics.get(topic).current;
                let producer = &mut self.producers[number];
                producer.incarnation = Some(incarnation);
                if current != Some(incarnation) {
                    // It was deleted meanwhile.
                    producer.incarnation = None;
                    return self.plan_retry(number);
                }
                self.begin_anew_if_other(number, incarnation);
                self.send_open(number, false);
            }
            Ok(other) => self.fail(format!("a declare was answered with {other:?}")),
            Err(failure) => {
                self.trace.note(self.now_us, "declare refused", &[number as u64]);
                if failure.code == ErrorCode::TopicExistsMismatch {
                    return self.fail(format!("a declare that changes nothing was refused: {failure:?}"));
                }
                if self.sends_elsewhere(&failure) {
                    let connection = self.producers[number].connection;
                    return self.go_elsewhere(connection);
                }
                self.plan_retry(number);
            }
        }
    }

    /// Numbers are of one incarnation: for another the producer begins anew.
    fn begin_anew_if_other(&mut self, number: usize, incarnation: TopicIncarnation) {
        if self.producers[number].confirmed_of != Some(incarnation) {
            let gone = std::mem::take(&mut self.producers[number].open);
            let (sent, unsent): (Vec<_>, Vec<_>) = gone.into_iter().partition(|sent| sent.first_life != 0);
            debug_assert!(sent.iter().all(|sent| !sent.is_asked), "every attempt is written down when it ends");
            let producer = &mut self.producers[number];
            producer.confirmed_of = Some(incarnation);
            producer.generation += 1;
            producer.last_seq = 0;
            producer.confirmed.clear();
            for mut sent in unsent {
                producer.last_seq += 1;
                sent.seq = producer.last_seq;
                producer.open.push_back(sent);
            }
        }
    }
}

fn key_bytes(key: u64) -> Vec<u8> {
    if key == 0 { Vec::new() } else { format!("key-{key}").into_bytes() }
}

/// More unanswered messages than that, and a producer waits.
const OPEN_MAX: usize = 400;
/// Messages that a producer may publish again.
const REMEMBERED: usize = 200;
const RETRY: u64 = 0;
