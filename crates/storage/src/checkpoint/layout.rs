//! The bytes of a checkpoint: a header, then membership, list of files and image, one behind the other and nothing
//! after them. All integers are little-endian.
//!
//! **The header** has 88 bytes. Magic, version and `header_bytes` keep their places in every version, and the last field
//! is the header's checksum, so that an unknown version is told from a damaged known one:
//!
//! | at | field | meaning, and the fault it guards against |
//! |---|---|---|
//! | 0 | magic `MMQC`, version u16, header_bytes u16 | |
//! | 8 | shard u32 | whose state it is |
//! | 12 | membership_bytes u32 | length of what follows the header |
//! | 16 | log_index u64 | the last entry applied; the file is named by it: a renamed file is refused |
//! | 24 | term u64 | that entry's term |
//! | 32 | commit_index u64 | the last command applied |
//! | 40 | last_stamp_ms u64 | the highest cluster time of any applied entry: time does not go back behind it |
//! | 48 | file_count u64, list_bytes u64 | of the list of files |
//! | 64 | image_bytes u64 | together with the above the file's exact length: one that was cut or went on is refused |
//! | 72 | membership_crc u32, list_crc u32, image_crc u32 | CRC32C of each piece, so that damage is named by offset |
//! | 84 | crc u32 | CRC32C of the above |
//!
//! **The list** has an entry for each file of every partition, in the order of topic, partition, kind (segment, index,
//! ledger) and number:
//!
//! | at | field | meaning, and the fault it guards against |
//! |---|---|---|
//! | 0 | bytes u64 | the file's length then: what it has more was written behind the checkpoint and is cut |
//! | 8 | crc u32 | CRC32C of these bytes, for whoever copies or checks the file as a whole |
//! | 12 | path_bytes u16 | |
//! | 14 | first_seq u64, end_seq u64 | what the file holds or speaks of: start needs not read it |
//! | 30 | path | in the data directory, with `/` between the parts |
//!
//! **Membership** and **image** are opaque.

use std::path::Path;

use bytes::{Buf, BufMut, Bytes};
use mortarmq_types::{CommitIndex, Seq, ShardId};

use super::{CheckpointError, CheckpointFile, CheckpointFiles, CheckpointMeta, LoadedCheckpoint};

/// The version written, and the only one read.
pub(super) const VERSION: u16 = 1;
pub(super) const HEADER_BYTES: usize = 88;
/// As much as a header of any version can have.
pub(super) const MAX_HEADER_BYTES: usize = u16::MAX as usize;
const LIST_ENTRY_BYTES: usize = 30;
const MAGIC: &[u8; 4] = b"MMQC";
/// Magic, version, length and checksum.
const LEAST_HEADER_BYTES: usize = 12;

/// Everything before the image: header, membership and list.
pub(crate) fn encode_head(
    meta: &CheckpointMeta,
    files: &[CheckpointFile],
    image: &[u8],
) -> Result<Vec<u8>, CheckpointError> {
    let within = |what, bytes: usize, limit: u64| {
        let bytes = bytes as u64;
        if bytes <= limit { Ok(()) } else { Err(CheckpointError::TooLarge { what, bytes, limit }) }
    };
    within("the membership", meta.membership.len(), u64::from(u32::MAX))?;
    let mut list = Vec::new();
    for file in files {
        within("a file's path", file.path.len(), u64::from(u16::MAX))?;
        list.put_u64_le(file.bytes);
        list.put_u32_le(file.crc);
        list.put_u16_le(file.path.len() as u16);
        list.put_u64_le(file.first_seq.get());
        list.put_u64_le(file.end_seq.get());
        list.put_slice(file.path.as_bytes());
    }
    let mut head = Vec::with_capacity(HEADER_BYTES + meta.membership.len() + list.len());
    head.put_slice(MAGIC);
    head.put_u16_le(VERSION);
    head.put_u16_le(HEADER_BYTES as u16);
    head.put_u32_le(meta.shard.get());
    head.put_u32_le(meta.membership.len() as u32);
    for field in [meta.log_index, meta.term, meta.commit_index.get(), meta.last_stamp_ms] {
        head.put_u64_le(field);
    }
    for field in [files.len(), list.len(), image.len()] {
        head.put_u64_le(field as u64);
    }
    for piece in [&meta.membership[..], &list, image] {
        head.put_u32_le(crc32c::crc32c(piece));
    }
    let crc = crc32c::crc32c(&head);
    head.put_u32_le(crc);
    assert_eq!(head.len(), HEADER_BYTES, "the header has the length it says");
    head.put_slice(&meta.membership);
    head.put_slice(&list);
    Ok(head)
}

