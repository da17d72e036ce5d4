//! The bytes of a journal file.
//!
//! A file is a sequence of blocks of 4,096 bytes, a block eight sectors of 512, the unit that a device writes whole or
//! not at all. **Every sector**, so every block too, begins with a mark of 24 bytes and carries 488 bytes of payload:
//!
//! | at | field | meaning, and the fault it guards against |
//! |---|---|---|
//! | 0 | generation u64 | which use of the file wrote this sector; an older one shows that a write did not arrive |
//! | 8 | batch u64 | the batch the sector belongs to, so that a lost one is seen by those behind it; 0 in the file header |
//! | 16 | sector u32 | its number in the file: valid bytes in the wrong place fail |
//! | 20 | check u32 | CRC32C of the above: a flipped bit does not pass for an older generation |
//!
//! The mark says of each sector whether it was written, whatever the payload is: zeros in a value prove nothing, only
//! a sector that is zero throughout was never written. Payload is read with the marks taken out. All integers are
//! little-endian. Magic, version and `header_bytes` keep their places in every version, and the last field of a header
//! is its checksum, so that an unknown version is told from a damaged known one.
//!
//! **Block 0 is the file header**; the rest of it, after the membership, is zero:
//!
//! | at | field | meaning |
//! |---|---|---|
//! | 0 | magic `MMQJ`, version u16, header_bytes u16 | |
//! | 8 | shard u32 | whose log this is |
//! | 12 | membership_bytes u32 | length of what follows the header |
//! | 16 | file u64 | its number: a file renamed or copied is refused |
//! | 24 | generation u64 | of every sector written in this use of the file; one more than the file before |
//! | 32 | file_bytes u64 | how long the file may become |
//! | 40 | zero_step_bytes u64 | it grows in these steps, so a file that was cut short is seen |
//! | 48 | term u64, vote u64 | as they were when the file was begun, so that older files can go |
//! | 64 | previous_batch u64 | the last batch of the file before; 0 in the first file |
//! | 72 | previous_hash u64 | its hash: a file of another life of the journal does not follow |
//! | 80 | reused_generation u64 | the newest generation in it before this use; 0 if it is new: then nothing older can stand there |
//! | 88 | crc u32 | CRC32C of block 0, marks included, with this field zero |
//! | 92 | membership | opaque, at most [`MAX_MEMBERSHIP_BYTES`] |
//!
//! **A batch** begins at a block and fills whole blocks; what follows its last entry is zero:
//!
//! | at | field | meaning |
//! |---|---|---|
//! | 0 | magic `MMQB`, version u16, header_bytes u16 | |
//! | 8 | shard u32, entry_count u32 | |
//! | 16 | file u64, offset u64 | where it must stand |
//! | 32 | batch u64 | its number |
//! | 40 | payload_bytes u64 | header and entries, without marks and without the zeros at the end |
//! | 48 | first_index u64 | of the first entry; 0 without entries |
//! | 56 | term u64, vote u64, commit u64 | the hard state once the batch is durable |
//! | 80 | boot_id 16 bytes, boot_ms u64 | when it was written, by the boot clock |
//! | 104 | previous_hash u64 | XXH3 of the first sector of the batch before, which holds that batch's checksum |
//! | 112 | batch_crc u32 | CRC32C of all its blocks, marks and end included, with this field and the next zero |
//! | 116 | header_crc u32 | CRC32C of the header up to here: its length can be trusted although the rest is torn |
//!
//! A mark that stands in place of another sound one leaves `batch_crc` as it is: both end with their own CRC32C, so their
//! difference has none. (A sector of an earlier use with the same payload would pass.) So each mark of a batch is compared.
//!
//! An entry is index u64, term u64, data_bytes u32, kind u8, then its data.

use bytes::{Buf, BufMut, Bytes};
use xxhash_rust::xxh3::xxh3_64;

use super::{Clock, HardState, JournalBatch, JournalEntry};
use crate::disk::SECTOR_BYTES;

/// Batches begin and end at blocks of this size.
pub(super) const BLOCK_BYTES: usize = 4096;
/// The version written, and the only one read.
pub(super) const VERSION: u16 = 1;
/// A membership must fit into the file header.
pub(super) const MAX_MEMBERSHIP_BYTES: usize = BLOCK_BYTES / SECTOR_BYTES * SECTOR_PAYLOAD_BYTES - FILE_HEADER_BYTES;

