//! Dead letters: what the broker adds to a message that left its path, and how large that makes it.
//!
//! Apply never sees a message's bytes. It says where they lie and what is added to them ([`Envelope`]); the segment
//! writer copies them. So that windows of bytes stay right, the size of the dead letter is arithmetic: the size of its
//! source, which the path knows, and the names and values of the headers that are added.
//!
//! | header | value |
//! |---|---|
//! | `mortarmq-dlq-path` | the path it died on, `topic/group` |
//! | `mortarmq-dlq-partition` | its partition there |
//! | `mortarmq-dlq-sequence` | its sequence there |
//! | `mortarmq-dlq-attempts` | attempts made |
//! | `mortarmq-dlq-reason` | the cause that ended the last one, or `rejected` |
//! | `mortarmq-dlq-error` | the error text that its consumer gave with the last settle; empty if it gave none |
//! | `mortarmq-dlq-delivery` | the delivery that it died by: a redrive follows it. 0 if its record could not be read when it died: then there is nothing to redrive |
//! | `mortarmq-dlq-path-id` | the number of that path, which no later group of the same name has |
//!
//! They stand behind the message's own headers. Where a name stands twice, the last is the broker's.

use mortarmq_delivery::{Death, Ended};
use mortarmq_types::{Attempt, DeliveryId, Partition, PathId, Seq};

use crate::ledger::longest_start;

/// The group that every dead-letter topic has from its beginning: its path is the topic's own book.
pub const DEAD_LETTER_GROUP: &str = "default";

/// How many headers are added.
pub const DEAD_LETTER_HEADERS: usize = 8;

/// The longest error text that a dead letter carries, in bytes.
pub const ERROR_MAX_BYTES: usize = 512;

/// The largest dead letter: key, headers and value. A frame has room for it; the error text is cut where it would not.
///
/// # Units
/// Bytes.
pub const DEAD_LETTER_MAX_BYTES: u32 = 16 * 1024 * 1024 - 320;

/// What is added to a message that is dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The path it died on: `topic/group`.
    pub path: String,
    /// Its partition there.
    pub partition: Partition,
    /// Its sequence there.
    pub seq: Seq,
    /// Attempts made.
    pub attempts: Attempt,
    /// Why it is dead.
    pub reason: Death,
    /// What its consumer said, cut to [`ERROR_MAX_BYTES`] and to what fits a frame.
    pub error: String,
    /// The delivery that it died by.
    pub delivery: DeliveryId,
    /// The path's number.
    pub path_id: PathId,
}

impl Envelope {
    /// The envelope of a message whose last delivery ended.
    #[must_use]
    pub fn new(
        (path_id, path): (PathId, String),
        partition: Partition,
        ended: &Ended,
        reason: Death,
        error: &str,
    ) -> Self {
        let (seq, attempts, delivery) = (ended.seq, ended.attempt, ended.delivery_id);
        let mut envelope = Self { path, partition, seq, attempts, reason, error: String::new(), delivery, path_id };
        let room = DEAD_LETTER_MAX_BYTES.saturating_sub(envelope.payload_bytes(ended.size_bytes)) as usize;
        envelope.error = longest_start(error, room.min(ERROR_MAX_BYTES)).to_owned();
        envelope
    }

    /// The headers that are added, in their order.
    #[must_use]
    pub fn headers(&self) -> [(&'static str, String); DEAD_LETTER_HEADERS] {
        [
            ("mortarmq-dlq-path", self.path.clone()),
            ("mortarmq-dlq-partition", self.partition.to_string()),
            ("mortarmq-dlq-sequence", self.seq.to_string()),
            ("mortarmq-dlq-attempts", self.attempts.to_string()),
            ("mortarmq-dlq-reason", self.reason.word().to_owned()),
            ("mortarmq-dlq-error", self.error.clone()),
            ("mortarmq-dlq-delivery", self.delivery.to_string()),
            ("mortarmq-dlq-path-id", self.path_id.to_string()),
        ]
    }

    /// Bytes of key, headers and value of the dead letter of a message with so many.
    #[must_use]
    pub fn payload_bytes(&self, of_source: u32) -> u32 {
        let added: usize = self.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
        of_source.saturating_add(u32::try_from(added).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::{DEAD_LETTER_MAX_BYTES, ERROR_MAX_BYTES, Envelope};
    use mortarmq_delivery::{Death, End, Ended, Grant};
    use mortarmq_types::{Attempt, Cause, DeliveryId, KeyHash, MemberId, Partition, PathId, Seq};

    fn envelope(size_bytes: u32, error: &str) -> Envelope {
        let reason = Death::Exhausted(Cause::ConsumerLost);
        let ended = Ended {
            seq: Seq::MAX,
            delivery_id: DeliveryId::MAX,
            attempt: Attempt::new(u32::MAX),
            member: MemberId::new(1),
            grant: Grant::Push,
            key_hash: KeyHash::NONE,
            size_bytes,
            end: End::Dead(reason),
            source: None,
        };
        let path = format!("{0}/{0}", "n".repeat(crate::names::NAME_MAX_BYTES));
        Envelope::new((PathId::MAX, path), Partition::new(1023), &ended, reason, error)
    }

    #[test]
    fn the_longest_envelope_of_the_largest_message_fits_a_frame() {
        let largest = 16 * 1024 * 1024 - 1024;
        let found = envelope(largest, &"é".repeat(ERROR_MAX_BYTES));
        assert!(found.payload_bytes(largest) <= DEAD_LETTER_MAX_BYTES);
        assert!(found.error.len() >= 50, "something of the error text is left: {} bytes", found.error.len());
    }

    #[test]
    fn an_error_text_is_cut_between_characters() {
        let found = envelope(10, &"é".repeat(300));
        assert_eq!(found.error, "é".repeat(ERROR_MAX_BYTES / 2));
        assert_eq!(envelope(u32::MAX, "no room").error, "", "a size that no message has does no harm");
    }
}
