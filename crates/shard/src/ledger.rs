//! The history of deliveries: what a trace reads. Kept per partition, apart from the records.
//!
//! An event speaks of a run of consecutive messages whose deliveries were alike, so that a busy path costs a few bytes
//! per message. The live state does not depend on it.
//!
//! | field | bytes | meaning |
//! |---|---|---|
//! | version | 1 | [`LEDGER_VERSION`]; an unknown one is refused (P11) |
//! | kind | 1 | 1 leased, 2 extended, 3 lease ended, 4 acked, 5 dead, 6 dropped, 7 redriven, 8 replayed |
//! | cause | 1 | why it was delivered (leased), why it ended (lease ended), what ended the last attempt (dead; 0: its consumer said so), number of the reason (dropped); 0 otherwise |
//! | path | 8 | which obligation |
//! | first_seq, count | 8, 4 | the messages; of dropped and replayed ones up to 2³² − 1 in one event |
//! | first_delivery | 8 | the delivery of the first; the others follow. 0 if no delivery is meant (dropped, replayed) |
//! | attempt | 4 | of each |
//! | member | 8 | who held it |
//! | previous | 8 | the delivery that this one follows (leased, dropped, redriven; runs of one only); 0 for none |
//! | time, wall | 8, 8 | cluster time of the batch; the leader's wall clock, for display |
//! | commit_index, epoch | 8, 8 | the command |
//! | detail | n | UTF-8: the error text of a nack; of a dead message, where its dead letter is, and the error text; of a redriven one, which dead letter it was, and of that, what it became |

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mortarmq_delivery::Death;
use mortarmq_types::{
    Attempt, Cause, ClusterTime, CommitIndex, DeliveryId, DropReason, Epoch, MemberId, PathId, Seq, WallTime,
};

/// The version of the event layout.
pub const LEDGER_VERSION: u8 = 1;
/// The longest detail kept, in bytes.
pub const DETAIL_MAX_BYTES: usize = 1024;

/// What happened to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerKind {
    /// It began, for this cause.
    Leased(Cause),
    /// Its lease began anew.
    Extended,
    /// It ended without being settled for good, for this cause.
    LeaseEnded(Cause),
    /// It ended with an ack.
    Acked,
    /// It ended the message's life on this path.
    Dead(Death),
    /// The messages left the path by this rule.
    Dropped(DropReason),
    /// The message is owed once more: an operator brought its dead letter back.
    Redriven,
    /// The messages are owed once more: an operator moved the path back.
    Replayed,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEvent {
    /// Which obligation.
    pub path: PathId,
    /// What happened.
    pub kind: LedgerKind,
    /// The first message.
    pub first_seq: Seq,
    /// How many messages.
    pub count: u32,
    /// The delivery of the first message; the others follow.
    pub first_delivery: DeliveryId,
    /// The attempt of each.
    pub attempt: Attempt,
    /// Who held it.
    pub member: MemberId,
    /// The delivery that this one follows; 0 for none.
    pub previous: DeliveryId,
    /// When, in the log's time.
    pub time: ClusterTime,
    /// When, for display.
    pub wall: WallTime,
    /// The command; for what ended by itself, the last one before.
    pub commit_index: CommitIndex,
    /// The leader's term.
    pub epoch: Epoch,
    /// The error text of a nack; of a dead message, where its dead letter is, and the error text; of a redriven one, which
    /// dead letter it was, and of that, what it became.
    pub detail: String,
}

/// Why bytes are not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The bytes end inside a field.
    #[error("the ledger event ends inside a field")]
    TooShort,
    /// A layout or value that this build does not know.
    #[error("ledger event field {field} cannot be {found}")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        found: u8,
    },
}

