//! Opening the journal: every valid batch is handed out in order, a torn last one is cut, anything else stops it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use mortarmq_types::Mutant;

use super::cut;
use super::layout::{
    BLOCK_BYTES, BatchHeader, FileHeader, Generations, MAX_MEMBERSHIP_BYTES, Mark, Parsed, Place, VERSION,
};
use super::name::{ListedFile, file_path, listed};
use super::roll::{JournalFile, OlderFile, filled_bytes};
use super::spare::find_spares;
use super::torn_tail::{Tail, judge};
use super::{
    Covered, HardState, JOURNAL_DIR, Journal, JournalBatch, JournalError, JournalOptions, RecoverStop, Recovered,
    TornTail,
};
use crate::disk::{Disk, SECTOR_BYTES, Window, create_dir_durable};

impl Journal {
    /// Opens the journal of a data directory, or begins one, and calls `on_batch` for every valid batch in order.
    /// Memory is bounded by one batch.
    ///
    /// `membership` goes into the file headers of a new journal; one that is there goes on with its own. `covered` is
    /// what the checkpoint holds that the state begins with: without one the journal must reach back to its first file.
    /// With one its files may begin at any number, and it must not be empty. Whether the first entry joins on to the
    /// checkpoint is for the caller to check, as is leaving out entries that the checkpoint holds already.
    ///
    /// # Durability
    /// Everything handed to `on_batch`, once this returns `Ok`: the last batch may have been written by a process that
    /// died before its fsync, or whose fsync failed, so it is written again and synced.
    /// # Errors
    /// [`JournalError::Rotten`], [`JournalError::Unreadable`], [`JournalError::Missing`] and
    /// [`JournalError::UnknownVersion`] change nothing on disk.
    /// # Source
    /// Failure rules 2, 3 and 5; P11.
    pub fn recover(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        options: JournalOptions,
        membership: Bytes,
        covered: Option<Covered>,
        on_batch: &mut dyn FnMut(JournalBatch) -> Result<(), RecoverStop>,
    ) -> Result<(Self, Recovered), JournalError> {
        let options = options.normalised();
        if membership.len() > MAX_MEMBERSHIP_BYTES {
            let (bytes, limit) = (membership.len() as u64, MAX_MEMBERSHIP_BYTES as u64);
            return Err(JournalError::TooLarge { what: "the membership", bytes, limit });
        }
        let dir = data_dir.join(JOURNAL_DIR);
        create_dir_durable(&*disk, &dir).map_err(JournalError::io("create", &dir))?;
        let files = journal_files(&*disk, &dir, covered)?;
        let mut replay = Replay::new(&*disk, options, covered.is_some(), on_batch);
        replay.recovered.membership = membership;
        for file in &files {
            replay.file(file)?;
        }
        let file = replay.finish(&dir)?;
        let Replay { recovered, next_batch, previous_hash, older, .. } = replay;
        let journal = Self {
            options,
            membership: recovered.membership.clone(),
            hard_state: recovered.hard_state,
            older,
            spares: find_spares(&*disk, &dir, &options, file.generations.present)?,
            unfilled: None,
            file,
            next_batch,
            previous_hash,
            buffer: Vec::new(),
            poisoned: false,
            disk,
            dir,
        };
        Ok((journal, recovered))
    }
}

/// The files in order. The first must be there unless a checkpoint covers it; then at least one must be.
fn journal_files(disk: &dyn Disk, dir: &Path, covered: Option<Covered>) -> Result<Vec<ListedFile>, JournalError> {
    let files = listed(dir, &disk.list(dir).map_err(JournalError::io("list", dir))?);
    let first = files.first().map(|file| file.number);
    if covered.is_some() && first.is_none() {
        return Err(JournalError::Missing { path: file_path(dir, FIRST_FILE) });
    }
    let first = first.filter(|_| covered.is_some()).unwrap_or(FIRST_FILE);
    for (file, expected) in files.iter().zip(first..) {
        if file.number < expected {
            return Err(JournalError::rotten(&file.path, 0, SECOND_OF_A_NUMBER));
        }
        if file.number > expected {
            return Err(JournalError::Missing { path: file_path(dir, expected) });
        }
    }
    Ok(files)
}

