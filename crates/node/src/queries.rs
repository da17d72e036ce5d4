//! Questions: they rest on a read index of the present epoch, and those that wait share one. Peeks and traces then read.

use std::collections::BTreeMap;

use mortarmq_shard::Topic;
use mortarmq_shard::names::dead_letter_name;
use mortarmq_shard::record::open_record;
use mortarmq_types::{ConnectionId, Mutant, NodeId, Partition, PathId, Position, Seq, TopicIncarnation};
use mortarmq_wire::{ErrorCode, RecordBody};

use crate::ages::leases_asked;
use crate::config::Now;
use crate::node::Node;
use crate::output::{Output, ReadJob, ReadResult};
use crate::recent::Stored;
use crate::reply::{Answer, Failure, QueryAnswer, QueryReply};
use crate::request::{Act, Query};
use crate::views::{
    LeaderView, PeekView, PeekedMessage, StatsView, balance, dead_letters, defaults, groups, metadata, stats, topics,
};

/// Most messages of one peek, and about how many bytes.
const PEEK_MAX: u32 = 1000;
const PEEK_BYTES: u64 = 4 << 20;

/// Questions that wait.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    /// For the next read index.
    waiting: Vec<Asked>,
    /// For the read index that was asked for.
    confirming: Option<(u64, Vec<Asked>)>,
    last_token: u64,
    /// For a read of a segment or ledger.
    pub(crate) reading: BTreeMap<u64, Reading>,
    /// For the places of a time: the act and its path.
    pub(crate) seeking: BTreeMap<u64, (u64, PathId)>,
}

#[derive(Debug)]
pub(crate) enum Asked {
    Query {
        query: u64,
        question: Query,
    },
    Act {
        query: u64,
        act: Act,
    },
    Metadata {
        connection: ConnectionId,
        slot: u64,
        names: Vec<String>,
    },
    /// A pull that got nothing is over.
    EmptyPull {
        pull_id: u64,
    },
}

/// A question that waits for a read.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) query: u64,
    pub(crate) position: Position,
    pub(crate) freshness: Freshness,
    pub(crate) topic: TopicIncarnation,
    pub(crate) name: String,
    pub(crate) partition: Partition,
    pub(crate) wanted: Wanted,
}

/// What an answer claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It rests on a read index of the present epoch.
    Present,
    /// It is what this node has, and may be older than what is committed.
    Stale,
}

/// What becomes of what is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    Messages,
    DeadLetters,
    Life(Seq),
}

impl Queries {
    pub(crate) fn ask_metadata(&mut self, connection: ConnectionId, slot: u64, names: Vec<String>) {
        self.ask(Asked::Metadata { connection, slot, names });
    }

    pub(crate) fn ask(&mut self, asked: Asked) {
        self.waiting.push(asked);
    }

    /// Forgets a question or act that was not looked at yet, as nobody waits for its answer any more.
    pub(crate) fn forget(&mut self, gone: u64) {
        let is_other = |asked: &Asked| match asked {
            Asked::Query { query, .. } | Asked::Act { query, .. } => *query != gone,
            Asked::Metadata { .. } | Asked::EmptyPull { .. } => true,
        };
        self.waiting.retain(is_other);
        if let Some((_, asked)) = &mut self.confirming {
            asked.retain(is_other);
        }
    }
}

impl Node {
    /// A question of an operator.
    pub fn handle_query(&mut self, now: Now, query: u64, question: Query) {
        self.turn(now);
        if Mutant::StaleRead.is_on() || (Mutant::ReadWithoutIndex.is_on() && self.leads) {
            if let Some(result) = self.look_up(query, &question, Freshness::Present) {
                self.reply(query, result);
            }
            return;
        }
        if question == Query::Leader && !self.leads && self.office.leader.is_some() {
            // Who leads is known from its heartbeats, and by no log.
            let view = self.leader_view();
            return self.reply(query, Ok(QueryAnswer::Leader(view)));
        }
        match self.refusal_to_serve() {
            None => self.queries.ask(Asked::Query { query, question }),
            Some(failure) => self.answer_without_index(query, &question, failure),
        }
    }

