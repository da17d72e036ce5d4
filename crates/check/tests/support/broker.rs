//! A model of a broker that keeps its contract, and clients that use it at random.
//!
//! Everything takes effect at one instant, in the order of a commit index; a call lies around its instant. There are two
//! paths, one ordered by key with dead letters and one without order, and the path of the dead letters.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::random::Random;

const BILLING: &str = "orders/billing";
const AUDIT: &str = "orders/audit";
const LETTERS: &str = "$dlq.orders/default";
const LEASE_MS: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const MAX_ATTEMPTS: u64 = 3;

/// What a history shall contain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Steps until the run is drained.
    pub(crate) steps: u64,
    /// Whether operators redrive and replay, consumers leave, and nodes are killed.
    pub(crate) has_events: bool,
    /// Whether consumers die without a word, and are never heard of again.
    pub(crate) has_deaths: bool,
}

/// A history that keeps the contract.
pub(crate) fn history(seed: u64, shape: Shape) -> Vec<Value> {
    let mut broker = Broker::new(seed);
    for _ in 0..shape.steps {
        broker.step(shape);
    }
    broker.drain();
    broker.records
}

#[derive(Debug, Clone)]
struct Message {
    id: String,
    key: Option<String>,
    partition: u64,
    seq: u64,
    hash: String,
    /// Not deliverable before.
    due: u64,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Pending,
    Leased { id: u64, client: String, until: u64, arrived: Option<u64>, deliver: u64 },
    Acked,
    Dead,
    Dropped,
}

#[derive(Debug, Clone)]
struct Pair {
    /// The message, by its number.
    message: usize,
    partition: u64,
    seq: u64,
    state: State,
    attempt: u64,
    cause: &'static str,
    prev: Option<u64>,
    /// Whether an operator brought it back: it holds back nothing any more.
    is_back: bool,
    /// On the path of dead letters: the pair it died from.
    origin: Option<usize>,
}

#[derive(Debug, Default)]
struct Path {
    pairs: Vec<Pair>,
    produced: u64,
    delivered: u64,
    dropped: u64,
    dlq: u64,
    next_id: u64,
}

struct Broker {
    random: Random,
    records: Vec<Value>,
    now: u64,
    commit: u64,
    epoch: u64,
    messages: Vec<Message>,
    next_seq: BTreeMap<u64, u64>,
    letter_seq: u64,
    paths: BTreeMap<&'static str, Path>,
    /// Publishes of which nobody told the producer: message number if stored, and the request.
    open_publishes: Vec<(Option<usize>, Map<String, Value>)>,
    names: u64,
    leavers: u64,
    /// How often each consumer died: its successor has another name.
    lives: [u64; 3],
}

impl Broker {
    fn new(seed: u64) -> Self {
        let paths = [BILLING, AUDIT, LETTERS].into_iter().map(|path| (path, Path { next_id: 10, ..Path::default() }));
        let run = json!({"op":"run","v":1,"run":"random","paths":[
            {"path":BILLING,"topic":"orders","lease_ms":LEASE_MS,"max_attempts":MAX_ATTEMPTS,"order":"key","dlq":"$dlq.orders"},
            {"path":AUDIT,"topic":"orders","lease_ms":LEASE_MS,"max_attempts":0},
            {"path":LETTERS,"topic":"$dlq.orders","lease_ms":LEASE_MS,"max_attempts":0}]});
        Self {
            random: Random::new(seed),
            records: vec![run],
            now: 1_000 * MILLISECOND,
            commit: 0,
            epoch: 1,
            messages: Vec::new(),
            next_seq: BTreeMap::new(),
            letter_seq: 1,
            paths: paths.collect(),
            open_publishes: Vec::new(),
            names: 0,
            leavers: 0,
            lives: [0; 3],
        }
    }

