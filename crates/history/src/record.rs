//! The records of a history, as Rust types.
//!
//! A record borrows its texts from the line it was read from, where nothing in them is escaped: no allocation per line.
//! An absent field and `null` are the same, `None`.
//!
//! # Units
//! `call`, `ret` and `at` are nanoseconds of one clock, `*_ms` milliseconds.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use crate::words::{Cause, NackTo, OperateKind, Order, Outcome};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Record<'a> {
    /// The run and its paths.
    Run(Run<'a>),
    /// A message was published.
    Publish(Publish<'a>),
    /// A message was received.
    Deliver(Deliver<'a>),
    /// A call for messages that brought none, or never returned. Written as a `deliver` without `msg`; no rule looks at it.
    #[serde(rename = "deliver")]
    Pull(Pull<'a>),
    /// A delivery was confirmed.
    Ack(Settle<'a>),
    /// A delivery was refused or given back.
    Nack(Nack<'a>),
    /// A lease was renewed.
    Extend(Extend<'a>),
    /// An operator did something, or a consumer left or lost a partition.
    Operate(Operate<'a>),
    /// The counters of a path were read.
    Scrape(Scrape<'a>),
    /// Something was broken on purpose.
    Fault(Fault<'a>),
    /// The run ended.
    End(End<'a>),
}

/// The run: what its paths are and what they promise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Run<'a> {
    /// Version of the format.
    pub v: u32,
    /// Name of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Cow<'a, str>>,
    /// Lease of every path that names none of its own (Narad has one for the run).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The paths. A child of two topics stands here twice, once with each `source`.
    pub paths: Vec<PathInfo<'a>>,
}

/// A path: one topic's messages for one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathInfo<'a> {
    /// Name of the path.
    pub path: Cow<'a, str>,
    /// The topic it reads.
    pub topic: Cow<'a, str>,
    /// How long a lease lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Attempts until a message is a dead letter; 0 = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The order it promises.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// The topic that takes its dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dlq: Option<Cow<'a, str>>,
    /// The topic clients publish to, where the path's own topic is a child of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Cow<'a, str>>,
}

/// A publish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Publish<'a> {
    /// Who published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    /// Where to.
    pub topic: Cow<'a, str>,
    /// The client's own unique id of the message, carried inside the payload.
    pub msg: Cow<'a, str>,
    /// The key; none, `null` and `""` are keyless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    /// When the client called.
    pub call: u64,
    /// When the answer was there; none = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ret: Option<u64>,
    /// What the client learnt; [`Outcome::Unknown`] without `ret`.
    pub outcome: Outcome,
    /// The partition it was stored in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Its position there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The producer identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer_id: Option<u64>,
    /// The number the producer gave it; with 0 or none it has no identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer_seq: Option<u64>,
    /// The delay it was published with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// The broker said it had stored this one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedup: Option<bool>,
    /// Hash of the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<Cow<'a, str>>,
    /// The commit index the answer rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    /// The leader's epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The transaction it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txn: Option<Cow<'a, str>>,
}

/// A delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deliver<'a> {
    /// Who received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    /// On which path.
    pub path: Cow<'a, str>,
    /// The message's id, out of its payload.
    pub msg: Cow<'a, str>,
    /// The key; none, `null` and `""` are keyless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, str>>,
    /// When the client asked; for a push, when it gave the credit.
    pub call: u64,
    /// When the message arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ret: Option<u64>,
    /// The partition it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Its position there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The broker's number of this delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<u64>,
    /// Which attempt this is, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Why it was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The delivery of the pair before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev: Option<u64>,
    /// How long its lease lasts; none = as the path says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Hash of the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<Cow<'a, str>>,
    /// The commit index the delivery rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    /// The leader's epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The path it died on, where this one is a dead-letter path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Cow<'a, str>>,
    /// The transaction it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txn: Option<Cow<'a, str>>,
}

/// A call for messages that brought none that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pull<'a> {
    /// Who asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    /// On which path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Cow<'a, str>>,
    /// When it asked.
    pub call: u64,
    /// When it returned without a message; none = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ret: Option<u64>,
}

/// What acks, nacks and extends have in common; an ack is nothing more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settle<'a> {
    /// Who settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    /// On which path.
    pub path: Cow<'a, str>,
    /// The message's id.
    pub msg: Cow<'a, str>,
    /// The delivery it names; none = every delivery of the pair called before it returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery_id: Option<u64>,
    /// When the client called.
    pub call: u64,
    /// When the answer was there; none = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ret: Option<u64>,
    /// What the client learnt; [`Outcome::Unknown`] without `ret`.
    pub outcome: Outcome,
    /// The commit index the answer rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    /// The leader's epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The transaction it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txn: Option<Cow<'a, str>>,
}

/// A nack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nack<'a> {
    /// What it names and what came of it.
    #[serde(flatten)]
    pub settle: Settle<'a>,
    /// Where it sends the message; a file that does not say means a retry.
    pub to: NackTo,
}

/// A renewal of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extend<'a> {
    /// What it names and what came of it.
    #[serde(flatten)]
    pub settle: Settle<'a>,
    /// How long the lease lasts from the call on; none = as long as the delivery's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// What an operator did to a path, or what happened to a consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operate<'a> {
    /// Who did it; for a leave and a revoke, the consumer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    /// What.
    pub kind: OperateKind,
    /// On which path.
    pub path: Cow<'a, str>,
    /// For which message; none = the whole path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msg: Option<Cow<'a, str>>,
    /// When it was called.
    pub call: u64,
    /// When the answer was there; none = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ret: Option<u64>,
    /// What the caller learnt; [`Outcome::Unknown`] without `ret`.
    pub outcome: Outcome,
    /// The commit index the answer rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    /// The leader's epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// The counters of a path, as one node told them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scrape<'a> {
    /// Which path.
    pub path: Cow<'a, str>,
    /// Which node; a number, or the name another broker gives.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number_or_text")]
    pub node: Option<Cow<'a, str>>,
    /// When it was asked.
    pub call: u64,
    /// When it answered; none = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ret: Option<u64>,
    /// The commit index the counters rest on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<u64>,
    /// The leader's epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The counters.
    #[serde(flatten)]
    pub counters: Counters,
    /// The node said that they may be old: judged by the balance alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// The counters of a path: `produced = delivered + dropped + dlq + depth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Messages the path owed.
    pub produced: u64,
    /// Acked.
    pub delivered: u64,
    /// Left it otherwise, counted.
    pub dropped: u64,
    /// Went to the dead letters.
    pub dlq: u64,
    /// Still owed.
    pub depth: u64,
}

/// Something that was broken on purpose, from `call` to `ret`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault<'a> {
    /// What; see [`FAULT_KINDS`](crate::FAULT_KINDS).
    pub kind: Cow<'a, str>,
    /// To which node; a number, or the name another broker gives.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "number_or_text")]
    pub node: Option<Cow<'a, str>>,
    /// When it began.
    pub call: u64,
    /// When it was over; none = it lasts to the end of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ret: Option<u64>,
}

/// The end of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct End<'a> {
    /// When.
    pub at: u64,
    /// Every path was read until empty twice after the last fault.
    pub drained: bool,
    /// The counters of every path at the end.
    pub balance: Vec<Balance<'a>>,
}

