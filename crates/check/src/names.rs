//! Paths, topics and clients as numbers; message ids and keys as hashes.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::operation::Name;

/// Every name once, numbered in the order of its first use.
#[derive(Debug, Default)]
pub(crate) struct Names {
    texts: Vec<Box<str>>,
    numbers: HashTable<Name>,
}

impl Names {
    /// The number of a name.
    pub(crate) fn number(&mut self, text: &str) -> Name {
        let hash = hash_of(text);
        let Self { texts, numbers } = self;
        let is_same = |number: &Name| *texts[*number as usize] == *text;
        if let Some(number) = numbers.find(hash, is_same) {
            return *number;
        }
        let number = Name::try_from(texts.len()).expect("fewer names than records, and records fit in 48 bits");
        texts.push(text.into());
        numbers.insert_unique(hash, number, |number| hash_of(&texts[*number as usize]));
        number
    }

    /// The name with this number.
    pub(crate) fn text(&self, number: Name) -> &str {
        &self.texts[number as usize]
    }
}

/// The hash that stands for a message id or key.
pub(crate) fn hash_of(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

/// One hash of two.
pub(crate) fn join(left: u64, right: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&left.to_le_bytes());
    bytes[8..].copy_from_slice(&right.to_le_bytes());
    xxh3_64(&bytes)
}
