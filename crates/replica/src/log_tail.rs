//! The end of the log in memory: what the library reads as its storage.
//!
//! # Invariants
//! 1. Entries follow one another without a gap from `base_index + 1` on.
//! 2. Terms never fall along the log.
//! 3. Only applied entries are forgotten, and of those at most `keep_bytes` are kept.

use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

/// The entries from `base_index + 1` on, with the term of the entry before them.
///
/// It holds what was appended, durable or not: the library needs to read entries before their fsync returns, and keeps
/// apart itself what is persisted.
#[derive(Debug)]
pub(crate) struct LogTail {
    base_index: u64,
    base_term: u64,
    entries: VecDeque<Entry>,
    bytes: u64,
    keep_bytes: u64,
    /// Nothing above this index is forgotten, while less than [`HELD_SHARE`] times `keep_bytes` is held.
    held_from: Option<u64>,
    start: RaftState,
}

impl LogTail {
    pub(crate) fn new(base_index: u64, base_term: u64, keep_bytes: u64) -> Self {
        let start = RaftState::default();
        Self { base_index, base_term, entries: VecDeque::new(), bytes: 0, keep_bytes, held_from: None, start }
    }

    /// Sets what the library finds when it starts on this log.
    pub(crate) fn set_start(&mut self, hard_state: HardState, conf_state: ConfState) {
        self.start = RaftState::new(hard_state, conf_state);
    }

    /// The index before the first entry held.
    pub(crate) fn base_index(&self) -> u64 {
        self.base_index
    }

    pub(crate) fn last_log_index(&self) -> u64 {
        self.base_index + self.entries.len() as u64
    }

    pub(crate) fn last_term(&self) -> u64 {
        self.entries.back().map_or(self.base_term, |entry| entry.term)
    }

    /// The term at an index from the base to the last entry.
    pub(crate) fn term_at(&self, log_index: u64) -> Option<u64> {
        if log_index == self.base_index {
            return Some(self.base_term);
        }
        self.get(log_index).map(|entry| entry.term)
    }

    pub(crate) fn get(&self, log_index: u64) -> Option<&Entry> {
        let offset = log_index.checked_sub(self.base_index + 1)?;
        self.entries.get(usize::try_from(offset).ok()?)
    }

    /// Adds an entry behind its predecessor; what stood there and behind it goes.
    ///
    /// # Panics
    /// When the entry would leave a gap, replace a forgotten one, or lower the term along the log (invariants 1 to 3).
    pub(crate) fn append(&mut self, entry: Entry) {
        let (base, last) = (self.base_index, self.last_log_index());
        assert!(entry.index > base, "entry {} would replace one at or below {base}, which is applied", entry.index);
        assert!(entry.index <= last + 1, "entry {} would leave a gap behind {last}", entry.index);
        while self.last_log_index() >= entry.index {
            let replaced = self.entries.pop_back().expect("the last index is above the base, so there is an entry");
            self.bytes -= entry_bytes(&replaced);
        }
        assert!(
            entry.term >= self.last_term(),
            "entry {}: term {} after {}",
            entry.index,
            entry.term,
            self.last_term()
        );
        self.bytes += entry_bytes(&entry);
        self.entries.push_back(entry);
    }

    /// Forgets the oldest entries up to `applied` while more than `keep_bytes` are held.
    pub(crate) fn compact(&mut self, applied: u64) {
        while self.bytes > self.keep_bytes && self.base_index < applied {
            let is_held = self.held_from == Some(self.base_index);
            if (is_held && self.bytes <= self.keep_bytes.saturating_mul(HELD_SHARE)) || !self.forget_first() {
                break;
            }
        }
        if self.entries.is_empty() {
            // A burst must not leave its capacity behind for ever.
            self.entries.shrink_to(IDLE_ENTRIES);
        }
    }

    /// Holds what is above an index, or nothing any more.
    pub(crate) fn hold(&mut self, from: Option<u64>) {
        self.held_from = from;
    }

    /// Begins anew behind an entry that a checkpoint holds.
    pub(crate) fn begin_behind(&mut self, log_index: u64, term: u64) {
        (self.base_index, self.base_term) = (log_index, term);
        self.entries.clear();
        self.bytes = 0;
    }

    /// What the entries above an index take; `None` if some of them are forgotten.
    pub(crate) fn bytes_above(&self, log_index: u64) -> Option<u64> {
        let offset = usize::try_from(log_index.checked_sub(self.base_index)?).ok()?;
        Some(self.entries.iter().skip(offset).map(entry_bytes).sum())
    }

    /// Sets the term of the entry before the first, where it was not known when the log began.
    pub(crate) fn set_base_term(&mut self, term: u64) {
        self.base_term = term;
    }

