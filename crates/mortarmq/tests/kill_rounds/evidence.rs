//! What a broker was doing when it was stopped or killed, as its data folder and its log show it: what was aimed at does
//! not count.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A checkpoint that was begun and is not finished; in which state it is. `log` is all since the broker was started.
pub(crate) fn checkpoint(data_dir: &Path, log: &str) -> Option<&'static str> {
    if unnamed_checkpoint(data_dir) {
        return Some("its file has no name yet");
    }
    // One at a time is made, and told once nothing is left to do for it.
    let (before, begun) = log.rsplit_once(CHECKPOINT_BEGUN).filter(|(_, begun)| !begun.contains(CHECKPOINT_WRITTEN))?;
    assert!(before.matches(CHECKPOINT_BEGUN).count() == before.matches(CHECKPOINT_WRITTEN).count(), "one at a time");
    let digits = begun.find(|letter: char| !letter.is_ascii_digit()).map_or(begun, |end| &begun[..end]);
    let log_index: u64 = digits.parse().ok()?;
    let has_name = data_dir.join(CHECKPOINTS).join(format!("{log_index:020}.checkpoint")).exists();
    Some(if has_name { "older files are being removed" } else { "what it lists is being synced" })
}

/// Whether a checkpoint's file is begun and does not have its name yet.
pub(crate) fn unnamed_checkpoint(data_dir: &Path) -> bool {
    names(&data_dir.join(CHECKPOINTS)).iter().any(|name| name.ends_with(".checkpoint.new"))
}

/// A roll-over that was begun and is not finished; in which state it is. Only for a broker that has been ready: what an
/// earlier one left is gone by then.
pub(crate) fn roll_over(data_dir: &Path) -> Option<&'static str> {
    let dir = data_dir.join("journal");
    let names = names(&dir);
    let newest = names.iter().filter(|name| name.ends_with(".journal")).max()?;
    let newest = Opening::read(&dir.join(newest))?;
    if !newest.has_header {
        return Some("a file without a header");
    }
    if newest.first_batch_generation != newest.generation {
        return Some("a file without its first batch");
    }
    let is_begun = |name: &String| {
        let spare = Opening::read(&dir.join(name));
        spare.is_some_and(|spare| spare.has_header && spare.generation > newest.generation)
    };
    let is_spare_begun = names.iter().filter(|name| name.starts_with("spare-")).any(is_begun);
    is_spare_begun.then_some("a spare with its new header, under its old name")
}

/// How far a start has come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// It has read the checkpoint, and cuts the files back to it.
    Begun,
    /// It has come to the journal.
    Replaying,
    /// It has come to the end of the journal, and is not ready.
    Replayed,
}

impl Stage {
    /// Whether a start has come so far, by its log.
    pub(crate) fn is_reached(self, log: &str) -> bool {
        log.contains(match self {
            Self::Begun => ": recovery begun",
            Self::Replaying => ": replaying the journal",
            Self::Replayed => ": journal replayed",
        })
    }
}

/// What a start that did not become ready was doing, if it had come to the journal.
pub(crate) fn recovery(log: &str) -> Option<&'static str> {
    if Stage::Replayed.is_reached(log) {
        Some("the journal is replayed, the node not ready")
    } else {
        Stage::Replaying.is_reached(log).then_some("the journal is being replayed")
    }
}

/// What the beginning of a journal file tells, by docs/formats.md.
struct Opening {
    has_header: bool,
    generation: u64,
    /// Of the first sector behind the header: another one until this use of the file has a batch.
    first_batch_generation: u64,
}

impl Opening {
    /// Nothing if the file has gone meanwhile.
    fn read(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut block = [0; BLOCK_BYTES + 8];
        // A file that was only just created is shorter; what it does not have yet is zero.
        let mut filled = 0;
        while let Ok(read @ 1..) = file.read_at(&mut block[filled..], filled as u64) {
            filled += read;
        }
        let generation_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        Some(Self {
            has_header: block[MARK_BYTES..].starts_with(b"MMQJ"),
            generation: generation_at(0),
            first_batch_generation: generation_at(BLOCK_BYTES),
        })
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| PathBuf::from(entry.file_name()).display().to_string()).collect()
}

