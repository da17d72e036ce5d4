//! Reads that need the present epoch's read index: they wait, share one heartbeat round, and come out once applied.

use std::collections::VecDeque;

/// The reads of one office, by the step they have reached.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Not yet in a round.
    waiting: Vec<u64>,
    /// The round the majority is asked in, with its reads. One at a time: what comes meanwhile shares the next.
    in_flight: Option<(u64, Vec<u64>)>,
    /// Confirmed, with the log index they need; indexes never fall from front to back.
    confirmed: VecDeque<(u64, u64)>,
    last_round: u64,
}

impl Reads {
    pub(crate) fn request(&mut self, token: u64) {
        self.waiting.push(token);
    }

    /// Puts all that waits into a round, unless one is on its way; returns the context to ask with.
    pub(crate) fn begin_round(&mut self) -> Option<Vec<u8>> {
        if self.waiting.is_empty() || self.in_flight.is_some() {
            return None;
        }
        self.last_round += 1;
        self.in_flight = Some((self.last_round, std::mem::take(&mut self.waiting)));
        Some(self.last_round.to_be_bytes().to_vec())
    }

    /// The majority confirmed the leader for this context; the reads of another, older round are lost already.
    pub(crate) fn confirm(&mut self, context: &[u8], log_index: u64) {
        if let Some((_, tokens)) = self.in_flight.take_if(|(round, _)| round.to_be_bytes() == *context) {
            self.confirmed.extend(tokens.into_iter().map(|token| (token, log_index)));
        }
    }

    /// The next read whose log index is applied.
    pub(crate) fn pop_applied(&mut self, applied: u64) -> Option<(u64, u64)> {
        self.confirmed.pop_front_if(|(_, log_index)| *log_index <= applied)
    }

    /// Forgets all: the office they were asked in is over.
    pub(crate) fn clear(&mut self) {
        let last_round = self.last_round;
        *self = Self { last_round, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::Reads;

    #[test]
    fn reads_share_one_round_and_wait_until_applied() {
        let mut reads = Reads::default();
        reads.request(7);
        reads.request(8);
        let first = reads.begin_round().unwrap();
        reads.request(9);
        assert_eq!(reads.begin_round(), None);
        reads.confirm(b"another", 3);
        assert_eq!(reads.pop_applied(100), None);
        reads.confirm(&first, 3);
        assert_eq!(reads.pop_applied(2), None);
        assert_eq!(
            [reads.pop_applied(3), reads.pop_applied(3), reads.pop_applied(3)],
            [Some((7, 3)), Some((8, 3)), None]
        );
        assert!(reads.begin_round().is_some());
    }

    #[test]
    fn an_answer_from_an_earlier_office_confirms_nothing() {
        let mut reads = Reads::default();
        reads.request(7);
        let old = reads.begin_round().unwrap();
        reads.clear();
        reads.request(8);
        assert!(reads.begin_round().is_some());
        reads.confirm(&old, 3);
        assert_eq!(reads.pop_applied(100), None);
    }
}