    fn step(&mut self, shape: Shape) {
        self.advance();
        match self.random.below(100) {
            0..20 => self.publish(),
            20..24 => self.publish_again(),
            24..55 => self.deliver(),
            55..90 => self.settle(),
            90..93 => self.scrape(),
            93 => self.now += LEASE_MS * MILLISECOND / 2,
            94 => self.send_again(),
            95 if shape.has_deaths => self.bury(),
            _ if !shape.has_events => {}
            95 => self.kill(),
            96 => self.leave(),
            97 => self.redrive(),
            98 if self.random.percent(20) => self.replay(),
            _ => {}
        }
    }

    fn advance(&mut self) {
        self.now += 1 + self.random.below(30) * MILLISECOND + self.random.below(1000);
        self.expire();
    }

    /// The next index.
    fn next_commit(&mut self) -> u64 {
        self.commit += 1;
        self.commit
    }

    /// A call around now, not before a time.
    fn call(&mut self, not_before: u64) -> (u64, u64) {
        let back = self.random.below(20) * MILLISECOND;
        let call = self.now.saturating_sub(back).max(not_before).min(self.now);
        let on = self.random.below(20) * MILLISECOND + self.random.below(100);
        (call, self.now + on)
    }

    fn publish(&mut self) {
        self.names += 1;
        let id = format!("m-{}", self.names);
        let key = self.random.percent(60).then(|| format!("k{}", self.random.below(4)));
        let partition = key.as_ref().map_or(self.random.below(2), |key| u64::from(key.as_bytes()[1]) % 2);
        let delay_ms = if self.random.percent(5) { 200 } else { 0 };
        let (call, ret) = self.call(0);
        let mut request = json!({"op":"publish","client":"p1","topic":"orders","msg":id,"call":call,
            "producer_id":9,"producer_seq":self.names,"hash":format!("h{}", self.names)});
        let object = request.as_object_mut().expect("it is an object");
        if let Some(key) = &key {
            object.insert("key".into(), json!(key));
        }
        if delay_ms > 0 {
            object.insert("delay_ms".into(), json!(delay_ms));
        }
        let object = object.clone();
        if self.random.percent(5) {
            let mut refused = object;
            refused.insert("ret".into(), json!(ret));
            refused.insert("outcome".into(), json!("refused"));
            return self.records.push(Value::Object(refused));
        }
        let is_answered = !self.random.percent(10);
        let is_stored = is_answered || self.random.percent(50);
        let number = is_stored.then(|| self.store(&id, key, partition, delay_ms));
        if is_answered {
            let message = self.messages[number.expect("it is stored")].clone();
            self.answer(object, &message, ret, false);
        } else {
            let mut open = object.clone();
            open.insert("outcome".into(), json!("unknown"));
            if self.random.percent(50) {
                open.insert("ret".into(), json!(ret));
            }
            self.records.push(Value::Object(open));
            self.open_publishes.push((number, object));
        }
    }

    fn answer(&mut self, mut request: Map<String, Value>, message: &Message, ret: u64, is_duplicate: bool) {
        request.insert("ret".into(), json!(ret));
        request.insert("outcome".into(), json!("ok"));
        request.insert("partition".into(), json!(message.partition));
        request.insert("seq".into(), json!(message.seq));
        request.insert("dedup".into(), json!(is_duplicate));
        request.insert("commit".into(), json!(self.next_commit()));
        request.insert("epoch".into(), json!(self.epoch));
        self.records.push(Value::Object(request));
    }

    fn store(&mut self, id: &str, key: Option<String>, partition: u64, delay_ms: u64) -> usize {
        let seq = self.next_seq.entry(partition).or_insert(1);
        let message = Message {
            id: id.to_owned(),
            key,
            partition,
            seq: *seq,
            hash: format!("h{}", self.names),
            due: self.now + delay_ms * MILLISECOND,
        };
        *seq += 1;
        self.messages.push(message);
        let number = self.messages.len() - 1;
        for path in [BILLING, AUDIT] {
            let (partition, seq) = (self.messages[number].partition, self.messages[number].seq);
            let pair = Pair {
                message: number,
                partition,
                seq,
                state: State::Pending,
                attempt: 1,
                cause: "first",
                prev: None,
                is_back: false,
                origin: None,
            };
            let path = self.path(path);
            path.pairs.push(pair);
            path.produced += 1;
        }
        number
    }

