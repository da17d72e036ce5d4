//! The operator: reads the books, brings dead letters back or drops them, moves and empties paths, deletes topics. One
//! thing at a time, so that it is known what an answer is about.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use mortarmq_history::{Balance, Counters, Operate, OperateKind, Outcome, Record, Scrape};
use mortarmq_node::{Act, LetterAction, LettersAct, Query, QueryAnswer, QueryReply, SeekTarget};
use mortarmq_shard::Times;
use mortarmq_types::{Position, TopicIncarnation};

use crate::history::path_name;
use crate::plan::Deed;
use crate::world::{Event, Input, World};

/// What an operator waits for, and means to do next.
#[derive(Default)]
pub(crate) struct Operator {
    last_query: u64,
    /// Scrapes that wait: when they were asked, and of which node.
    scrapes: BTreeMap<u64, (u64, usize)>,
    act: Option<Asked>,
    queue: VecDeque<Deed>,
    /// When it last began or ended to move a topic's paths.
    moved_us: BTreeMap<usize, u64>,
    /// Whether it does nothing more.
    pub(crate) is_done: bool,
}

/// An act that waits for its answer.
struct Asked {
    query: u64,
    node: usize,
    deed: Deed,
    topic: usize,
    incarnation: TopicIncarnation,
    call: u64,
}

impl Operator {
    pub(crate) fn waits(&self) -> bool {
        self.act.is_some()
    }

    /// Whether what it does may have ended a lease on a topic that began then.
    pub(crate) fn may_move(&self, topic: usize, since_us: u64) -> bool {
        let is_at_it = self.act.as_ref().is_some_and(|asked| asked.topic == topic && moves_paths(asked.deed));
        is_at_it || self.moved_us.get(&topic).is_some_and(|moved_us| moved_us + TAKES_EFFECT_US >= since_us)
    }
}

impl World {
    /// A client or operator does something.
    pub(crate) fn deed(&mut self, deed: Deed) {
        if self.is_healing {
            return;
        }
        self.trace.note(self.now_us, "deed", &[]);
        self.trace.explain(|| format!("{deed:?}"));
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        match deed {
            Deed::Publish { producer, count, key, delay_ms, ttl_ms, is_batch } => {
                self.publish(place(producer), count, key, Times { delay_ms, ttl_ms }, is_batch);
            }
            Deed::Repeat { producer } => self.repeat(place(producer)),
            Deed::ResetProducer { producer, end } => {
                let connection = self.producers.get(place(producer)).and_then(|found| found.connection());
                connection.into_iter().for_each(|connection| self.end_link(connection, end));
            }
            Deed::ResetConsumer { consumer, end } => {
                let connection = self.consumers.get(place(consumer)).and_then(|found| found.connection());
                connection.into_iter().for_each(|connection| self.end_link(connection, end));
            }
            Deed::Die { consumer } => self.die(place(consumer)),
            Deed::Leave { consumer, is_back_at_once } => self.leave(place(consumer), is_back_at_once),
            Deed::Stall { consumer, ms } => {
                let connection = self.consumers.get(place(consumer)).and_then(|found| found.connection());
                let until_us = self.now_us + ms * 1000;
                if let Some(link) = connection.and_then(|connection| self.links.get_mut(&connection)) {
                    link.stalled_until_us = until_us;
                }
            }
            Deed::Scrape => {
                // Any node that believes that it leads may be asked.
                let has_led =
                    |node: &usize| self.nodes[*node].process.as_ref().is_some_and(|process| process.was_ready);
                let known: Vec<usize> = (0..self.nodes.len()).filter(has_led).collect();
                known.into_iter().for_each(|node| self.scrape(node));
            }
            Deed::Redrive { .. }
            | Deed::PurgeLetters { .. }
            | Deed::Purge { .. }
            | Deed::Replay { .. }
            | Deed::Skip { .. }
            | Deed::Delete { .. } => {
                self.operator.queue.push_back(deed);
                self.next_act();
            }
        }
    }

    /// The operator does one thing more, though work is over.
    pub(crate) fn purge(&mut self, deed: Deed) {
        self.operator.is_done = false;
        self.operator.queue.push_back(deed);
        self.next_act();
    }

    fn ask(&mut self, node: usize, input: impl FnOnce(u64) -> Input) -> u64 {
        self.operator.last_query += 1;
        let query = self.operator.last_query;
        let at_us = self.now_us + self.net.delay(20, self.settings.link_us);
        let life = self.nodes[node].life;
        self.at(at_us, Event::Input { node, life, input: input(query) });
        query
    }

    /// Asks for the books; a node that cannot answer yet says so.
    pub(crate) fn scrape(&mut self, node: usize) {
        let now_ns = self.now_ns();
        let query = self.ask(node, |query| Input::Query { query, question: Query::Balance { topic: None } });
        self.operator.scrapes.insert(query, (now_ns, node));
    }

