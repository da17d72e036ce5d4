//! From the records of a history to what the rules look at.

use mortarmq_history as history;
use mortarmq_history::{LineAt, Order, Record};

use crate::context::{Context, End, Fault, Scrape};
use crate::location::Location;
use crate::names::{Names, hash_of};
use crate::operation::{Delivery, MsgId, Operate, Operation, Position, Publish, Settle, SettleKind};
use crate::span::{NEVER, Span, Timed};

/// A record that is judged in the order of answers.
#[derive(Debug)]
pub(crate) struct Item {
    /// The message it is about, if it is about one.
    pub msg: Option<MsgId>,
    pub content: Content,
    pub epoch: Option<u64>,
}

/// What such a record is.
#[derive(Debug)]
pub(crate) enum Content {
    /// About one message.
    Operation(Operation),
    /// Evidence of index and epoch alone.
    Mark(Span, Location),
}

impl Item {
    /// What items are sorted by: when it was answered, then where it stands.
    pub(crate) fn order(&self) -> (u64, Location) {
        match &self.content {
            Content::Operation(operation) => (operation.span().moment(), operation.location()),
            Content::Mark(span, at) => (span.moment(), *at),
        }
    }
}

/// Takes a record: what it says of the whole run goes into the context, what is judged in order is returned.
pub(crate) fn take(record: &Record<'_>, at: LineAt, names: &mut Names, context: &mut Context) -> Option<Item> {
    let at = Location::new(at.file as usize, at.line);
    match record {
        Record::Run(run) => {
            take_run(run, names, context);
            None
        }
        Record::Publish(publish) => Some(operation(&publish.msg, publish.epoch, take_publish(publish, at, names))),
        Record::Deliver(deliver) => Some(operation(&deliver.msg, deliver.epoch, take_deliver(deliver, at, names))),
        Record::Pull(_) => None,
        Record::Ack(settle) => Some(take_settle(settle, SettleKind::Ack, at, names)),
        Record::Nack(nack) => Some(take_settle(&nack.settle, SettleKind::Nack(nack.to), at, names)),
        Record::Extend(extend) => Some(take_settle(&extend.settle, SettleKind::Extend(extend.lease_ms), at, names)),
        Record::Operate(operate) => {
            let span = span(operate.call, operate.ret, operate.commit);
            let taken = Operate {
                span,
                outcome: operate.outcome,
                kind: operate.kind,
                path: Some(names.number(&operate.path)),
                msg: operate.msg.as_deref().map(hash_of),
                client: operate.client.as_deref().map(|client| names.number(client)),
                at,
            };
            context.add_operate(taken);
            Some(Item { msg: None, content: Content::Mark(span, at), epoch: operate.epoch })
        }
        Record::Scrape(scrape) => take_scrape(scrape, at, names, context),
        Record::Fault(fault) => {
            let ret = fault.ret.unwrap_or(NEVER);
            context.faults.push(Fault { kind: fault.kind.as_ref().into(), call: fault.call, ret });
            None
        }
        Record::End(end) => {
            let balance = end.balance.iter().map(|one| (names.number(&one.path), one.counters)).collect();
            context.end = Some(End { at: end.at, is_drained: end.drained, balance, location: at });
            None
        }
    }
}

fn span(call: u64, ret: Option<u64>, commit: Option<u64>) -> Span {
    Span { call, ret: ret.unwrap_or(NEVER), commit }
}

fn position(partition: Option<u32>, seq: Option<u64>) -> Option<Position> {
    // A broker without partitions has one.
    seq.map(|seq| (partition.unwrap_or(0), seq))
}

fn key(text: Option<&str>) -> Option<u64> {
    text.filter(|key| !key.is_empty()).map(hash_of)
}

fn operation(msg: &str, epoch: Option<u64>, operation: Operation) -> Item {
    Item { msg: Some(hash_of(msg)), content: Content::Operation(operation), epoch }
}

fn take_run(run: &history::Run<'_>, names: &mut Names, context: &mut Context) {
    context.has_run = true;
    for path in &run.paths {
        let number = names.number(&path.path);
        let topic = names.number(&path.topic);
        let dlq = path.dlq.as_deref().map(|dlq| names.number(dlq));
        let source = path.source.as_deref().map(|source| names.number(source));
        let info = context.path_mut(number);
        info.is_named = true;
        info.topic = Some(topic);
        info.sources.extend(source);
        info.lease_ms = path.lease_ms.or(run.lease_ms);
        info.max_attempts = path.max_attempts.map(u64::from);
        info.is_ordered = path.order == Some(Order::Key);
        info.dlq = dlq;
    }
    context.connect_paths();
}

fn take_publish(publish: &history::Publish<'_>, at: Location, names: &mut Names) -> Operation {
    let identity = publish.producer_id.zip(publish.producer_seq).filter(|(id, seq)| *id != 0 && *seq != 0);
    let is_duplicate = publish.dedup == Some(true);
    Operation::Publish(Publish {
        span: span(publish.call, publish.ret, publish.commit),
        stored: span(publish.call, publish.ret, publish.commit.filter(|_| !is_duplicate)),
        outcome: publish.outcome,
        topic: names.number(&publish.topic),
        key: key(publish.key.as_deref()),
        position: position(publish.partition, publish.seq),
        identity,
        delay_ms: publish.delay_ms.unwrap_or(0),
        is_duplicate,
        hash: publish.hash.as_deref().map(hash_of),
        txn: publish.txn.as_deref().map(hash_of),
        at,
    })
}

fn take_deliver(deliver: &history::Deliver<'_>, at: Location, names: &mut Names) -> Operation {
    Operation::Delivery(Delivery {
        span: span(deliver.call, deliver.ret, deliver.commit),
        path: names.number(&deliver.path),
        client: names.number(deliver.client.as_deref().unwrap_or("")),
        key: key(deliver.key.as_deref()),
        position: position(deliver.partition, deliver.seq),
        id: deliver.delivery_id,
        attempt: deliver.attempt.map(u64::from),
        cause: deliver.cause,
        prev: deliver.prev,
        lease_ms: deliver.lease_ms,
        hash: deliver.hash.as_deref().map(hash_of),
        origin: deliver.origin.as_deref().map(|origin| names.number(origin)),
        at,
    })
}

fn take_settle(settle: &history::Settle<'_>, kind: SettleKind, at: Location, names: &mut Names) -> Item {
    let taken = Settle {
        span: span(settle.call, settle.ret, settle.commit),
        outcome: settle.outcome,
        kind,
        path: names.number(&settle.path),
        client: names.number(settle.client.as_deref().unwrap_or("")),
        delivery_id: settle.delivery_id,
        txn: settle.txn.as_deref().map(hash_of),
        at,
    };
    operation(&settle.msg, settle.epoch, Operation::Settle(taken))
}

fn take_scrape(scrape: &history::Scrape<'_>, at: Location, names: &mut Names, context: &mut Context) -> Option<Item> {
    let span = span(scrape.call, scrape.ret, scrape.commit);
    let path = names.number(&scrape.path);
    context.scrapes.push(Scrape { span, path, counters: scrape.counters, is_stale: scrape.stale, at });
    // What may be old claims no order.
    (!scrape.stale).then_some(Item { msg: None, content: Content::Mark(span, at), epoch: scrape.epoch })
}
