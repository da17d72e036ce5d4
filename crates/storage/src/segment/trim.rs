//! Trimming: records and history that nobody may ask for any more leave the views at once, and the disk with the next
//! checkpoint, whole files at a time.

use mortarmq_types::{Mutant, Partition, Seq, TopicIncarnation};

use super::SegmentWriter;
use super::files::Key;
use super::layout::{FileIdentity, Kind};

impl SegmentWriter {
    /// Lets go of what lies below a sequence: segments all of whose records do, ledger files that speak of nothing else.
    /// The last file of each kind stays, as it is being written. Fine if there is nothing to let go of.
    ///
    /// The files go with the next [`SegmentWriter::checkpoint`]: until then a replay may still begin before the command
    /// that freed them, and needs them.
    ///
    /// # Durability
    /// None. After a crash, the replay of that command trims again.
    pub fn trim(&mut self, topic: TopicIncarnation, partition: Partition, below: Seq) {
        let key = (topic, partition);
        let Some((segments, ledgers)) = self.shared.view(key, |view| {
            let segments = view.segments.iter().take(view.segments.len().saturating_sub(1));
            let segments = segments.take_while(|segment| segment.end_seq <= below).count();
            let ledgers = view.ledgers.iter().take(view.ledgers.len().saturating_sub(1));
            // History is not in the order of the sequences: a file in the middle may outlive those around it.
            let ledgers = ledgers.filter(|ledger| ledger.end_seq <= below).map(|ledger| ledger.number);
            (segments, ledgers.collect::<Vec<_>>())
        }) else {
            return;
        };
        if segments == 0 && ledgers.is_empty() {
            return;
        }
        let mut gone = Vec::new();
        self.shared.publish(key, |view| {
            for segment in view.segments.drain(..segments) {
                gone.extend([Kind::Segment, Kind::Index].map(|kind| identity(key, kind, segment.first_seq.get())));
            }
            view.ledgers.retain(|ledger| !ledgers.contains(&ledger.number));
        });
        gone.extend(ledgers.iter().map(|number| identity(key, Kind::Ledger, *number)));
        for identity in gone {
            self.written.forget_file(identity);
            // Last, so that no reader that still knew the file has opened it again meanwhile.
            self.shared.close_file(identity);
            if Mutant::FileDeletedEarly.is_on() && self.shared.disk.remove(&self.shared.path(&identity)).is_ok() {
                continue;
            }
            self.trimmed.push(identity);
        }
    }
}

