//! Gives the room of removed files back one after the other.
//!
//! A file system may have to tell its disk of every block that becomes free, and a checkpoint may let go of many gigabytes at
//! once. Done in a row, that left a journal beside it one of forty of its writes, for as long as it took. So a large file
//! loses its name at once and its blocks in its turn: until then it is held open, which no name, reader or listing notices.
//!
//! Where room is short, all of it comes back at once: it is worth more than a smooth second.
//!
//! # Invariants
//! 1. At most [`WAITING_MAX`] files wait; what comes beyond gives its room back at once.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

/// Removes a file's name. The room of a large one follows.
///
/// # Durability
/// As of any change of a directory: with its next sync. A crash gives the room back too, as that of any file without a name.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    // What cannot be opened is removed all the same.
    let is_large = |file: &File| file.metadata().is_ok_and(|file| file.len() >= LARGE_BYTES);
    let held = File::open(path).ok().filter(|file| is_large(file) && !is_room_short(file));
    std::fs::remove_file(path)?;
    if let (Some(file), Some(waiting)) = (held, WAITING.get_or_init(start)) {
        // Too many wait, and it is closed here and now.
        let _ = waiting.try_send(file);
    }
    Ok(())
}

/// Starts the thread. Without one, files give their room back at once.
fn start() -> Option<SyncSender<File>> {
    let (sender, files) = sync_channel(WAITING_MAX);
    let started = thread::Builder::new().name("freeing".to_owned()).spawn(move || free(&files));
    started.is_ok().then_some(sender)
}

/// Closes one after the other, and leaves the disk to others for a while between two.
fn free(files: &Receiver<File>) {
    for file in files {
        let (begun, is_short) = (Instant::now(), is_room_short(&file));
        drop(file);
        if !is_short {
            thread::sleep(begun.elapsed() * REST);
        }
    }
}

/// Whether the file system could do with what waits, or does not say.
fn is_room_short(file: &File) -> bool {
    rustix::fs::fstatvfs(file).map_or(true, |room| room.f_bavail.saturating_mul(room.f_frsize) < SHORT_BYTES)
}

/// Those that wait; there is one disk, and one process that works on it.
static WAITING: OnceLock<Option<SyncSender<File>>> = OnceLock::new();

/// A smaller one is not worth to be held.
const LARGE_BYTES: u64 = 16 << 20;
/// File handles that this may take.
const WAITING_MAX: usize = 64;
/// With less room than that no file waits: about twice what files of the usual 64 MiB could hold back.
const SHORT_BYTES: u64 = 8 << 30;
/// The others have the disk for so many times what closing took.
const REST: u32 = 4;

#[cfg(test)]
mod tests {
    use super::{LARGE_BYTES, remove};
    use std::fs::File;
    use std::io::ErrorKind;

    #[test]
    fn a_removed_file_has_no_name_however_large_it_is_and_who_has_it_open_reads_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, bytes) in [("small", 1), ("large", LARGE_BYTES)] {
            let path = folder.path().join(name);
            let file = File::create(&path).expect("created");
            file.set_len(bytes).expect("grown");
            remove(&path).expect("removed");
            assert!(!path.exists());
            assert_eq!(file.metadata().expect("it is open").len(), bytes, "nothing is cut from it");
            assert_eq!(remove(&path).expect_err("it is gone").kind(), ErrorKind::NotFound);
        }
    }
}
