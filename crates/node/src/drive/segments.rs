//! The segment writer with what it cannot take yet: a copy waits until its source can be read, and all behind it with it,
//! as the order of the log is the order of the files.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mortarmq_shard::MessagePlace;
use mortarmq_storage::{
    AppendError, CheckpointError, Disk, FlushError, RepairError, Repairing, RepairingError, SegmentReader,
    SegmentWriter, StagingError, Stretch,
};

use super::chain;
use super::room::{Room, Use};
use crate::copies::CopyWork;
use crate::output::SegmentWork;

/// Why segment work could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// A record or an event was not taken.
    #[error("segment work was not taken")]
    Append(#[source] AppendError),
    /// The bytes could not be written.
    #[error("segments could not be written")]
    Flush(#[source] FlushError),
    /// The checkpoint could not be made.
    #[error("the checkpoint could not be made")]
    Checkpoint(#[source] CheckpointError),
    /// What another node has could not be taken over.
    #[error("a snapshot of another node could not be taken over")]
    CatchUp(#[source] StagingError),
    /// What another node has could not be written in place of what is damaged here.
    #[error("damage could not be repaired")]
    Repair(#[source] RepairError),
    /// That the node is brought up anew could not be ended.
    #[error("the repair of the data directory could not be ended")]
    Rejoin(#[source] RepairingError),
    /// More waits behind the repair of a message than may stay in memory.
    #[error("too much waits for the repair of a message: {reason}")]
    Waits {
        /// What is wrong with the message, with file and offset.
        reason: String,
    },
}

/// A copy whose source could not be read: it tells of the damage, and holds nothing else.
#[derive(Clone, Debug)]
pub struct UnreadableCopy {
    /// The source.
    pub from: MessagePlace,
    /// Why, with file and offset.
    pub reason: String,
}

/// The segment writer and its backlog, which is empty but on a full disk.
pub struct Segments {
    pub(super) writer: SegmentWriter,
    backlog: VecDeque<SegmentWork>,
    backlog_bytes: u64,
    unreadable: Vec<UnreadableCopy>,
    /// Whether a copy waits for the repair of its source: there are other nodes that may have it.
    has_peers: bool,
    /// The data directory, if it says that the node is brought up anew.
    rejoins: Option<(Arc<dyn Disk>, PathBuf)>,
    /// A source that no node has.
    given_up: Option<Stretch>,
}

/// Why the backlog does not move.
#[derive(Debug)]
pub enum Stuck {
    /// There is no room on disk.
    NoRoom(FlushError),
    /// A copy waits for the repair of its source.
    Damaged {
        /// The source.
        stretch: Stretch,
        /// What is wrong with it, with file and offset.
        reason: String,
    },
}

impl Segments {
    /// A writer that has nothing in memory yet.
    #[must_use]
    pub fn new(writer: SegmentWriter) -> Self {
        let (backlog, unreadable) = (VecDeque::new(), Vec::new());
        Self { writer, backlog, backlog_bytes: 0, unreadable, has_peers: false, rejoins: None, given_up: None }
    }

    /// If there are other nodes, a copy whose source is damaged waits until one of them has mended it.
    pub(super) fn wait_for_repairs(&mut self, has_peers: bool) {
        self.has_peers = has_peers;
    }

    /// The node was brought up anew, until now.
    pub(super) fn begin_rejoin(&mut self, disk: Arc<dyn Disk>, data_dir: &Path) {
        self.rejoins = Some((disk, data_dir.to_path_buf()));
    }

    /// The node has everything: its data directory says so.
    pub(super) fn end_rejoin(&mut self) -> Result<(), SegmentError> {
        let Some((disk, data_dir)) = self.rejoins.take() else { return Ok(()) };
        Repairing::end(&*disk, &data_dir).map_err(SegmentError::Rejoin)
    }

    /// No node has this sound: what copies it goes on without.
    pub(super) fn give_up(&mut self, stretch: Stretch) {
        self.given_up = Some(stretch);
    }

    /// Reads what is written; clones serve any number of threads.
    #[must_use]
    pub fn reader(&self) -> SegmentReader {
        self.writer.reader()
    }

    /// Copies whose source could not be read, since the last call.
    pub fn take_unreadable(&mut self) -> Vec<UnreadableCopy> {
        std::mem::take(&mut self.unreadable)
    }

    /// How many bytes are not written, in the writer's memory or in the backlog.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        self.writer.buffered_bytes() + self.backlog_bytes
    }

    /// Whether something waits that the writer could not take yet.
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Takes work, in order.
    pub(super) fn take(&mut self, work: Vec<SegmentWork>, room: &Room) -> Result<(), SegmentError> {
        let mut work = work.into_iter();
        if self.backlog.is_empty() {
            for item in work.by_ref() {
                if let Taken::Not(item, _) = self.take_one(item, room, Use::Segments)? {
                    self.put_off(item);
                    break;
                }
            }
        }
        work.for_each(|item| self.put_off(item));
        Ok(())
    }

    /// Writes what waits, with room from the reserve if need be, and goes on with the backlog. Gives back why that does not move: no
    /// room is no failed write (failure rule 8), damage waits for its repair, and nothing is lost.
    pub(super) fn flush(&mut self, room: &Room, wanted_for: Use) -> Result<Option<Stuck>, SegmentError> {
        loop {
            if let Some(full) = self.write(room, wanted_for)? {
                return Ok(Some(Stuck::NoRoom(full)));
            }
            let Some(item) = self.backlog.pop_front() else { return Ok(None) };
            self.backlog_bytes -= bytes(&item);
            // What it copies can be read now, so it is taken.
            if let Taken::Not(item, why) = self.take_one(item, room, wanted_for)? {
                self.backlog_bytes += bytes(&item);
                self.backlog.push_front(item);
                if let Stuck::Damaged { .. } = why {
                    return Ok(Some(why));
                }
            }
        }
    }

    fn put_off(&mut self, item: SegmentWork) {
        self.backlog_bytes += bytes(&item);
        self.backlog.push_back(item);
    }

    /// Takes one thing; gives it back if it copies what there is no room to write, or what cannot be read.
    fn take_one(&mut self, item: SegmentWork, room: &Room, wanted_for: Use) -> Result<Taken, SegmentError> {
        match item {
            SegmentWork::Append(record) => {
                self.writer.append(std::slice::from_ref(&record)).map_err(SegmentError::Append)?;
            }
            SegmentWork::Copy(copy) => return self.append_copy(copy, room, wanted_for),
            SegmentWork::Ledger(event) => {
                self.writer.append_ledger(std::slice::from_ref(&event)).map_err(SegmentError::Append)?;
            }
            SegmentWork::SegmentBytes(bytes) => self.writer.set_segment_bytes(bytes),
            SegmentWork::DropTopic(topic) => self.writer.drop_topic(topic),
            SegmentWork::Trim { topic, partition, below } => self.writer.trim(topic, partition, below),
        }
        Ok(Taken::All)
    }

    /// Makes a record of another one, which must be written before it can be read.
    fn append_copy(&mut self, copy: Box<CopyWork>, room: &Room, wanted_for: Use) -> Result<Taken, SegmentError> {
        let MessagePlace { topic, partition, seq } = copy.from;
        let reader = self.writer.reader();
        if reader.end_seq(topic, partition) <= seq
            && let Some(full) = self.write(room, wanted_for)?
        {
            return Ok(Taken::Not(SegmentWork::Copy(copy), Stuck::NoRoom(full)));
        }
        let read = reader.read_records(topic, partition, seq, seq.next(), usize::MAX);
        let source = read.map(|records| records.into_iter().find(|found| found.seq == seq).map(|found| found.record));
        let source = source.map_err(|error| chain(&error));
        let stretch = Stretch::Records { topic, partition, seq };
        if let Err(reason) = &source
            && self.has_peers
            && self.given_up != Some(stretch)
        {
            let reason = reason.clone();
            return Ok(Taken::Not(SegmentWork::Copy(copy), Stuck::Damaged { stretch, reason }));
        }
        let copied = copy.make(source);
        if let Some(reason) = &copied.unreadable {
            self.unreadable
                .push(UnreadableCopy { from: MessagePlace { topic, partition, seq }, reason: reason.clone() });
        }
        self.writer.append(std::slice::from_ref(&copied.record)).map_err(SegmentError::Append)?;
        Ok(Taken::All)
    }

    fn write(&mut self, room: &Room, wanted_for: Use) -> Result<Option<FlushError>, SegmentError> {
        loop {
            match self.writer.flush() {
                Ok(()) => return Ok(None),
                Err(full @ FlushError::DiskFull { .. }) => {
                    if !room.make(wanted_for, self.writer.buffered_bytes()) {
                        return Ok(Some(full));
                    }
                }
                Err(error) => return Err(SegmentError::Flush(error)),
            }
        }
    }
}

/// What became of an item.
enum Taken {
    All,
    /// It is given back.
    Not(SegmentWork, Stuck),
}

/// What an item holds in memory, but for its fixed size.
fn bytes(item: &SegmentWork) -> u64 {
    match item {
        SegmentWork::Append(record) => record.record.len() as u64,
        SegmentWork::Ledger(event) => event.payload.len() as u64,
        SegmentWork::Copy(_) | SegmentWork::SegmentBytes(_) | SegmentWork::DropTopic(_) | SegmentWork::Trim { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::Segments;
    use crate::copies::CopyWork;
    use crate::drive::{Room, Use};
    use crate::output::SegmentWork;
    use bytes::BytesMut;
    use mortarmq_delivery::Death;
    use mortarmq_shard::record::{NewRecord, write_record};
    use mortarmq_shard::{CopyEffect, Envelope, MessagePlace};
    use mortarmq_storage::{Disk, MemoryDisk, SegmentOptions, SegmentRecord, SegmentWriter};
    use mortarmq_types::{
        Attempt, CommitIndex, DeliveryId, Epoch, KeyHash, Partition, PathId, ProducerId, ProducerSeq, Seq,
        TopicIncarnation, WallTime,
    };
    use std::path::Path;
    use std::sync::Arc;

    fn place(topic: u64, seq: u64) -> MessagePlace {
        MessagePlace { topic: TopicIncarnation::new(topic), partition: Partition::ZERO, seq: Seq::new(seq) }
    }

    fn append(to: MessagePlace, value: &[u8]) -> SegmentWork {
        let (mut body, mut record) = (BytesMut::new(), BytesMut::new());
        mortarmq_wire::write_body(&mut body, b"", None, value).expect("short");
        let (producer_id, producer_seq) = (ProducerId::ZERO, ProducerSeq::ZERO);
        let new = NewRecord { producer_id, producer_seq, key: b"", has_headers: false, body: &body };
        write_record(&mut record, &new);
        SegmentWork::Append(SegmentRecord {
            topic: to.topic,
            partition: to.partition,
            seq: to.seq,
            commit_index: CommitIndex::new(1),
            epoch: Epoch::new(1),
            published_at: WallTime::ZERO,
            key_hash: KeyHash::NONE,
            payload_bytes: 0,
            expires_at_ms: 0,
            record: record.freeze(),
        })
    }

    fn dead_letter(from: MessagePlace, to: MessagePlace) -> SegmentWork {
        let envelope = Envelope {
            path: "orders/billing".to_owned(),
            partition: from.partition,
            seq: from.seq,
            attempts: Attempt::new(1),
            reason: Death::Rejected,
            error: String::new(),
            delivery: DeliveryId::new(1),
            path_id: PathId::new(1),
        };
        let (commit_index, key_hash, payload_bytes) = (CommitIndex::new(2), KeyHash::NONE, 0);
        let copy = CopyEffect { from, to, commit_index, key_hash, payload_bytes, envelope, unwraps: false };
        SegmentWork::Copy(Box::new(CopyWork::of(copy, Epoch::new(1), WallTime::ZERO)))
    }

    #[test]
    fn rule_8_a_dead_letter_without_room_for_its_source_waits_and_what_is_behind_it_too() {
        let (disk, data) = (MemoryDisk::new(), Path::new("data"));
        disk.create_dir_all(data).expect("a folder");
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let room = Room::open(Arc::clone(&shared), data, 16 << 20, 0, |_| {}).expect("opened");
        let writer = SegmentWriter::open(shared, data, SegmentOptions::default()).expect("an empty folder");
        let reader = writer.reader();
        let mut segments = Segments::new(writer);
        // What segments may have of the reserve is used up, and taken by somebody else.
        while room.make(Use::Segments, 0) {}
        disk.set_full(true);
        segments.take(vec![append(place(1, 1), b"first")], &room).expect("taken");
        segments
            .take(vec![dead_letter(place(1, 1), place(2, 1)), append(place(1, 2), &[7; 5000])], &room)
            .expect("taken");
        segments.take(vec![dead_letter(place(1, 2), place(2, 2))], &room).expect("taken");
        segments.take(vec![append(place(1, 3), b"third")], &room).expect("nothing overtakes what waits");
        for _ in 0..3 {
            assert!(segments.flush(&room, Use::Segments).expect("no failed write").is_some());
            assert!(segments.has_backlog() && segments.unwritten_bytes() > 5000, "what waits is counted");
        }
        assert!(room.reserve_bytes() > 0);
        segments.flush(&room, Use::Checkpoint).expect("no failed write");
        assert_eq!(room.reserve_bytes(), 0, "for a checkpoint the rest of the reserve is given too");
        disk.set_full(false);
        assert!(segments.flush(&room, Use::Segments).expect("there is room").is_none());
        assert_eq!((segments.has_backlog(), segments.unwritten_bytes()), (false, 0));
        for (seq, value) in [(1, b"first".to_vec()), (2, vec![7; 5000])] {
            let to = place(2, seq);
            let read = reader.read_records(to.topic, to.partition, to.seq, to.seq.next(), usize::MAX).expect("read");
            let record = mortarmq_shard::record::open_record(&read[0].record).expect("a record");
            let (body, _) = mortarmq_wire::RecordBody::parse_stored(record.body(), true).expect("a body");
            assert_eq!(body.value(), value, "dead letter {seq} has its source's bytes");
        }
    }
}