    /// A producer that was not answered asks again, under the same number.
    fn publish_again(&mut self) {
        let Some((number, mut request)) = self.open_publishes.pop() else { return };
        let (call, ret) = self.call(0);
        let first_call = request["call"].as_u64().expect("a number");
        request.insert("call".into(), json!(call.max(first_call + 30 * MILLISECOND).min(self.now)));
        let number = number.unwrap_or_else(|| {
            let key = request.get("key").and_then(Value::as_str).map(str::to_owned);
            let partition = key.as_ref().map_or(0, |key| u64::from(key.as_bytes()[1]) % 2);
            let delay_ms = request.get("delay_ms").and_then(Value::as_u64).unwrap_or(0);
            let id = request["msg"].as_str().expect("a text").to_owned();
            let number = self.store(&id, key, partition, delay_ms);
            self.messages[number].hash = request["hash"].as_str().expect("a text").to_owned();
            number
        });
        let message = self.messages[number].clone();
        self.answer(request, &message, ret, true);
    }

    fn path(&mut self, name: &str) -> &mut Path {
        self.paths.get_mut(name).expect("there are three paths")
    }

    /// Gives what is next on a path: on the ordered one, perhaps several messages of a key together.
    fn deliver(&mut self) {
        let name = [BILLING, BILLING, AUDIT, LETTERS][self.random.below(4) as usize];
        let ready: Vec<usize> =
            (0..self.paths[name].pairs.len()).filter(|index| self.is_deliverable(name, *index)).collect();
        let Some(first) = self.random.pick(&ready).copied() else { return };
        let client = self.consumer();
        let (call, ret) = self.call(0);
        let deliver = self.next_commit();
        // A connection that breaks loses the rest of what one Deliver gave, never something before what arrived.
        let mut arrives = !self.random.percent(3);
        self.give(name, first, &client, (call, ret), deliver, arrives);
        let mut last = first;
        while name == BILLING && self.random.percent(40) {
            let Some(next) = self.next_of_key(name, last) else { break };
            arrives &= !self.random.percent(3);
            self.give(name, next, &client, (call, ret), deliver, arrives);
            last = next;
        }
    }

    /// One of three.
    fn consumer(&mut self) -> String {
        let number = self.random.below(3);
        match self.lives[number as usize] {
            0 => format!("c{number}"),
            life => format!("c{number}-{life}"),
        }
    }

    /// A connection breaks and its session is resumed: what it holds is sent again, unchanged.
    fn send_again(&mut self) {
        let now = self.now;
        let held = self.paths.iter().flat_map(|(name, path)| path.pairs.iter().map(move |pair| (*name, pair)));
        let held: Vec<(&str, u64)> = held
            .filter_map(|(name, pair)| match pair.state {
                State::Leased { id, arrived: Some(arrived), .. } if arrived < now => Some((name, id)),
                _ => None,
            })
            .collect();
        let Some((name, id)) = self.random.pick(&held).copied() else { return };
        let (_, ret) = self.call(0);
        let is_it =
            |record: &&Value| record["op"] == "deliver" && record["path"] == name && record["delivery_id"] == id;
        let mut again = self.records.iter().find(is_it).expect("it arrived").clone();
        again["ret"] = json!(ret);
        self.records.push(again);
    }

    /// A consumer is gone, and nobody writes it down; its session ends.
    fn bury(&mut self) {
        let client = self.consumer();
        let number = client.as_bytes()[1] - b'0';
        self.lives[usize::from(number)] += 1;
        self.end_leases(&client, "consumer_lost");
    }