const MARK_BYTES: usize = 24;
const SECTOR_PAYLOAD_BYTES: usize = SECTOR_BYTES - MARK_BYTES;
const FILE_HEADER_BYTES: usize = 92;
const BATCH_HEADER_BYTES: usize = 120;
const ENTRY_HEADER_BYTES: usize = 21;
const FILE_MAGIC: &[u8; 4] = b"MMQJ";
const BATCH_MAGIC: &[u8; 4] = b"MMQB";
/// Where the checksums that cover a whole image stand in it, and how much of it they leave out.
const FILE_CRC: std::ops::Range<usize> = MARK_BYTES + 88..MARK_BYTES + 92;
const BATCH_CRCS: std::ops::Range<usize> = MARK_BYTES + 112..MARK_BYTES + 120;

const _: () = assert!(FILE_CRC.end == MARK_BYTES + FILE_HEADER_BYTES);
const _: () = assert!(BATCH_CRCS.end == MARK_BYTES + BATCH_HEADER_BYTES);
const _: () = assert!(BATCH_HEADER_BYTES < SECTOR_PAYLOAD_BYTES && FILE_HEADER_BYTES < SECTOR_PAYLOAD_BYTES);
const _: () = assert!(BLOCK_BYTES.is_multiple_of(SECTOR_BYTES));

/// What the mark of a sector shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The sector is zero throughout: never written.
    Zero,
    /// Written in an earlier use of the file, which must have had one.
    Older,
    /// Written in this use of the file, as part of this batch.
    Batch(u64),
    /// None of these: damaged, or from elsewhere.
    Foreign,
}

impl Mark {
    /// Reads the mark of the sector at `offset` of a file.
    pub(super) fn of(sector: &[u8], generations: Generations, offset: u64) -> Self {
        if sector == ZERO_SECTOR {
            return Self::Zero;
        }
        let mut mark = &sector[..MARK_BYTES];
        let (found, batch, number, check) =
            (mark.get_u64_le(), mark.get_u64_le(), mark.get_u32_le(), mark.get_u32_le());
        let in_place = u64::from(number) == offset / SECTOR_BYTES as u64;
        if check != crc32c::crc32c(&sector[..MARK_BYTES - 4]) || !in_place {
            return Self::Foreign;
        }
        if found == generations.present {
            Self::Batch(batch)
        } else if found <= generations.reused {
            Self::Older
        } else {
            Self::Foreign
        }
    }
}

/// What the sectors of a file may be marked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generations {
    /// This use of the file.
    pub(super) present: u64,
    /// The use before; 0 if there was none.
    pub(super) reused: u64,
}

const ZERO_SECTOR: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];

/// A header that was read.
pub(super) enum Parsed<T> {
    /// It is sound and in a version this build knows.
    Good(T),
    /// It is sound, and in this version.
    UnknownVersion(u16),
    /// It is not what was written.
    Damaged,
}

/// Lays payload into sectors.
struct Sectors<'a> {
    image: &'a mut Vec<u8>,
    generation: u64,
    batch: u64,
    first_sector: u32,
}

impl Sectors<'_> {
    fn push(&mut self, mut payload: &[u8]) {
        while !payload.is_empty() {
            self.begin_sector_if_full();
            let room = SECTOR_BYTES - self.image.len() % SECTOR_BYTES;
            let (now, later) = payload.split_at(room.min(payload.len()));
            self.image.extend_from_slice(now);
            payload = later;
        }
    }

    fn finish(mut self) {
        while !self.image.len().is_multiple_of(BLOCK_BYTES) {
            self.begin_sector_if_full();
            let end = self.image.len().next_multiple_of(SECTOR_BYTES);
            self.image.resize(end, 0);
        }
    }

    fn begin_sector_if_full(&mut self) {
        if !self.image.len().is_multiple_of(SECTOR_BYTES) {
            return;
        }
        // Files are at most 2^40 bytes (MAX_FILE_BYTES), so a sector's number fits.
        let sector = self.first_sector + (self.image.len() / SECTOR_BYTES) as u32;
        self.image.extend_from_slice(&mark_bytes(self.generation, self.batch, sector));
    }
}

fn mark_bytes(generation: u64, batch: u64, sector: u32) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(&generation.to_le_bytes());
    mark[8..16].copy_from_slice(&batch.to_le_bytes());
    mark[16..20].copy_from_slice(&sector.to_le_bytes());
    let check = crc32c::crc32c(&mark[..20]);
    mark[20..].copy_from_slice(&check.to_le_bytes());
    mark
}

