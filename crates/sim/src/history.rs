//! What the clients of a world did and saw, as histories: one of the topics that are there at the end, and one of each
//! that was deleted, which nobody can read to its end.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mortarmq_history::{Balance, End, Fault, Order, PathInfo, Record, Run, VERSION, write_line};
use mortarmq_types::TopicIncarnation;

use crate::topics::{LETTERS_GROUP, Topics};

/// The records of all incarnations.
#[derive(Default)]
pub(crate) struct Histories {
    lines: BTreeMap<TopicIncarnation, Vec<u8>>,
    faults: Vec<u8>,
    end: Vec<Balance<'static>>,
    is_drained: bool,
    finished: Vec<Judged>,
}

/// A history that can be judged.
pub(crate) struct Judged {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Histories {
    /// A record that concerns an incarnation.
    pub(crate) fn record(&mut self, topic: TopicIncarnation, record: &Record<'_>) {
        write_line(self.lines.entry(topic).or_default(), record);
    }

    /// Something that failed.
    pub(crate) fn fault(&mut self, kind: &'static str, node: usize, call: u64, ret: u64) {
        let node = Some(Cow::Owned((node + 1).to_string()));
        write_line(&mut self.faults, &Record::Fault(Fault { kind: Cow::Borrowed(kind), node, call, ret: Some(ret) }));
    }

    /// The books at the end.
    pub(crate) fn end(&mut self, balance: Vec<Balance<'static>>) {
        self.end = balance;
        self.is_drained = true;
    }

    /// Puts the records together.
    pub(crate) fn close(&mut self, topics: &Topics, now_us: u64) {
        let at = (now_us + 2) * 1000;
        let living: Vec<TopicIncarnation> =
            topics.incarnations().filter(|(_, known)| !known.is_over).map(|(id, _)| id).collect();
        let mut parts = vec![("the topics at the end".to_owned(), living, self.is_drained)];
        for (id, known) in topics.incarnations().filter(|(_, known)| known.is_over) {
            parts.push((known.name.clone(), vec![id], false));
        }
        for (name, incarnations, is_drained) in parts {
            let mut bytes = Vec::new();
            let paths = incarnations.iter().flat_map(|id| paths_of(topics, *id)).collect();
            write_line(&mut bytes, &Record::Run(Run { v: VERSION, run: None, lease_ms: None, paths }));
            for id in &incarnations {
                bytes.extend(self.lines.remove(id).unwrap_or_default());
            }
            bytes.extend_from_slice(&self.faults);
            let balance = if is_drained { std::mem::take(&mut self.end) } else { Vec::new() };
            write_line(&mut bytes, &Record::End(End { at, drained: is_drained, balance }));
            self.finished.push(Judged { name, bytes });
        }
    }

    /// What is to be judged.
    pub(crate) fn finished(&self) -> &[Judged] {
        &self.finished
    }
}

/// A path's name in a history.
pub(crate) fn path_name(topics: &Topics, topic: TopicIncarnation, group: Option<usize>) -> Option<String> {
    let known = topics.incarnation(topic)?;
    Some(match group {
        Some(group) => format!("{}/{}", known.name, topics.get(known.topic).groups[group].name),
        None => format!("$dlq.{}/{LETTERS_GROUP}", known.name),
    })
}

fn paths_of(topics: &Topics, topic: TopicIncarnation) -> Vec<PathInfo<'static>> {
    let Some(known) = topics.incarnation(topic) else { return Vec::new() };
    let letters = format!("$dlq.{}", known.name);
    let plan = topics.get(known.topic);
    let mut paths: Vec<PathInfo<'static>> = plan
        .groups
        .iter()
        .map(|group| PathInfo {
            path: Cow::Owned(format!("{}/{}", known.name, group.name)),
            topic: Cow::Owned(known.name.clone()),
            lease_ms: Some(group.lease_ms),
            max_attempts: Some(group.max_attempts),
            order: Some(if group.by_key { Order::Key } else { Order::None }),
            dlq: Some(Cow::Owned(letters.clone())),
            source: None,
        })
        .collect();
    paths.push(PathInfo {
        path: Cow::Owned(format!("{letters}/{LETTERS_GROUP}")),
        topic: Cow::Owned(letters),
        max_attempts: Some(0),
        order: Some(Order::Key),
        ..PathInfo::default()
    });
    paths
}