const BLOCK_BYTES: usize = 4096;
/// In front of every sector.
const MARK_BYTES: usize = 24;
const CHECKPOINT_BEGUN: &str = ": checkpoint begun log_index=";
const CHECKPOINT_WRITTEN: &str = ": checkpoint written log_index=";
const CHECKPOINTS: &str = "checkpoints";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{BLOCK_BYTES, MARK_BYTES, checkpoint, recovery, roll_over};

    /// A journal file of a generation, with a header or not, whose first sector behind it is of another.
    fn journal_file(dir: &Path, name: &str, generation: u64, has_header: bool, first_batch_generation: u64) {
        let mut bytes = vec![0; 2 * BLOCK_BYTES];
        bytes[..8].copy_from_slice(&generation.to_le_bytes());
        if has_header {
            bytes[MARK_BYTES..MARK_BYTES + 4].copy_from_slice(b"MMQJ");
        }
        bytes[BLOCK_BYTES..BLOCK_BYTES + 8].copy_from_slice(&first_batch_generation.to_le_bytes());
        std::fs::create_dir_all(dir.join("journal")).expect("a folder");
        std::fs::write(dir.join("journal").join(name), bytes).expect("written");
    }

    #[test]
    fn a_roll_over_counts_from_the_new_file_to_its_first_batch() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let dir = folder.path();
        journal_file(dir, "00000006.journal", 6, true, 6);
        journal_file(dir, "spare-0001", 5, true, 5);
        assert_eq!(roll_over(dir), None);
        journal_file(dir, "spare-0001", 7, true, 5);
        assert_eq!(roll_over(dir), Some("a spare with its new header, under its old name"));
        journal_file(dir, "00000007.journal", 7, true, 5);
        assert_eq!(roll_over(dir), Some("a file without its first batch"));
        journal_file(dir, "00000007.journal", 0, false, 0);
        assert_eq!(roll_over(dir), Some("a file without a header"));
        std::fs::write(dir.join("journal/00000007.journal"), "").expect("written");
        assert_eq!(roll_over(dir), Some("a file without a header"));
        journal_file(dir, "00000007.journal", 7, true, 7);
        std::fs::remove_file(dir.join("journal/spare-0001")).expect("it is there");
        assert_eq!(roll_over(dir), None);
    }

    #[test]
    fn a_checkpoint_counts_from_its_first_line_in_the_log_to_its_last() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (dir, checkpoints) = (folder.path(), folder.path().join("checkpoints"));
        std::fs::create_dir(&checkpoints).expect("a folder");
        let done = "INFO s: checkpoint begun log_index=3\nINFO s: checkpoint written log_index=3 ms=1\n";
        let begun = format!("{done}DEBUG s: checkpoint begun log_index=14\nDEBUG s: other\n");
        assert_eq!(checkpoint(dir, ""), None);
        assert_eq!(checkpoint(dir, done), None);
        assert_eq!(checkpoint(dir, &begun), Some("what it lists is being synced"));
        std::fs::write(checkpoints.join("00000000000000000014.checkpoint.new"), "").expect("written");
        assert_eq!(checkpoint(dir, &begun), Some("its file has no name yet"));
        std::fs::rename(
            checkpoints.join("00000000000000000014.checkpoint.new"),
            checkpoints.join("00000000000000000014.checkpoint"),
        )
        .expect("renamed");
        assert_eq!(checkpoint(dir, &begun), Some("older files are being removed"));
    }

    #[test]
    fn a_start_counts_from_the_journal_on() {
        let begun = "DEBUG s: recovery begun checkpoint=3\n";
        assert_eq!(recovery(begun), None);
        let replaying = format!("{begun}DEBUG s: replaying the journal\n");
        assert_eq!(recovery(&replaying), Some("the journal is being replayed"));
        let replayed = format!("{replaying}INFO s: journal replayed batches=1\n");
        assert_eq!(recovery(&replayed), Some("the journal is replayed, the node not ready"));
    }
}
