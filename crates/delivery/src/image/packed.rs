//! The fields of what waits behind crowded keys.

use std::ops::Range;

use bytes::{BufMut, BytesMut};
use mortarmq_types::{ClusterTime, KeyHash, Seq};

use super::{Fields, ImageError};
use crate::{
    crowd::{Packed, Waiting},
    lease::Fact,
};

pub(super) fn put(out: &mut BytesMut, packed: &Packed) {
    out.put_u64(packed.keys().count() as u64);
    for key in packed.keys() {
        out.put_u64(key.get());
        out.put_u64(packed.of_key(key).count() as u64);
        for Waiting { seq, fact, due, is_replay } in packed.of_key(key) {
            let (expires, was_delayed) = (fact.expires_at_ms != 0, due != ClusterTime::ZERO);
            out.put_u64(seq.get());
            out.put_u32(fact.size_bytes);
            out.put_u8(u8::from(expires) | u8::from(was_delayed) << 1 | u8::from(is_replay) << 2);
            if expires {
                out.put_u64(fact.expires_at_ms);
            }
            if was_delayed {
                out.put_u64(due.get());
            }
        }
    }
}

pub(super) fn take(fields: &mut Fields<'_>, range: Range<Seq>, last_due: ClusterTime) -> Result<Packed, ImageError> {
    let mut packed = Packed::default();
    let mut lowest_key = 1;
    for _ in 0..fields.count("packed keys", 8 + 8 + WAITING_LEAST_BYTES)? {
        let key_hash = fields.u64_in("packed key", lowest_key, u64::MAX)?;
        // None follows the highest hash; if one does all the same, it is as high at most, and refused as a duplicate.
        lowest_key = key_hash.saturating_add(1);
        let count = fields.count("packed", WAITING_LEAST_BYTES)?;
        if count == 0 {
            return Err(ImageError::Field { field: "packed", found: 0 });
        }
        let mut lowest = range.start.get();
        for _ in 0..count {
            let seq = fields.u64_in("packed", lowest, range.end.get() - 1)?;
            lowest = seq + 1;
            let waiting = take_waiting(fields, KeyHash::new(key_hash), Seq::new(seq), last_due)?;
            if !packed.insert(waiting) {
                return Err(ImageError::Field { field: "packed", found: seq });
            }
        }
    }
    Ok(packed)
}

fn take_waiting(
    fields: &mut Fields<'_>,
    key_hash: KeyHash,
    seq: Seq,
    last_due: ClusterTime,
) -> Result<Waiting, ImageError> {
    let size_bytes = fields.u32()?;
    let flags = fields.u8()?;
    let is_replay = flags & 4 != 0;
    if flags > 7 || (is_replay && flags & 2 != 0) {
        return Err(ImageError::Field { field: "flags", found: u64::from(flags) });
    }
    let expires_at_ms = if flags & 1 == 0 { 0 } else { fields.u64_in("expires_at", 1, u64::MAX)? };
    let due = if flags & 2 == 0 { 0 } else { fields.u64_in("fell_due", 1, last_due.get())? };
    let fact = Fact { key_hash, size_bytes, expires_at_ms };
    Ok(Waiting { seq, fact, due: ClusterTime::new(due), is_replay })
}

const WAITING_LEAST_BYTES: usize = 8 + 4 + 1;
