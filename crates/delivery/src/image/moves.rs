//! The fields of what an operator set going: which messages the position skips, and a move that is not done.

use bytes::{BufMut, BytesMut};
use imbl::OrdSet;
use mortarmq_types::Seq;

use super::{Fields, ImageError, NUMBER_MAX};
use crate::moves::{MoveKind, Moving};

pub(super) fn put(out: &mut BytesMut, marks: &OrdSet<Seq>, moving: Option<Moving>) {
    out.put_u64(marks.len() as u64);
    for seq in marks {
        out.put_u64(seq.get());
    }
    out.put_u8(match moving.map(|moving| moving.kind) {
        None => 0,
        Some(MoveKind::Purge) => 1,
        Some(MoveKind::Forwards) => 2,
        Some(MoveKind::Backwards) => 3,
    });
    if let Some(moving) = moving {
        out.put_u64(moving.to.get());
        out.put_u64(moving.from.get());
    }
}

pub(super) fn take_marks(fields: &mut Fields<'_>, position: Seq) -> Result<Vec<Seq>, ImageError> {
    let count = fields.count("marks", 8)?;
    let mut marks = Vec::with_capacity(count);
    let mut lowest = position.get();
    for _ in 0..count {
        let seq = fields.u64_in("mark", lowest, NUMBER_MAX)?;
        lowest = seq + 1;
        marks.push(Seq::new(seq));
    }
    Ok(marks)
}

pub(super) fn take_moving(fields: &mut Fields<'_>, position: Seq) -> Result<Option<Moving>, ImageError> {
    let kind = match fields.u8()? {
        0 => return Ok(None),
        1 => MoveKind::Purge,
        2 => MoveKind::Forwards,
        3 => MoveKind::Backwards,
        found => return Err(ImageError::Field { field: "move", found: u64::from(found) }),
    };
    let most = if kind == MoveKind::Backwards { position.get() - 1 } else { NUMBER_MAX };
    let to = Seq::new(fields.u64_in("to", Seq::FIRST.get(), most)?);
    let from = Seq::new(fields.u64_in("from", Seq::FIRST.get(), to.get())?);
    Ok(Some(Moving { kind, to, from }))
}