/// Reads a whole checkpoint, checking every byte of it. `log_index` is what its name says.
pub(crate) fn parse(path: &Path, log_index: u64, bytes: &Bytes) -> Result<LoadedCheckpoint, CheckpointError> {
    let header = Header::of_file(path, log_index, bytes, bytes.len() as u64)?;
    // All of these are at most the file's length, which is in memory.
    let pieces = header.pieces().map(|piece| (piece, bytes.slice(piece.start as usize..piece.end as usize)));
    for (piece, bytes) in &pieces {
        piece.check(path, crc32c::crc32c(bytes))?;
    }
    let file_bytes = bytes.len() as u64;
    let [(_, membership), (_, list), (_, image)] = pieces;
    let files = header.files(path, &list)?;
    Ok(LoadedCheckpoint { meta: CheckpointMeta { membership, ..header.meta }, files, image, bytes: file_bytes })
}

/// One of the three pieces that follow a header: membership, list of files and image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    crc: u32,
    what: &'static str,
}

impl Piece {
    /// Compares the checksum of its bytes.
    pub(super) fn check(&self, path: &Path, crc: u32) -> Result<(), CheckpointError> {
        if crc == self.crc { Ok(()) } else { Err(damaged(path, self.start, self.what)) }
    }
}

/// What a checkpoint says of itself.
pub(super) struct Header {
    /// Without the membership.
    meta: CheckpointMeta,
    membership_bytes: u32,
    file_count: u64,
    list_bytes: u64,
    image_bytes: u64,
    membership_crc: u32,
    list_crc: u32,
    image_crc: u32,
}

impl Header {
    /// Reads the header of a file from the bytes it begins with, at least [`MAX_HEADER_BYTES`] of them if there are so
    /// many, and checks that everything it announces, and no more, is in the file.
    pub(super) fn of_file(path: &Path, log_index: u64, start: &[u8], file_bytes: u64) -> Result<Self, CheckpointError> {
        let header = Self::parse(path, start)?;
        if header.meta.log_index != log_index {
            return Err(damaged(path, 0, "the checkpoint was written under another name"));
        }
        let end = header.membership_end().checked_add(header.list_bytes);
        let Some(end) = end.and_then(|list_end| list_end.checked_add(header.image_bytes)) else {
            return Err(damaged(path, 0, "the lengths make no sense"));
        };
        if file_bytes < end {
            return Err(damaged(path, file_bytes, "the checkpoint was cut short"));
        }
        if file_bytes > end {
            return Err(damaged(path, end, "bytes that do not belong to the checkpoint"));
        }
        Ok(header)
    }

