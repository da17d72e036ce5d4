//! What waits for the journal while it writes: a follower is sent entries faster than it can sync them one by one.
//!
//! # Invariants
//! 1. Entries are written in the order in which they came, and the number of an append is reported once all of it is.
//! 2. No batch says of an entry that it is committed before it is written.

use std::collections::VecDeque;

use mortarmq_replica::{Entry, HardState};
use mortarmq_storage::{Clock, JournalBatch};
use mortarmq_types::Mutant;

use crate::config::Now;
use crate::node::Node;
use crate::open_batch::BATCH_MAX_BYTES;
use crate::output::Output;
use crate::recovery::to_journal;

/// Appends that are not written yet.
#[derive(Debug, Default)]
pub(crate) struct JournalQueue {
    waiting: VecDeque<Append>,
    /// The last number that was handed out: a piece that does not end an append goes under it.
    last_number: u64,
    /// What the last piece said is committed.
    last_commit: u64,
}

/// One append, or what is left of it.
#[derive(Debug)]
struct Append {
    number: u64,
    hard_state: HardState,
    entries: VecDeque<Entry>,
}

/// What is written and synced at once.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) number: u64,
    pub(crate) hard_state: HardState,
    pub(crate) entries: Vec<Entry>,
}

impl JournalQueue {
    /// A queue behind what is durable, up to this commit index.
    pub(crate) fn behind(last_commit: u64) -> Self {
        Self { last_commit, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn push(&mut self, number: u64, hard_state: HardState, entries: Vec<Entry>) {
        self.waiting.push_back(Append { number, hard_state, entries: entries.into() });
    }

    /// The next batch: as many appends as make about one batch of a leader, and part of one that is larger.
    pub(crate) fn pop(&mut self) -> Option<Piece> {
        let mut entries: Vec<Entry> = Vec::new();
        let (mut bytes, mut hard_state) = (0, None);
        while let Some(append) = self.waiting.front_mut() {
            let replaces = |first: &Entry| entries.last().is_some_and(|last: &Entry| first.log_index <= last.log_index);
            if append.entries.front().is_some_and(replaces) {
                // Another leader's suffix: the entries of a batch follow one another.
                break;
            }
            while let Some(entry) =
                append.entries.pop_front_if(|entry| bytes == 0 || bytes + entry.data.len() <= BATCH_MAX_BYTES)
            {
                bytes += entry.data.len().max(1);
                entries.push(entry);
            }
            if !append.entries.is_empty() {
                // Vote and term may come early, but not the commit index.
                hard_state = Some(HardState { commit: self.last_commit, ..append.hard_state });
                break;
            }
            hard_state = Some(append.hard_state);
            (self.last_number, self.last_commit) = (append.number, append.hard_state.commit);
            self.waiting.pop_front();
        }
        Some(Piece { number: self.last_number, hard_state: hard_state?, entries })
    }
}

impl Node {
    /// Whether nothing is on its way to the journal.
    pub(crate) fn is_journal_at_rest(&self) -> bool {
        self.journal_writes == 0 && self.journal_queue.is_empty()
    }

    /// Hands the journal the next batch, if it has none.
    pub(crate) fn write_journal(&mut self, now: Now) {
        if self.journal_writes > 0 {
            return;
        }
        let Some(Piece { number, hard_state, entries }) = self.journal_queue.pop() else { return };
        let vote = if Mutant::VoteNotPersisted.is_on() { 0 } else { hard_state.vote };
        let hard_state = mortarmq_storage::HardState { term: hard_state.term, vote, commit: hard_state.commit };
        let clock = Clock { boot_id: self.config.boot_id, boot_ms: now.monotonic.get() };
        let entries = entries.into_iter().map(to_journal).collect();
        self.journal_writes += 1;
        self.journal_since = now.monotonic;
        let batch = JournalBatch { number: 0, hard_state, clock, entries };
        self.outputs.push_back(Output::Journal { ready_number: number, batch });
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH_MAX_BYTES, JournalQueue, Piece};
    use mortarmq_replica::{Entry, EntryKind, HardState};

    fn entry(log_index: u64, term: u64, bytes: usize) -> Entry {
        Entry { log_index, term, kind: EntryKind::Normal, data: vec![7; bytes].into() }
    }

    fn state(term: u64, commit: u64) -> HardState {
        HardState { term, vote: 0, commit }
    }

    /// Number, commit index and log indexes of a piece.
    fn told(piece: Option<Piece>) -> Option<(u64, u64, Vec<u64>)> {
        let piece = piece?;
        Some((piece.number, piece.hard_state.commit, piece.entries.iter().map(|entry| entry.log_index).collect()))
    }

    #[test]
    fn what_came_while_the_journal_wrote_is_one_batch() {
        let mut queue = JournalQueue::default();
        queue.push(3, state(1, 0), vec![entry(1, 1, 10), entry(2, 1, 0)]);
        queue.push(4, state(1, 1), vec![entry(3, 1, 10)]);
        queue.push(5, state(2, 1), Vec::new());
        assert_eq!(told(queue.pop()), Some((5, 1, vec![1, 2, 3])));
        assert_eq!(told(queue.pop()), None);
    }

    #[test]
    fn rule_1_a_large_append_is_called_written_with_its_last_piece_and_nothing_is_committed_before_it_is_there() {
        let mut queue = JournalQueue::default();
        queue.push(1, state(1, 0), vec![entry(1, 1, 1)]);
        assert_eq!(told(queue.pop()), Some((1, 0, vec![1])));
        queue.push(2, state(1, 4), (2..=4).map(|index| entry(index, 1, BATCH_MAX_BYTES)).collect());
        let pieces: Vec<_> = std::iter::from_fn(|| told(queue.pop())).collect();
        assert_eq!(pieces, [(1, 0, vec![2]), (1, 0, vec![3]), (2, 4, vec![4])]);
    }

    #[test]
    fn p10_a_piece_of_the_first_append_after_a_start_does_not_take_back_what_was_committed() {
        let mut queue = JournalQueue::behind(100);
        queue.push(1, state(1, 100), (101..=102).map(|index| entry(index, 1, BATCH_MAX_BYTES)).collect());
        let pieces: Vec<_> = std::iter::from_fn(|| told(queue.pop())).collect();
        assert_eq!(pieces, [(0, 100, vec![101]), (1, 100, vec![102])]);
    }

    #[test]
    fn another_leaders_suffix_begins_a_batch_of_its_own() {
        let mut queue = JournalQueue::default();
        queue.push(1, state(1, 0), vec![entry(1, 1, 1), entry(2, 1, 1)]);
        queue.push(2, state(2, 0), vec![entry(2, 2, 1)]);
        let pieces: Vec<_> = std::iter::from_fn(|| told(queue.pop())).collect();
        assert_eq!(pieces, [(1, 0, vec![1, 2]), (2, 0, vec![2])]);
    }
}
