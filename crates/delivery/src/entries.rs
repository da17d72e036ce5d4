//! The entries of a path in a partition, by sequence, and what their leases have in common.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use mortarmq_types::Seq;

use crate::{
    chunked::ChunkedMap,
    entry::{Entry, Lease, State},
    tenure::{Granted, Tenures},
};

/// Entries by sequence. Sharing all of them is two pointers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    by_seq: ChunkedMap<Seq, Entry>,
    tenures: Arc<Tenures>,
}

impl Entries {
    pub(crate) fn new(by_seq: ChunkedMap<Seq, Entry>, tenures: Tenures) -> Self {
        Self { by_seq, tenures: Arc::new(tenures) }
    }

    pub(crate) fn tenures(&self) -> &Tenures {
        &self.tenures
    }

    /// To change them; they are copied if an image shares them.
    pub(crate) fn tenures_mut(&mut self) -> &mut Tenures {
        Arc::make_mut(&mut self.tenures)
    }

    /// Asserts every numbered invariant of what it consists of.
    pub(crate) fn check(&self) {
        self.by_seq.check();
        self.tenures.check(self.values().filter_map(Entry::lease));
    }
}

impl Deref for Entries {
    type Target = ChunkedMap<Seq, Entry>;

    fn deref(&self) -> &Self::Target {
        &self.by_seq
    }
}

impl DerefMut for Entries {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.by_seq
    }
}

impl PartialEq for Entries {
    /// Equal are equal entries; which numbers their tenures have does not matter.
    fn eq(&self, other: &Self) -> bool {
        let granted =
            |all: &Self, entry: &Entry| -> Option<Granted> { entry.lease().map(|lease| all.tenures.of(lease)) };
        let without = |entry: &Entry| {
            let mut entry = entry.clone();
            if let State::Leased(lease) = &mut entry.state {
                *lease = Lease { tenure: 0, ..*lease };
            }
            entry
        };
        let is_same = |((seq, entry), (other_seq, other_entry)): ((&Seq, &Entry), (&Seq, &Entry))| {
            (seq, without(entry), granted(self, entry))
                == (other_seq, without(other_entry), granted(other, other_entry))
        };
        self.len() == other.len() && self.iter().zip(other.iter()).all(is_same)
    }
}

impl Eq for Entries {}