    /// Answers without a read index: as the state is here, where no majority is known that has a later one. Who can be asked
    /// otherwise is told.
    fn answer_without_index(&mut self, query: u64, question: &Query, failure: Failure) {
        let has_other_leader = !self.leads && self.office.leader.is_some();
        if has_other_leader || !self.config.has_peers() {
            return self.reply(query, Err(failure));
        }
        if let Some(result) = self.look_up(query, question, Freshness::Stale) {
            self.reply_with(query, self.position(), Freshness::Stale, result);
        }
    }

    /// Asks for a read index for all that wait; says whether it did.
    pub(crate) fn poll_queries(&mut self) -> bool {
        if self.queries.waiting.is_empty() || self.queries.confirming.is_some() || !self.leads {
            return false;
        }
        self.queries.last_token += 1;
        let token = self.queries.last_token;
        if self.replica.request_read(token).is_err() {
            return false;
        }
        self.queries.confirming = Some((token, std::mem::take(&mut self.queries.waiting)));
        true
    }

    /// The read index is confirmed: the state as it is now may be told.
    pub(crate) fn answer_queries(&mut self, token: u64) {
        let Some((_, asked)) = self.queries.confirming.take_if(|(asked, _)| *asked == token) else { return };
        for asked in asked {
            match asked {
                Asked::Metadata { connection, slot, names } => {
                    let view = metadata::view(self.shard.state(), self.config.node_id, self.replica.epoch(), &names);
                    self.answer(connection, slot, Ok(Answer::Metadata(view)));
                }
                Asked::Query { query, question } => {
                    if let Some(result) = self.look_up(query, &question, Freshness::Present) {
                        self.reply(query, result);
                    }
                }
                Asked::Act { query, act } => self.propose_act(query, &act),
                Asked::EmptyPull { pull_id } => self.empty_pull_confirmed(pull_id),
            }
        }
    }

    pub(crate) fn fail_queries(&mut self, failure: &Failure) {
        let mut asked = std::mem::take(&mut self.queries.waiting);
        asked.extend(self.queries.confirming.take().into_iter().flat_map(|(_, asked)| asked));
        for asked in asked {
            match asked {
                Asked::Metadata { connection, slot, .. } => self.answer(connection, slot, Err(failure.clone())),
                Asked::Query { query, question } => self.answer_without_index(query, &question, failure.clone()),
                Asked::Act { query, .. } => self.reply(query, Err(failure.clone())),
                // The office ends, and every pull with it.
                Asked::EmptyPull { .. } => {}
            }
        }
    }

    /// Takes what was read for a peek or a trace.
    pub(crate) fn handle_query_read(&mut self, ticket: u64, result: ReadResult) {
        if self.redrives.is_reading(ticket) {
            return self.handle_letters_read(ticket, result);
        }
        if self.propose_seek(ticket, &result) {
            return;
        }
        let Some(reading) = self.queries.reading.remove(&ticket) else { return };
        let answer = match result {
            ReadResult::Records(records) => {
                let found = records.into_iter().map(Stored::from);
                let messages = found.filter_map(|stored| peeked(reading.partition, &stored)).collect();
                Ok(self.tell_messages(reading.wanted, reading.topic, reading.name, messages))
            }
            ReadResult::Life { record, ledger } => self.tell_life(&reading, record, ledger),
            ReadResult::Failed(text) => Err(Failure::new(ErrorCode::Internal, text)),
            ReadResult::Index(_) | ReadResult::Since(_) | ReadResult::File(_) | ReadResult::Stretch(_) => {
                Err(Failure::new(ErrorCode::Internal, "the read was answered with something else"))
            }
        };
        self.reply_with(reading.query, reading.position, reading.freshness, answer);
    }

    pub(crate) fn reply(&mut self, query: u64, result: Result<QueryAnswer, Failure>) {
        self.reply_at(query, self.position(), result);
    }

    pub(crate) fn reply_at(&mut self, query: u64, position: Position, result: Result<QueryAnswer, Failure>) {
        self.reply_with(query, position, Freshness::Present, result);
    }

    fn reply_with(
        &mut self,
        query: u64,
        position: Position,
        freshness: Freshness,
        result: Result<QueryAnswer, Failure>,
    ) {
        let is_stale = freshness == Freshness::Stale;
        let reply = Box::new(QueryReply { position, is_stale, result });
        self.outputs.push_back(Output::Query { query, reply });
    }