    fn is_deliverable(&self, name: &str, index: usize) -> bool {
        let pair = &self.paths[name].pairs[index];
        let message = &self.messages[pair.message];
        pair.state == State::Pending
            && message.due <= self.now
            && (name != BILLING || !self.earlier_or_leased(name, index))
    }

    /// Whether an earlier message of its key is unsettled and due, or any is out.
    fn earlier_or_leased(&self, name: &str, index: usize) -> bool {
        let pair = &self.paths[name].pairs[index];
        let key = &self.messages[pair.message].key;
        key.is_some()
            && self.paths[name].pairs.iter().enumerate().any(|(other, earlier)| {
                let is_of_key = other != index && self.messages[earlier.message].key == *key;
                let is_waiting = earlier.state == State::Pending
                    && earlier.seq < pair.seq
                    && self.messages[earlier.message].due <= self.now;
                is_of_key && (is_waiting || matches!(earlier.state, State::Leased { .. }))
            })
    }

    fn next_of_key(&self, name: &str, index: usize) -> Option<usize> {
        let pair = &self.paths[name].pairs[index];
        let key = self.messages[pair.message].key.clone()?;
        (0..self.paths[name].pairs.len())
            .filter(|other| {
                let later = &self.paths[name].pairs[*other];
                let message = &self.messages[later.message];
                message.key.as_ref() == Some(&key)
                    && later.seq > pair.seq
                    && message.due <= self.now
                    && later.state == State::Pending
            })
            .min_by_key(|other| self.paths[name].pairs[*other].seq)
    }

    fn give(
        &mut self,
        name: &'static str,
        index: usize,
        client: &str,
        (call, ret): (u64, u64),
        deliver: u64,
        arrives: bool,
    ) {
        let (now, epoch) = (self.now, self.epoch);
        let path = self.path(name);
        let id = path.next_id;
        path.next_id += 10;
        let pair = &mut path.pairs[index];
        let arrived = arrives.then_some(ret);
        let until = now + LEASE_MS * MILLISECOND;
        pair.state = State::Leased { id, client: client.to_owned(), until, arrived, deliver };
        let pair = pair.clone();
        if !arrives {
            return;
        }
        let message = &self.messages[pair.message];
        let mut record = json!({"op":"deliver","client":client,"path":name,"msg":message.id,"call":call,"ret":ret,
            "partition":pair.partition,"seq":pair.seq,"delivery_id":id,"attempt":pair.attempt,"cause":pair.cause,
            "prev":pair.prev,"lease_ms":LEASE_MS,"hash":message.hash,"commit":deliver,"epoch":epoch});
        if let Some(key) = &message.key {
            record["key"] = json!(key);
        }
        if pair.origin.is_some() {
            record["origin"] = json!(BILLING);
        }
        self.records.push(record);
    }

    fn expire(&mut self) {
        for name in [BILLING, AUDIT, LETTERS] {
            let now = self.now;
            let due: Vec<usize> = (0..self.paths[name].pairs.len())
                .filter(
                    |index| matches!(self.paths[name].pairs[*index].state, State::Leased { until, .. } if until <= now),
                )
                .collect();
            for index in due {
                // One before it of the same Deliver may have taken it along.
                if matches!(self.paths[name].pairs[index].state, State::Leased { until, .. } if until <= now) {
                    self.next_commit();
                    self.come_back(name, index, "lease_expired");
                }
            }
        }
    }

