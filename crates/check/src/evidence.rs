//! The records that prove what was found, as they stand in the files.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::{HashMap, HashSet};
use mortarmq_history::{ReadError, Reader, Record};

use crate::finding::Found;
use crate::location::Location;
use crate::names::hash_of;
use crate::operation::MsgId;

/// Records, as they stand in the files.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    lines: BTreeMap<Location, (String, String)>,
    /// The ids of messages.
    msgs: HashMap<MsgId, String>,
    /// Of each message shown, all of its records, as far as there are not too many.
    lives: HashMap<MsgId, Vec<Location>>,
}

impl Evidence {
    /// `FILE:LINE` of a record and its text.
    pub(crate) fn line(&self, at: Location) -> Option<(&str, &str)> {
        self.lines.get(&at).map(|(place, text)| (place.as_str(), text.as_str()))
    }

    /// The id of a message.
    pub(crate) fn msg(&self, msg: MsgId) -> String {
        self.msgs.get(&msg).cloned().unwrap_or_else(|| format!("(hash {msg:016x})"))
    }

    /// All records of a message that are kept, in the order of the files.
    pub(crate) fn life(&self, msg: MsgId) -> impl Iterator<Item = (&str, &str)> {
        let places = self.lives.get(&msg).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|at| self.line(*at))
    }
}

/// Reads the files once more for the records of findings, and for the whole lives of their messages.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn collect(mut reader: Reader, findings: &[Found]) -> Result<Evidence, ReadError> {
    let wanted: BTreeSet<Location> = findings.iter().flat_map(|found| found.records.iter().copied()).collect();
    let named = |found: &Found| found.msg.into_iter().chain(found.other);
    let msgs: HashSet<MsgId> = findings.iter().flat_map(named).collect();
    let shown: HashSet<MsgId> = findings.iter().flat_map(named).take(MAX_LIVES).collect();
    let mut evidence = Evidence::default();
    let mut kept = Vec::new();
    while let Some(line) = reader.next_line()? {
        let Ok(record) = &line.content else { continue };
        let at = Location::new(line.at.file as usize, line.at.line);
        let msg = msg_of(record);
        let hash = msg.map(hash_of).filter(|hash| msgs.contains(hash));
        if let (Some(hash), Some(msg)) = (hash, msg) {
            evidence.msgs.entry(hash).or_insert_with(|| msg.to_owned());
        }
        let is_of_life = hash.filter(|hash| shown.contains(hash)).is_some_and(|hash| {
            let life = evidence.lives.entry(hash).or_default();
            let has_room = life.len() < MAX_LIFE_RECORDS;
            if has_room {
                life.push(at);
            }
            has_room
        });
        if is_of_life || wanted.contains(&at) {
            kept.push((at, line.at, String::from_utf8_lossy(line.text).into_owned()));
        }
    }
    evidence.lines = kept.into_iter().map(|(at, line_at, text)| (at, (reader.name(line_at), text))).collect();
    Ok(evidence)
}

fn msg_of<'r>(record: &'r Record<'_>) -> Option<&'r str> {
    match record {
        Record::Publish(publish) => Some(&publish.msg),
        Record::Deliver(deliver) => Some(&deliver.msg),
        Record::Ack(settle) => Some(&settle.msg),
        Record::Nack(nack) => Some(&nack.settle.msg),
        Record::Extend(extend) => Some(&extend.settle.msg),
        Record::Operate(operate) => operate.msg.as_deref(),
        Record::Run(_) | Record::Pull(_) | Record::Scrape(_) | Record::Fault(_) | Record::End(_) => None,
    }
}

/// Of so many messages the whole life is kept, and of each so many records.
const MAX_LIVES: usize = 200;
const MAX_LIFE_RECORDS: usize = 200;
