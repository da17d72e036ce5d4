//! A chunk of an index: cells, rising. Where all have one first number, as what a member holds, a cell takes 4 bytes, else 16.
//!
//! # Invariants
//! 1. Cells rise, and each is the only one of its place.
//! 2. Of a run all lie at or above its base, and less than 2^28 places from it.

use crate::chunked::{CHUNK_STEP, add};

/// Up to four pairs with neighbouring sequences: the upper 60 bits say which four, each of the lower ones whether one of them
/// is there. Without any, it is a place.
pub(crate) type Cell<A> = (A, u64);

pub(crate) const BITS: u64 = 0b1111;
/// Most cells of a chunk.
pub(crate) const CHUNK: usize = 64;
/// Places of a run lie closer to its base than this: its cells keep 28 bits of the way, and their own 4.
const RUN_PLACES: u64 = 1 << 28;

/// Cells, rising.
#[derive(Clone)]
pub(crate) enum Chunk<A> {
    /// All have the same first number.
    Run {
        first: A,
        base: u64,
        /// How many places from the base, and the bits.
        cells: Vec<u32>,
    },
    /// They have any.
    Mixed(Vec<Cell<A>>),
}

impl<A: Copy + Ord> Chunk<A> {
    pub(crate) fn of(cell: Cell<A>) -> Self {
        Self::Run { first: cell.0, base: cell.1 & !BITS, cells: vec![(cell.1 & BITS) as u32] }
    }

    /// In the form that takes less room; with some to grow.
    fn from_cells(cells: Vec<Cell<A>>) -> Self {
        if let (Some(&(first, low)), Some(&(last, high))) = (cells.first(), cells.last())
            && first == last
            && (high >> 4) - (low >> 4) < RUN_PLACES
        {
            let base = low & !BITS;
            let mut run = Vec::with_capacity((cells.len() + CHUNK_STEP).min(CHUNK));
            run.extend(cells.iter().map(|cell| packed(base, cell.1)));
            return Self::Run { first, base, cells: run };
        }
        Self::Mixed(cells)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Run { cells, .. } => cells.len(),
            Self::Mixed(cells) => cells.len(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Cell<A> {
        match self {
            Self::Run { first, base, cells } => (*first, unpacked(*base, cells[at])),
            Self::Mixed(cells) => cells[at],
        }
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Cell<A>> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Where the cell of this place is, or would be.
    #[inline]
    pub(crate) fn find(&self, place: Cell<A>) -> Result<usize, usize> {
        match self {
            Self::Run { first, base, cells } => {
                if place < (*first, *base) {
                    return Err(0);
                }
                let way = (place.1 >> 4).checked_sub(*base >> 4).filter(|_| place.0 == *first);
                let Some(way) = way.filter(|way| *way < RUN_PLACES) else { return Err(cells.len()) };
                cells.binary_search_by(|cell| u64::from(cell >> 4).cmp(&way))
            }
            Self::Mixed(cells) => cells.binary_search_by(|cell| upper(*cell).cmp(&place)),
        }
    }

    /// How many cells lie below a place.
    #[inline]
    pub(crate) fn below(&self, place: Cell<A>) -> usize {
        self.find(place).unwrap_or_else(|at| at)
    }

    /// Sets bits of a cell.
    #[inline]
    pub(crate) fn set(&mut self, at: usize, bits: u64) {
        match self {
            Self::Run { cells, .. } => cells[at] |= bits as u32,
            Self::Mixed(cells) => cells[at].1 |= bits,
        }
    }

    /// Clears bits of a cell; says whether any is left.
    #[inline]
    pub(crate) fn clear(&mut self, at: usize, bits: u64) -> bool {
        match self {
            Self::Run { cells, .. } => cells[at] &= !(bits as u32),
            Self::Mixed(cells) => cells[at].1 &= !bits,
        }
        self.get(at).1 & BITS != 0
    }

    /// Adds a cell. The caller looked whether there is room.
    #[inline]
    pub(crate) fn insert(&mut self, at: usize, cell: Cell<A>) {
        match self {
            Self::Mixed(cells) => add(cells, at, cell, CHUNK),
            Self::Run { first, base, cells }
                if cell.0 == *first && cell.1 >= *base && (cell.1 - *base) >> 4 < RUN_PLACES =>
            {
                add(cells, at, packed(*base, cell.1), CHUNK);
            }
            Self::Run { .. } => {
                let mut cells = Vec::with_capacity((self.len() + CHUNK_STEP).min(CHUNK));
                cells.extend(self.iter());
                cells.insert(at, cell);
                // A run still, from a lower base, or of others too.
                *self = Self::from_cells(cells);
            }
        }
    }

    /// Takes a cell out.
    pub(crate) fn remove(&mut self, at: usize) {
        match self {
            Self::Run { cells, .. } => remove(cells, at),
            Self::Mixed(cells) => remove(cells, at),
        }
    }

    /// Takes out all from a place on.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        let room = |cells: usize| (cells + CHUNK_STEP).min(CHUNK);
        match self {
            Self::Run { first, base, cells } => {
                let mut behind = Vec::with_capacity(room(cells.len() - at));
                behind.extend(cells.drain(at..));
                cells.shrink_to(room(at));
                Self::Run { first: *first, base: *base, cells: behind }
            }
            Self::Mixed(cells) => {
                let mut behind = Vec::with_capacity(room(cells.len() - at));
                behind.extend(cells.drain(at..));
                cells.shrink_to(room(at));
                *self = Self::from_cells(std::mem::take(cells));
                Self::from_cells(behind)
            }
        }
    }

    /// These cells, and those of another that lie behind them.
    pub(crate) fn join(&mut self, behind: &Self) {
        let mut cells = Vec::with_capacity(self.len() + behind.len());
        cells.extend(self.iter().chain(behind.iter()));
        *self = Self::from_cells(cells);
    }
}

#[cfg(test)]
impl<A> Chunk<A> {
    /// What its cells take in memory, with what is kept for more.
    pub(crate) fn room_bytes(&self) -> usize {
        match self {
            Self::Run { cells, .. } => cells.capacity() * size_of::<u32>(),
            Self::Mixed(cells) => cells.capacity() * size_of::<Cell<A>>(),
        }
    }
}

fn remove<T>(cells: &mut Vec<T>, at: usize) {
    cells.remove(at);
    if cells.capacity() >= cells.len() + 2 * CHUNK_STEP {
        cells.shrink_to(cells.len() + CHUNK_STEP);
    }
}

/// The place of a cell.
pub(crate) const fn upper<A: Copy>(cell: Cell<A>) -> Cell<A> {
    (cell.0, cell.1 & !BITS)
}

const fn packed(base: u64, cell: u64) -> u32 {
    // Less than 2^32: invariant 2.
    (cell - base) as u32
}

const fn unpacked(base: u64, cell: u32) -> u64 {
    base + cell as u64
}