    /// A lease ended without an ack; what was given with it behind it in its key ends too.
    fn come_back(&mut self, name: &'static str, index: usize, cause: &'static str) {
        let pair = self.paths[name].pairs[index].clone();
        let State::Leased { id, deliver, .. } = pair.state else { return };
        let limit = if name == BILLING { MAX_ATTEMPTS } else { 0 };
        let counts = cause != "released";
        if counts && limit > 0 && pair.attempt >= limit {
            self.die(name, index);
        } else {
            let pair = &mut self.path(name).pairs[index];
            pair.state = State::Pending;
            pair.attempt += u64::from(counts);
            pair.cause = cause;
            pair.prev = Some(id);
        }
        let key = self.messages[pair.message].key.clone();
        if key.is_none() || name != BILLING {
            return;
        }
        let behind: Vec<usize> = (0..self.paths[name].pairs.len())
            .filter(|other| {
                let later = &self.paths[name].pairs[*other];
                let is_same = matches!(later.state, State::Leased { deliver: its, .. } if its == deliver);
                is_same && later.seq > pair.seq && self.messages[later.message].key == key
            })
            .collect();
        for other in behind {
            let pair = &mut self.path(name).pairs[other];
            if let State::Leased { id, .. } = pair.state {
                pair.state = State::Pending;
                pair.cause = "released";
                pair.prev = Some(id);
            }
        }
    }

    fn die(&mut self, name: &'static str, index: usize) {
        let letter_seq = self.letter_seq;
        self.letter_seq += 1;
        let path = self.path(name);
        let pair = &mut path.pairs[index];
        if let State::Leased { id, .. } = pair.state {
            pair.prev = Some(id);
        }
        pair.state = State::Dead;
        let letter = Pair {
            partition: 0,
            seq: letter_seq,
            state: State::Pending,
            attempt: 1,
            cause: "first",
            prev: None,
            origin: Some(index),
            ..pair.clone()
        };
        path.dlq += 1;
        let letters = self.path(LETTERS);
        letters.pairs.push(letter);
        letters.produced += 1;
    }

    /// A consumer that holds something says something about it.
    fn settle(&mut self) {
        let name = [BILLING, AUDIT, LETTERS][self.random.below(3) as usize];
        let now = self.now;
        let held: Vec<usize> = (0..self.paths[name].pairs.len())
            .filter(|index| {
                let state = &self.paths[name].pairs[*index].state;
                matches!(state, State::Leased { arrived: Some(arrived), .. } if *arrived < now)
            })
            .collect();
        let Some(index) = self.random.pick(&held).copied() else { return };
        let pair = self.paths[name].pairs[index].clone();
        let State::Leased { id, client, arrived: Some(arrived), .. } = pair.state else { return };
        let kind = match self.random.below(100) {
            0..70 => "ack",
            70..82 => "retry",
            82..86 if name != LETTERS => "dead",
            86..92 => "release",
            92..98 => "extend",
            _ => "ack",
        };
        let (call, ret) = self.call(arrived + 1);
        let op = match kind {
            "ack" | "extend" => kind,
            _ => "nack",
        };
        let mut record = json!({"op":op,"client":client,"path":name,"msg":self.messages[pair.message].id,
            "delivery_id":id,"call":call,"ret":ret});
        if op == "nack" {
            record["to"] = json!(kind);
        }
        if op == "extend" {
            record["lease_ms"] = json!(LEASE_MS);
        }
        let is_open = self.random.percent(6);
        if is_open {
            record["outcome"] = json!("unknown");
            if self.random.percent(50) {
                record.as_object_mut().expect("it is an object").remove("ret");
            }
        }
        if !is_open || self.random.percent(50) {
            let commit = self.next_commit();
            self.apply(name, index, kind);
            if !is_open {
                record["outcome"] = json!("ok");
                record["commit"] = json!(commit);
                record["epoch"] = json!(self.epoch);
            }
        }
        self.records.push(record);
        if kind == "ack" && self.random.percent(5) && self.paths[name].pairs[index].state == State::Acked {
            self.ack_again(name, index, id, &client);
        }
    }