fn identity((topic, partition): Key, kind: Kind, number: u64) -> FileIdentity {
    FileIdentity { topic, partition, kind, number }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use mortarmq_types::{CommitIndex, Epoch, KeyHash, Partition, Seq, ShardId, TopicIncarnation, WallTime};

    use crate::checkpoint::{CheckpointMeta, load_checkpoint};
    use crate::disk::{Disk, MemoryDisk};
    use crate::journal::{Journal, JournalOptions};
    use crate::ledger::LedgerRecord;
    use crate::segment::{SegmentOptions, SegmentRecord, SegmentWriter};

    const TOPIC: TopicIncarnation = TopicIncarnation::new(1);
    const DATA_DIR: &str = "data";

    fn record(seq: u64) -> SegmentRecord {
        let mut record = vec![seq as u8; 100];
        record.extend(crc32c::crc32c(&record).to_le_bytes());
        SegmentRecord {
            topic: TOPIC,
            partition: Partition::ZERO,
            seq: Seq::new(seq),
            commit_index: CommitIndex::new(seq),
            epoch: Epoch::new(1),
            published_at: WallTime::ZERO,
            key_hash: KeyHash::NONE,
            payload_bytes: 100,
            expires_at_ms: 0,
            record: record.into(),
        }
    }

    fn event(seq: u64) -> LedgerRecord {
        let (partition, first_seq, payload) = (Partition::ZERO, Seq::new(seq), vec![seq as u8; 100].into());
        LedgerRecord { topic: TOPIC, partition, first_seq, count: 1, payload }
    }

    fn meta(log_index: u64) -> CheckpointMeta {
        CheckpointMeta { shard: ShardId::ZERO, log_index, ..CheckpointMeta::default() }
    }

    fn open(disk: &MemoryDisk) -> SegmentWriter {
        let options = SegmentOptions { segment_bytes: 1000, push_bytes: 700 };
        SegmentWriter::open(Arc::new(disk.clone()), Path::new(DATA_DIR), options).expect("opened")
    }

    /// 30 messages and their history in several files, behind a checkpoint.
    fn filled() -> (MemoryDisk, SegmentWriter) {
        let disk = MemoryDisk::new();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let journal = JournalOptions { file_bytes: 8 << 10, ..JournalOptions::new(ShardId::ZERO) };
        Journal::recover(shared, Path::new(DATA_DIR), journal, bytes::Bytes::new(), None, &mut |_| Ok(()))
            .expect("a journal");
        let mut writer = open(&disk);
        for seq in 1..=30 {
            writer.append(&[record(seq)]).expect("appended");
            writer.append_ledger(&[event(seq)]).expect("appended");
        }
        writer.checkpoint(&meta(10), b"").expect("a checkpoint");
        (disk, writer)
    }

    fn names(disk: &MemoryDisk) -> Vec<String> {
        disk.list(&PathBuf::from(DATA_DIR).join("topics").join(TOPIC.to_hex()).join("0")).expect("a folder")
    }

    fn first_seq(writer: &SegmentWriter) -> u64 {
        let records = writer.reader().read_records(TOPIC, Partition::ZERO, Seq::FIRST, Seq::MAX, 1).expect("read");
        records.first().map_or(0, |record| record.seq.get())
    }

    #[test]
    fn trimmed_files_go_with_the_next_checkpoint_and_not_before() {
        let (disk, mut writer) = filled();
        let before = names(&disk);
        writer.trim(TOPIC, Partition::ZERO, Seq::new(16));
        assert_eq!(names(&disk), before, "a replay may still need them");
        let first = first_seq(&writer);
        assert!((9..=16).contains(&first), "whole segments below 16 are gone for readers: {first} is the first");
        assert!(writer.reader().read_ledger(TOPIC, Partition::ZERO, Seq::new(1)).expect("read").is_empty());
        assert_eq!(writer.reader().read_ledger(TOPIC, Partition::ZERO, Seq::new(20)).expect("read").len(), 1);
        let written = writer.checkpoint(&meta(11), b"").expect("a checkpoint");
        let after = names(&disk);
        assert_eq!(before.len() - after.len(), written.removed as usize - 1, "all but the older checkpoint");
        assert!(written.removed > 4, "{written:?}");
        // What is listed is there, and goes on.
        let loaded = load_checkpoint(&disk, Path::new(DATA_DIR)).expect("loaded").expect("a checkpoint");
        let mut writer = open(&disk);
        writer.restore(&loaded.files).expect("restored");
        assert_eq!((first_seq(&writer), names(&disk)), (first, after));
        writer.append(&[record(31)]).expect("the next");
        writer.trim(TOPIC, Partition::ZERO, Seq::MAX);
        writer.flush().expect("flushed");
        let left = writer.reader().read_records(TOPIC, Partition::ZERO, Seq::FIRST, Seq::MAX, 9999).expect("read");
        assert_eq!(left.last().map(|record| record.seq), Some(Seq::new(31)), "the last segment stays");
    }

    #[test]
    fn a_crash_at_any_operation_behind_a_trim_loses_nothing_that_is_not_trimmed() {
        let (disk, _) = filled();
        let mut crashes = 0;
        for operation in 1.. {
            let disk = disk.after_process_kill();
            let mut writer = open(&disk);
            let loaded = load_checkpoint(&disk, Path::new(DATA_DIR)).expect("loaded").expect("a checkpoint");
            writer.restore(&loaded.files).expect("restored");
            disk.crash_at(disk.operations() + operation);
            writer.trim(TOPIC, Partition::ZERO, Seq::new(16));
            let is_done = writer.checkpoint(&meta(11), b"").is_ok();
            for seed in 0..4 {
                let found = disk.after_power_loss(seed);
                let loaded = load_checkpoint(&found, Path::new(DATA_DIR)).expect("loaded").expect("a checkpoint");
                let mut writer = open(&found);
                writer.restore(&loaded.files).expect("all that is listed is there");
                let left = writer.reader().read_records(TOPIC, Partition::ZERO, Seq::new(16), Seq::MAX, 99_999);
                assert_eq!(left.expect("read").len(), 15, "operation {operation}, seed {seed}");
            }
            if is_done {
                break;
            }
            crashes += 1;
        }
        assert!(crashes > 10, "{crashes} operations");
    }

    #[test]
    fn a_trim_of_a_topic_that_is_dropped_in_the_same_checkpoint_is_no_error() {
        let (disk, mut writer) = filled();
        writer.trim(TOPIC, Partition::ZERO, Seq::new(16));
        writer.drop_topic(TOPIC);
        writer.trim(TOPIC, Partition::ZERO, Seq::new(20));
        writer.checkpoint(&meta(11), b"").expect("a checkpoint");
        assert!(disk.list(Path::new("data/topics")).expect("a folder").is_empty());
    }
}
