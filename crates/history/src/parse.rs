//! From a line to a record.

mod narad;
mod raw;
mod scan;
mod text;
mod unreadable;

use std::borrow::Cow;

use crate::record::{
    Balance, Counters, Deliver, End, Extend, Fault, Nack, Operate, PathInfo, Publish, Pull, Record, Run, Scrape, Settle,
};
use crate::words::{Cause, NackTo, OperateKind, Order, Outcome};
use raw::{Raw, RawPath, RawPaths};
use text::Text;
pub use unreadable::Unreadable;

/// The version of the format that is written, and the newest that is read.
pub const VERSION: u32 = 1;

/// Whose words a file uses. A file is ours until it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// This format.
    #[default]
    Ours,
    /// Narad's: `status` decides.
    Narad,
}

/// Reads one line, without its newline. `dialect` is that of the lines before; a `meta` or `produce` changes it to
/// Narad's for the lines that follow.
///
/// # Errors
/// [`Unreadable`] says why the line is no record.
pub fn parse_line<'a>(line: &'a [u8], dialect: &mut Dialect) -> Result<Record<'a>, Unreadable> {
    // serde would take a list for the fields in their order.
    if !line.starts_with(b"{") {
        return Err(Unreadable::Json { reason: "not an object".to_owned() });
    }
    let mut raw = Raw::default();
    if scan::scan(line, &mut raw).is_none() {
        raw = serde_json::from_slice(line).map_err(|error| Unreadable::Json { reason: json_reason(&error) })?;
    }
    record(&mut raw, dialect)
}

/// The record that the fields of a line are.
fn record<'a>(raw: &mut Raw<'a>, dialect: &mut Dialect) -> Result<Record<'a>, Unreadable> {
    let Some(Text(op)) = raw.op.take() else { return Err(Unreadable::NoOp) };
    if let (Some(call), Some(ret)) = (raw.call, raw.ret)
        && ret < call
    {
        return Err(Unreadable::ReturnsBeforeCall { call, ret });
    }
    match &*op {
        "publish" => publish(raw),
        "deliver" => deliver(raw),
        "ack" if *dialect == Dialect::Narad || raw.status.is_some() => narad::ack(raw),
        "ack" => Ok(Record::Ack(settle(raw, "ack")?)),
        "nack" => nack(raw),
        "extend" => extend(raw),
        "operate" => operate(raw),
        "scrape" => scrape(raw),
        "fault" => fault(raw),
        "run" => run(raw),
        "end" => end(raw),
        "meta" => {
            *dialect = Dialect::Narad;
            Ok(narad::meta(raw))
        }
        "produce" => {
            *dialect = Dialect::Narad;
            narad::produce(raw)
        }
        unknown => Err(Unreadable::UnknownOp { op: Unreadable::shown(unknown) }),
    }
}

fn publish<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let missing = |field| Unreadable::Missing { op: "publish", field };
    let outcome = outcome(raw, "publish")?;
    Ok(Record::Publish(Publish {
        client: text(raw.client.take()),
        topic: text(raw.topic.take()).ok_or(missing("topic"))?,
        msg: text(raw.msg.take()).ok_or(missing("msg"))?,
        key: text(raw.key.take()),
        call: raw.call.ok_or(missing("call"))?,
        ret: raw.ret,
        outcome,
        partition: raw.partition,
        seq: raw.seq,
        producer_id: raw.producer_id,
        producer_seq: raw.producer_seq,
        delay_ms: raw.delay_ms,
        dedup: raw.dedup,
        hash: text(raw.hash.take()),
        commit: raw.commit,
        epoch: raw.epoch,
        txn: text(raw.txn.take()),
    }))
}

fn deliver<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let missing = |field| Unreadable::Missing { op: "deliver", field };
    let call = raw.call.ok_or(missing("call"))?;
    // Narad's driver records what brought a message; any other status brought none.
    let brought_none = raw.status.is_some_and(|status| status != 200);
    let Some(Text(msg)) = raw.msg.take().filter(|_| !brought_none) else {
        if raw.ret.is_some() && raw.status.is_none() {
            return Err(missing("msg"));
        }
        return Ok(Record::Pull(Pull {
            client: text(raw.client.take()),
            path: text(raw.path.take()),
            call,
            ret: raw.ret,
        }));
    };
    Ok(Record::Deliver(Deliver {
        client: text(raw.client.take()),
        path: text(raw.path.take()).ok_or(missing("path"))?,
        msg,
        key: text(raw.key.take()),
        call,
        ret: raw.ret,
        partition: raw.partition,
        seq: raw.seq,
        delivery_id: raw.delivery_id,
        attempt: raw.attempt,
        cause: raw.cause.take().map(|text| word("cause", &text, Cause::from_word)).transpose()?,
        prev: raw.prev,
        lease_ms: raw.lease_ms,
        hash: text(raw.hash.take()),
        commit: raw.commit,
        epoch: raw.epoch,
        origin: text(raw.origin.take()),
        txn: text(raw.txn.take()),
    }))
}

fn settle<'a>(raw: &mut Raw<'a>, op: &'static str) -> Result<Settle<'a>, Unreadable> {
    let outcome = outcome(raw, op)?;
    settle_with(raw, op, outcome)
}

