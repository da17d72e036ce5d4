//! A disk that is nearly full: publishes are refused, everything that ends obligations goes on, and the node frees what it
//! can by itself (failure rule 8).
//!
//! How full the disk is, the driver finds out; what follows from it is decided here.

use mortarmq_types::MonotonicTime;
use mortarmq_wire::ErrorCode;

use crate::config::Now;
use crate::node::Node;
use crate::output::Output;
use crate::reply::Failure;

/// How the disk stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskState {
    /// Whether room is short. The driver says so from a bound on, and takes it back only well above it.
    pub is_low: bool,
    /// What can still be written, what is held in reserve not counted.
    ///
    /// # Units
    /// Bytes.
    pub free_bytes: u64,
}

impl Node {
    /// The disk stands otherwise than it did.
    ///
    /// When room becomes short, a checkpoint is taken and all journal that it covers goes, also what is kept otherwise; and
    /// what is settled goes at once where a topic permits it.
    pub fn handle_disk(&mut self, now: Now, disk: DiskState) {
        self.turn(now);
        let was_low = std::mem::replace(&mut self.disk, disk).is_low;
        self.replica.handle_room(disk.is_low);
        if disk.is_low && !was_low {
            if self.checkpoints.durable > 0 {
                self.release_journal();
            }
            self.want_checkpoint(now.monotonic);
            self.retention.hurry();
            self.free_room(now);
        }
    }

    /// There was no room for the checkpoint: the one before stays good, and this one is tried again.
    pub fn handle_checkpoint_put_off(&mut self, now: Now, log_index: u64) {
        self.turn(now);
        assert_eq!(self.checkpoints.writing.take(), Some(log_index), "one checkpoint is written at a time");
        self.want_checkpoint(now.monotonic.after_ms(CHECKPOINT_RETRY_MS));
    }

    /// Takes the checkpoint that frees room, once it is time for it.
    pub(super) fn free_room(&mut self, now: Now) {
        let is_due = self.checkpoints.wanted_from.is_some_and(|from| from <= now.monotonic);
        if is_due && self.checkpoints.writing.is_none() {
            self.checkpoints.wanted_from = None;
            self.take_checkpoint();
        }
    }

    /// A checkpoint is to be taken from this moment on, or from an earlier one that was asked for.
    pub(crate) fn want_checkpoint(&mut self, from: MonotonicTime) {
        let wanted_from = self.checkpoints.wanted_from.map_or(from, |earlier| earlier.min(from));
        self.checkpoints.wanted_from = Some(wanted_from);
    }

    /// The files of a deleted topic go with the next checkpoint: where room is short, that is now.
    pub(crate) fn note_topic_deleted(&mut self) {
        if self.disk.is_low {
            self.want_checkpoint(MonotonicTime::ZERO);
        }
    }

    /// Lets journal go that the last durable checkpoint covers.
    pub(crate) fn release_journal(&mut self) {
        let (log_index, frees_spares) = (self.checkpoints.durable, self.disk.is_low);
        let keep_bytes = if self.disk.is_low { 0 } else { self.config.kept_journal_bytes() };
        self.outputs.push_back(Output::ReleaseJournal { log_index, keep_bytes, frees_spares });
    }

    /// After how much journal the next checkpoint is taken: the journal is the room that the node can free.
    ///
    /// A small one is taken early. Then few journal files are ever filled with zeros, they are used again soon, and a start
    /// has little to replay.
    pub(super) fn checkpoint_after_bytes(&self) -> u64 {
        let most = self.config.checkpoint_after_bytes;
        if self.disk.is_low {
            return most / LOW_CHECKPOINT_SHARE;
        }
        early_checkpoint(self.checkpoints.last_bytes).min(most)
    }

    /// How many bytes of effects may wait for the segment writer before nothing more is leased: each lease adds to them.
    pub(crate) fn unwritten_bytes_of_deliveries(&self) -> u64 {
        let bytes = self.config.unwritten_bytes_max;
        // Publishes, which stop at the bound itself, leave consumers a part of their own. On a full disk there are none.
        if self.disk.is_low { bytes } else { bytes.saturating_mul(2) }
    }

    /// The answer to a publish while room is short; nothing of it is stored.
    pub(crate) fn refusal_for_space(&self) -> Option<Failure> {
        let text = if self.disk.is_low {
            let free_mib = self.disk.free_bytes >> 20;
            format!(
                "the broker's disk is nearly full ({free_mib} MiB free); nothing was stored: free space where its data \
                 folder lies, or delete topics; acks and deliveries go on"
            )
        } else if self.leads && self.config.has_peers() && !self.has_majority_with_room(true) {
            "the disks of so many nodes are nearly full that no majority has room; nothing was stored: free space there, or \
             delete topics; acks and deliveries go on"
                .to_owned()
        } else {
            return None;
        };
        Some(Failure { retry_after_ms: RETRY_AFTER_MS, ..Failure::new(ErrorCode::StorageHighWatermark, text) })
    }

    /// A leader without room gives way to those that have it, once in an office: it goes on to follow, and takes what it can.
    pub(super) fn give_way_for_room(&mut self) {
        let may = self.leads && self.disk.is_low && self.config.has_peers() && !self.has_given_way;
        if may && self.has_majority_with_room(false) {
            // Whether somebody takes it or not, it is not offered again and again: nothing is proposed meanwhile.
            self.has_given_way = self.replica.hand_over(None).is_ok();
        }
    }
}

/// After how much journal a checkpoint is taken if the last one took so many bytes.
const fn early_checkpoint(last_bytes: u64) -> u64 {
    let amortised = last_bytes.saturating_mul(CHECKPOINT_SHARE);
    if amortised > EARLY_CHECKPOINT_BYTES { amortised } else { EARLY_CHECKPOINT_BYTES }
}

/// The driver looks at the disk once a second.
const RETRY_AFTER_MS: u32 = 1000;
/// So many times what the last checkpoint took is written to the journal before the next: it adds at most a quarter to that.
const CHECKPOINT_SHARE: u64 = 4;
/// Half as much journal as one of its files has by default: a file is free again before the second behind it begins.
const EARLY_CHECKPOINT_BYTES: u64 = 32 << 20;
/// Without room for a checkpoint, somebody has to make some first.
const CHECKPOINT_RETRY_MS: u64 = 5000;
/// By default a checkpoint after every 64 MiB of journal, which is one file.
const LOW_CHECKPOINT_SHARE: u64 = 8;

#[cfg(test)]
mod tests {
    use super::early_checkpoint;

    #[test]
    fn checkpoints_add_at_most_a_quarter_to_what_the_journal_writes() {
        for last_bytes in [0, 1, 1 << 20, 16 << 20, 17 << 20, 1 << 30, u64::MAX / 2] {
            let journal = early_checkpoint(last_bytes);
            assert!(journal >= 32 << 20, "they do not follow one another");
            assert!(
                last_bytes <= journal / 4 || journal == u64::MAX,
                "{last_bytes} bytes for each {journal} of journal"
            );
        }
    }
}
