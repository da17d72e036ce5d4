//! What is known of the whole run: its paths, faults, operators' acts and end.

use hashbrown::HashMap;
use mortarmq_history::Counters;
use roaring::RoaringTreemap;

use crate::location::Location;
use crate::names::join;
use crate::operation::{Delivery, MsgId, Name, Operate, OperateKind, Outcome};
use crate::options::{Contract, Options};
use crate::span::{Span, Timed};

/// Fields a broker may be unable to give. Once one delivery of a path carries one, it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// `delivery_id`
    Id,
    /// `attempt`
    Attempt,
    /// `cause`
    Cause,
    /// `prev`
    Prev,
    /// `hash`
    Hash,
    /// `partition` and `seq`
    Position,
}

const FIELDS: [Field; 6] = [Field::Id, Field::Attempt, Field::Cause, Field::Prev, Field::Hash, Field::Position];

/// What is known of a path.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathInfo {
    /// Whether a run record named it.
    pub is_named: bool,
    pub topic: Option<Name>,
    /// The topics clients publish to, if not its own; a child of two has two.
    pub sources: Vec<Name>,
    /// Without a run record: the topics of messages that were delivered on it.
    inferred: Vec<Name>,
    pub lease_ms: Option<u64>,
    pub max_attempts: Option<u64>,
    pub is_ordered: bool,
    pub dlq: Option<Name>,
    /// Whether its topic is the dead-letter topic of another path.
    pub is_dead_letters: bool,
    /// When each field was first carried by a delivery that had returned.
    given: [Option<u64>; FIELDS.len()],
}

impl PathInfo {
    /// Whether the path owes what clients publish to a topic; nothing, if its topic is not known.
    pub(crate) fn owes(&self, topic: Name) -> Option<bool> {
        let Some(own) = self.topic else {
            return (!self.inferred.is_empty()).then(|| self.inferred.contains(&topic));
        };
        Some(if self.sources.is_empty() { own == topic } else { self.sources.contains(&topic) })
    }

    /// Whether the broker gives this field, as a delivery that had returned before this one shows.
    pub(crate) fn gives(&self, field: Field, delivery: &Delivery) -> bool {
        self.given[field as usize].is_some_and(|since| since < delivery.span.call)
    }

    /// Remembers which fields a delivery carries.
    pub(crate) fn learn(&mut self, delivery: &Delivery) {
        let carried = [
            delivery.id.is_some(),
            delivery.attempt.is_some(),
            delivery.cause.is_some(),
            delivery.prev.is_some(),
            delivery.hash.is_some(),
            delivery.position.is_some(),
        ];
        for (field, _) in FIELDS.iter().zip(carried).filter(|(_, carried)| *carried) {
            let since = &mut self.given[*field as usize];
            *since = Some(since.map_or(delivery.span.ret, |since| since.min(delivery.span.ret)));
        }
    }
}

/// A time in which something was made to fail.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub kind: Box<str>,
    pub call: u64,
    /// When it was over; [`NEVER`] if nobody said.
    pub ret: u64,
}

/// A reading of a path's counters.
#[derive(Debug, Clone)]
pub(crate) struct Scrape {
    pub span: Span,
    pub path: Name,
    pub counters: Counters,
    pub is_stale: bool,
    pub at: Location,
}

/// The end of a run.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub at: u64,
    pub is_drained: bool,
    pub balance: Vec<(Name, Counters)>,
    pub location: Location,
}

/// What is known of the whole run.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub options: Options,
    /// By the number of the path's name.
    paths: Vec<PathInfo>,
    /// By the number of the topic's name.
    by_topic: Vec<Vec<Name>>,
    /// Whether a run record was read.
    pub has_run: bool,
    operates: Vec<Operate>,
    operates_of_msg: HashMap<MsgId, Vec<usize>>,
    operates_of_all: Vec<usize>,
    pub faults: Vec<Fault>,
    pub scrapes: Vec<Scrape>,
    pub end: Option<End>,
    /// Whether everything has been read, so that what is missing will not come.
    pub is_complete: bool,
    /// The delivery ids of each path.
    ids: HashMap<Name, RoaringTreemap>,
    /// Deliveries of keyed messages that no ack ended, by what one Deliver has in common.
    failed: HashMap<u64, Failed>,
    /// By the number of the client's name: when a consumer last asked for something.
    heard: Vec<u64>,
}

/// What failed of one Deliver's messages of a key.
#[derive(Debug, Clone, Copy)]
struct Failed {
    /// The lowest sequence; 0 where one is not known.
    lowest: u64,
    msg: MsgId,
    /// Whether this message is the only one.
    is_alone: bool,
}

