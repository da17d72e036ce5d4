//! Checkpoints: after so much journal the state's image goes to the segment writer; once it is durable, old journal goes.

use mortarmq_replica::Entry;
use mortarmq_storage::CheckpointMeta;
use mortarmq_types::{MonotonicTime, Mutant};

use crate::config::Now;
use crate::node::Node;
use crate::output::Output;

/// Where the next checkpoint stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checkpoints {
    /// Journal since the last image, in bytes.
    pub(crate) journal_bytes: u64,
    /// What the last durable checkpoint took on disk, in bytes; 0 before the first.
    pub(crate) last_bytes: u64,
    /// The entry of the image that is being written.
    pub(crate) writing: Option<u64>,
    /// From when on one more is wanted that frees room.
    pub(crate) wanted_from: Option<MonotonicTime>,
    /// The entry that the last durable checkpoint covers.
    pub(crate) durable: u64,
    /// The last entry that was applied, and its term.
    pub(crate) applied: (u64, u64),
    /// The term of the entry of the image that is being written, and of the last durable one.
    terms: (u64, u64),
}

impl Checkpoints {
    /// Behind a checkpoint that is durable.
    pub(crate) fn at(log_index: u64, term: u64) -> Self {
        let applied = (log_index, term);
        Self { durable: log_index, applied, terms: (0, term), ..Self::default() }
    }

    /// The last durable checkpoint: its entry, that one's term, and the size of its file; 0 if it was made before this life.
    pub(crate) fn durable_as(&self) -> (u64, u64, u64) {
        (self.durable, self.terms.1, self.last_bytes)
    }
}

impl Node {
    /// Notes that an entry was applied, and takes a checkpoint if enough journal has gathered.
    pub(crate) fn count_applied(&mut self, log_index: u64, term: u64, bytes: u64) {
        self.checkpoints.applied = (log_index, term);
        self.checkpoints.journal_bytes += bytes;
        if self.checkpoints.journal_bytes >= self.checkpoint_after_bytes() {
            self.take_checkpoint();
        }
    }

    /// Takes a checkpoint now, unless one is being written or nothing was applied since the last.
    pub fn handle_checkpoint_wanted(&mut self, now: Now) {
        self.turn(now);
        self.take_checkpoint();
    }

    /// A checkpoint is durable: journal that it covers may go.
    /// `bytes` is what it takes on disk.
    pub fn handle_checkpoint_written(&mut self, now: Now, log_index: u64, bytes: u64) {
        self.turn(now);
        assert_eq!(self.checkpoints.writing.take(), Some(log_index), "one checkpoint is written at a time");
        self.checkpoints.durable = log_index;
        self.checkpoints.terms.1 = self.checkpoints.terms.0;
        self.checkpoints.last_bytes = bytes;
        self.release_journal();
    }

    /// Whether a checkpoint is being written.
    #[must_use]
    pub fn is_writing_checkpoint(&self) -> bool {
        self.checkpoints.writing.is_some()
    }

    pub(crate) fn take_checkpoint(&mut self) {
        let (log_index, term) = self.checkpoints.applied;
        // What would be written is the state before, or one that the journal does not know yet.
        if self.is_installing()
            || self.is_rejoining()
            || self.checkpoints.writing.is_some()
            || log_index <= self.checkpoints.durable
        {
            return;
        }
        let log_index = if Mutant::CheckpointIndexApart.is_on() { log_index - 1 } else { log_index };
        let state = self.shard.state();
        let meta = CheckpointMeta {
            shard: self.config.shard,
            log_index,
            term,
            commit_index: state.commit_index,
            membership: self.replica.members().encode(),
            last_stamp_ms: state.time.get(),
        };
        let image = Box::new(self.shard.image());
        self.checkpoints.journal_bytes = 0;
        self.checkpoints.writing = Some(log_index);
        self.checkpoints.terms.0 = term;
        let holds = self.catch_up.serving.held();
        self.outputs.push_back(Output::Checkpoint { meta, image, holds });
    }
}

/// What an entry takes of the journal, about.
pub(crate) fn journal_bytes(entry: &Entry) -> u64 {
    entry.data.len() as u64 + ENTRY_OVERHEAD_BYTES
}

/// A batch takes whole blocks, and each sector carries marks.
const ENTRY_OVERHEAD_BYTES: u64 = 4096;
