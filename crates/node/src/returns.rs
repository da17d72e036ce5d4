//! Who comes back: of the connections whose publishes a batch answered, how many publish again before the next one is
//! applied. It tells whether a batch is worth to be held back for them.
//!
//! # Invariants
//! 1. `returned <= answered`, and `expected <= answered`.

/// The rounds of answers and returns; a round begins with each batch that is applied.
#[derive(Debug)]
pub(crate) struct Returns {
    /// Names this round; 0 names none.
    round: u64,
    /// Connections that the batch of this round answered.
    answered: u64,
    /// Those of them that have published again.
    returned: u64,
    /// Of how many in [`WHOLE`] that is expected, by the rounds before.
    share: u64,
}

impl Default for Returns {
    fn default() -> Self {
        Self { round: 1, answered: 0, returned: 0, share: 0 }
    }
}

impl Returns {
    /// The next batch is applied, and is about to be answered. What was seen of the last one is learned: a quarter of it counts
    /// at once, so that one that is different does not change much.
    pub(crate) const fn begin_round(&mut self) {
        if let Some(share) = (self.returned * WHOLE).checked_div(self.answered) {
            // Rounded up, so that a share that stays is reached.
            self.share = (self.share * 3 + share).div_ceil(4);
        }
        self.round += 1;
        self.answered = 0;
        self.returned = 0;
    }

    /// A connection's publish is answered; `mark` is the connection's.
    pub(crate) const fn note_answered(&mut self, mark: &mut u64) {
        if *mark != self.round {
            *mark = self.round;
            self.answered += 1;
        }
    }

    /// A connection publishes.
    pub(crate) const fn note_published(&mut self, mark: &mut u64) {
        if *mark == self.round {
            *mark = 0;
            self.returned += 1;
        }
    }

    /// A connection is gone: it will not come back.
    pub(crate) const fn note_gone(&mut self, mark: u64) {
        if mark == self.round {
            self.answered -= 1;
        }
    }

    /// How many connections are still expected in this round.
    pub(crate) const fn missing(&self) -> u64 {
        (self.answered * self.share / WHOLE).saturating_sub(self.returned)
    }
}

/// All of them.
const WHOLE: u64 = 256;

#[cfg(test)]
mod tests {
    use super::Returns;

    /// A round in which all of these are answered and the first so many come back; how many were expected.
    fn round(returns: &mut Returns, marks: &mut [u64], back: usize) -> u64 {
        returns.begin_round();
        marks.iter_mut().for_each(|mark| returns.note_answered(mark));
        let expected = returns.missing();
        marks[..back].iter_mut().for_each(|mark| returns.note_published(mark));
        expected
    }

    #[test]
    fn who_always_comes_back_is_soon_expected_to() {
        let (mut returns, mut marks) = (Returns::default(), [0; 40]);
        assert_eq!(round(&mut returns, &mut marks, 40), 0, "nothing is known yet");
        (0..20).for_each(|_| _ = round(&mut returns, &mut marks, 40));
        assert_eq!(round(&mut returns, &mut marks, 40), 40);
        assert_eq!(returns.missing(), 0);
    }

    #[test]
    fn who_never_comes_back_is_soon_waited_for_no_more() {
        let (mut returns, mut marks) = (Returns::default(), [0; 40]);
        (0..20).for_each(|_| _ = round(&mut returns, &mut marks, 40));
        (0..20).for_each(|_| _ = round(&mut returns, &mut marks, 0));
        assert!(round(&mut returns, &mut marks, 0) < 2);
    }

    #[test]
    fn of_some_that_come_back_and_some_that_do_not_only_the_first_are_expected() {
        let (mut returns, mut marks) = (Returns::default(), [0; 40]);
        (0..30).for_each(|_| _ = round(&mut returns, &mut marks, 30));
        assert_eq!(round(&mut returns, &mut marks, 30), 30);
        assert_eq!(returns.missing(), 0, "nobody waits for the others");
    }

    #[test]
    fn a_connection_counts_once_and_only_in_its_round() {
        let mut returns = Returns { share: 256, ..Returns::default() };
        let mut mark = 0;
        returns.note_published(&mut mark);
        returns.note_answered(&mut mark);
        returns.note_answered(&mut mark);
        assert_eq!(returns.missing(), 1);
        returns.note_gone(mark);
        assert_eq!(returns.missing(), 0, "nobody waits for who is gone");
        returns.note_answered(&mut 0);
        returns.begin_round();
        returns.note_published(&mut mark);
        assert_eq!((returns.returned, returns.missing()), (0, 0), "it was answered in an earlier round");
    }
}
