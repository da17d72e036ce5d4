//! Persist, then speak: what waits for the disk, first in, first out.
//!
//! # Invariants
//! 1. A message that promises durable state is released only after the append it came with and every earlier one are
//!    persisted, also when it came with nothing to append itself: it may still acknowledge an earlier entry.
//! 2. Every waiting group begins with an append; what needs no disk joins the group before it.
//! 3. Numbers grow from the front to the back.

use std::collections::VecDeque;

use raft::eraftpb::Message;

/// One round of the library, as far as the disk is concerned.
#[derive(Debug)]
pub(crate) struct PendingReady {
    /// The library's number for it.
    pub(crate) number: u64,
    /// Whether it needs the disk.
    pub(crate) must_sync: bool,
    /// The term that is durable once it is persisted.
    pub(crate) term: u64,
    /// Payload bytes that it appends.
    pub(crate) bytes: u64,
    /// The tick at which it was appended.
    pub(crate) tick: u64,
    /// What may be sent only afterwards.
    pub(crate) gated: Vec<Message>,
}

/// What became durable in one go.
#[derive(Debug, PartialEq)]
pub(crate) struct Released {
    /// The highest number that is persisted now.
    pub(crate) number: u64,
    /// The durable term.
    pub(crate) term: u64,
    /// What may be sent now, in order.
    pub(crate) messages: Vec<Message>,
}

/// The rounds whose appends are not yet persisted.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    waiting: VecDeque<Group>,
    bytes: u64,
    last_number: u64,
}

#[derive(Debug)]
struct Group {
    append_number: u64,
    last_number: u64,
    term: u64,
    bytes: u64,
    tick: u64,
    gated: Vec<Message>,
}

impl ReadyQueue {
    /// Takes a round; returns what is persisted at once because nothing has to be written and nothing waits.
    pub(crate) fn push(&mut self, ready: PendingReady) -> Option<Released> {
        let PendingReady { number, must_sync, term, bytes, tick, gated } = ready;
        assert!(number > self.last_number, "round {number} after {}", self.last_number);
        self.last_number = number;
        if must_sync {
            self.bytes += bytes;
            self.waiting.push_back(Group { append_number: number, last_number: number, term, bytes, tick, gated });
            return None;
        }
        let Some(group) = self.waiting.back_mut() else {
            return Some(Released { number, term, messages: gated });
        };
        assert_eq!(group.term, term, "a round that changes the term needs the disk");
        group.last_number = number;
        // Lost messages are the library's daily bread; memory without end behind a hanging disk is not.
        let room = MAX_GATED_MESSAGES.saturating_sub(group.gated.len());
        group.gated.extend(gated.into_iter().take(room));
        None
    }

    /// Ends the wait of every append up to this number, and of what joined them.
    ///
    /// # Panics
    /// When the number was never put out: then something was acknowledged that nobody wrote (failure rule 1).
    pub(crate) fn persisted(&mut self, ready_number: u64) -> Option<Released> {
        assert!(
            ready_number <= self.last_number,
            "append {ready_number} is called persisted, the last was {}",
            self.last_number
        );
        let mut released: Option<Released> = None;
        while let Some(group) = self.waiting.pop_front_if(|group| group.append_number <= ready_number) {
            self.bytes -= group.bytes;
            let mut messages = released.map_or_else(Vec::new, |earlier| earlier.messages);
            messages.extend(group.gated);
            released = Some(Released { number: group.last_number, term: group.term, messages });
        }
        released
    }

    /// Payload bytes that are appended and not persisted.
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.bytes
    }

    /// The tick at which the oldest append that is not persisted was put out.
    pub(crate) fn oldest_tick(&self) -> Option<u64> {
        self.waiting.front().map(|group| group.tick)
    }

    /// Asserts the numbered invariants; for tests and simulators.
    pub(crate) fn check(&self) {
        let mut number = 0;
        for group in &self.waiting {
            assert!(group.append_number > number && group.last_number >= group.append_number, "numbers out of order");
            number = group.last_number;
        }
        assert_eq!(self.bytes, self.waiting.iter().map(|group| group.bytes).sum::<u64>(), "bytes counted wrongly");
    }
}

/// Messages that may wait behind one append: heartbeat answers of several minutes.
const MAX_GATED_MESSAGES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::{Message, PendingReady, ReadyQueue, Released};

    fn ready(number: u64, must_sync: bool) -> PendingReady {
        let gated = vec![Message { index: number, ..Message::default() }];
        PendingReady { number, must_sync, term: 1, bytes: 10, tick: number, gated }
    }

    fn indexes(released: Option<Released>) -> (u64, Vec<u64>) {
        released.map_or((0, vec![]), |r| (r.number, r.messages.iter().map(|message| message.index).collect()))
    }

    #[test]
    fn rule_1_a_round_without_writes_still_waits_for_earlier_appends() {
        let mut queue = ReadyQueue::default();
        assert_eq!(queue.push(ready(1, true)), None);
        assert_eq!(queue.push(ready(2, false)), None);
        assert_eq!(queue.push(ready(3, true)), None);
        assert_eq!(queue.push(ready(4, false)), None);
        queue.check();
        assert_eq!(queue.unsynced_bytes(), 20);
        assert_eq!(indexes(queue.persisted(1)), (2, vec![1, 2]));
        assert_eq!(queue.oldest_tick(), Some(3));
        assert_eq!(indexes(queue.persisted(3)), (4, vec![3, 4]));
        assert_eq!((queue.unsynced_bytes(), queue.oldest_tick()), (0, None));
    }

    #[test]
    fn a_round_without_writes_and_nothing_before_it_is_persisted_at_once() {
        let mut queue = ReadyQueue::default();
        assert_eq!(indexes(queue.push(ready(1, false))), (1, vec![1]));
    }

    #[test]
    fn one_fsync_ends_the_wait_of_all_appends_it_covers() {
        let mut queue = ReadyQueue::default();
        for number in 1..=3 {
            assert_eq!(queue.push(ready(number, true)), None);
        }
        assert_eq!(indexes(queue.persisted(2)), (2, vec![1, 2]));
        assert_eq!(queue.persisted(2), None);
        assert_eq!(indexes(queue.persisted(3)), (3, vec![3]));
    }

    #[test]
    #[should_panic(expected = "is called persisted")]
    fn a_number_that_was_never_put_out_is_fatal() {
        let _ = ReadyQueue::default().persisted(1);
    }
}