/// Whether the sector at `offset` may be what a write of the batch at `place` left that ended within it: it begins as that
/// batch's does there, and goes on with what stood there before.
pub(super) fn is_begun(sector: &[u8], place: &Place, offset: u64) -> bool {
    // Files are at most 2^40 bytes (MAX_FILE_BYTES), so a sector's number fits.
    let number = (offset / SECTOR_BYTES as u64) as u32;
    let mark = mark_bytes(place.generations.present, place.batch, number);
    let written = mark.iter().zip(sector).take_while(|(expected, found)| expected == found).count();
    let is_as_before = place.generations.reused > 0 || sector[written..].iter().all(|byte| *byte == 0);
    written == MARK_BYTES || (written > 0 && is_as_before)
}

/// The payload of an image, marks taken out.
fn payload_of(image: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(image.len() / SECTOR_BYTES * SECTOR_PAYLOAD_BYTES);
    for sector in image.chunks_exact(SECTOR_BYTES) {
        payload.extend_from_slice(&sector[MARK_BYTES..]);
    }
    payload
}

/// The CRC32C of an image with one field taken as zero.
fn crc_without(image: &[u8], field: std::ops::Range<usize>) -> u32 {
    const ZEROS: [u8; 8] = [0; 8];
    let crc = crc32c::crc32c(&image[..field.start]);
    let crc = crc32c::crc32c_append(crc, &ZEROS[..field.len()]);
    crc32c::crc32c_append(crc, &image[field.end..])
}

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) shard: u32,
    pub(super) file: u64,
    pub(super) generation: u64,
    pub(super) file_bytes: u64,
    pub(super) zero_step_bytes: u64,
    pub(super) term: u64,
    pub(super) vote: u64,
    pub(super) previous_batch: u64,
    pub(super) previous_hash: u64,
    pub(super) reused_generation: u64,
    pub(super) membership: Bytes,
}

impl FileHeader {
    /// What the file's sectors may be marked with.
    pub(super) fn generations(&self) -> Generations {
        Generations { present: self.generation, reused: self.reused_generation }
    }

    /// Block 0.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(FILE_HEADER_BYTES);
        fields.put_slice(FILE_MAGIC);
        fields.put_u16_le(VERSION);
        fields.put_u16_le(FILE_HEADER_BYTES as u16);
        fields.put_u32_le(self.shard);
        fields.put_u32_le(self.membership.len() as u32);
        for field in [self.file, self.generation, self.file_bytes, self.zero_step_bytes] {
            fields.put_u64_le(field);
        }
        for field in [self.term, self.vote, self.previous_batch, self.previous_hash, self.reused_generation] {
            fields.put_u64_le(field);
        }
        fields.put_u32_le(0);
        let mut image = Vec::with_capacity(BLOCK_BYTES);
        let mut sectors = Sectors { image: &mut image, generation: self.generation, batch: 0, first_sector: 0 };
        sectors.push(&fields);
        sectors.push(&self.membership);
        sectors.finish();
        assert_eq!(image.len(), BLOCK_BYTES, "the membership was checked to fit into one block");
        let crc = crc32c::crc32c(&image);
        image[FILE_CRC].copy_from_slice(&crc.to_le_bytes());
        image
    }

    /// Reads block 0.
    pub(super) fn parse(block: &[u8]) -> Parsed<Self> {
        let payload = payload_of(block);
        let Some((version, header_bytes)) = opening(&payload, FILE_MAGIC) else { return Parsed::Damaged };
        let crc = MARK_BYTES + header_bytes - 4..MARK_BYTES + header_bytes;
        if crc_without(block, crc.clone()).to_le_bytes() != block[crc] {
            return Parsed::Damaged;
        }
        if version != VERSION {
            return Parsed::UnknownVersion(version);
        }
        let mut fields = &payload[8..];
        let (shard, membership_bytes) = (fields.get_u32_le(), fields.get_u32_le() as usize);
        let mut next = || fields.get_u64_le();
        let (file, generation, file_bytes, zero_step_bytes) = (next(), next(), next(), next());
        let (term, vote, previous_batch, previous_hash, reused_generation) = (next(), next(), next(), next(), next());
        if header_bytes != FILE_HEADER_BYTES || membership_bytes > MAX_MEMBERSHIP_BYTES || zero_step_bytes == 0 {
            return Parsed::Damaged;
        }
        let membership = Bytes::copy_from_slice(&payload[FILE_HEADER_BYTES..FILE_HEADER_BYTES + membership_bytes]);
        Parsed::Good(Self {
            shard,
            file,
            generation,
            file_bytes,
            zero_step_bytes,
            term,
            vote,
            previous_batch,
            previous_hash,
            reused_generation,
            membership,
        })
    }
}

