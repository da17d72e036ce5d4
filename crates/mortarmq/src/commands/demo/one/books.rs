//! What the demonstration itself has seen, to be compared with what the node says.

use std::collections::{BTreeMap, BTreeSet};

use crate::commands::balance::Balance;

/// A message: partition and sequence.
pub(super) type MessageId = (u16, u64);

/// What was confirmed and what came.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Publishes that were answered OK.
    pub(super) confirmed: BTreeSet<MessageId>,
    /// Acks that were answered OK, and how often.
    pub(super) acked: BTreeMap<MessageId, u32>,
    /// Whether the node was killed meanwhile.
    pub(super) is_restarted: bool,
    /// Messages that came after the kill although they were acked before.
    pub(super) acked_and_back: BTreeSet<MessageId>,
    /// Messages that came after everything was acked.
    pub(super) surplus: BTreeSet<MessageId>,
    /// One message that was delivered twice.
    pub(super) redelivered: Option<MessageId>,
}

impl Books {
    /// A message came.
    pub(super) fn came(&mut self, message: MessageId, attempt: u64) {
        if self.is_restarted && self.acked.contains_key(&message) {
            self.acked_and_back.insert(message);
        }
        if attempt > 1 {
            self.redelivered.get_or_insert(message);
        }
    }

    /// Its ack was answered OK.
    pub(super) fn settled(&mut self, message: MessageId) {
        *self.acked.entry(message).or_insert(0) += 1;
    }

    /// What does not agree; nothing when all is well.
    pub(super) fn faults(&self, balance: &Balance) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |count: usize, what: &str| {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        };
        let lost = self.confirmed.iter().filter(|message| !self.acked.contains_key(message)).count();
        let strange = self.acked.keys().filter(|message| !self.confirmed.contains(message)).count();
        check(lost, "confirmed messages never came (P1, P4)");
        check(strange, "messages came that were never confirmed (P2)");
        check(self.acked.values().filter(|count| **count > 1).count(), "messages were acked twice (P6)");
        check(self.acked_and_back.len(), "messages came again after their ack (P6)");
        check(self.surplus.len(), "messages came after everything was acked (P6)");
        check(balance.unbalanced(), "paths do not balance (P9)");
        let agrees = |delivered: u64, depth: u64| delivered == self.confirmed.len() as u64 && depth == 0;
        if !balance.paths.iter().any(|books| agrees(books.delivered, books.depth)) {
            faults.push("the node's books say something else (P9)".to_owned());
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::Books;
    use crate::commands::balance::Balance;

    fn balance(delivered: u64, depth: u64) -> Balance {
        let path = serde_json::json!({"topic": "orders", "group": "g", "produced": delivered + depth,
            "delivered": delivered, "dropped": 0, "dlq": 0, "depth": depth});
        let answer = serde_json::json!({"commit_index": 1, "epoch": 1, "paths": [path]});
        serde_json::from_value(answer).expect("has all fields")
    }

    fn good() -> Books {
        let mut books = Books::default();
        for message in [(0, 1), (1, 1)] {
            books.confirmed.insert(message);
            books.came(message, 1);
            books.settled(message);
        }
        books.is_restarted = true;
        books
    }

    #[test]
    fn books_that_agree_have_no_fault() {
        assert_eq!(good().faults(&balance(2, 0)), Vec::<String>::new());
    }

    #[test]
    fn every_fault_is_found() {
        let mut lost = good();
        lost.confirmed.insert((0, 2));
        let mut strange = good();
        strange.settled((3, 3));
        let mut twice = good();
        twice.settled((0, 1));
        let mut again = good();
        again.came((0, 1), 2);
        let mut surplus = good();
        surplus.surplus.insert((0, 1));
        for (books, word) in
            [(lost, "never came"), (strange, "never confirmed"), (twice, "twice"), (again, "again"), (surplus, "after")]
        {
            let count = books.confirmed.len() as u64;
            let faults = books.faults(&balance(count, 0));
            assert!(faults.len() == 1 && faults[0].contains(word), "{word}: {faults:?}");
        }
        assert_eq!(good().faults(&balance(1, 1)), ["the node's books say something else (P9)"]);
    }
}
