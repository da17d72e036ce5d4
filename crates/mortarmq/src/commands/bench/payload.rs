//! What is published: values that say when, and keys.

use std::time::{Duration, Instant};

use mortarmq_client::Message;

use super::measure::Plan;

/// The messages of one producer, one after the other.
pub(super) struct Payload {
    epoch: Instant,
    value: Vec<u8>,
    key: Vec<u8>,
    keys: u64,
    number: u64,
}

impl Payload {
    /// Those of the producer with this number: producers begin at different keys.
    pub(super) fn new(plan: &Plan, producer: usize) -> Self {
        Self {
            epoch: plan.epoch,
            value: vec![b'm'; plan.load.value_bytes as usize],
            key: Vec::new(),
            keys: u64::from(plan.load.keys),
            number: producer as u64 * PRODUCER_STRIDE,
        }
    }

    /// Makes the next message, and says when.
    pub(super) fn next(&mut self) -> Instant {
        self.number += 1;
        if self.keys > 0 {
            self.key = format!("key-{}", self.number % self.keys).into_bytes();
        }
        let now = Instant::now();
        let since = u64::try_from((now - self.epoch).as_nanos()).unwrap_or(u64::MAX);
        if let Some(head) = self.value.first_chunk_mut() {
            *head = since.to_be_bytes();
        }
        now
    }

    /// The present message.
    pub(super) fn message(&self) -> Message<'_> {
        Message { key: &self.key, ..Message::of(&self.value) }
    }
}

/// When a value was made, if it says so.
pub(super) fn made_at(epoch: Instant, value: &[u8]) -> Option<Instant> {
    let nanos = u64::from_be_bytes(*value.first_chunk()?);
    epoch.checked_add(Duration::from_nanos(nanos))
}

/// A prime, so that producers do not go through the keys in step.
const PRODUCER_STRIDE: u64 = 104_729;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Payload, made_at};
    use crate::bench::Span;
    use crate::commands::bench::measure::Plan;
    use crate::commands::bench::phase::Load;

    fn plan(value_bytes: u32, keys: u32) -> Plan {
        let load = Load { value_bytes, keys, ..Load::default() };
        let span = Span::after(Duration::ZERO, Duration::from_secs(1));
        Plan { topic: "t".to_owned(), load, span, epoch: Instant::now() }
    }

    #[test]
    fn a_value_says_when_it_was_made_to_the_nanosecond() {
        let plan = plan(8, 0);
        let mut payload = Payload::new(&plan, 3);
        let begun = payload.next();
        assert_eq!(made_at(plan.epoch, payload.message().value), Some(begun));
        assert_eq!(payload.message().value.len(), 8);
        assert!(payload.message().key.is_empty());
        assert_eq!(made_at(plan.epoch, b"short"), None);
    }

    #[test]
    fn all_keys_are_used_and_no_others() {
        let mut payload = Payload::new(&plan(8, 3), 1);
        let keys: std::collections::BTreeSet<Vec<u8>> = (0..9)
            .map(|_| {
                payload.next();
                payload.message().key.to_vec()
            })
            .collect();
        assert_eq!(keys.into_iter().collect::<Vec<_>>(), [b"key-0", b"key-1", b"key-2"]);
    }
}