fn settle_with<'a>(raw: &mut Raw<'a>, op: &'static str, outcome: Outcome) -> Result<Settle<'a>, Unreadable> {
    let missing = |field| Unreadable::Missing { op, field };
    Ok(Settle {
        client: text(raw.client.take()),
        path: text(raw.path.take()).ok_or(missing("path"))?,
        msg: text(raw.msg.take()).ok_or(missing("msg"))?,
        delivery_id: raw.delivery_id,
        call: raw.call.ok_or(missing("call"))?,
        ret: raw.ret,
        outcome,
        commit: raw.commit,
        epoch: raw.epoch,
        txn: text(raw.txn.take()),
    })
}

fn nack<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let to = raw.to.as_ref().map_or(Ok(NackTo::Retry), |text| word("to", text, NackTo::from_word))?;
    Ok(Record::Nack(Nack { settle: settle(raw, "nack")?, to }))
}

fn extend<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let lease_ms = raw.lease_ms;
    Ok(Record::Extend(Extend { settle: settle(raw, "extend")?, lease_ms }))
}

fn operate<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let missing = |field| Unreadable::Missing { op: "operate", field };
    let outcome = outcome(raw, "operate")?;
    Ok(Record::Operate(Operate {
        client: text(raw.client.take()),
        kind: word("kind", &raw.kind.take().ok_or(missing("kind"))?, OperateKind::from_word)?,
        path: text(raw.path.take()).ok_or(missing("path"))?,
        msg: text(raw.msg.take()),
        call: raw.call.ok_or(missing("call"))?,
        ret: raw.ret,
        outcome,
        commit: raw.commit,
        epoch: raw.epoch,
    }))
}

fn scrape<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let missing = |field| Unreadable::Missing { op: "scrape", field };
    Ok(Record::Scrape(Scrape {
        path: text(raw.path.take()).ok_or(missing("path"))?,
        node: text(raw.node.take()),
        call: raw.call.ok_or(missing("call"))?,
        ret: raw.ret,
        commit: raw.commit,
        epoch: raw.epoch,
        counters: Counters {
            produced: raw.produced.ok_or(missing("produced"))?,
            delivered: raw.delivered.ok_or(missing("delivered"))?,
            dropped: raw.dropped.ok_or(missing("dropped"))?,
            dlq: raw.dlq.ok_or(missing("dlq"))?,
            depth: raw.depth.ok_or(missing("depth"))?,
        },
        stale: raw.stale.unwrap_or(false),
    }))
}

fn fault<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let missing = |field| Unreadable::Missing { op: "fault", field };
    Ok(Record::Fault(Fault {
        kind: text(raw.kind.take()).ok_or(missing("kind"))?,
        node: text(raw.node.take().or(raw.target.take())),
        call: raw.call.ok_or(missing("call"))?,
        ret: raw.ret,
    }))
}

fn run<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let v = raw.v.ok_or(Unreadable::Missing { op: "run", field: "v" })?;
    if v != VERSION {
        return Err(Unreadable::Version { v, known: VERSION });
    }
    let paths = match raw.paths.take() {
        Some(RawPaths::Ours(paths)) => paths.into_iter().map(path_info).collect(),
        Some(RawPaths::Narad(topics)) => narad::paths(topics, raw.lease_ms),
        None => Vec::new(),
    };
    Ok(Record::Run(Run { v, run: text(raw.run.take()), lease_ms: raw.lease_ms, paths }))
}

fn path_info(raw: RawPath<'_>) -> PathInfo<'_> {
    PathInfo {
        path: raw.path.0,
        topic: raw.topic.0,
        lease_ms: raw.lease_ms,
        max_attempts: raw.max_attempts,
        order: raw.order.map(|Text(order)| Order::from_word(&order).unwrap_or(Order::None)),
        dlq: text(raw.dlq),
        source: text(raw.source),
    }
}

fn end<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let missing = |field| Unreadable::Missing { op: "end", field };
    let balance = raw.balance.take().unwrap_or_default().into_iter().map(|path| Balance {
        path: path.path.0,
        counters: Counters {
            produced: path.produced,
            delivered: path.delivered,
            dropped: path.dropped,
            dlq: path.dlq,
            depth: path.depth,
        },
    });
    Ok(Record::End(End {
        at: raw.at.ok_or(missing("at"))?,
        drained: raw.drained.unwrap_or(false),
        balance: balance.collect(),
    }))
}

/// What the client learnt. A call that never returned taught it nothing, whatever else the record says.
fn outcome(raw: &Raw<'_>, op: &'static str) -> Result<Outcome, Unreadable> {
    let said = raw.outcome.as_ref().map(|text| word("outcome", text, Outcome::from_word)).transpose()?;
    match (raw.ret, said) {
        (None, _) => Ok(Outcome::Unknown),
        (Some(_), Some(outcome)) => Ok(outcome),
        (Some(_), None) => Err(Unreadable::Missing { op, field: "outcome" }),
    }
}

fn word<T>(field: &'static str, text: &Text<'_>, from_word: fn(&str) -> Option<T>) -> Result<T, Unreadable> {
    from_word(&text.0).ok_or_else(|| Unreadable::UnknownWord { field, word: Unreadable::shown(&text.0) })
}

fn text(text: Option<Text<'_>>) -> Option<Cow<'_, str>> {
    text.map(|Text(text)| text)
}

/// The column alone: the line is the file's, not the one line that the JSON reader saw.
fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or(&text);
    format!("{} at column {}", Unreadable::shown(text), error.column())
}

#[cfg(test)]
mod tests;
