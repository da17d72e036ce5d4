//! A node in small: journal entries are applied to segments and ledger, and now and then it makes a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use mortarmq_types::{CommitIndex, Partition, Seq, TopicIncarnation};

use super::{DATA_DIR, SHARD, event, files_below, load, open_writer, record, topics};
use crate::checkpoint::{CheckpointMeta, load_checkpoint};
use crate::disk::{Disk, MemoryDisk};
use crate::journal::{Covered, Journal, JournalBatch, JournalEntry, JournalOptions};
use crate::segment::{IndexEntry, SegmentWriter, StoredRecord};

/// What a journal entry asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Publish { topic: u64, partition: u16, bytes: u16 },
    Settle { topic: u64, partition: u16, bytes: u16 },
    Drop { topic: u64 },
}

/// What the node does next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Batch(JournalBatch),
    Checkpoint,
    /// Frees journal files below the newest checkpoint.
    Release,
    PrepareSpare,
}

/// The state: all that the entries up to `applied` have led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) applied: u64,
    last_seqs: BTreeMap<(u64, u16), u64>,
    dropped: BTreeSet<u64>,
}

pub(super) struct Node {
    pub(super) state: State,
    pub(super) writer: SegmentWriter,
    pub(super) journal: Journal,
    pub(super) checkpoint: u64,
}

/// What has been promised before a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Promised {
    /// The last entry whose batch was appended.
    pub(super) entries: u64,
    /// The log index of the last checkpoint that was made.
    pub(super) checkpoint: u64,
}

pub(super) fn batch(first_index: u64, ops: &[Op]) -> Step {
    let entry = |(op, index): (&Op, u64)| JournalEntry { index, term: 1, kind: 0, data: op.encode(index) };
    let entries = ops.iter().zip(first_index..).map(entry).collect();
    Step::Batch(JournalBatch { entries, ..JournalBatch::default() })
}

impl Op {
    /// With a filler that makes journal batches large enough to fill files.
    fn encode(self, index: u64) -> Bytes {
        let (kind, topic, partition, bytes) = match self {
            Self::Publish { topic, partition, bytes } => (0, topic, partition, bytes),
            Self::Settle { topic, partition, bytes } => (1, topic, partition, bytes),
            Self::Drop { topic } => (2, topic, 0, 0),
        };
        let mut data = Vec::new();
        data.put_u8(kind);
        data.put_u64_le(topic);
        data.put_u16_le(partition);
        data.put_u16_le(bytes);
        data.resize(13 + usize::from(bytes), index as u8);
        data.into()
    }

    fn decode(mut data: &[u8]) -> Self {
        let (kind, topic, partition, bytes) = (data.get_u8(), data.get_u64_le(), data.get_u16_le(), data.get_u16_le());
        match kind {
            0 => Self::Publish { topic, partition, bytes },
            1 => Self::Settle { topic, partition, bytes },
            _ => Self::Drop { topic },
        }
    }
}

