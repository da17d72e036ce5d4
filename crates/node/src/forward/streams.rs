//! The side that answers: one stream from each process of another node, in the epoch that this node leads.
//!
//! # Invariants
//! 1. A number is taken once, and only after the one before it.
//! 2. The answers of a stream are kept until its forwarder has them, and there are at most [`REQUESTS_MAX`] numbers between.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mortarmq_types::ConnectionId;

use crate::forward::asks::REQUESTS_MAX;
use crate::forward::message::ForwardBody;
use crate::reply::{Answer, Reply};
use crate::request::Request;

/// Who forwards: a node's Raft id, and its process.
pub(crate) type StreamKey = (u64, u64);

/// All streams of the present office.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: BTreeMap<StreamKey, Stream>,
    of: BTreeMap<ConnectionId, StreamKey>,
    /// Streams with something to say.
    unsaid: BTreeSet<StreamKey>,
    /// Connections that were given, in all offices.
    connections: u64,
}

#[derive(Debug)]
struct Stream {
    connection: ConnectionId,
    taken: u64,
    /// Up to here the forwarder has the answers.
    answered: u64,
    /// What is taken and not answered: numbers, and how many answers are missing.
    waiting: VecDeque<(u64, u64)>,
    /// Answers to the first of those.
    part: Vec<Reply>,
    /// Answers that the forwarder may not have.
    answers: VecDeque<(u64, Vec<Reply>)>,
    /// Up to here they were sent.
    said: u64,
}

/// What a message brings that is new.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) connection: ConnectionId,
    /// Whether the connection has to be opened first.
    pub(crate) is_new: bool,
    pub(crate) requests: Vec<Request>,
}

impl Streams {
    /// Takes what follows of a stream; `None` if there are too many streams of that node.
    pub(crate) fn take(&mut self, key: StreamKey, first: u64, answered: u64, requests: Vec<Request>) -> Option<Taken> {
        let is_new = !self.all.contains_key(&key);
        if is_new {
            if self.all.range((key.0, 0)..=(key.0, u64::MAX)).count() >= STREAMS_MAX {
                return None;
            }
            let connection = ConnectionId::new(FIRST_CONNECTION + self.connections);
            self.connections += 1;
            self.of.insert(connection, key);
            self.all.insert(key, Stream::new(connection));
        }
        let stream = self.all.get_mut(&key).expect("made above");
        self.unsaid.insert(key);
        let requests = stream.take(first, answered, requests);
        Some(Taken { connection: stream.connection, is_new, requests })
    }

    /// Keeps answers of a stream's connection, which come in the order of its requests.
    pub(crate) fn collect(&mut self, connection: ConnectionId, replies: Vec<Reply>) {
        let Some(key) = self.of.get(&connection) else { return };
        let Some(stream) = self.all.get_mut(key) else { return };
        replies.into_iter().for_each(|reply| stream.collect(reply));
        self.unsaid.insert(*key);
    }

    /// The next message to a forwarder.
    pub(crate) fn poll(&mut self) -> Option<(StreamKey, ForwardBody)> {
        let key = self.unsaid.pop_first()?;
        let stream = self.all.get_mut(&key).expect("only streams that are there have something to say");
        let (said, mut bytes) = (stream.said, 0);
        let mut answers = Vec::new();
        for (number, replies) in stream.answers.iter().filter(|(number, _)| *number > said) {
            if bytes > MESSAGE_BYTES {
                self.unsaid.insert(key);
                break;
            }
            bytes += replies.iter().map(reply_bytes).sum::<usize>();
            stream.said = *number;
            answers.push((*number, replies.clone()));
        }
        Some((key, ForwardBody::Answers { taken: stream.taken, answers }))
    }

    /// The office is over: nobody is answered any more. Returns the connections.
    pub(crate) fn end(&mut self) -> Vec<ConnectionId> {
        (self.all, self.unsaid) = (BTreeMap::new(), BTreeSet::new());
        std::mem::take(&mut self.of).into_keys().collect()
    }

    /// Connections that stand for other nodes.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    /// Asserts what can be seen of the invariants.
    pub(crate) fn check(&self) {
        for stream in self.all.values() {
            let kept = stream.waiting.len() + stream.answers.len();
            assert!(kept <= REQUESTS_MAX && stream.answered <= stream.taken, "invariant 2: {kept} are kept");
            assert_eq!(
                stream.taken - stream.answered,
                kept as u64,
                "invariants 1 and 2: each is waited for or answered"
            );
        }
    }
}

impl Stream {
    fn new(connection: ConnectionId) -> Self {
        let (waiting, answers) = (VecDeque::new(), VecDeque::new());
        Self { connection, taken: 0, answered: 0, waiting, part: Vec::new(), answers, said: 0 }
    }

    fn take(&mut self, first: u64, answered: u64, requests: Vec<Request>) -> Vec<Request> {
        // A forwarder cannot have more than there is.
        let answered = answered.min(self.taken - self.waiting.len() as u64);
        while self.answers.pop_front_if(|(number, _)| *number <= answered).is_some() {}
        self.answered = self.answered.max(answered);
        if requests.is_empty() || first <= self.taken {
            // It asks again, so some of what was said is lost.
            self.said = self.answered;
        }
        self.said = self.said.max(self.answered);
        let mut new = Vec::new();
        for (number, request) in (first..).zip(requests) {
            let is_next = number == self.taken + 1;
            if is_next && self.taken - self.answered < REQUESTS_MAX as u64 {
                self.taken = number;
                self.waiting.push_back((number, request.places()));
                new.push(request);
            }
        }
        new
    }

    fn collect(&mut self, reply: Reply) {
        let (number, missing) = self.waiting.front_mut().expect("an answer is to something that was taken");
        self.part.push(reply);
        *missing -= 1;
        if *missing == 0 {
            self.answers.push_back((*number, std::mem::take(&mut self.part)));
            self.waiting.pop_front();
        }
    }
}

/// What an answer takes in a message, about.
fn reply_bytes(reply: &Reply) -> usize {
    match &reply.result {
        Err(failure) => REPLY_BYTES + failure.message.len(),
        Ok(Answer::Metadata(view)) => view.topics.iter().map(|topic| REPLY_BYTES + topic.name.len()).sum(),
        Ok(Answer::PublishedBatch(published)) => published.len() * REPLY_BYTES,
        Ok(_) => REPLY_BYTES,
    }
}

/// About.
const REPLY_BYTES: usize = 32;
/// One message carries about as much, or one answer.
const MESSAGE_BYTES: usize = 1 << 20;
/// The connections of drivers have lower numbers.
pub(crate) const FIRST_CONNECTION: u64 = 1 << 63;
/// Streams of one node in one epoch: each needs a start of its process.
const STREAMS_MAX: usize = 64;

#[cfg(test)]
mod tests;
