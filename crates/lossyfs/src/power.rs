//! What a power loss did, counted.

use crate::inodes::Inodes;
use crate::random::Random;

/// What became of everything that was pending when the power was lost. Of files whose name did not survive, only the name
/// is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// Pending writes that survived whole.
    pub writes_kept: u64,
    /// Pending writes of which some sectors survived.
    pub writes_torn: u64,
    /// Pending writes of which nothing survived.
    pub writes_dropped: u64,
    /// Sectors of pending writes that survived.
    pub sectors_kept: u64,
    /// Sectors of pending writes that did not.
    pub sectors_dropped: u64,
    /// Pending cuts and growths of files that survived.
    pub lengths_kept: u64,
    /// Pending cuts and growths of files that did not.
    pub lengths_dropped: u64,
    /// Pending changes of names that survived: files and directories made, removed and renamed.
    pub names_kept: u64,
    /// Pending changes of names that did not.
    pub names_dropped: u64,
}

impl Loss {
    /// Whether anything was lost at all; a test whose losses never were proves nothing.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.sectors_dropped + self.lengths_dropped + self.names_dropped > 0
    }

    /// Counts a pending write by what became of its sectors.
    pub(crate) fn count_write(&mut self, kept_sectors: u64, dropped_sectors: u64) {
        self.sectors_kept += kept_sectors;
        self.sectors_dropped += dropped_sectors;
        let counter = match (kept_sectors, dropped_sectors) {
            (_, 0) => &mut self.writes_kept,
            (0, _) => &mut self.writes_dropped,
            (_, _) => &mut self.writes_torn,
        };
        *counter += 1;
    }
}

/// Loses the power: what is left of the tree, and the count of what is not.
pub(crate) fn lose_power(inodes: Inodes, seed: u64) -> (Inodes, Loss) {
    let mut loss = Loss::default();
    let found = inodes.after_power_loss(&mut Random::new(seed), &mut loss);
    (found, loss)
}
