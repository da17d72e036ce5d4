//! The fields of what was redriven: where its bytes lie.

use bytes::{BufMut, BytesMut};
use imbl::OrdMap;
use mortarmq_types::Seq;

use super::{Fields, ImageError, NUMBER_MAX};
use crate::entry::Entry;

pub(super) fn put(out: &mut BytesMut, sources: &OrdMap<Seq, Seq>) {
    out.put_u64(sources.len() as u64);
    for (seq, source) in sources {
        out.put_u64(seq.get());
        out.put_u64(source.get());
    }
}

pub(super) fn take(fields: &mut Fields<'_>, entries: &OrdMap<Seq, Entry>) -> Result<OrdMap<Seq, Seq>, ImageError> {
    let count = fields.count("sources", 16)?;
    let mut sources = Vec::with_capacity(count);
    let mut lowest = Seq::FIRST.get();
    for _ in 0..count {
        let seq = fields.u64_in("source of", lowest, NUMBER_MAX)?;
        lowest = seq + 1;
        let seq = Seq::new(seq);
        if !entries.contains_key(&seq) {
            return Err(ImageError::Field { field: "source of", found: seq.get() });
        }
        sources.push((seq, Seq::new(fields.u64_in("source", Seq::FIRST.get(), NUMBER_MAX)?)));
    }
    Ok(sources.into_iter().collect())
}
