//! The faults a test has asked for.

use std::collections::BTreeSet;
use std::time::Duration;

/// What is to fail or stall, by the number of the operation.
#[derive(Default)]
pub(crate) struct Faults {
    /// How long every sync takes.
    pub(crate) sync_delay: Duration,
    syncs: Numbered,
    writes: Numbered,
}

/// Operations of one kind, counted, with the numbers of those that are to fail.
#[derive(Default)]
struct Numbered {
    count: u64,
    failing: BTreeSet<u64>,
}

impl Faults {
    /// How many syncs, of files and directories, were asked for.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.count
    }

    /// How many writes were asked for.
    pub(crate) fn writes(&self) -> u64 {
        self.writes.count
    }

    /// Makes the `nth` sync from now fail.
    pub(crate) fn fail_sync(&mut self, nth: u64) {
        self.syncs.fail(nth);
    }

    /// Makes the `nth` write from now fail.
    pub(crate) fn fail_write(&mut self, nth: u64) {
        self.writes.fail(nth);
    }

    /// Counts a sync and says whether it is to fail.
    pub(crate) fn next_sync_fails(&mut self) -> bool {
        self.syncs.next_fails()
    }

    /// Counts a write and says whether it is to fail.
    pub(crate) fn next_write_fails(&mut self) -> bool {
        self.writes.next_fails()
    }
}

impl Numbered {
    fn fail(&mut self, nth: u64) {
        // A fault that never comes would make a test prove nothing.
        assert!(nth > 0, "the next operation is number 1");
        self.failing.insert(self.count.saturating_add(nth));
    }

    fn next_fails(&mut self) -> bool {
        self.count += 1;
        self.failing.remove(&self.count)
    }
}