    /// Makes the first entry the base; false if there is none.
    pub(crate) fn forget_first(&mut self) -> bool {
        let Some(first) = self.entries.pop_front() else { return false };
        self.bytes -= entry_bytes(&first);
        (self.base_index, self.base_term) = (first.index, first.term);
        true
    }

    /// Asserts the numbered invariants; for tests and simulators.
    pub(crate) fn check(&self) {
        let (mut index, mut term, mut bytes) = (self.base_index, self.base_term, 0);
        for entry in &self.entries {
            assert_eq!(entry.index, index + 1, "a gap in the log tail");
            assert!(entry.term >= term, "entry {}: term {} after {term}", entry.index, entry.term);
            (index, term, bytes) = (entry.index, entry.term, bytes + entry_bytes(entry));
        }
        assert_eq!(bytes, self.bytes, "the bytes held are counted wrongly");
    }
}

impl Storage for LogTail {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.start.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last_log_index() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let mut found = Vec::new();
        let mut bytes: u64 = 0;
        for entry in (low..high).map_while(|index| self.get(index)) {
            bytes = bytes.saturating_add(entry_bytes(entry));
            // At least one, whatever its size: otherwise a large entry would stop the log.
            if bytes > max_bytes && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index < self.base_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        self.term_at(index).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base_index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last_log_index())
    }

    /// A follower behind the tail is brought up out of band, by files and a checkpoint ([`crate::catch_up`]); the library only
    /// has to wait.
    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

/// What an entry costs in memory, near enough.
fn entry_bytes(entry: &Entry) -> u64 {
    (entry.data.len() + size_of::<Entry>()) as u64
}

/// So many times as much as is kept is held for a follower that fetches a snapshot.
const HELD_SHARE: u64 = 4;
/// Entries for which room is kept while the tail is empty.
const IDLE_ENTRIES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::{Entry, GetEntriesContext, LogTail, Storage};

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, data: vec![0; 100].into(), ..Entry::default() }
    }

    fn tail(keep_bytes: u64) -> LogTail {
        let mut tail = LogTail::new(0, 0, keep_bytes);
        for index in 1..=5 {
            tail.append(entry(index, 1));
        }
        tail
    }

    #[test]
    fn an_entry_replaces_the_suffix_from_its_index_on() {
        let mut tail = tail(u64::MAX);
        tail.append(entry(3, 2));
        tail.check();
        assert_eq!(tail.last_log_index(), 3);
        assert_eq!([tail.term_at(2), tail.term_at(3), tail.term_at(4)], [Some(1), Some(2), None]);
    }

    #[test]
    fn only_applied_entries_are_forgotten_and_the_term_before_the_first_stays() {
        let mut tail = tail(0);
        tail.compact(3);
        tail.check();
        assert_eq!((tail.base_index(), tail.last_log_index()), (3, 5));
        assert_eq!(tail.term(3).ok(), Some(1));
        assert!(tail.term(2).is_err());
        tail.compact(5);
        assert_eq!((tail.base_index(), tail.last_log_index(), tail.last_term()), (5, 5, 1));
    }

    #[test]
    fn applied_entries_are_kept_up_to_the_limit() {
        let one = super::entry_bytes(&entry(1, 1));
        let mut tail = tail(2 * one);
        tail.compact(5);
        assert_eq!((tail.base_index(), tail.last_log_index()), (3, 5));
    }

    #[test]
    fn what_is_held_for_a_snapshot_stays_within_its_bound() {
        let one = super::entry_bytes(&entry(1, 1));
        let mut tail = LogTail::new(0, 0, one);
        tail.hold(Some(2));
        (1..=5).for_each(|index| tail.append(entry(index, 1)));
        tail.compact(5);
        assert_eq!(tail.base_index(), 2, "what is at or below it goes");
        tail.append(entry(6, 1));
        tail.compact(6);
        assert_eq!(tail.base_index(), 2);
        tail.append(entry(7, 1));
        tail.compact(7);
        assert_eq!(tail.base_index(), 6, "too much: the hold is over");
    }

    #[test]
    fn a_read_is_bounded_by_bytes_but_never_empty() {
        let tail = tail(u64::MAX);
        let one = super::entry_bytes(&entry(1, 1));
        let read = |low, max: u64| tail.entries(low, 6, max, GetEntriesContext::empty(false)).map(|found| found.len());
        assert_eq!(read(1, 0).ok(), Some(1));
        assert_eq!(read(1, 3 * one).ok(), Some(3));
        assert_eq!(read(2, u64::MAX).ok(), Some(4));
        assert!(read(0, 1).is_err());
    }

    #[test]
    #[should_panic(expected = "would leave a gap")]
    fn a_gap_is_fatal() {
        tail(0).append(entry(7, 1));
    }

    #[test]
    #[should_panic(expected = "which is applied")]
    fn replacing_a_forgotten_entry_is_fatal() {
        let mut tail = tail(0);
        tail.compact(4);
        tail.append(entry(4, 2));
    }
}
