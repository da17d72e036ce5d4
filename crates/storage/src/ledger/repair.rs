//! Entries of a ledger that another node has sound.

use bytes::{Bytes, BytesMut};
use mortarmq_types::{Partition, TopicIncarnation};

use super::layout::{ENTRY_BYTES, EntryHeader};
use crate::disk::Window;
use crate::segment::{
    FileIdentity, Kind, ReadError, RepairError, RepairOutcome, Shared, mend_header, read_error, refused, write,
};

type Key = (TopicIncarnation, Partition);

/// The entries from an offset on, as far as they are sound and `most` bytes reach, one at least; nothing if none begins there that is
/// written.
pub(crate) fn sound_entries(
    shared: &Shared,
    key: Key,
    number: u64,
    offset: u64,
    most: usize,
) -> Result<Option<Bytes>, ReadError> {
    let Some(file_bytes) = written_bytes(shared, key, number).filter(|bytes| offset < *bytes) else { return Ok(None) };
    let identity = identity(key, number);
    let path = shared.path(&identity);
    let mut window = Window::over(shared.open(identity)?, file_bytes);
    let (mut out, mut at) = (BytesMut::new(), offset);
    while at < file_bytes && (out.is_empty() || out.len() < most) {
        let header = window.read(at, ENTRY_BYTES).map_err(|source| read_error(&path, at, source))?.to_vec();
        let parsed = EntryHeader::parse(&header, key.0, key.1);
        let end = parsed.map(|parsed| at + (ENTRY_BYTES as u64) + u64::from(parsed.payload_bytes));
        let (Some(parsed), Some(end)) = (parsed, end.filter(|end| *end <= file_bytes)) else { break };
        let payload = window.read(at + ENTRY_BYTES as u64, parsed.payload_bytes as usize);
        let payload = payload.map_err(|source| read_error(&path, at, source))?;
        if crc32c::crc32c(payload) != parsed.payload_crc {
            break;
        }
        out.extend_from_slice(&header);
        out.extend_from_slice(payload);
        at = end;
    }
    if out.is_empty() {
        return Err(ReadError::Corrupt { path, offset, what: "no sound entry begins here" });
    }
    Ok(Some(out.freeze()))
}

/// Writes entries of another node in place of damaged ones, up to where the entries here go on.
pub(crate) fn repair(
    shared: &Shared,
    key: Key,
    number: u64,
    offset: u64,
    data: &Bytes,
) -> Result<RepairOutcome, RepairError> {
    let Some(file_bytes) = written_bytes(shared, key, number).filter(|bytes| offset < *bytes) else {
        return refused("the entry is not written here");
    };
    let identity = identity(key, number);
    let mended = match mend_header(shared, identity)? {
        Ok(bytes) => bytes,
        Err(what) => return refused(what),
    };
    if entry_here(shared, identity, offset, file_bytes).is_some_and(|entry| entry.is_sound) {
        return Ok(if mended > 0 { RepairOutcome::Repaired { bytes: mended } } else { RepairOutcome::Sound });
    }
    let mut end = 0;
    while let Some(header) = data.get(end..end + ENTRY_BYTES) {
        let Some(parsed) = EntryHeader::parse(header, key.0, key.1) else { return refused("an entry is damaged") };
        let begin = end + ENTRY_BYTES;
        let Some(payload) = data.get(begin..begin + parsed.payload_bytes as usize) else { break };
        if crc32c::crc32c(payload) != parsed.payload_crc {
            return refused("an entry is damaged");
        }
        end = begin + payload.len();
        let next = offset + end as u64;
        if next > file_bytes {
            return refused("it is longer than the ledger");
        }
        if next == file_bytes || entry_here(shared, identity, next, file_bytes).is_some() {
            write(shared, identity, offset, &data[..end])?;
            return Ok(RepairOutcome::Repaired { bytes: mended + end as u64 });
        }
    }
    refused("what is sound here goes on elsewhere, or too far behind")
}

struct EntryHere {
    is_sound: bool,
}

/// The entry that begins at a place, if its header is sound.
fn entry_here(shared: &Shared, identity: FileIdentity, offset: u64, file_bytes: u64) -> Option<EntryHere> {
    let file = shared.open(identity).ok()?;
    let mut header = [0; ENTRY_BYTES];
    file.read_exact_at(&mut header, offset).ok()?;
    let header = EntryHeader::parse(&header, identity.topic, identity.partition)?;
    let begin = offset + ENTRY_BYTES as u64;
    if begin + u64::from(header.payload_bytes) > file_bytes {
        return None;
    }
    let mut payload = vec![0; header.payload_bytes as usize];
    let read = file.read_exact_at(&mut payload, begin);
    Some(EntryHere { is_sound: read.is_ok() && crc32c::crc32c(&payload) == header.payload_crc })
}

fn written_bytes(shared: &Shared, key: Key, number: u64) -> Option<u64> {
    let find =
        |view: &crate::segment::View| view.ledgers.iter().find(|ledger| ledger.number == number).map(|l| l.bytes);
    shared.view(key, find).flatten()
}

fn identity((topic, partition): Key, number: u64) -> FileIdentity {
    FileIdentity { topic, partition, kind: Kind::Ledger, number }
}