impl State {
    /// Applies an entry, once.
    fn apply(&mut self, writer: &mut SegmentWriter, entry: &JournalEntry) {
        if entry.index <= self.applied {
            return;
        }
        assert_eq!(entry.index, self.applied + 1, "nothing is left out between checkpoint and journal");
        self.applied = entry.index;
        match Op::decode(&entry.data) {
            Op::Publish { topic, partition, bytes } => {
                let last = self.last_seqs.entry((topic, partition)).or_default();
                *last += 1;
                writer.append(&[record(topic, partition, *last, bytes.into())]).expect("the next sequence");
            }
            Op::Settle { topic, partition, bytes } => {
                writer.append_ledger(&[event(topic, partition, entry.index, bytes.into())]).expect("appended");
            }
            Op::Drop { topic } => {
                self.dropped.insert(topic);
                self.last_seqs.retain(|(of, _), _| *of != topic);
                writer.drop_topic(TopicIncarnation::new(topic));
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut image = Vec::new();
        image.put_u64_le(self.last_seqs.len() as u64);
        for ((topic, partition), last) in &self.last_seqs {
            image.put_u64_le(*topic);
            image.put_u16_le(*partition);
            image.put_u64_le(*last);
        }
        self.dropped.iter().for_each(|topic| image.put_u64_le(*topic));
        image
    }

    fn decode(applied: u64, mut image: Bytes) -> Self {
        let count = image.get_u64_le();
        let last_seqs = (0..count).map(|_| ((image.get_u64_le(), image.get_u16_le()), image.get_u64_le())).collect();
        let mut dropped = BTreeSet::new();
        while image.has_remaining() {
            dropped.insert(image.get_u64_le());
        }
        Self { applied, last_seqs, dropped }
    }
}

impl Node {
    /// Recovers a node as it is described in the crate's documentation.
    pub(super) fn open(disk: &MemoryDisk) -> Result<Self, String> {
        let data_dir = Path::new(DATA_DIR);
        let text = |error: &dyn std::error::Error| error.to_string();
        let loaded = load_checkpoint(disk, data_dir).map_err(|error| text(&error))?;
        let options = crate::segment::SegmentOptions { segment_bytes: 1500, push_bytes: 700 };
        let mut writer =
            SegmentWriter::open(Arc::new(disk.clone()), data_dir, options).map_err(|error| text(&error))?;
        let (mut state, mut covered) = (State::default(), None);
        match loaded {
            Some(loaded) => {
                writer.restore(&loaded.files).map_err(|error| text(&error))?;
                covered = Some(Covered { log_index: loaded.meta.log_index });
                state = State::decode(loaded.meta.log_index, loaded.image);
            }
            None => writer.reset().map_err(|error| text(&error))?,
        }
        let checkpoint = state.applied;
        let options = JournalOptions { shard: SHARD, file_bytes: 16 << 10, zero_step_bytes: 8 << 10, spare_files: 2 };
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let (journal, _) = Journal::recover(disk, data_dir, options, Bytes::new(), covered, &mut |batch| {
            batch.entries.iter().for_each(|entry| state.apply(&mut writer, entry));
            Ok(())
        })
        .map_err(|error| text(&error))?;
        writer.flush().map_err(|error| text(&error))?;
        Ok(Self { state, writer, journal, checkpoint })
    }

    /// Takes the steps behind what the state holds already; an error is a crash.
    pub(super) fn run(&mut self, steps: &[Step], promised: &mut Promised) -> Result<(), String> {
        let held = |step: &Step| match step {
            Step::Batch(batch) => batch.entries.last().is_none_or(|entry| entry.index <= self.state.applied),
            Step::Checkpoint | Step::Release | Step::PrepareSpare => true,
        };
        let from = steps.iter().position(|step| !held(step)).unwrap_or(steps.len());
        for step in &steps[from..] {
            self.step(step, promised)?;
        }
        Ok(())
    }

    /// The first batch that the state does not hold yet.
    pub(super) fn next_batch<'a>(&self, steps: &'a [Step]) -> Option<&'a Step> {
        steps.iter().find(|step| match step {
            Step::Batch(batch) => batch.entries.last().is_some_and(|entry| entry.index > self.state.applied),
            Step::Checkpoint | Step::Release | Step::PrepareSpare => false,
        })
    }

    pub(super) fn step(&mut self, step: &Step, promised: &mut Promised) -> Result<(), String> {
        match step {
            Step::Batch(batch) => {
                self.journal.append(batch).map_err(|error| error.to_string())?;
                promised.entries = batch.entries.last().map_or(promised.entries, |entry| entry.index);
                batch.entries.iter().for_each(|entry| self.state.apply(&mut self.writer, entry));
                self.writer.flush().map_err(|error| error.to_string())
            }
            Step::Checkpoint => {
                let log_index = self.state.applied;
                let commit_index = CommitIndex::new(log_index);
                let meta = CheckpointMeta { shard: SHARD, log_index, commit_index, ..CheckpointMeta::default() };
                self.writer.checkpoint(&meta, &self.state.encode()).map_err(|error| error.to_string())?;
                (self.checkpoint, promised.checkpoint) = (log_index, log_index);
                Ok(())
            }
            Step::Release => self.journal.release(self.checkpoint, 0).map(drop).map_err(|error| error.to_string()),
            Step::PrepareSpare => {
                while self.journal.prepare_spare().map_err(|error| error.to_string())? {}
                Ok(())
            }
        }
    }

