//! Checking a ledger file.

use std::io;

use super::layout::{ENTRY_BYTES, EntryHeader};
use crate::segment::Checked;
use crate::verify::Report;

/// Checks the entry at an offset and says where the next begins. An entry whose header is damaged is the last: nothing
/// else says where the next begins.
pub(crate) fn check_entry(checked: &mut Checked, offset: u64, report: &mut Report<'_>) -> io::Result<Option<u64>> {
    let (identity, file_bytes) = (checked.identity, checked.file_bytes());
    let header = EntryHeader::parse(checked.read(offset, ENTRY_BYTES)?, identity.topic, identity.partition);
    let Some(header) = header else {
        let what = "the entry's header fails its checksum; what follows it cannot be told";
        checked.found(offset, None, what, report);
        return Ok(None);
    };
    let begin = offset + ENTRY_BYTES as u64;
    let end = begin + u64::from(header.payload_bytes);
    if end > file_bytes {
        checked.found(offset, None, "the entry is longer than the file", report);
        return Ok(None);
    }
    let crc = crc32c::crc32c(checked.read(begin, header.payload_bytes as usize)?);
    if crc != header.payload_crc && !checked.found(offset, None, "the entry's payload fails its checksum", report) {
        return Ok(None);
    }
    Ok(Some(end))
}
