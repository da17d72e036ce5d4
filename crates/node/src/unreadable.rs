//! Records that cannot be read: their messages are held, neither delivered nor dropped, and tried again by the next
//! leader (failure rule 3). A damaged index entry holds nothing: what it says is read from its record.

use std::collections::VecDeque;

use mortarmq_shard::SettleKind;
use mortarmq_shard::command::ITEMS_MAX;
use mortarmq_shard::record::{Record, key_hash, open_record};
use mortarmq_storage::{IndexEntry, StoredRecord, Stretch};
use mortarmq_types::{KeyHash, Partition, PathId};
use mortarmq_wire::RecordBody;

use crate::node::Node;
use crate::output::ReadJob;
use crate::request::Unsent;
use crate::stretches::Place;

/// A delivery that did not leave, because its record cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct HeldBack {
    pub(crate) lease: Unsent,
    /// Why, with file and offset.
    pub(crate) reason: String,
}

/// Held messages that are to be tried again.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    left: VecDeque<(PathId, Unsent)>,
}

impl Retries {
    /// Adds some.
    pub(crate) fn add(&mut self, held: impl Iterator<Item = (PathId, Unsent)>) {
        self.left.extend(held);
    }
}

impl Node {
    /// Holds messages of a path. One whose lease has ended meanwhile may have been let go of: then nothing is damaged.
    pub(crate) fn hold(&mut self, path: PathId, mut held: Vec<HeldBack>) {
        let found = self.shard.state().paths.get(&path);
        let is_live = |lease: &Unsent| {
            let entry = found.and_then(|path| path.partitions.get(lease.partition.index())?.lease_of(lease.seq));
            entry.and_then(|entry| entry.lease()).is_some_and(|live| live.delivery_id == lease.delivery_id)
        };
        held.retain(|held| is_live(&held.lease));
        self.unreadable += held.len() as u64;
        let said = held.into_iter().map(|held| (held.lease, SettleKind::Hold { error: held.reason }));
        self.settle_by_itself(path, said);
    }

    /// A new leader tries everything again that was held: its disk may be sound, or may have been mended.
    pub(crate) fn begin_retries(&mut self) {
        let paths = self.shard.state().paths.iter();
        let partitions = paths.flat_map(|(id, path)| path.partitions.made().map(|found| (*id, found)));
        let held = partitions.flat_map(|(id, (number, partition))| {
            let partition_number = Partition::from_index(number);
            let lease = move |(seq, delivery_id)| Unsent { partition: partition_number, seq, delivery_id };
            partition.held().map(move |held| (id, lease(held)))
        });
        self.retries.left = held.collect();
    }

    /// Adds some of them to the batch that is about to be closed; the rest joins the next ones.
    pub(crate) fn add_retries(&mut self) {
        let mut budget = ITEMS_MAX;
        while budget > 0
            && !self.open.is_full()
            && let Some(path) = self.retries.left.front().map(|(path, _)| *path)
        {
            let of_path = self.retries.left.iter().take(budget).take_while(|(of, _)| *of == path).count();
            let tried: Vec<_> = self.retries.left.drain(..of_path).map(|(_, lease)| lease).collect();
            budget -= of_path;
            self.settle_by_itself(path, tried.into_iter().map(|lease| (lease, SettleKind::Resume)));
        }
    }

    /// The index of a backlog cannot be read where a path stands: what is needed of it is read from the records.
    pub(crate) fn read_facts_from_records(&mut self, place: Place) {
        let (id, partition) = place;
        let Some(path) = self.shard.state().paths.get(&id) else { return };
        let topic = path.topic;
        let Some(from) = self.stretches.next_unread(place) else { return };
        let job = ReadJob::Records { topic, partition, from, to: from.plus(RECORDS_MAX), max_bytes: RECORDS_BYTES };
        let ticket = self.read(self.last_ticket, job);
        self.stretches.reading_records(ticket, place, from);
        // The records say what is needed now; the index is mended for the next who asks.
        self.want_repair(Stretch::Records { topic, partition, seq: from }, None);
    }
}

/// What the index says of records, taken from themselves, up to the first that says nothing.
pub(crate) fn index_of(records: &[StoredRecord]) -> Vec<IndexEntry> {
    let entry = |stored: &StoredRecord| {
        let record = open_record(&stored.record).ok()?;
        let (body, _) = RecordBody::parse_stored(record.body(), record.has_headers).ok()?;
        let payload_bytes = u32::try_from(body.payload_len()).ok()?;
        Some(IndexEntry { seq: stored.seq, key_hash: key_hash(body.key()), payload_bytes, expires_at_ms: 0 })
    };
    records.iter().map_while(entry).collect()
}

/// The key that a record holds back, if it has one.
pub(crate) fn key_of(record: &Record) -> KeyHash {
    let body = RecordBody::parse_stored(record.body(), record.has_headers);
    body.map_or(KeyHash::NONE, |(body, _)| key_hash(body.key()))
}

/// Of records, as much is read at once as is likely to hold a few good index entries more.
const RECORDS_MAX: u64 = 256;
const RECORDS_BYTES: u64 = 1 << 20;