impl Context {
    /// Nothing known yet.
    pub(crate) fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// What is known of a path; nothing, if no record named it.
    pub(crate) fn path(&self, name: Name) -> &PathInfo {
        static UNKNOWN: PathInfo = PathInfo {
            is_named: false,
            topic: None,
            sources: Vec::new(),
            inferred: Vec::new(),
            lease_ms: None,
            max_attempts: None,
            is_ordered: false,
            dlq: None,
            is_dead_letters: false,
            given: [None; FIELDS.len()],
        };
        self.paths.get(name as usize).unwrap_or(&UNKNOWN)
    }

    /// What is known of a path, to be added to.
    pub(crate) fn path_mut(&mut self, name: Name) -> &mut PathInfo {
        let index = name as usize;
        if self.paths.len() <= index {
            self.paths.resize_with(index + 1, PathInfo::default);
        }
        &mut self.paths[index]
    }

    /// All paths that a run record named, by number.
    pub(crate) fn named_paths(&self) -> impl Iterator<Item = (Name, &PathInfo)> {
        self.paths.iter().enumerate().filter(|(_, info)| info.is_named).map(|(name, info)| (name as Name, info))
    }

    /// The paths that owe the messages published to a topic, if a run record named any.
    pub(crate) fn paths_of(&self, topic: Name) -> impl Iterator<Item = Name> {
        self.by_topic.get(topic as usize).map_or(&[][..], Vec::as_slice).iter().copied()
    }

    /// Without a run record the paths of a topic are those on which one of its messages was delivered.
    pub(crate) fn infer_path(&mut self, topic: Name, path: Name) {
        if self.has_run || self.path(path).inferred.contains(&topic) {
            return;
        }
        self.path_mut(path).inferred.push(topic);
        self.path_of_topic(topic, path);
    }

    /// Puts together what run records say of all paths. Called after each.
    pub(crate) fn connect_paths(&mut self) {
        self.by_topic.clear();
        let mut owed: Vec<(Name, Name)> = Vec::new();
        for (path, info) in self.named_paths() {
            let own = if info.sources.is_empty() { info.topic.as_slice() } else { &info.sources };
            owed.extend(own.iter().map(|topic| (*topic, path)));
        }
        owed.into_iter().for_each(|(topic, path)| self.path_of_topic(topic, path));
        let topics: Vec<Name> = self.named_paths().filter_map(|(_, info)| info.dlq).collect();
        for info in &mut self.paths {
            info.is_dead_letters = info.topic.is_some_and(|topic| topics.contains(&topic));
        }
    }

    fn path_of_topic(&mut self, topic: Name, path: Name) {
        let index = topic as usize;
        if self.by_topic.len() <= index {
            self.by_topic.resize_with(index + 1, Vec::new);
        }
        self.by_topic[index].push(path);
    }

    /// Adds an operator's act.
    pub(crate) fn add_operate(&mut self, operate: Operate) {
        let index = self.operates.len();
        match operate.msg {
            Some(msg) => self.operates_of_msg.entry(msg).or_default().push(index),
            None => self.operates_of_all.push(index),
        }
        self.operates.push(operate);
    }

    /// Whether the run has operate records at all.
    pub(crate) fn has_operates(&self) -> bool {
        !self.operates.is_empty()
    }

    /// Whether a consumer may have died, and its session ended, without a record: nobody wrote down what became of any.
    /// Narad has no sessions.
    pub(crate) fn has_silent_deaths(&self) -> bool {
        !self.has_operates() && self.options.contract != Contract::Narad
    }

    /// The acts of a kind, not refused, that may concern this message on this path.
    pub(crate) fn operates(&self, kind: OperateKind, path: Name, msg: MsgId) -> impl Iterator<Item = &Operate> {
        let own = self.operates_of_msg.get(&msg).map_or(&[][..], Vec::as_slice);
        own.iter().chain(&self.operates_of_all).map(|index| &self.operates[*index]).filter(move |operate| {
            operate.kind == kind
                && operate.outcome != Outcome::Refused
                && operate.path.is_none_or(|concerned| concerned == path)
        })
    }

    /// How long after a fault it still explains something, in nanoseconds.
    pub(crate) fn grace(&self, path: Name) -> u64 {
        let lease_ms = self.path(path).lease_ms.unwrap_or(DEFAULT_LEASE_MS);
        self.options.grace_ns.unwrap_or_else(|| nanoseconds(lease_ms).saturating_add(GRACE_BEYOND_LEASE_NS))
    }

    /// The fault whose window an operation overlaps, if faults explain redeliveries in this contract.
    pub(crate) fn excuse(&self, path: Name, span: &Span) -> Option<&Fault> {
        if self.options.contract != Contract::Narad || self.options.is_strict {
            return None;
        }
        let grace = self.grace(path);
        self.faults.iter().find(|fault| fault.call <= span.ret && span.call <= fault.ret.saturating_add(grace))
    }

