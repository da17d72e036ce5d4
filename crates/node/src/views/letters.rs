//! What a redrive or purge of dead letters did: the answer to `POST /v1/topics/{topic}/dlq`.

use std::collections::BTreeMap;

use mortarmq_shard::LetterCode;

/// Counts of dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LettersView {
    /// Dead letters that were meant.
    pub matched: u64,
    /// Those that left the book of dead letters; none of a dry run.
    pub done: u64,
    /// Those that stayed, or would stay, by the reason.
    pub refused: BTreeMap<&'static str, u64>,
}

impl LettersView {
    pub(crate) fn count(&mut self, code: LetterCode) {
        if code == LetterCode::Done {
            self.done += 1;
        } else {
            *self.refused.entry(code.word()).or_default() += 1;
        }
    }
}
