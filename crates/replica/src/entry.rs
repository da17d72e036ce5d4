//! What goes into the journal and comes back: entries and the hard state, free of the library's types.

use bytes::Bytes;
use mortarmq_types::Epoch;
use raft::eraftpb;

use crate::membership::Change;

/// One entry of the replicated log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log; the first is 1.
    pub log_index: u64,
    /// The epoch of the leader that proposed it: with `log_index` it names one entry for ever.
    pub term: u64,
    /// What kind of entry it is.
    pub kind: EntryKind,
    /// The proposed bytes; empty for the entry with which a leader begins its office.
    pub data: Bytes,
}

/// What an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Bytes for the state machine.
    Normal,
    /// The log begins anew behind this one: all up to it is in a checkpoint that was installed, and what the journal holds
    /// before is no part of the log. It is no entry that a leader ever proposed, and has no bytes.
    Snapshot,
    /// A change of members: its bytes are a [`crate::Change`].
    ConfChange,
}

/// What a replica must never forget besides its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The highest epoch this replica has taken part in.
    pub term: u64,
    /// The replica it voted for in `term`; 0 for nobody.
    pub vote: u64,
    /// A log index known to be committed. Written along with entries, after them; it may lag.
    pub commit: u64,
}

impl Entry {
    /// The entry's epoch, to compare with [`crate::Proposed::epoch`].
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        Epoch::new(self.term)
    }

    /// Whether the state machine has to see it: a leader's first, empty entry is only counted.
    pub(crate) fn has_payload(&self) -> bool {
        !self.data.is_empty()
    }

    pub(crate) fn from_raft(entry: &eraftpb::Entry) -> Self {
        let kind = match entry.get_entry_type() {
            eraftpb::EntryType::EntryNormal => EntryKind::Normal,
            eraftpb::EntryType::EntryConfChange | eraftpb::EntryType::EntryConfChangeV2 => EntryKind::ConfChange,
        };
        // The payload is shared, not copied.
        Self { log_index: entry.index, term: entry.term, kind, data: entry.data.clone() }
    }

    /// The change of members that it brings; none of another entry.
    pub(crate) fn change(&self) -> Option<Change> {
        if self.kind == EntryKind::ConfChange { Change::decode(&self.data) } else { None }
    }

    /// # Panics
    /// For the beginning of a log anew, which is no entry of the library's.
    pub(crate) fn into_raft(self) -> eraftpb::Entry {
        assert!(self.kind != EntryKind::Snapshot, "entry {} is none that a leader proposed", self.log_index);
        let mut entry =
            eraftpb::Entry { index: self.log_index, term: self.term, data: self.data, ..eraftpb::Entry::default() };
        if self.kind == EntryKind::ConfChange {
            entry.set_entry_type(eraftpb::EntryType::EntryConfChangeV2);
        }
        entry
    }
}

impl HardState {
    pub(crate) fn from_raft(state: &eraftpb::HardState) -> Self {
        Self { term: state.term, vote: state.vote, commit: state.commit }
    }

    pub(crate) fn into_raft(self) -> eraftpb::HardState {
        eraftpb::HardState { term: self.term, vote: self.vote, commit: self.commit, ..eraftpb::HardState::default() }
    }
}