    fn next_act(&mut self) {
        if self.operator.act.is_some() || self.operator.is_done {
            return;
        }
        let Some(deed) = self.operator.queue.front().copied() else { return };
        let topic = usize::try_from(topic_of(deed)).unwrap_or(0).min(self.topics.len() - 1);
        let plan = self.topics.get(topic);
        let (Some(incarnation), false) = (plan.current, plan.is_ending) else {
            // Its clients make it first.
            return;
        };
        let is_up = |node: &usize| self.nodes[*node].process.as_ref().is_some_and(|process| process.was_ready);
        let node = if self.has_peers() { self.leader() } else { Some(0) }.filter(is_up);
        self.operator.queue.pop_front();
        let Some(node) = node else { return self.next_act() };
        let name = plan.name.clone();
        let group_name = |group: u64| {
            let place = usize::try_from(group).unwrap_or(0).min(plan.groups.len() - 1);
            plan.groups[place].name.clone()
        };
        let letters = |action, limit| {
            Act::Letters(LettersAct {
                topic: name.clone(),
                action,
                partition: None,
                sequences: Vec::new(),
                reason: None,
                limit: Some(limit),
                rate: None,
                dry_run: false,
            })
        };
        let act = match deed {
            // One at a time: the answer to many rests on the index of the last, and the first may be delivered before it.
            Deed::Redrive { .. } => letters(LetterAction::Redrive, 1),
            Deed::PurgeLetters { count, .. } => letters(LetterAction::Purge, count),
            Deed::Purge { group, .. } => Act::Purge { topic: name.clone(), group: Some(group_name(group)) },
            Deed::Replay { group, .. } => {
                Act::Seek { topic: name.clone(), group: group_name(group), to: SeekTarget::Earliest }
            }
            Deed::Skip { group, .. } => {
                Act::Seek { topic: name.clone(), group: group_name(group), to: SeekTarget::Latest }
            }
            Deed::Delete { .. } => Act::DeleteTopic { name: name.clone() },
            _ => return,
        };
        if matches!(deed, Deed::Delete { .. }) {
            self.topics.note_end(topic);
        }
        if let Deed::Redrive { topic, count } = deed
            && count > 1
        {
            self.operator.queue.push_front(Deed::Redrive { topic, count: count - 1 });
        }
        if moves_paths(deed) {
            self.operator.moved_us.insert(topic, self.now_us);
        }
        let call = self.now_ns();
        let query = self.ask(node, |query| Input::Act { query, act });
        self.tally.operations += 1;
        self.operator.act = Some(Asked { query, node, deed, topic, incarnation, call });
    }

    /// An answer for the operator.
    pub(crate) fn answered(&mut self, query: u64, reply: QueryReply) {
        if let Some((call, node)) = self.operator.scrapes.remove(&query) {
            self.scraped(call, node, &reply);
        } else if let Some(asked) = self.operator.act.take_if(|asked| asked.query == query) {
            self.done(&asked, Some(reply));
            self.next_act();
        }
    }

    fn scraped(&mut self, call: u64, node: usize, reply: &QueryReply) {
        let Ok(QueryAnswer::Balance(view)) = &reply.result else { return };
        let ret = self.now_ns();
        for books in &view.paths {
            let Some((incarnation, path)) = self.path_at(&books.topic, &books.group, call) else { continue };
            if reply.is_stale && path.contains('#') {
                // It may be about the topic that had the name before.
                continue;
            }
            let counters = Counters {
                produced: books.produced,
                delivered: books.delivered,
                dropped: books.dropped,
                dlq: books.dlq,
                depth: books.depth,
            };
            let record = Record::Scrape(Scrape {
                path: Cow::Owned(path),
                node: Some(Cow::Owned((node + 1).to_string())),
                call,
                ret: Some(ret),
                commit: Some(view.commit_index),
                epoch: Some(view.epoch),
                counters,
                stale: reply.is_stale,
            });
            self.histories.record(incarnation, &record);
        }
        self.tally.operations += 1;
    }

    /// What a scrape calls a path, if it is certain which incarnation it means.
    fn path_at(&self, topic: &str, group: &str, call: u64) -> Option<(TopicIncarnation, String)> {
        let source = topic.strip_prefix("$dlq.").unwrap_or(topic);
        let place = (0..self.topics.len()).find(|place| self.topics.get(*place).name == source)?;
        let plan = self.topics.get(place);
        let current = plan.current.filter(|_| !plan.is_ending)?;
        if self.topic_since.get(&current).is_none_or(|since| *since > call) {
            return None;
        }
        let group =
            if source == topic { Some(plan.groups.iter().position(|found| found.name == group)?) } else { None };
        Some((current, path_name(&self.topics, current, group)?))
    }