/// Where a batch stands and what it follows: all of it is checked when the batch is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) shard: u32,
    pub(super) file: u64,
    pub(super) generations: Generations,
    pub(super) offset: u64,
    pub(super) batch: u64,
    pub(super) previous_hash: u64,
}

/// What a batch says of itself.
pub(super) struct BatchHeader {
    place: Place,
    entry_count: u32,
    payload_bytes: u64,
    first_index: u64,
    hard_state: HardState,
    clock: Clock,
}

/// How many bytes a batch takes on disk; nothing if that number does not exist.
pub(super) fn batch_disk_bytes(batch: &JournalBatch) -> Option<u64> {
    disk_bytes(payload_bytes(batch))
}

fn payload_bytes(batch: &JournalBatch) -> u64 {
    let entries: u64 = batch.entries.iter().map(|entry| (ENTRY_HEADER_BYTES + entry.data.len()) as u64).sum();
    BATCH_HEADER_BYTES as u64 + entries
}

fn disk_bytes(payload_bytes: u64) -> Option<u64> {
    let sectors = payload_bytes.div_ceil(SECTOR_PAYLOAD_BYTES as u64);
    sectors.checked_mul(SECTOR_BYTES as u64)?.checked_next_multiple_of(BLOCK_BYTES as u64)
}

/// Lays a batch into `image`, which is cleared first, and returns its hash, which the next batch names.
pub(super) fn encode_batch(image: &mut Vec<u8>, place: &Place, batch: &JournalBatch) -> u64 {
    let header = BatchHeader {
        place: *place,
        entry_count: batch.entries.len() as u32,
        payload_bytes: payload_bytes(batch),
        first_index: batch.entries.first().map_or(0, |entry| entry.index),
        hard_state: batch.hard_state,
        clock: batch.clock,
    };
    image.clear();
    // One Place is written once, so its sector number was checked when room was made for it.
    let first_sector = (place.offset / SECTOR_BYTES as u64) as u32;
    let mut sectors = Sectors { image, generation: place.generations.present, batch: place.batch, first_sector };
    sectors.push(&header.encode());
    for entry in &batch.entries {
        let mut fields = [0; ENTRY_HEADER_BYTES];
        fields[..8].copy_from_slice(&entry.index.to_le_bytes());
        fields[8..16].copy_from_slice(&entry.term.to_le_bytes());
        fields[16..20].copy_from_slice(&(entry.data.len() as u32).to_le_bytes());
        fields[20] = entry.kind;
        sectors.push(&fields);
        sectors.push(&entry.data);
    }
    sectors.finish();
    let batch_crc = crc32c::crc32c(image).to_le_bytes();
    image[BATCH_CRCS.start..BATCH_CRCS.start + 4].copy_from_slice(&batch_crc);
    let header_crc = crc32c::crc32c(&image[MARK_BYTES..BATCH_CRCS.end - 4]).to_le_bytes();
    image[BATCH_CRCS.end - 4..BATCH_CRCS.end].copy_from_slice(&header_crc);
    batch_hash(image)
}

/// The hash of a batch, which the next one names.
pub(super) fn batch_hash(image: &[u8]) -> u64 {
    xxh3_64(&image[..SECTOR_BYTES])
}

