//! Narad's own records. Its `status` decides, never its `outcome`: the driver that writes both has been wrong about the
//! second.

use super::raw::{Raw, RawPaths};
use super::text::Text;
use super::{path_info, settle_with, text};
use crate::parse::{Unreadable, VERSION};
use crate::record::{PathInfo, Publish, Record, Run};
use crate::words::Outcome;

/// `meta`: the run, with one lease for all its paths.
pub(super) fn meta<'a>(raw: &mut Raw<'a>) -> Record<'a> {
    let lease_ms = raw.visibility_timeout_ms;
    let paths = match raw.paths.take() {
        Some(RawPaths::Narad(topics)) => paths(topics, lease_ms),
        Some(RawPaths::Ours(list)) => list.into_iter().map(path_info).collect(),
        None => Vec::new(),
    };
    Record::Run(Run { v: VERSION, run: text(raw.run_id.take().or(raw.run.take())), lease_ms, paths })
}

/// Each topic's paths: the topic itself, and its children, which have it as their source.
pub(super) fn paths<'a>(topics: Vec<(Text<'a>, Vec<Text<'a>>)>, lease_ms: Option<u64>) -> Vec<PathInfo<'a>> {
    let mut all = Vec::new();
    for (Text(topic), paths) in topics {
        for Text(path) in paths {
            let source = (path != topic).then(|| topic.clone());
            all.push(PathInfo { topic: path.clone(), path, lease_ms, source, ..PathInfo::default() });
        }
    }
    all
}

/// `produce`: its `path` is the topic.
pub(super) fn produce<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let missing = |field| Unreadable::Missing { op: "produce", field };
    let outcome = match raw.status {
        _ if raw.ret.is_none() => Outcome::Unknown,
        Some(202) => Outcome::Ok,
        Some(429 | 503) => Outcome::Refused,
        _ => Outcome::Unknown,
    };
    Ok(Record::Publish(Publish {
        client: text(raw.client.take()),
        topic: text(raw.path.take().or(raw.topic.take())).ok_or(missing("path"))?,
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

/// `ack`: only 204 says anything.
pub(super) fn ack<'a>(raw: &mut Raw<'a>) -> Result<Record<'a>, Unreadable> {
    let outcome = if raw.ret.is_some() && raw.status == Some(204) { Outcome::Ok } else { Outcome::Unknown };
    Ok(Record::Ack(settle_with(raw, "ack", outcome)?))
}