    /// Compares everything with a copy that was made of the entries alone, without any crash or checkpoint.
    pub(super) fn check(&self, disk: &MemoryDisk, copies: &Copies, promised: Promised, story: &str) {
        let State { applied, dropped, .. } = &self.state;
        assert!(*applied >= promised.entries, "{story}: P1: {applied} of {} entries found", promised.entries);
        assert!(self.checkpoint >= promised.checkpoint, "{story}: a checkpoint at {} is gone", promised.checkpoint);
        let next = copies.0.keys().find(|end| **end > promised.entries);
        let whole = *applied == promised.entries || Some(applied) == next;
        assert!(whole, "{story}: {applied} entries found where {} were promised", promised.entries);
        let copy = &copies.0[applied];
        assert_eq!(self.state, copy.state, "{story}");
        let kept = files_of_kept_topics(disk, dropped);
        assert_eq!(kept, copy.files, "{story}: files differ from a copy made from scratch");
        assert_eq!(contents(&self.writer, *applied), copy.contents, "{story}: what is read differs");
    }

    /// Makes a last checkpoint and looks at what it left: sound checksums, no dropped topic, no older checkpoint.
    pub(super) fn check_last_checkpoint(&mut self, disk: &MemoryDisk, story: &str) {
        self.step(&Step::Checkpoint, &mut Promised::default()).unwrap_or_else(|error| panic!("{story}: {error}"));
        let loaded = load(disk);
        let on_disk = files_below(disk, &topics());
        assert_eq!(loaded.files.list().len(), on_disk.len(), "{story}: files of dropped topics stay");
        for (listed, (path, bytes)) in loaded.files.list().iter().map(|file| {
            let path = Path::new(DATA_DIR).join(&file.path);
            (file, on_disk.iter().find(|(found, _)| *found == path).expect("listed, hence on disk"))
        }) {
            assert_eq!((bytes.len() as u64, crc32c::crc32c(bytes)), (listed.bytes, listed.crc), "{story}: {path:?}");
        }
        let checkpoints = disk.list(&Path::new(DATA_DIR).join("checkpoints")).expect("listed");
        assert_eq!(checkpoints.len(), 1, "{story}: {checkpoints:?}");
    }
}

/// What a node must hold at the end of each batch, made of the entries alone: once for all crashes of a script.
pub(super) struct Copies(BTreeMap<u64, Copy>);

struct Copy {
    state: State,
    files: Files,
    contents: Vec<Contents>,
}

type Files = Vec<(PathBuf, Vec<u8>)>;
type Contents = (Vec<StoredRecord>, Vec<IndexEntry>, Vec<Vec<Bytes>>);

impl Copies {
    pub(super) fn of(steps: &[Step]) -> Self {
        let disk = MemoryDisk::new();
        let (mut writer, mut state) = (open_writer(&disk), State::default());
        let mut copies = BTreeMap::new();
        let none = JournalBatch::default();
        let batches = steps.iter().filter_map(|step| match step {
            Step::Batch(batch) => Some(batch),
            Step::Checkpoint | Step::Release | Step::PrepareSpare => None,
        });
        for batch in std::iter::once(&none).chain(batches) {
            batch.entries.iter().for_each(|entry| state.apply(&mut writer, entry));
            writer.flush().expect("flushed");
            let files = files_of_kept_topics(&disk, &state.dropped);
            let contents = contents(&writer, state.applied);
            copies.insert(state.applied, Copy { state: state.clone(), files, contents });
        }
        Self(copies)
    }
}

/// The files of all topics but the dropped ones, whose files may still be there.
fn files_of_kept_topics(disk: &MemoryDisk, dropped: &BTreeSet<u64>) -> Files {
    let mut files = files_below(disk, &topics());
    for topic in dropped {
        let folder = topics().join(TopicIncarnation::new(*topic).to_hex());
        files.retain(|(path, _)| !path.starts_with(&folder));
    }
    files
}

/// All that a reader gets, of topics 1 to 4.
fn contents(writer: &SegmentWriter, applied: u64) -> Vec<Contents> {
    let reader = writer.reader();
    let read = |(topic, partition)| {
        let (topic, partition) = (TopicIncarnation::new(topic), Partition::new(partition));
        let records = reader.read_records(topic, partition, Seq::FIRST, Seq::MAX, usize::MAX).expect("read");
        let index = reader.read_index(topic, partition, Seq::FIRST, 999).expect("read");
        let ledger =
            (1..=applied).map(|seq| reader.read_ledger(topic, partition, Seq::new(seq)).expect("read")).collect();
        (records, index, ledger)
    };
    (1..=4).flat_map(|topic| [(topic, 0), (topic, 1)]).map(read).collect()
}