    /// An act is over, or nobody knows.
    fn done(&mut self, asked: &Asked, reply: Option<QueryReply>) {
        if moves_paths(asked.deed) {
            self.operator.moved_us.insert(asked.topic, self.now_us);
        }
        let answer: Option<Position> = reply.as_ref().filter(|reply| reply.result.is_ok()).map(|reply| reply.position);
        // What says no may have done a part.
        let outcome = if answer.is_some() { Outcome::Ok } else { Outcome::Unknown };
        let plan = self.topics.get(asked.topic);
        let groups: Vec<usize> = (0..plan.groups.len()).collect();
        let one = |group: u64| vec![Some(usize::try_from(group).unwrap_or(0).min(plan.groups.len() - 1))];
        let (kind, paths) = match asked.deed {
            Deed::Redrive { .. } => (OperateKind::Redrive, groups.into_iter().map(Some).collect()),
            Deed::PurgeLetters { .. } => (OperateKind::Purge, vec![None]),
            Deed::Purge { group, .. } | Deed::Skip { group, .. } => (OperateKind::Purge, one(group)),
            Deed::Replay { group, .. } => (OperateKind::Replay, one(group)),
            Deed::Delete { .. } => {
                if answer.is_none() {
                    self.topics.get_mut(asked.topic).is_ending = false;
                }
                let is_certain = reply.is_some();
                if !is_certain {
                    // Whether it is gone its clients find out.
                    self.topics.get_mut(asked.topic).is_ending = false;
                }
                self.tally.reach("topic deleted");
                let all: Vec<Option<usize>> = groups.into_iter().map(Some).chain([None]).collect();
                (OperateKind::Purge, all)
            }
            _ => return,
        };
        if let (Deed::Redrive { .. }, Some(QueryReply { result: Ok(QueryAnswer::Letters(view)), .. })) =
            (asked.deed, &reply)
            && view.done > 0
            && !self.is_healing
        {
            self.tally.reach("redrive under load");
        }
        for group in paths {
            let Some(path) = path_name(&self.topics, asked.incarnation, group) else { continue };
            let record = Record::Operate(Operate {
                client: Some(Cow::Borrowed("operator")),
                kind,
                path: Cow::Owned(path),
                msg: None,
                call: asked.call,
                ret: answer.map(|_| self.now_ns()),
                outcome,
                commit: answer.map(|position| position.commit_index.get()),
                epoch: answer.map(|position| position.epoch.get()),
            });
            self.histories.record(asked.incarnation, &record);
        }
    }

    /// A client learnt of an incarnation.
    pub(crate) fn topic_is_new(&mut self, incarnation: TopicIncarnation) {
        let now_ns = self.now_ns();
        self.topic_since.insert(incarnation, now_ns);
        if self.topics.incarnation(incarnation).is_some_and(|known| known.name.contains('#')) {
            self.tally.reach("topic deleted and made again");
        }
        self.next_act();
    }

    /// The node is gone: what was asked is not answered.
    pub(crate) fn note_crash(&mut self, node: usize) {
        self.operator.scrapes.retain(|_, (_, of)| *of != node);
        if let Some(asked) = self.operator.act.take_if(|asked| asked.node == node) {
            self.done(&asked, None);
        }
    }

    /// The books at the end.
    pub(crate) fn scrape_end(&mut self) {
        let Some(node) = self.main_node() else { return };
        let state = node.shard().state();
        let mut all = Vec::new();
        for topic in state.topics.values() {
            for (group, id) in &topic.paths {
                let books = state.books(&state.paths[id]);
                let counters = Counters {
                    produced: books.produced,
                    delivered: books.delivered,
                    dropped: books.dropped,
                    dlq: books.dlq,
                    depth: books.depth,
                };
                if let Some((_, path)) = self.path_at(&topic.name, group, u64::MAX) {
                    all.push(Balance { path: Cow::Owned(path), counters });
                }
            }
        }
        self.histories.end(all);
    }
}

fn topic_of(deed: Deed) -> u64 {
    match deed {
        Deed::Redrive { topic, .. }
        | Deed::PurgeLetters { topic, .. }
        | Deed::Purge { topic, .. }
        | Deed::Replay { topic, .. }
        | Deed::Skip { topic, .. }
        | Deed::Delete { topic } => topic,
        _ => 0,
    }
}

/// Whether it ends leases on the paths of a topic.
fn moves_paths(deed: Deed) -> bool {
    matches!(deed, Deed::Purge { .. } | Deed::Replay { .. } | Deed::Skip { .. } | Deed::Delete { .. })
}

/// An act whose answer says that its result is not known may still take effect so much later.
const TAKES_EFFECT_US: u64 = 30_000_000;
