//! The newest records, in memory: a consumer that keeps up reads no disk, and what is not written yet can be sent.
//!
//! # Invariants
//! 1. What the segment writer has not written is here, or it is a copy, whose bytes only the writer makes: then the work
//!    that writes it is known here. So a record that is not here can be read from its segment, once that work is done.
//! 2. Per partition the records are consecutive and end at the last one appended.

use bytes::Bytes;
use mortarmq_delivery::Fact;
use mortarmq_storage::StoredRecord;
use mortarmq_types::{ClusterTime, Partition, Position, Seq, TopicIncarnation, WallTime};
use std::collections::{BTreeMap, VecDeque};

use crate::stretches::useful;

/// A stored message.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) seq: Seq,
    /// The command that stored it.
    pub(crate) position: Position,
    pub(crate) published_at: WallTime,
    /// The encoded record.
    pub(crate) record: Bytes,
}

impl Stored {
    /// With bytes of its own: it holds nothing else that was read with it.
    pub(crate) fn alone(self) -> Self {
        Self { record: Bytes::copy_from_slice(&self.record), ..self }
    }
}

impl From<StoredRecord> for Stored {
    fn from(read: StoredRecord) -> Self {
        Self {
            seq: read.seq,
            position: Position { epoch: read.epoch, commit_index: read.commit_index },
            published_at: read.published_at,
            record: read.record,
        }
    }
}

/// A record, and what a path needs to know of it to take it.
#[derive(Debug)]
struct Kept {
    stored: Stored,
    fact: Fact,
}

/// The newest records of all partitions.
#[derive(Debug)]
pub(crate) struct Recent {
    partitions: BTreeMap<(TopicIncarnation, Partition), VecDeque<Kept>>,
    /// In the order of appending: whose record, and by which work it is written.
    order: VecDeque<(TopicIncarnation, Partition, u64)>,
    /// Where copies are not written yet: by which work the last of them is.
    copies: BTreeMap<(TopicIncarnation, Partition), u64>,
    /// With what each of them costs beside its record.
    bytes: u64,
    limit_bytes: u64,
}

/// What a record costs here beside its bytes: its places, with the room that their queues keep, and what stands around it in
/// the command that brought it.
const COST_BYTES: u64 = 2 * (size_of::<Kept>() + size_of::<(TopicIncarnation, Partition, u64)>()) as u64;

