//! Numbers from a seed.

/// SplitMix64 (Steele, Lea and Flood, 2014): equal seeds give equal lives on every machine.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// One of several kinds of chance of a seed. Seeds next to each other give streams that have nothing in common: those of
    /// [`Self::new`] are one stream, begun a step apart.
    #[allow(dead_code, reason = "each test file uses its own part")]
    pub(crate) fn of(seed: u64, kind: u64) -> Self {
        let mut first = Self::new(seed);
        Self(first.next() ^ kind.wrapping_mul(0xD605_BBB5_8C8A_BBB9))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number in `from..to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let place = usize::try_from(self.below(from.len() as u64)).expect("less than a length");
        &from[place]
    }
}
