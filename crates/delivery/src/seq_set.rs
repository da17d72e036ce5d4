//! A set of sequences that lie close together: a bit each.

use std::ops::Range;

use imbl::OrdMap;
use mortarmq_types::Seq;

/// Sequences. Sharing it is cheap, as with the map it stands on.
///
/// # Invariants
/// 1. No block is empty, so that equal sets are equal maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeqSet {
    blocks: OrdMap<u64, Block>,
    len: u64,
}

/// The bits of consecutive sequences.
type Block = [u64; WORDS];

const WORDS: usize = 8;
const BLOCK_SEQS: u64 = 64 * WORDS as u64;

impl SeqSet {
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn contains(&self, seq: Seq) -> bool {
        let (number, word, bit) = place(seq.get());
        self.blocks.get(&number).is_some_and(|block| block[word] & bit != 0)
    }

    /// Adds a sequence; says whether it is new.
    pub(crate) fn insert(&mut self, seq: Seq) -> bool {
        if self.contains(seq) {
            return false;
        }
        let (number, word, bit) = place(seq.get());
        self.blocks.entry(number).or_insert([0; WORDS])[word] |= bit;
        self.len += 1;
        true
    }

    /// Takes a sequence out; says whether it was there.
    pub(crate) fn remove(&mut self, seq: Seq) -> bool {
        if !self.contains(seq) {
            return false;
        }
        let (number, word, bit) = place(seq.get());
        let block = self.blocks.get_mut(&number).expect("it contains the sequence");
        block[word] &= !bit;
        if *block == [0; WORDS] {
            self.blocks.remove(&number);
        }
        self.len -= 1;
        true
    }

    /// The lowest sequence among these.
    pub(crate) fn first(&self, among: Range<Seq>) -> Option<Seq> {
        let blocks = self.blocks.range(place(among.start.get()).0..);
        blocks.take(2).find_map(|(number, block)| bits(*number, block, &among).next())
    }

    /// The highest sequence among these.
    pub(crate) fn last(&self, among: Range<Seq>) -> Option<Seq> {
        let blocks = self.blocks.range(..=place(among.end.get()).0);
        blocks.rev().take(2).find_map(|(number, block)| bits(*number, block, &among).last())
    }

    /// How many lie among these. Looks at every block there.
    pub(crate) fn count(&self, among: Range<Seq>) -> u64 {
        let blocks = self.blocks.range(place(among.start.get()).0..=place(among.end.get()).0);
        blocks.map(|(number, block)| bits(*number, block, &among).count() as u64).sum()
    }
}

/// The sequences of a block that lie among these, lowest first.
fn bits<'a>(number: u64, block: &'a Block, among: &'a Range<Seq>) -> impl Iterator<Item = Seq> + 'a {
    let words = block.iter().enumerate().filter(|(_, word)| **word != 0);
    let of_word = move |(index, word): (usize, &u64)| {
        let (first, word) = (number * BLOCK_SEQS + index as u64 * 64, *word);
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| Seq::new(first + bit))
    };
    words.flat_map(of_word).filter(|seq| among.contains(seq))
}

/// Block, word in it, and the bit of a sequence.
const fn place(seq: u64) -> (u64, usize, u64) {
    let within = seq % BLOCK_SEQS;
    // Below 8, so that the conversion loses nothing.
    (seq / BLOCK_SEQS, (within / 64) as usize, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use mortarmq_types::Seq;
    use proptest::prelude::*;

    use super::SeqSet;

    proptest! {
        #[test]
        fn it_does_what_a_set_does(steps in proptest::collection::vec((any::<bool>(), 0_u64..3000), 0..400), ends in (0_u64..3100, 0_u64..3100)) {
            let (mut real, mut naive) = (SeqSet::default(), BTreeSet::new());
            for (adds, number) in steps {
                // Few close together, with holes of whole blocks.
                let seq = Seq::new(number / 40 * 40 + number % 3);
                let is_new = if adds { naive.insert(seq) } else { naive.remove(&seq) };
                assert_eq!(if adds { real.insert(seq) } else { real.remove(seq) }, is_new);
                assert_eq!(real.contains(seq), adds);
            }
            let among = Seq::new(ends.0.min(ends.1))..Seq::new(ends.0.max(ends.1));
            prop_assert_eq!(real.len(), naive.len() as u64);
            prop_assert_eq!(real.first(among.clone()), naive.range(among.clone()).next().copied());
            prop_assert_eq!(real.last(among.clone()), naive.range(among.clone()).next_back().copied());
            prop_assert_eq!(real.count(among.clone()), naive.range(among).count() as u64);
            let mut again = SeqSet::default();
            naive.iter().for_each(|seq| assert!(again.insert(*seq)));
            prop_assert_eq!(again, real);
        }
    }
}
