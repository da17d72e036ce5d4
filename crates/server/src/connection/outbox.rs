//! The bytes on their way to a peer, and which messages among them can still be taken back.
//!
//! # Invariants
//! 1. `marks` names, in order, exactly the MSG frames of which no byte was handed to the system.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf, BytesMut};
use mortarmq_node::Unsent;
use mortarmq_types::MonotonicTime;

/// What is to be written to a connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: BytesMut,
    /// Where in the connection's whole output `bytes` begins.
    start: u64,
    marks: VecDeque<Mark>,
}

/// A message of which nothing was written yet.
#[derive(Clone, Debug)]
struct Mark {
    /// Where its frame stands in the connection's whole output.
    frame: Range<u64>,
    send_before: MonotonicTime,
    subscription: u16,
    unsent: Unsent,
}

impl Outbox {
    /// Whether everything was written.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether so much waits that nothing more is added.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= FULL_BYTES
    }

    /// Whether a message among it can still be taken back.
    pub(crate) fn has_messages(&self) -> bool {
        !self.marks.is_empty()
    }

    /// What is to be written next.
    pub(crate) fn unwritten(&self) -> &[u8] {
        &self.bytes
    }

    /// The end of the buffer, for an answer's frame.
    pub(crate) fn answers(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Adds a message's frame with `encode`, and remembers that it can be taken back.
    pub(crate) fn push_message(
        &mut self,
        subscription: u16,
        unsent: Unsent,
        send_before: MonotonicTime,
        encode: impl FnOnce(&mut BytesMut),
    ) {
        let from = self.end();
        encode(&mut self.bytes);
        self.marks.push_back(Mark { frame: from..self.end(), send_before, subscription, unsent });
    }

    /// The system took so many bytes.
    pub(crate) fn handle_written(&mut self, bytes: usize) {
        self.bytes.advance(bytes);
        self.start += bytes as u64;
        while self.marks.front().is_some_and(|mark| mark.frame.start < self.start) {
            self.marks.pop_front();
        }
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES {
            self.bytes = BytesMut::new();
        }
    }

    /// Takes back the messages whose lease is half spent by now.
    ///
    /// # Source
    /// Failure rule 7: checked just before each socket write.
    pub(crate) fn take_spent(&mut self, now: MonotonicTime) -> Vec<(u16, Unsent)> {
        if self.marks.iter().all(|mark| now < mark.send_before) {
            return Vec::new();
        }
        self.take_back(|mark| mark.send_before <= now)
    }

    /// Takes back every message of which no byte was written: the connection is over.
    pub(crate) fn take_unwritten(&mut self) -> Vec<(u16, Unsent)> {
        self.take_back(|_| true)
    }

    fn take_back(&mut self, is_taken: impl Fn(&Mark) -> bool) -> Vec<(u16, Unsent)> {
        let old = std::mem::take(&mut self.bytes);
        let at = |position: u64| usize::try_from(position - self.start).expect("a mark lies in the buffer");
        let (mut taken, mut kept) = (Vec::new(), VecDeque::with_capacity(self.marks.len()));
        let (mut copied_to, mut removed) = (0, 0);
        for mark in &self.marks {
            if is_taken(mark) {
                self.bytes.extend_from_slice(&old[copied_to..at(mark.frame.start)]);
                copied_to = at(mark.frame.end);
                removed += mark.frame.end - mark.frame.start;
                taken.push((mark.subscription, mark.unsent));
            } else {
                let frame = mark.frame.start - removed..mark.frame.end - removed;
                kept.push_back(Mark { frame, ..mark.clone() });
            }
        }
        self.bytes.extend_from_slice(&old[copied_to..]);
        self.marks = kept;
        taken
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// Above this, answers and messages wait in the channel: what is in the buffer cannot change its mind about its lease.
const FULL_BYTES: usize = 256 << 10;
/// A buffer that one large message made is not kept.
const KEPT_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::Outbox;
    use mortarmq_node::Unsent;
    use mortarmq_types::{DeliveryId, MonotonicTime, Partition, Seq};

    fn push(outbox: &mut Outbox, number: u64, text: &str, send_before: u64) {
        let unsent = Unsent { partition: Partition::ZERO, seq: Seq::new(number), delivery_id: DeliveryId::new(number) };
        outbox.push_message(1, unsent, MonotonicTime::new(send_before), |out| out.extend_from_slice(text.as_bytes()));
    }

    fn numbers(taken: &[(u16, Unsent)]) -> Vec<u64> {
        taken.iter().map(|(_, unsent)| unsent.seq.get()).collect()
    }

    #[test]
    fn rule_7_a_message_whose_lease_is_half_spent_is_taken_back_before_it_is_written() {
        let mut outbox = Outbox::default();
        outbox.answers().extend_from_slice(b"ok.");
        push(&mut outbox, 1, "one.", 100);
        outbox.answers().extend_from_slice(b"ok.");
        push(&mut outbox, 2, "two.", 50);
        push(&mut outbox, 3, "three.", 100);
        outbox.answers().extend_from_slice(b"end");
        assert_eq!(numbers(&outbox.take_spent(MonotonicTime::new(49))), [0; 0]);
        assert_eq!(numbers(&outbox.take_spent(MonotonicTime::new(50))), [2]);
        assert_eq!(outbox.unwritten(), b"ok.one.ok.three.end");
        assert_eq!(numbers(&outbox.take_spent(MonotonicTime::new(100))), [1, 3]);
        assert_eq!(outbox.unwritten(), b"ok.ok.end");
    }

    #[test]
    fn a_message_of_which_a_byte_was_written_is_not_taken_back() {
        let mut outbox = Outbox::default();
        push(&mut outbox, 1, "one.", 10);
        push(&mut outbox, 2, "two.", 10);
        push(&mut outbox, 3, "three.", 90);
        outbox.handle_written(5);
        assert_eq!(numbers(&outbox.take_spent(MonotonicTime::new(50))), [0; 0]);
        assert_eq!(outbox.unwritten(), b"wo.three.");
        outbox.handle_written(3);
        assert_eq!(numbers(&outbox.take_unwritten()), [3]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn what_is_left_after_a_take_back_is_still_marked_rightly() {
        let mut outbox = Outbox::default();
        push(&mut outbox, 1, "one.", 10);
        push(&mut outbox, 2, "two.", 90);
        push(&mut outbox, 3, "three.", 90);
        assert_eq!(numbers(&outbox.take_spent(MonotonicTime::new(10))), [1]);
        outbox.handle_written(4);
        assert_eq!(numbers(&outbox.take_unwritten()), [3]);
        assert!(outbox.is_empty());
    }
}
