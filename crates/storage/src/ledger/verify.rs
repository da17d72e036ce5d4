//! Checking a ledger file.

use std::io;

use super::layout::{ENTRY_BYTES, EntryHeader};
use crate::segment::{Checked, FILE_HEADER_BYTES};
use crate::verify::Report;

/// Checks every entry. One whose header is damaged ends it: nothing else says where the next begins.
pub(crate) fn walk(checked: &mut Checked, report: &mut Report<'_>) -> io::Result<()> {
    let (identity, file_bytes) = (checked.identity, checked.file_bytes());
    let mut offset = FILE_HEADER_BYTES as u64;
    while offset < file_bytes {
        let header = EntryHeader::parse(checked.read(offset, ENTRY_BYTES)?, identity.topic, identity.partition);
        let Some(header) = header else {
            let what = "the entry's header fails its checksum; what follows it cannot be told";
            checked.found(offset, what, report);
            return Ok(());
        };
        let begin = offset + ENTRY_BYTES as u64;
        let end = begin + u64::from(header.payload_bytes);
        if end > file_bytes {
            checked.found(offset, "the entry is longer than the file", report);
            return Ok(());
        }
        let crc = crc32c::crc32c(checked.read(begin, header.payload_bytes as usize)?);
        if crc != header.payload_crc && !checked.found(offset, "the entry's payload fails its checksum", report) {
            return Ok(());
        }
        offset = end;
    }
    Ok(())
}