/// The scan of the files. Only [`Replay::finish`] writes.
pub(super) struct Replay<'a> {
    disk: &'a dyn Disk,
    options: JournalOptions,
    /// Whether a checkpoint holds what stood before the first file.
    is_covered: bool,
    on_batch: &'a mut dyn FnMut(JournalBatch) -> Result<(), RecoverStop>,
    pub(super) recovered: Recovered,
    pub(super) next_batch: u64,
    previous_hash: u64,
    /// The files before `current`.
    older: VecDeque<OlderFile>,
    /// The last file with a valid header.
    pub(super) current: Option<Replayed>,
}

/// A file whose batches were handed out.
pub(super) struct Replayed {
    window: Window,
    pub(super) path: PathBuf,
    header: FileHeader,
    /// Where its last valid batch begins, or its header.
    last_valid: u64,
    /// Where its last valid batch, or its header, ends.
    pub(super) end: u64,
    /// The highest index of its entries; 0 without one.
    newest_index: u64,
    pub(super) tail: Tail,
}

impl Replayed {
    /// The file, when another follows it.
    fn complete(self) -> OlderFile {
        OlderFile {
            bytes: filled_bytes(&self.header, self.window.file_bytes()),
            generation: self.header.generation,
            newest_index: self.newest_index,
            holds_batches: self.end > BLOCK_BYTES as u64,
            path: self.path,
        }
    }
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        disk: &'a dyn Disk,
        options: JournalOptions,
        is_covered: bool,
        on_batch: &'a mut dyn FnMut(JournalBatch) -> Result<(), RecoverStop>,
    ) -> Self {
        Self {
            disk,
            options,
            is_covered,
            on_batch,
            recovered: Recovered::default(),
            next_batch: 1,
            previous_hash: 0,
            older: VecDeque::new(),
            current: None,
        }
    }

    /// Goes on at a file or batch that need not follow what was replayed so far.
    pub(super) fn resume_at(&mut self, batch: u64, previous_hash: u64) {
        (self.next_batch, self.previous_hash) = (batch, previous_hash);
        self.current = None;
        self.is_covered = true;
    }

    /// Replays one file, or notes that a roll-over never finished it. Changes nothing on disk.
    pub(super) fn file(&mut self, file: &ListedFile) -> Result<(), JournalError> {
        let (number, path) = (file.number, &*file.path);
        let opened = self.disk.open(path).map_err(JournalError::io("open", path))?;
        let mut window = Window::open(opened).map_err(JournalError::io("read", path))?;
        let block = window.read(0, BLOCK_BYTES).map_err(JournalError::unreadable(path, 0))?;
        let header = match FileHeader::parse(block) {
            Parsed::Good(header) => header,
            Parsed::UnknownVersion(found) => {
                let path = path.to_path_buf();
                return Err(JournalError::UnknownVersion { path, offset: 0, found, supported: VERSION });
            }
            Parsed::Damaged if file.is_last && !self.must_be_sound(file) => return self.unfinished_file(window, path),
            Parsed::Damaged => return Err(JournalError::rotten(path, 0, "the file header fails its checksum")),
        };
        if self.current.is_none() && self.is_covered && number > FIRST_FILE {
            // What stood before is in the checkpoint, so nothing is left to compare these with.
            (self.next_batch, self.previous_hash) = (header.previous_batch + 1, header.previous_hash);
        }
        self.check_follows(&header, number, path)?;
        self.recovered.membership = header.membership.clone();
        if self.recovered.batches == 0 {
            self.recovered.hard_state = HardState { term: header.term, vote: header.vote, commit: 0 };
        }
        self.batches(window, file, header, BLOCK_BYTES as u64)
    }

    /// Whether the file at hand cannot be what an interrupted roll-over left: with a checkpoint there are batches, and
    /// the file with the newest of them is never freed; and one that is being cut was read before.
    fn must_be_sound(&self, file: &ListedFile) -> bool {
        (self.is_covered && self.current.is_none()) || file.cut_at.is_some()
    }

    /// A header must name this file and the batch before it.
    fn check_follows(&self, header: &FileHeader, number: u64, path: &Path) -> Result<(), JournalError> {
        if header.file != number {
            return Err(JournalError::rotten(path, 0, format!("the file was written as number {}", header.file)));
        }
        if header.shard != self.options.shard.get() {
            return Err(JournalError::rotten(path, 0, format!("the file is of shard {}", header.shard)));
        }
        let (last, follows) = (self.next_batch - 1, header.previous_batch);
        if follows > last {
            // The file before lost its end, which only this one remembers.
            let (path, end) = self.current.as_ref().map_or((path, 0), |file| (file.path.as_path(), file.end));
            let what = format!("batch {} is missing: the next file follows batch {follows}", last + 1);
            return Err(JournalError::rotten(path, end, what));
        }
        // A generation is begun with each file, both from 1.
        let expected = self.current.as_ref().map_or(number, |file| file.header.generation + 1);
        if follows < last || header.previous_hash != self.previous_hash || header.generation != expected {
            return Err(JournalError::rotten(path, 0, "the file does not follow the one before it"));
        }
        Ok(())
    }

    /// The last file has no valid header. That is an interrupted roll-over if nothing was ever written behind it.
    fn unfinished_file(&mut self, mut window: Window, path: &Path) -> Result<(), JournalError> {
        let block = window.read(0, BLOCK_BYTES).map_err(JournalError::unreadable(path, 0))?;
        let is_begun = block.iter().any(|byte| *byte != 0);
        if is_begun && window.file_bytes() < BLOCK_BYTES as u64 && !Mutant::ShortFileForgotten.is_on() {
            // A header is written over zeros that were synced: the file was longer once.
            return Err(JournalError::rotten(path, window.file_bytes(), "the file was cut short"));
        }
        // Seen from the generation before, what this use of the file wrote is foreign.
        let generation = self.current.as_ref().map_or(0, |file| file.header.generation);
        let generations = Generations { present: generation, reused: generation.saturating_sub(1) };
        let mut offset = BLOCK_BYTES as u64;
        while offset < window.sectors_end() {
            let sector = window.read(offset, SECTOR_BYTES).map_err(JournalError::unreadable(path, offset))?;
            match Mark::of(sector, generations, offset) {
                Mark::Zero | Mark::Older => offset += SECTOR_BYTES as u64,
                Mark::Batch(_) | Mark::Foreign => {
                    return Err(JournalError::rotten(path, 0, "the file header fails its checksum"));
                }
            }
        }
        self.recovered.unfinished_file = Some(path.to_path_buf());
        Ok(())
    }

    /// Hands out the batches of a file from `begin` on, and judges how they end.
    pub(super) fn batches(
        &mut self,
        mut window: Window,
        file: &ListedFile,
        header: FileHeader,
        begin: u64,
    ) -> Result<(), JournalError> {
        let path = &*file.path;
        let batches_end = filled_bytes(&header, window.file_bytes());
        if batches_end < header.zero_step_bytes.min(header.file_bytes) {
            return Err(JournalError::rotten(path, window.file_bytes(), "the file was cut short"));
        }
        check_partial_step(&mut window, path, batches_end)?;
        let (mut last_valid, mut end, mut newest_index) = (0, begin, 0);
        let tail = loop {
            let place = Place {
                shard: header.shard,
                file: header.file,
                generations: header.generations(),
                offset: end,
                batch: self.next_batch,
                previous_hash: self.previous_hash,
            };
            let read = read_batch(&mut window, &place, batches_end).map_err(JournalError::unreadable(path, end))?;
            let Some(found) = read else {
                break if cut::is_under_way(file, &place)? {
                    cut::remains(&mut window, path, &place)?
                } else {
                    judge(&mut window, path, &place, batches_end, file.is_last)?
                };
            };
            let (entries, clock) = (found.batch.entries.len() as u64, found.batch.clock);
            self.recovered.batches += 1;
            self.recovered.entries += entries;
            self.recovered.bytes += found.disk_bytes;
            self.recovered.hard_state = found.batch.hard_state;
            self.recovered.last_clock = Some(clock);
            newest_index = found.batch.newest_index().max(newest_index);
            (self.on_batch)(found.batch).map_err(|source| JournalError::Stopped {
                path: path.to_path_buf(),
                offset: end,
                source,
            })?;
            (last_valid, end) = (end, end + found.disk_bytes);
            self.next_batch += 1;
            self.previous_hash = found.hash;
        };
        let path = path.to_path_buf();
        let replayed = Replayed { window, path, header, last_valid, end, newest_index, tail };
        self.older.extend(self.current.replace(replayed).map(Replayed::complete));
        Ok(())
    }

    /// Makes durable what was handed out, removes an unfinished file, cuts a torn batch, and opens the file that batches go to.
    fn finish(&mut self, dir: &Path) -> Result<JournalFile, JournalError> {
        if let Some(path) = &self.recovered.unfinished_file {
            self.disk.remove(path).map_err(JournalError::io("remove", path))?;
            self.disk.sync_dir(dir).map_err(JournalError::io("sync", dir))?;
        }
        let Some(current) = self.current.take() else {
            let header = FileHeader {
                shard: self.options.shard.get(),
                file: FIRST_FILE,
                generation: 1,
                file_bytes: self.options.file_bytes,
                zero_step_bytes: self.options.zero_step_bytes,
                term: 0,
                vote: 0,
                previous_batch: 0,
                previous_hash: 0,
                reused_generation: 0,
                membership: self.recovered.membership.clone(),
            };
            return JournalFile::create(self.disk, dir, &header);
        };
        let Replayed { mut window, path, header, last_valid, end, newest_index, tail } = current;
        let last_bytes = (end - last_valid) as usize;
        let last = window.read(last_valid, last_bytes).map_err(JournalError::unreadable(&path, last_valid))?.to_vec();
        let mut file = JournalFile::with_header(&header, window.file().clone(), path);
        file.filled_bytes = filled_bytes(&header, window.file_bytes());
        (file.position, file.newest_index) = (end, newest_index);
        if let Tail::Torn { end: torn_end } = tail {
            let whole_path = file_path(dir, header.file);
            self.recovered.torn = Some(TornTail { file: whole_path, offset: end, bytes: torn_end - end });
            if Mutant::TornTailKept.is_on() {
                file.position = torn_end;
            }
        }
        // Both are written again even if they read back well: if a sync of an earlier process failed, the system holds
        // these bytes for clean and would sync nothing. Zeros go over zeros only, but for a cut.
        file.file.write_all_at(&last, last_valid).map_err(JournalError::io("write", &file.path))?;
        let is_zero = tail == Tail::Clean && header.reused_generation == 0;
        if is_zero || Mutant::CutNotRecorded.is_on() {
            file.zero(file.position, window.file_bytes())?;
        }
        file.file.sync_data().map_err(JournalError::io("sync", &file.path))?;
        if tail != Tail::Clean && !Mutant::CutNotRecorded.is_on() {
            file.cut(self.disk, dir, end, window.file_bytes())?;
        }
        file.rename(self.disk, file_path(dir, header.file))?;
        self.disk.sync_dir(dir).map_err(JournalError::io("sync", dir))?;
        Ok(file)
    }
}