/// The counters of one path at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Balance<'a> {
    /// Which path.
    pub path: Cow<'a, str>,
    /// Its counters.
    #[serde(flatten)]
    pub counters: Counters,
}

impl Record<'_> {
    /// The word of its `op`.
    #[must_use]
    pub const fn op(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Publish(_) => "publish",
            Self::Deliver(_) | Self::Pull(_) => "deliver",
            Self::Ack(_) => "ack",
            Self::Nack(_) => "nack",
            Self::Extend(_) => "extend",
            Self::Operate(_) => "operate",
            Self::Scrape(_) => "scrape",
            Self::Fault(_) => "fault",
            Self::End(_) => "end",
        }
    }

    /// When it was called, and when it returned; none for a run.
    #[must_use]
    pub const fn interval(&self) -> Option<(u64, Option<u64>)> {
        match self {
            Self::Run(_) => None,
            Self::Publish(publish) => Some((publish.call, publish.ret)),
            Self::Deliver(deliver) => Some((deliver.call, deliver.ret)),
            Self::Pull(pull) => Some((pull.call, pull.ret)),
            Self::Ack(settle) | Self::Nack(Nack { settle, .. }) | Self::Extend(Extend { settle, .. }) => {
                Some((settle.call, settle.ret))
            }
            Self::Operate(operate) => Some((operate.call, operate.ret)),
            Self::Scrape(scrape) => Some((scrape.call, scrape.ret)),
            Self::Fault(fault) => Some((fault.call, fault.ret)),
            Self::End(end) => Some((end.at, Some(end.at))),
        }
    }
}

impl Counters {
    /// Whether everything the path owed is accounted for.
    #[must_use]
    pub fn balances(&self) -> bool {
        let parts = [self.delivered, self.dropped, self.dlq, self.depth];
        let sum = parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(*part));
        sum == Some(self.produced)
    }
}

// serde hands a field that may be skipped by reference, whatever its type.
#[allow(clippy::ref_option)]
fn number_or_text<S: Serializer>(value: &Option<Cow<'_, str>>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(text) = value else { return serializer.serialize_none() };
    match text.parse::<u64>() {
        // A text such as "007" stays one: only what reads back the same becomes a number.
        Ok(number) if number.to_string() == **text => serializer.serialize_u64(number),
        _ => serializer.serialize_str(text),
    }
}