impl BatchHeader {
    /// The header with both checksums still zero.
    fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut fields = [0; BATCH_HEADER_BYTES];
        let mut rest = &mut fields[..];
        rest.put_slice(BATCH_MAGIC);
        rest.put_u16_le(VERSION);
        rest.put_u16_le(BATCH_HEADER_BYTES as u16);
        rest.put_u32_le(self.place.shard);
        rest.put_u32_le(self.entry_count);
        for field in [self.place.file, self.place.offset, self.place.batch, self.payload_bytes, self.first_index] {
            rest.put_u64_le(field);
        }
        for field in [self.hard_state.term, self.hard_state.vote, self.hard_state.commit] {
            rest.put_u64_le(field);
        }
        rest.put_slice(&self.clock.boot_id);
        rest.put_u64_le(self.clock.boot_ms);
        rest.put_u64_le(self.place.previous_hash);
        fields
    }

    /// Reads the header in a batch's first sector, whose mark was found to be of the present generation.
    pub(super) fn parse(sector: &[u8], generations: Generations) -> Parsed<Self> {
        let payload = &sector[MARK_BYTES..SECTOR_BYTES];
        let Some((version, header_bytes)) = opening(payload, BATCH_MAGIC) else { return Parsed::Damaged };
        let (fields, crc) = payload[..header_bytes].split_at(header_bytes - 4);
        if crc32c::crc32c(fields).to_le_bytes() != crc {
            return Parsed::Damaged;
        }
        if version != VERSION {
            return Parsed::UnknownVersion(version);
        }
        if header_bytes != BATCH_HEADER_BYTES {
            return Parsed::Damaged;
        }
        let mut fields = &fields[8..];
        let (shard, entry_count) = (fields.get_u32_le(), fields.get_u32_le());
        let mut next = || fields.get_u64_le();
        let (file, offset, batch, payload_bytes, first_index) = (next(), next(), next(), next(), next());
        let hard_state = HardState { term: next(), vote: next(), commit: next() };
        let mut boot_id = [0; 16];
        fields.copy_to_slice(&mut boot_id);
        let clock = Clock { boot_id, boot_ms: fields.get_u64_le() };
        let previous_hash = fields.get_u64_le();
        let place = Place { shard, file, generations, offset, batch, previous_hash };
        Parsed::Good(Self { place, entry_count, payload_bytes, first_index, hard_state, clock })
    }

    /// Where the batch says that it stands, and what it follows.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// How many bytes the batch takes on disk; nothing if its length makes no sense.
    pub(super) fn disk_bytes(&self) -> Option<u64> {
        disk_bytes(self.payload_bytes).filter(|_| self.payload_bytes >= BATCH_HEADER_BYTES as u64)
    }

    /// Whether it is the header of a batch in an earlier use of the file, which then stood at the same place.
    pub(super) fn is_of_earlier_use(&self, expected: &Place) -> bool {
        let found = &self.place;
        found.file < expected.file && (found.shard, found.offset) == (expected.shard, expected.offset)
    }

    /// What makes this batch another than the one that belongs here, if anything.
    pub(super) fn misplaced(&self, expected: &Place) -> Option<&'static str> {
        let found = &self.place;
        [
            (found.shard != expected.shard, "the batch is of another shard"),
            (found.file != expected.file, "the batch was written to another file"),
            (found.offset != expected.offset, "the batch was written at another offset"),
            (found.batch != expected.batch, "the batch has another number"),
            (found.previous_hash != expected.previous_hash, "the batch does not follow the one before it"),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }

    /// Reads the whole batch; nothing if its checksum or its entries are not what was written.
    pub(super) fn decode(&self, image: &[u8]) -> Option<JournalBatch> {
        let crc = crc_without(image, BATCH_CRCS).to_le_bytes();
        if crc != image[BATCH_CRCS.start..BATCH_CRCS.start + 4] {
            return None;
        }
        let mut payload = Bytes::from(payload_of(image));
        payload.truncate(usize::try_from(self.payload_bytes).ok()?);
        payload.advance(BATCH_HEADER_BYTES);
        let mut entries = Vec::new();
        for _ in 0..self.entry_count {
            let (index, term) = (payload.try_get_u64_le().ok()?, payload.try_get_u64_le().ok()?);
            let (data_bytes, kind) = (payload.try_get_u32_le().ok()? as usize, payload.try_get_u8().ok()?);
            if payload.len() < data_bytes {
                return None;
            }
            entries.push(JournalEntry { index, term, kind, data: payload.split_to(data_bytes) });
        }
        let whole = payload.is_empty() && self.first_index == entries.first().map_or(0, |entry| entry.index);
        let (number, hard_state, clock) = (self.place.batch, self.hard_state, self.clock);
        whole.then_some(JournalBatch { number, hard_state, clock, entries })
    }
}

/// Version and length of a header, if it opens with this magic and its length makes sense in its sector.
fn opening(payload: &[u8], magic: &[u8; 4]) -> Option<(u16, usize)> {
    let mut fields = payload.strip_prefix(magic.as_slice())?;
    let (version, header_bytes) = (fields.get_u16_le(), usize::from(fields.get_u16_le()));
    (12..=SECTOR_PAYLOAD_BYTES).contains(&header_bytes).then_some((version, header_bytes))
}
