//! Finding a sequence's history again.

use bytes::Bytes;
use mortarmq_types::{Partition, Seq, TopicIncarnation};

use super::LedgerExtent;
use super::layout::{ENTRY_BYTES, EntryHeader};
use crate::disk::Window;
use crate::segment::{FILE_HEADER_BYTES, FileIdentity, Kind, ReadError, Shared, read_error};

/// Reads every payload that speaks of `seq`, in the order in which they were appended.
pub(crate) fn read(
    shared: &Shared,
    (topic, partition): (TopicIncarnation, Partition),
    seq: Seq,
) -> Result<Vec<Bytes>, ReadError> {
    let holds = |extent: &&LedgerExtent| extent.lowest_seq <= seq && seq < extent.end_seq;
    let files = shared.view((topic, partition), |view| view.ledgers.iter().filter(holds).copied().collect::<Vec<_>>());
    let mut found = Vec::new();
    for extent in files.unwrap_or_default() {
        let identity = FileIdentity { topic, partition, kind: Kind::Ledger, number: extent.number };
        scan(shared, identity, extent.bytes, seq, &mut found)?;
    }
    Ok(found)
}

fn scan(
    shared: &Shared,
    identity: FileIdentity,
    file_bytes: u64,
    seq: Seq,
    found: &mut Vec<Bytes>,
) -> Result<(), ReadError> {
    let path = shared.path(&identity);
    let corrupt = |offset, what| Err(ReadError::Corrupt { path: path.clone(), offset, what });
    let mut window = Window::over(shared.open(identity)?, file_bytes);
    let mut offset = FILE_HEADER_BYTES as u64;
    while offset < file_bytes {
        // Behind the written bytes the window reads zeros, which fail the checksum.
        let header = window.read(offset, ENTRY_BYTES).map_err(|source| read_error(&path, offset, source))?;
        let Some(header) = EntryHeader::parse(header, identity.topic, identity.partition) else {
            return corrupt(offset, "the entry's header fails its checksum");
        };
        let payload_at = offset + ENTRY_BYTES as u64;
        let end = payload_at + u64::from(header.payload_bytes);
        if end > file_bytes {
            return corrupt(offset, "the entry is longer than the file");
        }
        if header.holds(seq) {
            let bytes = header.payload_bytes as usize;
            let payload = window.read(payload_at, bytes).map_err(|source| read_error(&path, payload_at, source))?;
            if crc32c::crc32c(payload) != header.payload_crc {
                return corrupt(offset, "the payload fails its checksum");
            }
            found.push(Bytes::copy_from_slice(payload));
        }
        offset = end;
    }
    Ok(())
}