impl Recent {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let (partitions, order, copies) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        Self { partitions, order, copies, bytes: 0, limit_bytes }
    }

    pub(crate) fn push(
        &mut self,
        topic: TopicIncarnation,
        partition: Partition,
        stored: Stored,
        fact: Fact,
        ticket: u64,
    ) {
        self.bytes += cost(&stored);
        self.order.push_back((topic, partition, ticket));
        self.partitions.entry((topic, partition)).or_default().push_back(Kept { stored, fact });
    }

    /// Notes that the segment writer makes a record by this work.
    pub(crate) fn note_copy(&mut self, topic: TopicIncarnation, partition: Partition, ticket: u64) {
        self.copies.insert((topic, partition), ticket);
    }

    /// The work that must be done before a record of the partition that is not here can be read.
    pub(crate) fn needed_ticket(&self, topic: TopicIncarnation, partition: Partition) -> u64 {
        self.copies.get(&(topic, partition)).copied().unwrap_or(0)
    }

    /// Forgets the oldest records beyond the limit that are written.
    pub(crate) fn trim(&mut self, written_ticket: u64) {
        self.copies.retain(|_, ticket| *ticket > written_ticket);
        while self.bytes > self.limit_bytes {
            let Some(&(topic, partition, ticket)) = self.order.front() else { return };
            if ticket > written_ticket {
                return;
            }
            self.order.pop_front();
            // A deleted topic's records went at once, with their places.
            let Some(records) = self.partitions.get_mut(&(topic, partition)) else { continue };
            if let Some(gone) = records.pop_front() {
                self.bytes -= cost(&gone.stored);
            }
        }
    }

    pub(crate) fn drop_topic(&mut self, topic: TopicIncarnation) {
        let gone: Vec<_> = self
            .partitions
            .range((topic, Partition::ZERO)..=(topic, Partition::MAX))
            .map(|(place, records)| (*place, records.iter().map(|kept| cost(&kept.stored)).sum::<u64>()))
            .collect();
        for (place, bytes) in gone {
            self.bytes -= bytes;
            self.partitions.remove(&place);
        }
        self.copies.retain(|(of, _), _| *of != topic);
        // Its places go too: topics that come and go below the limit would leave them behind for ever.
        self.order.retain(|(held, ..)| *held != topic);
    }

    pub(crate) fn get(&self, topic: TopicIncarnation, partition: Partition, seq: Seq) -> Option<&Stored> {
        let records = self.partitions.get(&(topic, partition))?;
        records.get(place_of(records, seq)?).map(|kept| &kept.stored)
    }

    /// The facts of consecutive messages from `from` on, as [`useful`] takes them; `None` if that message is not here.
    pub(crate) fn facts(
        &self,
        topic: TopicIncarnation,
        partition: Partition,
        from: Seq,
        most: usize,
        now: ClusterTime,
    ) -> Option<Vec<Fact>> {
        let records = self.partitions.get(&(topic, partition))?;
        let place = place_of(records, from).filter(|place| *place < records.len())?;
        Some(useful(records.range(place..).map(|kept| kept.fact), most, now))
    }

    /// The first sequence of a partition that is here.
    pub(crate) fn first(&self, topic: TopicIncarnation, partition: Partition) -> Option<Seq> {
        Some(self.partitions.get(&(topic, partition))?.front()?.stored.seq)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What a record takes of the limit.
fn cost(stored: &Stored) -> u64 {
    stored.record.len() as u64 + COST_BYTES
}

/// Where a message stands among those of its partition; it may lie behind their end.
fn place_of(records: &VecDeque<Kept>, seq: Seq) -> Option<usize> {
    let first = records.front()?.stored.seq;
    usize::try_from(seq.get().checked_sub(first.get())?).ok()
}

#[cfg(test)]
mod tests {
    use super::{COST_BYTES, Recent, Stored};
    use bytes::Bytes;
    use mortarmq_delivery::Fact;
    use mortarmq_types::{KeyHash, Partition, Position, Seq, TopicIncarnation, WallTime};

    #[test]
    fn only_what_is_written_is_forgotten() {
        let mut recent = Recent::new(2 * (5 + COST_BYTES));
        let topic = TopicIncarnation::new(1);
        for seq in 1..=5 {
            let stored = Stored {
                seq: Seq::new(seq),
                position: Position::default(),
                published_at: WallTime::ZERO,
                record: Bytes::from_static(b"12345"),
            };
            let fact = Fact { key_hash: KeyHash::NONE, size_bytes: 5, expires_at_ms: 0 };
            recent.push(topic, Partition::ZERO, stored, fact, seq);
        }
        recent.trim(1);
        assert_eq!(recent.first(topic, Partition::ZERO), Some(Seq::new(2)));
        assert!(recent.get(topic, Partition::ZERO, Seq::new(1)).is_none());
        assert_eq!(recent.get(topic, Partition::ZERO, Seq::new(4)).map(|stored| stored.seq), Some(Seq::new(4)));
        recent.trim(5);
        assert_eq!(recent.bytes(), 2 * (5 + COST_BYTES));
        recent.note_copy(topic, Partition::ZERO, 7);
        recent.trim(6);
        assert_eq!(recent.needed_ticket(topic, Partition::ZERO), 7, "a copy is read once it is written");
        recent.trim(7);
        assert_eq!(recent.needed_ticket(topic, Partition::ZERO), 0);
        recent.note_copy(topic, Partition::ZERO, 8);
        recent.drop_topic(topic);
        assert_eq!(recent.needed_ticket(topic, Partition::ZERO), 0);
        assert_eq!((recent.bytes(), recent.order.len()), (0, 0));
    }
}