    pub(crate) fn leader_view(&self) -> LeaderView {
        let (leader_id, leader_epoch) = (self.office.leader.map(NodeId::get), self.replica.epoch().get());
        LeaderView { leader_id, leader_epoch, quorum_state: self.quorum_state() }
    }

    /// Answers from the state, or begins a read and answers later (`None`).
    fn look_up(&mut self, query: u64, question: &Query, freshness: Freshness) -> Option<Result<QueryAnswer, Failure>> {
        let leader = self.office.leader.map(NodeId::get);
        let state = self.shard.state();
        let topic = match question.topic() {
            Some(name) => match state.topic_by_name(name) {
                Some((id, topic)) => Some((id, topic)),
                None => return Some(Err(unknown_topic(name))),
            },
            None => None,
        };
        let answer = match question {
            Query::Stats { .. } => QueryAnswer::Stats(self.stats(topic, freshness)),
            Query::Balance { topic: name } => QueryAnswer::Balance(balance::view(state, name.as_deref())),
            Query::Topics => QueryAnswer::Topics(topics::list(state)),
            Query::Topic { .. } => {
                let (id, topic) = topic.expect("a topic that does not exist was refused above");
                QueryAnswer::Topic(topics::describe(state, id, topic, leader))
            }
            Query::Groups { .. } => {
                let (_, topic) = topic.expect("a topic that does not exist was refused above");
                QueryAnswer::Groups(groups::view(state, topic))
            }
            Query::Defaults => QueryAnswer::Defaults(defaults::view(state)),
            Query::Leader => QueryAnswer::Leader(self.leader_view()),
            Query::Members => QueryAnswer::Members(self.cluster_view()),
            Query::Peek { partition, from, max, .. } => {
                let (id, topic) = topic.expect("a topic that does not exist was refused above");
                let name = topic.name.clone();
                if let Err(failure) = check_partition(topic, *partition) {
                    return Some(Err(failure));
                }
                let range = kept(topic, *partition, *from);
                let asker = (query, freshness);
                return self.peek(asker, Wanted::Messages, (id, name), *partition, range, *max);
            }
            Query::DeadLetters { partition, from, max, .. } => {
                let (id, topic) = topic.expect("a topic that does not exist was refused above");
                if let Err(failure) = check_partition(topic, *partition) {
                    return Some(Err(failure));
                }
                let name = dead_letter_name(&topic.name);
                let Some(dead) = state.dead_letters_of(id) else {
                    return Some(Ok(QueryAnswer::DeadLetters(dead_letters::view(state, id, name, Vec::new()))));
                };
                let range = kept(&state.topics[&dead], *partition, *from);
                let asker = (query, freshness);
                return self.peek(asker, Wanted::DeadLetters, (dead, name), *partition, range, *max);
            }
            Query::Trace { partition, seq, .. } => {
                let (id, topic) = topic.expect("a topic that does not exist was refused above");
                let name = topic.name.clone();
                if let Err(failure) = check_message(topic, *partition, *seq) {
                    return Some(Err(failure));
                }
                self.begin_trace((query, freshness), (id, name), *partition, *seq);
                return None;
            }
        };
        Some(Ok(answer))
    }

    fn stats(&self, only: Option<(TopicIncarnation, &Topic)>, freshness: Freshness) -> StatsView {
        let state = self.shard.state();
        let leader = self.office.leader.map(NodeId::get);
        let every = || state.topics.iter().map(|(id, topic)| (*id, &**topic)).collect();
        let shown: Vec<_> = only.map_or_else(every, |one| vec![one]);
        let leases_asked = leases_asked(shown.iter().map(|(_, topic)| *topic));
        let row = |(id, topic): (TopicIncarnation, &Topic)| {
            let mut row = stats::topic_stats(state, id, topic, leader);
            for (path, group) in topic.paths.values().zip(&mut row.groups) {
                self.ages.tell(state, &state.paths[path], leases_asked, group);
            }
            row
        };
        StatsView {
            node: self.config.node_id.get(),
            shard: self.config.shard.get(),
            epoch: state.epoch.get(),
            commit_index: state.commit_index.get(),
            quorum_state: self.quorum_state(),
            stale: freshness == Freshness::Stale,
            groups_expired: self.shard.state().groups_expired,
            topics: shown.into_iter().map(row).collect(),
        }
    }