    /// Whether a fault overlaps this time, and faults may explain anything.
    pub(crate) fn has_fault_between(&self, from: u64, to: u64) -> bool {
        !self.options.is_strict && self.faults.iter().any(|fault| fault.call <= to && from <= fault.ret)
    }

    /// Whether every path was read until empty at the end.
    pub(crate) fn is_drained(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.is_drained)
    }

    /// Remembers a delivery's id; whether the path had it before.
    pub(crate) fn add_delivery(&mut self, path: Name, id: u64) -> bool {
        !self.ids.entry(path).or_default().insert(id)
    }

    /// Whether a path has a delivery with this id.
    pub(crate) fn has_delivery(&self, path: Name, id: u64) -> bool {
        self.ids.get(&path).is_some_and(|ids| ids.contains(id))
    }

    /// Remembers a delivery of a keyed message that certainly no ack ended, or perhaps none.
    pub(crate) fn add_failed(&mut self, key: u64, msg: MsgId, delivery: &Delivery) {
        let seq = delivery.position.map_or(0, |(_, seq)| seq);
        for deliver in same_deliver_as_known(key, delivery) {
            let known = self.failed.entry(deliver).or_insert(Failed { lowest: seq, msg, is_alone: true });
            known.lowest = seq.min(known.lowest);
            known.is_alone &= known.msg == msg;
        }
    }

    /// Whether an earlier message of the key, given by the same Deliver, may have failed; without sequences, another one.
    pub(crate) fn has_failed_before(&self, key: u64, msg: MsgId, delivery: &Delivery) -> bool {
        let failed = same_deliver_as_asked(key, delivery).into_iter().filter_map(|deliver| self.failed.get(&deliver));
        failed.into_iter().any(|failed| match delivery.position {
            Some((_, seq)) => failed.lowest < seq,
            None => failed.msg != msg || !failed.is_alone,
        })
    }

    /// A client asked for something: then it was alive. What reached it may have been under way when it died.
    pub(crate) fn heard(&mut self, client: Name, call: u64) {
        let index = client as usize;
        if self.heard.len() <= index {
            self.heard.resize(index + 1, 0);
        }
        self.heard[index] = self.heard[index].max(call);
    }

    /// When a client last asked for something.
    pub(crate) fn last_heard(&self, client: Name) -> u64 {
        self.heard.get(client as usize).copied().unwrap_or(0)
    }

    /// The counters of a path at the end, if the end record has them.
    pub(crate) fn end_counters(&self, path: Name) -> Option<&Counters> {
        let end = self.end.as_ref()?;
        end.balance.iter().find(|(name, _)| *name == path).map(|(_, counters)| counters)
    }
}

/// What deliveries of one Deliver have in common: client and commit index; where either has none, client and call.
///
/// Under these a delivery is remembered; [`same_deliver_as_asked`] says under which it is looked for.
fn same_deliver_as_known(key: u64, delivery: &Delivery) -> [u64; 2] {
    let base = join(join(u64::from(delivery.path), key), u64::from(delivery.client));
    let by_call = join(base, delivery.span.call);
    match delivery.span.commit {
        Some(commit) => [join(join(base, commit), BY_INDEX), join(by_call, BY_CALL)],
        None => [join(by_call, BY_CALL), join(by_call, BY_CALL_WITHOUT_INDEX)],
    }
}

fn same_deliver_as_asked(key: u64, delivery: &Delivery) -> [u64; 2] {
    let [first, second] = same_deliver_as_known(key, delivery);
    match delivery.span.commit {
        Some(_) => {
            let base = join(join(u64::from(delivery.path), key), u64::from(delivery.client));
            [first, join(join(base, delivery.span.call), BY_CALL_WITHOUT_INDEX)]
        }
        None => [first, second],
    }
}

const BY_INDEX: u64 = 1;
const BY_CALL: u64 = 2;
const BY_CALL_WITHOUT_INDEX: u64 = 3;

/// Milliseconds as nanoseconds; the end of time, if they are beyond it.
pub(crate) fn nanoseconds(milliseconds: u64) -> u64 {
    milliseconds.saturating_mul(1_000_000)
}

/// Where neither delivery nor path says how long a lease is, for the default grace alone.
const DEFAULT_LEASE_MS: u64 = 30_000;
/// The default grace is a lease and this: a failover and a client's reconnect.
const GRACE_BEYOND_LEASE_NS: u64 = 20_000_000_000;

impl Timed for Scrape {
    fn span(&self) -> &Span {
        &self.span
    }
    fn location(&self) -> Location {
        self.at
    }
}
