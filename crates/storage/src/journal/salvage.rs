//! What can still be told of a journal that is damaged: the vote, if it was not hit.
//!
//! Each batch repeats the hard state, so the newest batch has the newest. It is known to be the newest only if the last file's scan, past all
//! that is damaged, comes to a sound batch and goes on from there to a sound end.

use std::path::Path;

use mortarmq_types::ShardId;

use super::name::listed;
use super::recover::Replay;
use super::verify::go_on_behind;
use super::{HardState, JOURNAL_DIR, Journal, JournalError, JournalOptions};
use crate::disk::{Disk, ReadOnly};

impl Journal {
    /// The hard state of a journal that cannot be recovered, past what is damaged in it; nothing if the newest may be lost with it.
    /// Nothing is changed.
    ///
    /// # Source
    /// Failure rule 3; docs/decisions/018-repair.md.
    #[must_use]
    pub fn salvage(disk: &dyn Disk, data_dir: &Path, shard: ShardId) -> Option<HardState> {
        let (disk, dir) = (&ReadOnly(disk), data_dir.join(JOURNAL_DIR));
        let files = listed(&dir, &disk.list(&dir).ok()?);
        // Of the newest file alone: what an older one says is older.
        let newest = files.last()?;
        let mut last = None;
        let mut on_batch = |batch: super::JournalBatch| {
            last = Some(batch.hard_state);
            Ok(())
        };
        let mut replay = Replay::new(disk, JournalOptions::new(shard), true, &mut on_batch);
        replay.resume_at(1, 0);
        let mut replayed = replay.file(newest);
        let mut is_damaged = false;
        while let Err(error) = replayed {
            let offset = match error {
                JournalError::Rotten { ref path, offset, .. } if *path == newest.path => offset,
                JournalError::Unreadable { ref path, offset, .. } if *path == newest.path => offset,
                _ => return None,
            };
            is_damaged = true;
            replayed = go_on_behind(&mut replay, disk, newest, offset)?;
        }
        // A file that was begun and not finished says nothing, and the one before it was not looked at.
        if replay.recovered.unfinished_file.is_some() {
            return None;
        }
        let of_header = replay.recovered.hard_state;
        drop(replay);
        // Without a batch, its header has what stood at its beginning.
        last.or((!is_damaged).then_some(of_header))
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use bytes::Bytes;
    use mortarmq_types::ShardId;

    use crate::disk::MemoryDisk;
    use crate::journal::{HardState, Journal, JournalBatch, JournalEntry, JournalError, JournalOptions};

    const DATA_DIR: &str = "/data";

    fn recover(disk: &MemoryDisk) -> Result<Journal, JournalError> {
        let options = JournalOptions { file_bytes: 24 << 10, spare_files: 0, ..JournalOptions::new(ShardId::ZERO) };
        let (disk, dir) = (Arc::new(disk.clone()), Path::new(DATA_DIR));
        Journal::recover(disk, dir, options, Bytes::from_static(b"voters"), None, &mut |_| Ok(()))
            .map(|(journal, _)| journal)
    }

    /// Batches in three files, each with another term and vote; and the last of these.
    fn filled(batches: u64) -> (MemoryDisk, HardState) {
        let disk = MemoryDisk::new();
        let mut journal = recover(&disk).expect("an empty disk");
        let mut last = HardState::default();
        for index in 1..=batches {
            last = HardState { term: index, vote: index % 3, commit: 0 };
            let entries = vec![JournalEntry { index, term: index, kind: 0, data: Bytes::from(vec![7; 3000]) }];
            journal.append(&JournalBatch { hard_state: last, entries, ..JournalBatch::default() }).expect("no crash");
        }
        (disk, last)
    }

    fn files(disk: &MemoryDisk) -> Vec<PathBuf> {
        use crate::disk::Disk;
        let dir = Path::new(DATA_DIR).join("journal");
        disk.list(&dir).expect("a folder").into_iter().map(|name| dir.join(name)).collect()
    }

    #[test]
    fn p1_wherever_a_journal_rots_an_older_vote_is_never_taken_for_the_newest() {
        let (mut kept, mut lost) = (0, 0);
        // The last file holds some batches, one, or as many as fit.
        for batches in [13, 11, 15] {
            let (disk, last) = filled(batches);
            assert_eq!(files(&disk).len(), 3);
            for path in files(&disk) {
                for offset in (0..disk.contents(&path).expect("it is there").len() as u64).step_by(97) {
                    disk.flip_bit(&path, offset, 2).expect("inside the file");
                    if recover(&disk.after_process_kill()).is_err() {
                        match Journal::salvage(&disk, Path::new(DATA_DIR), ShardId::ZERO) {
                            Some(found) => {
                                assert_eq!(
                                    (found.term, found.vote),
                                    (last.term, last.vote),
                                    "{} {offset}",
                                    path.display()
                                );
                                kept += 1;
                            }
                            None => lost += 1,
                        }
                    }
                    disk.flip_bit(&path, offset, 2).expect("inside the file");
                }
            }
        }
        assert!(kept > 500 && lost > 50, "{kept} kept, {lost} lost");
    }

    #[test]
    fn p1_a_journal_that_lost_its_end_tells_no_vote() {
        let (disk, _) = filled(13);
        let newest = files(&disk).pop().expect("three");
        let whole = disk.contents(&newest).expect("it is there");
        for length in [0, 100, 4096, 5000, 8192, 12_288] {
            disk.replace(&newest, whole[..length].to_vec()).expect("it is there");
            assert_eq!(Journal::salvage(&disk, Path::new(DATA_DIR), ShardId::ZERO), None, "{length}");
        }
    }
}
