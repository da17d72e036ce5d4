//! Which blocks of a file occupy space: a hole occupies none, as on a real disk, so a length is no reservation.

use std::ops::Range;

/// The unit in which space is given out.
///
/// # Units
/// Bytes.
pub(crate) const BLOCK_BYTES: usize = 4096;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// The blocks of one file that occupy space.
#[derive(Default)]
pub(crate) struct Blocks {
    occupied: Vec<bool>,
    count: u64,
}

impl Blocks {
    /// How many blocks are occupied.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// How many of `size` bytes from `offset` can be written when `free` more blocks may be occupied.
    pub(crate) fn fitting(&self, offset: usize, size: usize, mut free: u64) -> usize {
        for block in spanned(offset, size) {
            if self.is_occupied(block) {
                continue;
            }
            if free == 0 {
                return (block * BLOCK_BYTES).saturating_sub(offset);
            }
            free -= 1;
        }
        size
    }

    /// Occupies every block that `size` bytes from `offset` touch.
    pub(crate) fn occupy(&mut self, offset: usize, size: usize) {
        let blocks = spanned(offset, size);
        if self.occupied.len() < blocks.end {
            self.occupied.append(&mut vec![false; blocks.end - self.occupied.len()]);
        }
        for block in &mut self.occupied[blocks] {
            self.count += u64::from(!*block);
            *block = true;
        }
    }

    /// Occupies every block of `image` that is not all zeros: bytes that a lost cut brought back.
    pub(crate) fn occupy_filled(&mut self, image: &[u8]) {
        for (block, bytes) in image.chunks(BLOCK_BYTES).enumerate() {
            if !self.is_occupied(block) && *bytes != ZEROS[..bytes.len()] {
                self.occupy(block * BLOCK_BYTES, 1);
            }
        }
    }

    /// Frees every block that lies wholly at or above `length`.
    pub(crate) fn cut(&mut self, length: usize) {
        let kept = length.div_ceil(BLOCK_BYTES);
        if kept < self.occupied.len() {
            self.occupied.truncate(kept);
            self.count = self.occupied.iter().filter(|block| **block).count() as u64;
        }
    }

    fn is_occupied(&self, block: usize) -> bool {
        self.occupied.get(block).copied().unwrap_or(false)
    }
}

fn spanned(offset: usize, size: usize) -> Range<usize> {
    if size == 0 { 0..0 } else { offset / BLOCK_BYTES..(offset + size).div_ceil(BLOCK_BYTES) }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_BYTES, Blocks};

    #[test]
    fn a_write_fits_up_to_the_block_that_is_not_free() {
        let mut blocks = Blocks::default();
        blocks.occupy(BLOCK_BYTES, 1);
        assert_eq!(blocks.count(), 1);
        assert_eq!(blocks.fitting(0, 3 * BLOCK_BYTES, 2), 3 * BLOCK_BYTES);
        assert_eq!(blocks.fitting(0, 3 * BLOCK_BYTES, 1), 2 * BLOCK_BYTES);
        assert_eq!(blocks.fitting(10, 3 * BLOCK_BYTES, 0), 0);
        assert_eq!(blocks.fitting(BLOCK_BYTES + 7, BLOCK_BYTES, 0), BLOCK_BYTES - 7);
        blocks.occupy(0, 3 * BLOCK_BYTES);
        assert_eq!(blocks.count(), 3);
        blocks.cut(BLOCK_BYTES + 1);
        assert_eq!(blocks.count(), 2);
    }
}
