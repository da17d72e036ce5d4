//! Choices from a seed: what a run does can be asked for again, when it does not depend on time.

/// A source of choices (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Chance {
    state: u64,
}

impl Chance {
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// A seed nobody has chosen.
    pub(super) fn draw_seed() -> u64 {
        let mut bytes = [0; 4];
        // Without randomness every run is the same, which harms nobody.
        let _ = getrandom::fill(&mut bytes);
        u64::from(u32::from_le_bytes(bytes))
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// A time of `from..to` milliseconds.
    pub(super) fn ms(&mut self, from: u64, to: u64) -> std::time::Duration {
        std::time::Duration::from_millis(from + self.below(to - from))
    }
}