    fn membership_end(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.membership_bytes)
    }

    /// What follows the header: membership, list and image. Their ends were checked when it was read.
    pub(super) fn pieces(&self) -> [Piece; 3] {
        let (start, membership_end) = (HEADER_BYTES as u64, self.membership_end());
        let list_end = membership_end + self.list_bytes;
        let what = "the membership fails its checksum";
        let membership = Piece { start, end: membership_end, crc: self.membership_crc, what };
        let what = "the list of files fails its checksum";
        let list = Piece { start: membership_end, end: list_end, crc: self.list_crc, what };
        let what = "the image fails its checksum";
        let image = Piece { start: list_end, end: list_end + self.image_bytes, crc: self.image_crc, what };
        [membership, list, image]
    }

    /// The files of a list whose checksum was found right.
    pub(super) fn files(&self, path: &Path, list: &[u8]) -> Result<CheckpointFiles, CheckpointError> {
        let start = self.membership_end();
        let (files, offsets) = parse_list(list, self.file_count)
            .map_err(|offset| damaged(path, start + offset, "the list of files makes no sense"))?;
        CheckpointFiles::new(files).map_err(|(position, what)| {
            damaged(path, start + offsets.get(position).copied().unwrap_or(self.list_bytes), what)
        })
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let damaged = |offset, what| damaged(path, offset, what);
        if bytes.len() < LEAST_HEADER_BYTES {
            return Err(damaged(bytes.len() as u64, "the checkpoint was cut short"));
        }
        let (version, header_bytes) = ((&bytes[4..6]).get_u16_le(), usize::from((&bytes[6..8]).get_u16_le()));
        let header = bytes.get(..header_bytes).filter(|header| header.len() >= LEAST_HEADER_BYTES);
        let sound = header.and_then(|header| {
            let (fields, crc) = header.split_at(header_bytes - 4);
            (header.starts_with(MAGIC) && crc32c::crc32c(fields).to_le_bytes() == crc).then_some(fields)
        });
        let Some(fields) = sound else { return Err(damaged(0, "the header fails its checksum")) };
        if version != VERSION {
            let path = path.to_path_buf();
            return Err(CheckpointError::UnknownVersion { path, found: version, supported: VERSION });
        }
        if header_bytes != HEADER_BYTES {
            return Err(damaged(0, "the header has another length than its version"));
        }
        let mut fields = &fields[8..];
        let (shard, membership_bytes) = (ShardId::new(fields.get_u32_le()), fields.get_u32_le());
        let mut next = || fields.get_u64_le();
        let (log_index, term, commit_index, last_stamp_ms) = (next(), next(), CommitIndex::new(next()), next());
        let (file_count, list_bytes, image_bytes) = (next(), next(), next());
        let (membership_crc, list_crc, image_crc) = (fields.get_u32_le(), fields.get_u32_le(), fields.get_u32_le());
        let meta = CheckpointMeta { shard, log_index, term, commit_index, membership: Bytes::new(), last_stamp_ms };
        Ok(Self { meta, membership_bytes, file_count, list_bytes, image_bytes, membership_crc, list_crc, image_crc })
    }
}

fn damaged(path: &Path, offset: u64, what: &'static str) -> CheckpointError {
    CheckpointError::Damaged { path: path.to_path_buf(), offset, what }
}

/// The list with the offset of each entry in it, or the offset of the entry that cannot be read.
fn parse_list(list: &[u8], file_count: u64) -> Result<(Vec<CheckpointFile>, Vec<u64>), u64> {
    let (mut files, mut offsets) = (Vec::new(), Vec::new());
    let mut rest = list;
    while !rest.is_empty() {
        let offset = (list.len() - rest.len()) as u64;
        if rest.len() < LIST_ENTRY_BYTES {
            return Err(offset);
        }
        let (bytes, crc, path_bytes) = (rest.get_u64_le(), rest.get_u32_le(), usize::from(rest.get_u16_le()));
        let (first_seq, end_seq) = (Seq::new(rest.get_u64_le()), Seq::new(rest.get_u64_le()));
        let path = rest.get(..path_bytes).and_then(|path| std::str::from_utf8(path).ok()).ok_or(offset)?;
        files.push(CheckpointFile { path: path.to_owned(), bytes, crc, first_seq, end_seq });
        offsets.push(offset);
        rest.advance(path_bytes);
    }
    if files.len() as u64 == file_count { Ok((files, offsets)) } else { Err(list.len() as u64) }
}

const _: () = assert!(HEADER_BYTES == 8 + 2 * 4 + 7 * 8 + 4 * 4);