    fn peek(
        &mut self,
        (query, freshness): (u64, Freshness),
        wanted: Wanted,
        (topic, name): (TopicIncarnation, String),
        partition: Partition,
        range: std::ops::Range<Seq>,
        max: u32,
    ) -> Option<Result<QueryAnswer, Failure>> {
        // The first sequence is whatever was asked for: it may lie at the end of the scale.
        let end = Seq::new(range.start.get().saturating_add(u64::from(max.min(PEEK_MAX)))).min(range.end);
        let in_memory = self.recent.first(topic, partition).unwrap_or(range.end);
        if range.start >= in_memory || range.start >= end {
            let mut messages = Vec::new();
            let mut bytes = 0;
            let mut seq = range.start;
            while seq < end && bytes < PEEK_BYTES {
                let Some(stored) = self.recent.get(topic, partition, seq) else { break };
                bytes += stored.record.len() as u64;
                messages.extend(peeked(partition, stored));
                seq = seq.next();
            }
            return Some(Ok(self.tell_messages(wanted, topic, name, messages)));
        }
        let (from, to) = (range.start, end.min(in_memory));
        let needed = self.recent.needed_ticket(topic, partition);
        let ticket = self.read(needed, ReadJob::Records { topic, partition, from, to, max_bytes: PEEK_BYTES });
        let reading = Reading { query, position: self.position(), freshness, topic, name, partition, wanted };
        self.queries.reading.insert(ticket, reading);
        None
    }

    fn tell_messages(
        &self,
        wanted: Wanted,
        topic: TopicIncarnation,
        name: String,
        messages: Vec<PeekedMessage>,
    ) -> QueryAnswer {
        match wanted {
            Wanted::DeadLetters => {
                QueryAnswer::DeadLetters(dead_letters::view(self.shard.state(), topic, name, messages))
            }
            Wanted::Messages | Wanted::Life(_) => QueryAnswer::Peek(PeekView { topic: name, messages }),
        }
    }
}

pub(crate) fn unknown_topic(name: &str) -> Failure {
    Failure::new(
        ErrorCode::UnknownTopic,
        format!("topic {name:?} does not exist; create it: mortarmq topics create {name}"),
    )
}

pub(crate) fn check_partition(topic: &Topic, partition: Partition) -> Result<(), Failure> {
    let count = topic.partitions.len();
    if partition.index() < count {
        return Ok(());
    }
    let text = format!("topic {:?} has {count} partitions, from 0; {partition} is not one of them", topic.name);
    Err(Failure::new(ErrorCode::UnknownPartition, text))
}

/// What is kept of a partition that exists, from a sequence on.
fn kept(topic: &Topic, partition: Partition, from: Seq) -> std::ops::Range<Seq> {
    let found = &topic.partitions[partition.index()];
    from.max(found.kept.first_seq)..found.last_seq.next()
}

fn check_message(topic: &Topic, partition: Partition, seq: Seq) -> Result<(), Failure> {
    check_partition(topic, partition)?;
    let last = topic.partitions[partition.index()].last_seq;
    if seq >= Seq::FIRST && seq <= last {
        return Ok(());
    }
    let text = match last {
        Seq::ZERO => format!("partition {partition} of topic {:?} has no message yet", topic.name),
        _ => format!(
            "partition {partition} of topic {:?} has messages 1 to {last}; {seq} is not one of them",
            topic.name
        ),
    };
    Err(Failure::new(ErrorCode::UnknownPartition, text))
}

/// A stored record as a peek tells it; nothing if its bytes are not what was written (P11).
fn peeked(partition: Partition, stored: &Stored) -> Option<PeekedMessage> {
    let record = open_record(&stored.record).ok()?;
    let (body, _) = RecordBody::parse_stored(record.body(), record.has_headers).ok()?;
    let slice = |part: &[u8]| record.body().slice_ref(part);
    let headers = body.headers().into_iter().flatten().map(|(name, value)| (slice(name), slice(value))).collect();
    Some(PeekedMessage {
        partition: partition.get(),
        sequence: stored.seq.get(),
        published_at_ms: stored.published_at.get(),
        commit_index: stored.position.commit_index.get(),
        epoch: stored.position.epoch.get(),
        key: slice(body.key()),
        value: slice(body.value()),
        headers,
        record,
    })
}
