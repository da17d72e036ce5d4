//! Going back to a checkpoint: every file is brought to the length that the checkpoint lists.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use mortarmq_types::{Mutant, Seq};

use super::SegmentWriter;
use super::files::{Key, SegmentExtent, View};
use super::layout::{FILE_HEADER_BYTES, FileIdentity, INDEX_ENTRY_BYTES, Kind};
use super::remove::remove_unlisted;
use super::writer::PartitionTail;
use crate::checkpoint::{CheckpointError, CheckpointFile, CheckpointFiles};
use crate::journal::Journal;
use crate::ledger::LedgerExtent;

impl SegmentWriter {
    /// Starts from a checkpoint: every file it lists is cut to its listed length, every other file is removed, and
    /// appends go on behind what is listed. The replay of the journal from there on writes the rest anew.
    ///
    /// What the files hold is not read, but for the header of one that is cut: a reader finds damage where it is, and names it.
    ///
    /// # Durability
    /// None, and none is needed: until the next checkpoint a crash leads back to this one, which allows for files that
    /// are longer than listed and for files that it does not list.
    /// # Errors
    /// [`CheckpointError::Rotten`] if a listed file is shorter than listed or missing, [`CheckpointError::Reopen`] if one that
    /// is to be cut has another header, and
    /// [`CheckpointError::JournalMissing`] if there is no journal to go on from: nothing was changed.
    /// # Source
    /// DESIGN "Checkpoint"; failure rules 3 and 4.
    pub fn restore(&mut self, files: &CheckpointFiles) -> Result<(), CheckpointError> {
        if self.poisoned {
            return Err(CheckpointError::Poisoned);
        }
        let (disk, topics) = (self.shared.disk.clone(), self.shared.topics.clone());
        let data_dir = topics.parent().expect("the topics lie in the data directory");
        if !Journal::exists(&*disk, data_dir).map_err(CheckpointError::io("list", data_dir))? {
            return Err(CheckpointError::JournalMissing { topics });
        }
        let (mut listed, mut longer) = (BTreeSet::new(), Vec::new());
        for file in files.list() {
            let path = data_dir.join(&file.path);
            let found = self.length(&path)?;
            if found.is_none_or(|found| found < file.bytes) {
                return Err(CheckpointError::Rotten { path, found_bytes: found, expected_bytes: file.bytes });
            }
            if found > Some(file.bytes) && !Mutant::SegmentNotTruncated.is_on() {
                // It is about to be changed: by then it must be known that it will not be refused.
                let identity = FileIdentity::of_relative_path(&file.path).expect(CHECKED);
                if Mutant::CutBeforeRefusal.is_on() {
                    let file_to_cut = disk.open(&path).map_err(CheckpointError::io("open", &path))?;
                    file_to_cut.set_len(file.bytes).map_err(CheckpointError::io("cut", &path))?;
                }
                let open = self.shared.open(identity).map_err(CheckpointError::Reopen)?;
                longer.push((open, path.clone(), file.bytes));
            }
            listed.insert(path);
        }
        // Poisoned until all is in place: half a restore is neither the checkpoint nor what was there.
        self.poisoned = true;
        self.forget_all();
        for (file, path, bytes) in longer {
            file.set_len(bytes).map_err(CheckpointError::io("cut", &path))?;
        }
        remove_unlisted(&*disk, &topics, &|path| listed.contains(path))?;
        for file in files.list() {
            let identity = FileIdentity::of_relative_path(&file.path).expect(CHECKED);
            self.written.restored(identity, file.bytes, file.crc);
        }
        for (key, view) in files.views() {
            self.partitions.insert(*key, PartitionTail::restored(*key, view));
            self.shared.publish(*key, |empty| *empty = view.clone());
        }
        self.poisoned = false;
        Ok(())
    }

    /// The length of a file; none if it is not there.
    fn length(&self, path: &Path) -> Result<Option<u64>, CheckpointError> {
        let file = match self.shared.disk.open(path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            opened => opened.map_err(CheckpointError::io("open", path))?,
        };
        file.len().map(Some).map_err(CheckpointError::io("read", path))
    }
}

/// Of the paths in a checkpoint's list.
const CHECKED: &str = "the list was checked when it was made";

/// The files of a checkpoint as a reader sees them, or the place in the list of one that does not fit, and why.
pub(crate) fn views_of(list: &[CheckpointFile]) -> Result<BTreeMap<Key, View>, (usize, &'static str)> {
    let mut views: BTreeMap<Key, View> = BTreeMap::new();
    let mut last = None;
    let mut indexes = 0;
    for (position, file) in list.iter().enumerate() {
        let wrong = |what| (position, what);
        let identity = FileIdentity::of_relative_path(&file.path).ok_or(wrong("a file of no partition is listed"))?;
        if last.is_some_and(|last| last >= identity) {
            return Err(wrong("the listed files are not in order"));
        }
        last = Some(identity);
        if file.bytes < FILE_HEADER_BYTES as u64 {
            return Err(wrong("a listed file is shorter than its header"));
        }
        let view = views.entry((identity.topic, identity.partition)).or_default();
        let (first_seq, end_seq, bytes) = (file.first_seq, file.end_seq, file.bytes);
        match identity.kind {
            Kind::Segment => {
                let follows = view.segments.last().is_none_or(|last| last.end_seq == first_seq);
                if !follows || first_seq.get() != identity.number || end_seq <= first_seq || first_seq < Seq::FIRST {
                    return Err(wrong("a listed segment does not follow the one before it"));
                }
                view.segments.push(SegmentExtent { first_seq, end_seq, bytes });
            }
            Kind::Index => {
                let records = end_seq.above(first_seq);
                let fits = |extent: &&SegmentExtent| extent.first_seq.get() == identity.number;
                let segment = view.segments.iter().find(fits).map(|extent| (extent.first_seq, extent.end_seq));
                let expected = records.checked_mul(INDEX_ENTRY_BYTES as u64).map(|lines| lines.checked_add(32));
                if segment != Some((first_seq, end_seq)) || expected != Some(Some(bytes)) {
                    return Err(wrong("a listed index does not fit its segment"));
                }
                indexes += 1;
            }
            Kind::Ledger => {
                let number = identity.number;
                view.ledgers.push(LedgerExtent { number, bytes, lowest_seq: first_seq, end_seq });
            }
        }
    }
    // Each index was matched with another segment, so equal numbers leave none without one.
    let segments: usize = views.values().map(|view| view.segments.len()).sum();
    if indexes == segments { Ok(views) } else { Err((list.len(), "a listed segment has no index")) }
}