impl LedgerEvent {
    /// The event's bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(FIXED_BYTES + self.detail.len());
        let (kind, cause) = match self.kind {
            LedgerKind::Leased(cause) => (1, cause.number()),
            LedgerKind::Extended => (2, 0),
            LedgerKind::LeaseEnded(cause) => (3, cause.number()),
            LedgerKind::Acked => (4, 0),
            LedgerKind::Dead(Death::Exhausted(cause)) => (5, cause.number()),
            LedgerKind::Dead(Death::Rejected) => (5, Cause::First.number()),
            LedgerKind::Dropped(reason) => (6, reason.number()),
            LedgerKind::Redriven => (7, 0),
            LedgerKind::Replayed => (8, 0),
        };
        out.put_slice(&[LEDGER_VERSION, kind, cause]);
        out.put_u64(self.path.get());
        out.put_u64(self.first_seq.get());
        out.put_u32(self.count);
        out.put_u64(self.first_delivery.get());
        out.put_u32(self.attempt.get());
        out.put_u64(self.member.get());
        out.put_u64(self.previous.get());
        out.put_u64(self.time.get());
        out.put_u64(self.wall.get());
        out.put_u64(self.commit_index.get());
        out.put_u64(self.epoch.get());
        out.put_slice(self.detail.as_bytes());
        out.freeze()
    }

    /// Reads an event.
    ///
    /// # Errors
    /// When the bytes are no event of a known version.
    pub fn decode(mut bytes: Bytes) -> Result<Self, LedgerError> {
        if bytes.len() < FIXED_BYTES {
            return Err(LedgerError::TooShort);
        }
        let version = bytes.get_u8();
        if version != LEDGER_VERSION {
            return Err(LedgerError::Field { field: "version", found: version });
        }
        let kind = bytes.get_u8();
        let number = bytes.get_u8();
        let unknown = LedgerError::Field { field: "cause", found: number };
        let cause = || Cause::from_number(number).ok_or(unknown);
        let kind = match kind {
            1 => LedgerKind::Leased(cause()?),
            2 => LedgerKind::Extended,
            3 => LedgerKind::LeaseEnded(cause()?),
            4 => LedgerKind::Acked,
            5 => match cause()? {
                Cause::First => LedgerKind::Dead(Death::Rejected),
                cause => LedgerKind::Dead(Death::Exhausted(cause)),
            },
            6 => LedgerKind::Dropped(DropReason::from_number(number).ok_or(unknown)?),
            7 => LedgerKind::Redriven,
            8 => LedgerKind::Replayed,
            found => return Err(LedgerError::Field { field: "kind", found }),
        };
        Ok(Self {
            kind,
            path: PathId::new(bytes.get_u64()),
            first_seq: Seq::new(bytes.get_u64()),
            count: bytes.get_u32(),
            first_delivery: DeliveryId::new(bytes.get_u64()),
            attempt: Attempt::new(bytes.get_u32()),
            member: MemberId::new(bytes.get_u64()),
            previous: DeliveryId::new(bytes.get_u64()),
            time: ClusterTime::new(bytes.get_u64()),
            wall: WallTime::new(bytes.get_u64()),
            commit_index: CommitIndex::new(bytes.get_u64()),
            epoch: Epoch::new(bytes.get_u64()),
            detail: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    /// The event as it concerns one message of its run.
    #[must_use]
    pub fn of_message(&self, seq: Seq) -> Option<Self> {
        let place = seq.get().checked_sub(self.first_seq.get()).filter(|place| *place < u64::from(self.count))?;
        let first_delivery = self.delivery_after(place)?;
        Some(Self { first_seq: seq, count: 1, first_delivery, ..self.clone() })
    }

    /// Takes the event behind this one in, if it only goes on with it.
    pub fn absorb(&mut self, next: &Self) -> bool {
        let follows = next.first_seq.get() == self.first_seq.get() + u64::from(self.count)
            && Some(next.first_delivery) == self.delivery_after(u64::from(self.count));
        let alike = self.kind == next.kind
            && self.path == next.path
            && self.attempt == next.attempt
            && self.member == next.member
            && self.previous == DeliveryId::ZERO
            && next.previous == DeliveryId::ZERO
            && self.commit_index == next.commit_index
            && is_same(&self.detail, &next.detail);
        if follows && alike {
            self.count += next.count;
        }
        follows && alike
    }

    /// The delivery of a later message of the run; where none is meant, it has none either.
    fn delivery_after(&self, place: u64) -> Option<DeliveryId> {
        match self.first_delivery {
            DeliveryId::ZERO => Some(DeliveryId::ZERO),
            first => first.get().checked_add(place).map(DeliveryId::new),
        }
    }
}

/// Whether two texts are the same. That of most events is empty: to compare no bytes at no address costs some processors
/// hundreds of cycles.
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

/// The longest start of a text that is whole characters and at most so many bytes.
#[must_use]
pub fn longest_start(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

const FIXED_BYTES: usize = 3 + 8 + 8 + 4 + 8 + 4 + 8 + 8 + 8 + 8 + 8 + 8;

#[cfg(test)]
mod tests {
    use super::{LedgerEvent, LedgerKind};
    use mortarmq_delivery::Death;
    use mortarmq_types::{
        Attempt, Cause, ClusterTime, CommitIndex, DeliveryId, DropReason, Epoch, MemberId, PathId, Seq, WallTime,
    };

    fn event(seq: u64, delivery: u64) -> LedgerEvent {
        LedgerEvent {
            path: PathId::new(1),
            kind: LedgerKind::LeaseEnded(Cause::Nacked),
            first_seq: Seq::new(seq),
            count: 1,
            first_delivery: DeliveryId::new(delivery),
            attempt: Attempt::FIRST,
            member: MemberId::new(5),
            previous: DeliveryId::ZERO,
            time: ClusterTime::new(6),
            wall: WallTime::new(7),
            commit_index: CommitIndex::new(8),
            epoch: Epoch::new(9),
            detail: "no such customer".to_owned(),
        }
    }

    #[test]
    fn version_1_keeps_its_bytes() {
        let hex: String = event(3, 4).encode().iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = concat!(
            "0103020000000000000001000000000000000300000001000000000000000400000001000000000000000500",
            "0000000000000000000000000000060000000000000007000000000000000800000000000000096e6f207375",
            "636820637573746f6d6572",
        );
        assert_eq!(hex, golden);
    }

    #[test]
    fn p7_an_event_survives_its_bytes_and_no_prefix_of_them_does() {
        for death in [Death::Rejected, Death::Exhausted(Cause::ConsumerLost)] {
            let dead = LedgerEvent { kind: LedgerKind::Dead(death), ..event(3, 4) };
            assert_eq!(LedgerEvent::decode(dead.encode()), Ok(dead));
        }
        let bytes = event(3, 4).encode();
        assert_eq!(LedgerEvent::decode(bytes.clone()), Ok(event(3, 4)));
        for length in 0..super::FIXED_BYTES {
            assert!(LedgerEvent::decode(bytes.slice(..length)).is_err());
        }
    }

    #[test]
    fn p7_a_run_tells_each_of_its_messages_and_takes_in_only_what_follows() {
        let mut run = event(3, 10);
        assert!(run.absorb(&event(4, 11)));
        assert!(!run.absorb(&event(6, 12)), "a hole in the sequences ends a run");
        assert!(!run.absorb(&event(5, 13)), "a hole in the deliveries ends a run");
        assert_eq!(run.count, 2);
        let second = run.of_message(Seq::new(4)).expect("the run holds message 4");
        assert_eq!(second.first_delivery, DeliveryId::new(11));
        assert_eq!(run.of_message(Seq::new(5)), None);
        assert_eq!(run.of_message(Seq::new(2)), None);
    }

    #[test]
    fn p4_messages_that_were_dropped_one_after_the_other_are_one_event() {
        let kind = LedgerKind::Dropped(DropReason::Ttl);
        let dropped = |seq| LedgerEvent { kind, member: MemberId::ZERO, ..event(seq, 0) };
        let mut run = dropped(3);
        assert!(run.absorb(&dropped(4)) && !run.absorb(&dropped(6)));
        assert_eq!((run.count, LedgerEvent::decode(run.encode())), (2, Ok(run.clone())));
        let second = run.of_message(Seq::new(4)).expect("the run holds message 4");
        assert_eq!((second.kind, second.first_delivery), (kind, DeliveryId::ZERO));
        let delivered = LedgerEvent { previous: DeliveryId::new(9), ..dropped(5) };
        assert!(!run.absorb(&delivered), "its last delivery is its own");
    }

    #[test]
    fn p7_a_range_that_was_dropped_or_replayed_tells_each_of_its_messages_and_names_no_delivery() {
        for (kind, bytes) in [(LedgerKind::Dropped(DropReason::Seek), [6, 3]), (LedgerKind::Replayed, [8, 0])] {
            let range = LedgerEvent { kind, count: u32::MAX, ..event(3, 0) };
            assert_eq!(range.encode()[1..3], bytes);
            assert_eq!(LedgerEvent::decode(range.encode()), Ok(range.clone()));
            let last = range.of_message(Seq::new(u64::from(u32::MAX) + 2)).expect("the range holds it");
            assert_eq!((last.kind, last.first_delivery), (kind, DeliveryId::ZERO));
            assert_eq!(range.of_message(Seq::new(u64::from(u32::MAX) + 3)), None);
        }
        let redriven = LedgerEvent { kind: LedgerKind::Redriven, previous: DeliveryId::new(9), ..event(3, 0) };
        assert_eq!((redriven.encode()[1], LedgerEvent::decode(redriven.encode())), (7, Ok(redriven)));
        let mut bytes = event(3, 0).encode().to_vec();
        for (kind, reason) in [(6, 7), (9, 0)] {
            bytes[1..3].copy_from_slice(&[kind, reason]);
            assert!(LedgerEvent::decode(bytes.clone().into()).is_err(), "kind {kind}, reason {reason}");
        }
    }
}