/// A batch as it was found.
struct Found {
    batch: JournalBatch,
    disk_bytes: u64,
    hash: u64,
}

/// A step is filled with zeros and synced before anything is written there, so what stands in a part of one was in a longer
/// file once.
fn check_partial_step(window: &mut Window, path: &Path, batches_end: u64) -> Result<(), JournalError> {
    let mut offset = batches_end;
    while offset < window.sectors_end() {
        let sector = window.read(offset, SECTOR_BYTES).map_err(JournalError::unreadable(path, offset))?;
        if sector.iter().any(|byte| *byte != 0) {
            return Err(JournalError::rotten(path, window.file_bytes(), "the file was cut short"));
        }
        offset += SECTOR_BYTES as u64;
    }
    Ok(())
}

/// The batch at a place, if all of it is as it was written.
fn read_batch(window: &mut Window, place: &Place, batches_end: u64) -> std::io::Result<Option<Found>> {
    let sector = window.read(place.offset, SECTOR_BYTES)?;
    if Mark::of(sector, place.generations, place.offset) != Mark::Batch(place.batch) {
        return Ok(None);
    }
    let Parsed::Good(header) = BatchHeader::parse(sector, place.generations) else { return Ok(None) };
    let fits = |bytes: &u64| place.offset.checked_add(*bytes).is_some_and(|end| end <= batches_end);
    let Some(disk_bytes) = header.disk_bytes().filter(fits) else { return Ok(None) };
    if header.misplaced(place).is_some() {
        return Ok(None);
    }
    let image = window.read(place.offset, disk_bytes as usize)?;
    // The checksum does not see a sound mark in place of another, as each ends with its own.
    let is_of_batch = |(sector, offset)| Mark::of(sector, place.generations, offset) == Mark::Batch(place.batch);
    let offsets = (place.offset..).step_by(SECTOR_BYTES);
    if !image.chunks_exact(SECTOR_BYTES).zip(offsets).all(is_of_batch) {
        return Ok(None);
    }
    let hash = super::layout::batch_hash(image);
    Ok(header.decode(image).map(|batch| Found { batch, disk_bytes, hash }))
}

/// What is wrong with a file that nobody but a stranger can have made: a journal renames, and never copies.
pub(super) const SECOND_OF_A_NUMBER: &str = "there is another file of this number";
/// Files are numbered from here.
const FIRST_FILE: u64 = 1;
