//! The links between nodes: each direction by itself can be cut, lose, double and delay.

use super::random::Random;

/// All links.
pub(crate) struct Net {
    random: Random,
    /// From, to: whether nothing comes through.
    cut: Vec<Vec<bool>>,
    /// One message in so many is lost, and one comes twice; 0 is none.
    pub(crate) lost_one_in: u64,
    pub(crate) doubled_one_in: u64,
    /// A message takes between half of this and all of it.
    pub(crate) delay_us: u64,
    /// One in so many takes up to a hundred times as long.
    pub(crate) late_one_in: u64,
}

/// A shape of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One node hears nobody and is heard by nobody.
    Alone(usize),
    /// The first so many hear one another, and so do the others.
    Halves(usize),
    /// Each hears only its neighbours in a ring.
    Ring,
    /// All but two hear everybody; these two do not hear each other.
    Bridge(usize, usize),
    /// One says something to another, which does not hear it.
    OneWay(usize, usize),
    /// One hears all and is heard by nobody.
    Mute(usize),
}

impl Net {
    pub(crate) fn new(random: Random, nodes: usize) -> Self {
        let cut = vec![vec![false; nodes]; nodes];
        Self { random, cut, lost_one_in: 0, doubled_one_in: 0, delay_us: 400, late_one_in: 0 }
    }

    /// All links work again.
    pub(crate) fn heal(&mut self) {
        self.cut.iter_mut().flatten().for_each(|cut| *cut = false);
    }

    /// Cuts what a shape says, besides what is cut already.
    pub(crate) fn cut(&mut self, shape: Shape) {
        let nodes = self.cut.len();
        for from in 0..nodes {
            for to in 0..nodes {
                let is_pair = |a, b| (from, to) == (a, b) || (from, to) == (b, a);
                let is_neighbour = (from + 1) % nodes == to || (to + 1) % nodes == from;
                self.cut[from][to] |= match shape {
                    Shape::Alone(node) => from == node || to == node,
                    Shape::Halves(first) => (from < first) != (to < first),
                    // In a ring of three everybody is a neighbour: one link is missing.
                    Shape::Ring if nodes == 3 => is_pair(0, 2),
                    Shape::Ring => !is_neighbour,
                    Shape::Bridge(a, b) => is_pair(a, b),
                    Shape::OneWay(a, b) => (from, to) == (a, b),
                    Shape::Mute(node) => from == node,
                };
            }
        }
    }

    /// When copies of a message arrive, from now: none if it is lost.
    pub(crate) fn carry(&mut self, from: usize, to: usize) -> Vec<u64> {
        if self.cut[from][to] || (self.lost_one_in > 0 && self.random.one_in(self.lost_one_in)) {
            return Vec::new();
        }
        let copies = if self.doubled_one_in > 0 && self.random.one_in(self.doubled_one_in) { 2 } else { 1 };
        (0..copies).map(|_| self.delay()).collect()
    }

    pub(crate) fn delay(&mut self) -> u64 {
        let times = if self.late_one_in > 0 && self.random.one_in(self.late_one_in) { 100 } else { 1 };
        self.delay_us / 2 + self.random.below(self.delay_us * times / 2 + 1)
    }
}
