//! The answers that a connection waits for: the node answers in the order of the requests, this remembers what they
//! were.

use std::collections::VecDeque;
use std::time::Instant;

/// The requests that are not answered yet, oldest first. Pulls take no place in the order and are only counted.
#[derive(Debug)]
pub(crate) struct Expected {
    places: VecDeque<Place>,
    bytes: u64,
    read_at: Instant,
    pulls: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    op: u8,
    bytes: u32,
    read_at: Instant,
}

impl Expected {
    pub(crate) fn new(now: Instant) -> Self {
        Self { places: VecDeque::new(), bytes: 0, read_at: now, pulls: 0 }
    }

    /// What is pushed from here on was read now.
    pub(crate) fn handle_read(&mut self, now: Instant) {
        self.read_at = now;
    }

    /// When the oldest open request was read.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.places.front().map(|place| place.read_at)
    }

    /// A request was handed over. `op` is as it was read, `bytes` what its frame took.
    pub(crate) fn push(&mut self, op: u8, bytes: usize) {
        let bytes = u32::try_from(bytes).expect("a frame has at most 16 MiB");
        self.places.push_back(Place { op, bytes, read_at: self.read_at });
        self.bytes += u64::from(bytes);
    }

    /// The op whose answer has come.
    ///
    /// # Panics
    /// When no answer is due: the node answers each request once.
    pub(crate) fn pop(&mut self) -> u8 {
        let place = self.places.pop_front().expect("the node answers each request once");
        self.bytes -= u64::from(place.bytes);
        place.op
    }

    /// Whether a pull is not answered yet.
    pub(crate) fn has_pulls(&self) -> bool {
        self.pulls > 0
    }

    /// A pull was handed over.
    pub(crate) fn push_pull(&mut self) {
        self.pulls += 1;
    }

    /// A pull was answered.
    ///
    /// # Panics
    /// When none is open: the node answers each once.
    pub(crate) fn pop_pull(&mut self) {
        self.pulls = self.pulls.checked_sub(1).expect("the node answers each pull once");
    }

    /// Whether everything was answered, pulls too.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty() && self.pulls == 0
    }

    /// Whether so much is open that no more is read.
    ///
    /// # Source
    /// docs/reference/operations.md: 1024 requests or 8 MiB outstanding per connection.
    pub(crate) fn is_full(&self) -> bool {
        self.places.len() + self.pulls >= OPEN_REQUESTS_MAX || self.bytes >= OPEN_BYTES_MAX
    }
}

const OPEN_REQUESTS_MAX: usize = 1024;
const OPEN_BYTES_MAX: u64 = 8 << 20;
/// What a request counts whose answer may be large: nothing else is taken until it is answered.
pub(crate) const ALONE_BYTES: usize = OPEN_BYTES_MAX as usize;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{Expected, OPEN_BYTES_MAX, OPEN_REQUESTS_MAX};

    #[test]
    fn rule_9_a_connection_is_not_read_while_too_many_requests_are_open() {
        let mut expected = Expected::new(Instant::now());
        for _ in 1..OPEN_REQUESTS_MAX {
            expected.push(3, 10);
        }
        assert!(!expected.is_full());
        expected.push(7, 10);
        assert!(expected.is_full());
        assert_eq!(expected.pop(), 3);
        assert!(!expected.is_full());
        expected.push_pull();
        assert!(expected.is_full(), "a pull is a request too");
        for _ in 1..OPEN_REQUESTS_MAX {
            expected.pop();
        }
        assert!(!expected.is_empty(), "a pull is to be answered too");
        expected.pop_pull();
        assert!(expected.is_empty());
        assert!(!expected.is_full());
    }

    #[test]
    fn rule_9_a_connection_is_not_read_while_too_many_bytes_are_open() {
        let mut expected = Expected::new(Instant::now());
        expected.push(3, OPEN_BYTES_MAX as usize - 1);
        assert!(!expected.is_full());
        expected.push(3, 1);
        assert!(expected.is_full());
        assert_eq!((expected.pop(), expected.pop()), (3, 3));
        assert!(expected.is_empty() && !expected.is_full());
    }
}
