//! Choices from a seed: what a run decides can be asked for again; when things happen cannot.

use std::time::Duration;

/// A source of choices (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance {
    state: u64,
}

impl Chance {
    /// The choices of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// A seed nobody has chosen.
    #[must_use]
    pub fn draw_seed() -> u64 {
        let mut bytes = [0; 4];
        // Without randomness every run is the same, which harms nobody.
        let _ = getrandom::fill(&mut bytes);
        u64::from(u32::from_le_bytes(bytes))
    }

    /// Choices of their own, for a part of a run.
    pub(crate) fn apart(&mut self) -> Self {
        Self::new(self.below(u64::MAX))
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// A time of `from..to` milliseconds.
    pub(crate) fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to.saturating_sub(from)))
    }
}