    /// A settle whose answer was lost on the way is repeated, and answered ok again.
    fn ack_again(&mut self, name: &'static str, index: usize, id: u64, client: &str) {
        self.now += 30 * MILLISECOND;
        let (call, ret) = (self.now, self.now + MILLISECOND);
        let msg = self.messages[self.paths[name].pairs[index].message].id.clone();
        let commit = self.next_commit();
        self.records.push(json!({"op":"ack","client":client,"path":name,"msg":msg,"delivery_id":id,"call":call,
            "ret":ret,"outcome":"ok","commit":commit,"epoch":self.epoch}));
    }

    fn apply(&mut self, name: &'static str, index: usize, kind: &str) {
        match kind {
            "ack" => {
                let path = self.path(name);
                path.pairs[index].state = State::Acked;
                path.delivered += 1;
                if let State::Acked = path.pairs[index].state {
                    // The last delivery is what a replay would follow.
                }
            }
            "dead" => self.die_told(name, index),
            "retry" => self.come_back(name, index, "nacked"),
            "release" => self.come_back(name, index, "released"),
            _ => {
                let until = self.now + LEASE_MS * MILLISECOND;
                if let State::Leased { until: known, .. } = &mut self.path(name).pairs[index].state {
                    *known = (*known).max(until);
                }
            }
        }
    }

    /// Its consumer says that no attempt will do. On a path without dead letters it is dropped.
    fn die_told(&mut self, name: &'static str, index: usize) {
        let pair = self.paths[name].pairs[index].clone();
        if name == BILLING {
            let State::Leased { deliver, .. } = pair.state else { return };
            self.die(name, index);
            let _ = deliver;
        } else {
            let path = self.path(name);
            path.pairs[index].state = State::Dropped;
            path.dropped += 1;
        }
    }

    fn scrape(&mut self) {
        let name = [BILLING, AUDIT, LETTERS][self.random.below(3) as usize];
        let (call, ret) = self.call(0);
        let (commit, epoch) = (self.commit, self.epoch);
        if commit == 0 {
            return;
        }
        let mut record = self.counters(name);
        let object = record.as_object_mut().expect("it is an object");
        object.insert("op".into(), json!("scrape"));
        object.insert("node".into(), json!(1));
        object.insert("call".into(), json!(call.max(self.now)));
        object.insert("ret".into(), json!(ret));
        object.insert("commit".into(), json!(commit));
        object.insert("epoch".into(), json!(epoch));
        self.records.push(record);
    }

    fn counters(&self, name: &str) -> Value {
        let path = &self.paths[name];
        let is_owed = |pair: &&Pair| matches!(pair.state, State::Pending | State::Leased { .. });
        let depth = path.pairs.iter().filter(is_owed).count() as u64;
        json!({"path":name,"produced":path.produced,"delivered":path.delivered,"dropped":path.dropped,
            "dlq":path.dlq,"depth":depth})
    }

    /// A node dies and another leads: the epoch grows, and the sessions of one consumer are lost.
    fn kill(&mut self) {
        let call = self.now;
        self.now += 100 * MILLISECOND;
        self.epoch += 1;
        self.next_commit();
        self.records.push(json!({"op":"fault","kind":"kill","node":1,"call":call,"ret":self.now}));
        self.end_leases(&format!("c{}", self.random.clone().below(3)), "consumer_lost");
    }

    fn leave(&mut self) {
        let client = format!("c{}", self.random.below(3));
        let (call, ret) = (self.now, self.now + MILLISECOND);
        let commit = self.next_commit();
        for path in [BILLING, AUDIT, LETTERS] {
            self.records.push(json!({"op":"operate","client":client,"kind":"leave","path":path,"call":call,"ret":ret,
                "outcome":"ok","commit":commit,"epoch":self.epoch}));
        }
        self.leavers += 1;
        self.end_leases(&client, "released");
    }

    fn end_leases(&mut self, gone: &str, cause: &'static str) {
        for name in [BILLING, AUDIT, LETTERS] {
            for index in 0..self.paths[name].pairs.len() {
                let is_held =
                    matches!(&self.paths[name].pairs[index].state, State::Leased { client, .. } if client == gone);
                if is_held {
                    self.come_back(name, index, cause);
                }
            }
        }
    }

