//! Unsettled messages that were offered, in bytes.

use std::ops::Range;

use bytes::{BufMut, BytesMut};
use mortarmq_types::{
    Attempt, Cause, ClusterTime, CommitIndex, DeliveryId, Epoch, KeyHash, LeaseTime, MemberId, Position, Seq,
};

use super::{Fields, ImageError, NUMBER_MAX};
use crate::{
    entry::{Entry, Lease, State},
    rules::Grant,
    tenure::{Granted, Tenures},
};

pub(super) fn put(out: &mut BytesMut, seq: Seq, entry: &Entry, tenures: &Tenures) {
    out.put_u64(seq.get());
    out.put_u64(entry.key_hash.get());
    out.put_u32(entry.size_bytes);
    out.put_u64(entry.expires_at_ms);
    out.put_u64(entry.fell_due().get());
    out.put_u32(entry.attempt.get());
    out.put_u8(entry.cause.number());
    out.put_u64(entry.previous.get());
    out.put_u16(entry.given_back);
    out.put_u8(u8::from(entry.alone));
    match &entry.state {
        State::Waiting { .. } => out.put_u8(0),
        State::Held => out.put_u8(3),
        State::Scheduled { due } => {
            out.put_u8(1);
            out.put_u64(due.get());
        }
        State::Leased(lease) => {
            out.put_u8(2);
            out.put_u64(lease.delivery_id.get());
            let Granted { member, grant, granted_at } = tenures.of(lease);
            out.put_u64(member.get());
            out.put_u8(match grant {
                Grant::Push => 0,
                Grant::Pull => 1,
            });
            out.put_u64(lease.deadline.get());
            out.put_u8(u8::from(lease.ordered));
            out.put_u64(granted_at.epoch.get());
            out.put_u64(granted_at.commit_index.get());
        }
    }
}

pub(super) fn take(
    fields: &mut Fields<'_>,
    range: Range<Seq>,
    last_due: ClusterTime,
) -> Result<(Vec<(Seq, Entry)>, Tenures), ImageError> {
    let count = fields.count("entries", ENTRY_LEAST_BYTES)?;
    let mut entries = Vec::with_capacity(count);
    let mut tenures = Tenures::default();
    let mut lowest = range.start.get();
    for _ in 0..count {
        let seq = fields.u64_in("seq", lowest, range.end.get() - 1)?;
        lowest = seq + 1;
        entries.push((Seq::new(seq), take_entry(fields, last_due, &mut tenures)?));
    }
    Ok((entries, tenures))
}

fn take_entry(fields: &mut Fields<'_>, last_due: ClusterTime, tenures: &mut Tenures) -> Result<Entry, ImageError> {
    let key_hash = KeyHash::new(fields.u64()?);
    let size_bytes = fields.u32()?;
    let expires_at_ms = fields.u64()?;
    let due = ClusterTime::new(fields.u64_in("fell_due", 0, last_due.get())?);
    let attempt = Attempt::new(fields.u32()?);
    let number = fields.u8()?;
    let cause = Cause::from_number(number).ok_or(ImageError::Field { field: "cause", found: u64::from(number) })?;
    // A cause that counts has used up an attempt; a message that was never delivered is at its first.
    let least = if cause.counts() { Attempt::new(2) } else { Attempt::FIRST };
    if attempt < least || (previous_is_none(cause) && attempt != Attempt::FIRST) {
        return Err(ImageError::Field { field: "attempt", found: u64::from(attempt.get()) });
    }
    let previous = DeliveryId::new(fields.u64_in("previous", 0, NUMBER_MAX)?);
    if (previous == DeliveryId::ZERO) != previous_is_none(cause) {
        return Err(ImageError::Field { field: "previous", found: previous.get() });
    }
    if due != ClusterTime::ZERO && previous != DeliveryId::ZERO {
        return Err(ImageError::Field { field: "fell_due", found: due.get() });
    }
    let given_back = fields.u16()?;
    if given_back > 0 && cause != Cause::Released {
        return Err(ImageError::Field { field: "given_back", found: u64::from(given_back) });
    }
    let alone = take_alone(fields, attempt, cause)?;
    let state = match fields.u8()? {
        0 => State::Waiting { fell_due: due },
        1 => State::Scheduled { due: ClusterTime::new(fields.u64()?) },
        2 => State::Leased(take_lease(fields, previous, tenures)?),
        // It was found unreadable by a delivery.
        3 if previous != DeliveryId::ZERO => State::Held,
        found => return Err(ImageError::Field { field: "state", found: u64::from(found) }),
    };
    if due != ClusterTime::ZERO && !matches!(state, State::Waiting { .. }) {
        return Err(ImageError::Field { field: "fell_due", found: due.get() });
    }
    Ok(Entry { key_hash, size_bytes, expires_at_ms, attempt, cause, previous, given_back, alone, state })
}

/// Whether the message is delivered alone. The cause alone tells it, but for what was given back.
fn take_alone(fields: &mut Fields<'_>, attempt: Attempt, cause: Cause) -> Result<bool, ImageError> {
    let may_be = Entry::may_be_alone(attempt);
    let (least, most) = match cause {
        Cause::LeaseExpired | Cause::ConsumerLost => (may_be, may_be),
        Cause::Released => (false, may_be),
        Cause::First | Cause::Nacked | Cause::Redriven | Cause::Replayed => (false, false),
    };
    match fields.u8()? {
        0 if !least => Ok(false),
        1 if most => Ok(true),
        found => Err(ImageError::Field { field: "alone", found: u64::from(found) }),
    }
}

/// Whether a delivery for this cause has none before it: it is the first, or the first since a replay.
const fn previous_is_none(cause: Cause) -> bool {
    matches!(cause, Cause::First | Cause::Replayed)
}

fn take_lease(fields: &mut Fields<'_>, previous: DeliveryId, tenures: &mut Tenures) -> Result<Lease, ImageError> {
    let delivery_id = DeliveryId::new(fields.u64_in("delivery_id", previous.get() + 1, NUMBER_MAX)?);
    let member = MemberId::new(fields.u64()?);
    let grant = match fields.u8()? {
        0 => Grant::Push,
        1 => Grant::Pull,
        found => return Err(ImageError::Field { field: "grant", found: u64::from(found) }),
    };
    let deadline = LeaseTime::new(fields.u64()?);
    let ordered = match fields.u8()? {
        0 => false,
        1 => true,
        found => return Err(ImageError::Field { field: "ordered", found: u64::from(found) }),
    };
    let granted_at = Position { epoch: Epoch::new(fields.u64()?), commit_index: CommitIndex::new(fields.u64()?) };
    if tenures.is_full() {
        return Err(ImageError::Field { field: "member", found: member.get() });
    }
    let (tenure, commit_low) = tenures.begin(Granted { member, grant, granted_at });
    Ok(Lease { delivery_id, deadline, ordered, tenure, commit_low })
}

const ENTRY_LEAST_BYTES: usize = 8 + 8 + 4 + 8 + 8 + 4 + 1 + 8 + 2 + 1 + 1;