    fn redrive(&mut self) {
        let dead: Vec<usize> = (0..self.paths[LETTERS].pairs.len())
            .filter(|index| self.paths[LETTERS].pairs[*index].state == State::Pending)
            .collect();
        let Some(letter) = self.random.pick(&dead).copied() else { return };
        let origin = self.paths[LETTERS].pairs[letter].origin.expect("a dead letter has an origin");
        let (call, ret) = self.call(0);
        let commit = self.next_commit();
        let letters = self.path(LETTERS);
        letters.pairs[letter].state = State::Dropped;
        letters.dropped += 1;
        let billing = self.path(BILLING);
        billing.produced += 1;
        let pair = &mut billing.pairs[origin];
        pair.state = State::Pending;
        pair.attempt = 1;
        pair.cause = "redriven";
        pair.is_back = true;
        let msg = self.messages[self.paths[BILLING].pairs[origin].message].id.clone();
        self.records.push(json!({"op":"operate","client":"o1","kind":"redrive","path":BILLING,"msg":msg,"call":call,
            "ret":ret,"outcome":"ok","commit":commit,"epoch":self.epoch}));
    }

    fn replay(&mut self) {
        let name = if self.random.percent(50) { BILLING } else { AUDIT };
        let (call, ret) = self.call(0);
        let commit = self.next_commit();
        let path = self.path(name);
        for pair in &mut path.pairs {
            if pair.state == State::Acked {
                pair.state = State::Pending;
                pair.attempt = 1;
                pair.cause = "replayed";
                pair.prev = None;
                pair.is_back = true;
                path.produced += 1;
            }
        }
        self.records.push(json!({"op":"operate","client":"o1","kind":"replay","path":name,"call":call,"ret":ret,
            "outcome":"ok","commit":commit,"epoch":self.epoch}));
    }

    /// Delivers and acks everything, and ends.
    fn drain(&mut self) {
        while !self.open_publishes.is_empty() {
            self.advance();
            self.publish_again();
        }
        for name in [BILLING, AUDIT, LETTERS] {
            while let Some(index) = self.next_to_drain(name) {
                self.now += 25 * MILLISECOND;
                self.expire();
                if self.paths[name].pairs[index].state != State::Pending || !self.is_deliverable(name, index) {
                    self.now += LEASE_MS * MILLISECOND;
                    continue;
                }
                let call = self.now;
                let deliver = self.next_commit();
                let arrives = !self.random.percent(3);
                let client = self.consumer();
                self.give(name, index, &client, (call, call + MILLISECOND), deliver, arrives);
                let State::Leased { id, arrived: Some(_), .. } = self.paths[name].pairs[index].state else { continue };
                self.now += 5 * MILLISECOND;
                let commit = self.next_commit();
                self.apply(name, index, "ack");
                let msg = self.messages[self.paths[name].pairs[index].message].id.clone();
                self.records.push(json!({"op":"ack","client":client,"path":name,"msg":msg,"delivery_id":id,
                    "call":self.now - MILLISECOND,"ret":self.now + MILLISECOND,"outcome":"ok","commit":commit,"epoch":self.epoch}));
            }
        }
        let balance: Vec<Value> = [BILLING, AUDIT, LETTERS].into_iter().map(|name| self.counters(name)).collect();
        let at = self.now + 1_000 * MILLISECOND;
        self.records.push(json!({"op":"end","at":at,"drained":true,"balance":balance}));
    }

    fn next_to_drain(&self, name: &str) -> Option<usize> {
        let pairs = &self.paths[name].pairs;
        let open = |index: &usize| matches!(pairs[*index].state, State::Pending | State::Leased { .. });
        (0..pairs.len()).filter(open).min_by_key(|index| (pairs[*index].partition, pairs[*index].seq))
    }
}
