//! A data directory whose journal or checkpoint has rotted, and whose node is brought up anew by the others.
//!
//! What rotted is set aside under another name: it is neither cut nor read again, and goes when the node has everything from the others.
//! The file `repairing` says that this was begun. It is written aside, synced and given its name:
//!
//! | at | field | meaning |
//! |---|---|---|
//! | 0 | magic `MMQR`, version u16, length u16 | |
//! | 8 | stage u8, zero \[7\] | 1 files are being set aside, 2 they are |
//! | 16 | term u64, vote u64 | what the node must not forget: its vote |
//! | 32 | crc u32 | CRC32C of the above |
//!
//! All integers are little-endian. In this order:
//! 1. `repairing` with stage 1, durable;
//! 2. every journal file, checkpoint and begun install gets the ending `.rotten`, and their directories are synced;
//! 3. `repairing` with stage 2, durable. From now on a journal file is one of the new journal;
//! 4. the node fetches and installs a checkpoint of its leader as any that is behind;
//! 5. `repairing` goes, then what was set aside.
//!
//! A start that finds stage 1 goes on with step 2; one that finds stage 2 and a checkpoint, or the install of one, has everything.

use std::io;
use std::path::{Path, PathBuf};

use bytes::{Buf, BufMut};

use crate::checkpoint::{CHECKPOINTS_DIR, checkpoint_numbers, list_if_there, newest_install};
use crate::disk::Disk;
use crate::journal::{HardState, JOURNAL_DIR, is_journal_file};

/// That a data directory is brought up anew, and what its node must not forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repairing {
    /// Its term and its vote; nothing of it is committed.
    pub hard_state: HardState,
    is_set_aside: bool,
}

/// Why it cannot be said, or read.
#[derive(Debug, thiserror::Error)]
pub enum RepairingError {
    /// The disk failed.
    #[error("cannot {doing} {}", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are not what was written (P11).
    #[error("{} is damaged at offset 0: it fails its checksum", .path.display())]
    Rotten {
        /// The file.
        path: PathBuf,
    },
    /// A sound file in a format that this build does not know (P11).
    #[error("{} has version {found}; this build reads version {VERSION}", .path.display())]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// The version found.
        found: u16,
    },
}

impl Repairing {
    /// Whether a data directory says that it is brought up anew; what it says is not looked at.
    ///
    /// # Errors
    /// The disk's.
    pub fn is_begun(disk: &dyn Disk, data_dir: &Path) -> io::Result<bool> {
        disk.exists(&data_dir.join(FILE))
    }

    /// Reads whether a data directory is brought up anew.
    ///
    /// # Errors
    /// When the file is damaged, or the disk fails.
    pub fn read(disk: &dyn Disk, data_dir: &Path) -> Result<Option<Self>, RepairingError> {
        let path = data_dir.join(FILE);
        let file = match disk.open_to_read(&path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            opened => opened.map_err(failed("open", &path))?,
        };
        let mut bytes = [0; BYTES];
        if file.len().map_err(failed("read", &path))? != BYTES as u64 {
            return Err(RepairingError::Rotten { path });
        }
        file.read_exact_at(&mut bytes, 0).map_err(failed("read", &path))?;
        let mut fields = &bytes[..];
        let is_sound = bytes.starts_with(MAGIC) && crc32c::crc32c(&bytes[..CRC_AT]).to_le_bytes() == bytes[CRC_AT..];
        fields.advance(MAGIC.len());
        let (found, length, stage) = (fields.get_u16_le(), fields.get_u16_le(), fields.get_u8());
        if !is_sound {
            return Err(RepairingError::Rotten { path });
        }
        if found != VERSION {
            return Err(RepairingError::UnknownVersion { path, found });
        }
        if usize::from(length) != BYTES || !matches!(stage, SETTING_ASIDE | SET_ASIDE) {
            return Err(RepairingError::Rotten { path });
        }
        fields.advance(7);
        let hard_state = HardState { term: fields.get_u64_le(), vote: fields.get_u64_le(), commit: 0 };
        Ok(Some(Self { hard_state, is_set_aside: stage == SET_ASIDE }))
    }

    /// Begins: what rotted, and all that hangs on it, is set aside. `hard_state` is the newest that the node ever told anybody.
    ///
    /// # Durability
    /// All of it.
    /// # Errors
    /// The disk's.
    pub fn begin(disk: &dyn Disk, data_dir: &Path, hard_state: HardState) -> Result<Self, RepairingError> {
        let begun = Self { hard_state: HardState { commit: 0, ..hard_state }, is_set_aside: false };
        begun.write(disk, data_dir)?;
        begun.set_aside(disk, data_dir)
    }

    /// Goes on with setting aside, if a crash interrupted that.
    ///
    /// # Durability
    /// All of it.
    /// # Errors
    /// The disk's.
    pub fn set_aside(self, disk: &dyn Disk, data_dir: &Path) -> Result<Self, RepairingError> {
        if self.is_set_aside {
            return Ok(self);
        }
        for (dir, name) in in_use(disk, data_dir)? {
            let path = dir.join(&name);
            disk.rename(&path, &dir.join(name + SUFFIX)).map_err(failed("rename", &path))?;
        }
        for dir in dirs(data_dir) {
            if disk.exists(&dir).map_err(failed("look for", &dir))? {
                disk.sync_dir(&dir).map_err(failed("sync", &dir))?;
            }
        }
        let done = Self { is_set_aside: true, ..self };
        done.write(disk, data_dir)?;
        Ok(done)
    }

    /// Whether the node has everything from the others: a checkpoint that was installed since, or whose install was begun.
    ///
    /// # Errors
    /// The disk's.
    pub fn is_over(&self, disk: &dyn Disk, data_dir: &Path) -> Result<bool, RepairingError> {
        let dir = data_dir.join(CHECKPOINTS_DIR);
        let names = list_if_there(disk, &dir).map_err(failed("list", &dir))?;
        Ok(self.is_set_aside && (!checkpoint_numbers(&names).is_empty() || newest_install(&names).is_some()))
    }

    /// The node has everything: it is one as any other, and what rotted goes. Fine if nothing was begun.
    ///
    /// # Durability
    /// That it is over; what was set aside may be there once more after a power loss, and goes with the next call.
    /// # Errors
    /// The disk's.
    pub fn end(disk: &dyn Disk, data_dir: &Path) -> Result<(), RepairingError> {
        let path = data_dir.join(FILE);
        if disk.exists(&path).map_err(failed("look for", &path))? {
            disk.remove(&path).map_err(failed("remove", &path))?;
            disk.sync_dir(data_dir).map_err(failed("sync", data_dir))?;
        }
        for dir in dirs(data_dir) {
            let names = list_if_there(disk, &dir).map_err(failed("list", &dir))?;
            for name in names.iter().filter(|name| name.ends_with(SUFFIX)) {
                let path = dir.join(name);
                disk.remove(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }

    fn write(&self, disk: &dyn Disk, data_dir: &Path) -> Result<(), RepairingError> {
        let (path, aside) = (data_dir.join(FILE), data_dir.join(UNFINISHED_FILE));
        if disk.exists(&aside).map_err(failed("look for", &aside))? {
            disk.remove(&aside).map_err(failed("remove", &aside))?;
        }
        let file = disk.create_new(&aside).map_err(failed("create", &aside))?;
        file.write_all_at(&self.encode(), 0).map_err(failed("write", &aside))?;
        file.sync_data().map_err(failed("sync", &aside))?;
        disk.rename(&aside, &path).map_err(failed("rename", &aside))?;
        disk.sync_dir(data_dir).map_err(failed("sync", data_dir))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.put_slice(MAGIC);
        bytes.put_u16_le(VERSION);
        bytes.put_u16_le(BYTES as u16);
        bytes.put_u8(if self.is_set_aside { SET_ASIDE } else { SETTING_ASIDE });
        bytes.put_bytes(0, 7);
        bytes.put_u64_le(self.hard_state.term);
        bytes.put_u64_le(self.hard_state.vote);
        let crc = crc32c::crc32c(&bytes);
        bytes.put_u32_le(crc);
        bytes
    }
}

fn dirs(data_dir: &Path) -> [PathBuf; 2] {
    [data_dir.join(JOURNAL_DIR), data_dir.join(CHECKPOINTS_DIR)]
}

/// What a start would take for its journal or its checkpoint.
fn in_use(disk: &dyn Disk, data_dir: &Path) -> Result<Vec<(PathBuf, String)>, RepairingError> {
    let [journal, checkpoints] = dirs(data_dir);
    let mut found = Vec::new();
    for name in list_if_there(disk, &journal).map_err(failed("list", &journal))? {
        if is_journal_file(&name) {
            found.push((journal.clone(), name));
        }
    }
    for name in list_if_there(disk, &checkpoints).map_err(failed("list", &checkpoints))? {
        let names = [name];
        if !checkpoint_numbers(&names).is_empty() || newest_install(&names).is_some() {
            let [name] = names;
            found.push((checkpoints.clone(), name));
        }
    }
    Ok(found)
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RepairingError {
    let path = path.to_path_buf();
    move |source| RepairingError::Io { doing, path, source }
}

/// The file that says it.
pub(crate) const FILE: &str = "repairing";
const UNFINISHED_FILE: &str = "repairing.new";
/// What was set aside ends like this.
pub(crate) const SUFFIX: &str = ".rotten";
const MAGIC: &[u8; 4] = b"MMQR";
const VERSION: u16 = 1;
const SETTING_ASIDE: u8 = 1;
const SET_ASIDE: u8 = 2;
const CRC_AT: usize = 32;
const BYTES: usize = CRC_AT + 4;

#[cfg(test)]
mod tests {
    use super::{FILE, Repairing};
    use crate::disk::{Disk, MemoryDisk};
    use crate::journal::HardState;
    use std::path::Path;

    const DATA_DIR: &str = "/data";
    const STATE: HardState = HardState { term: 7, vote: 0x2_0000_0001, commit: 0 };

    /// What a node has on disk, all of it durable.
    fn filled() -> MemoryDisk {
        let (disk, root) = (MemoryDisk::new(), Path::new(DATA_DIR));
        for (dir, names) in [
            ("journal", &["00000003.journal", "00000004.cut-4096", "spare-0001"][..]),
            ("checkpoints", &["00000000000000000009.checkpoint", "00000000000000000012.checkpoint.install"]),
        ] {
            disk.create_dir_all(&root.join(dir)).expect("an empty disk");
            for name in names {
                let file = disk.create_new(&root.join(dir).join(name)).expect("an empty disk");
                file.write_all_at(name.as_bytes(), 0).and_then(|()| file.sync_data()).expect("no crash");
            }
            disk.sync_dir(&root.join(dir)).expect("no crash");
        }
        disk.sync_dir(root).and_then(|()| disk.sync_dir(Path::new("/"))).expect("no crash");
        disk
    }

    fn names(disk: &MemoryDisk, dir: &str) -> Vec<String> {
        disk.list(&Path::new(DATA_DIR).join(dir)).expect("a folder")
    }

    #[test]
    fn a_crash_anywhere_leaves_what_rotted_under_one_name_or_the_other_and_the_next_start_goes_on() {
        for operation in 0.. {
            let (disk, root) = (filled(), Path::new(DATA_DIR));
            disk.crash_at(disk.operations() + operation);
            let is_done = Repairing::begin(&disk, root, STATE).is_ok();
            for seed in 0..6 {
                let found = disk.after_power_loss(seed);
                let mark = Repairing::read(&found, root).expect("one file or none");
                let Some(mark) = mark else {
                    assert!(!is_done && names(&found, "journal").iter().all(|name| !name.ends_with("rotten")));
                    continue;
                };
                let mark = mark.set_aside(&found, root).expect("no crash");
                assert_eq!((mark.hard_state, mark.is_over(&found, root).expect("no crash")), (STATE, false));
                let found = found.after_power_loss(seed);
                assert_eq!(
                    names(&found, "journal"),
                    ["00000003.journal.rotten", "00000004.cut-4096.rotten", "spare-0001"]
                );
                let ends = ["00000000000000000009.checkpoint.rotten", "00000000000000000012.checkpoint.install.rotten"];
                assert_eq!(names(&found, "checkpoints"), ends);
                let contents = found.contents(&root.join("journal/00000003.journal.rotten")).expect("it is there");
                assert_eq!(contents, b"00000003.journal", "nothing of it was changed");
            }
            if is_done {
                assert!(operation > 8, "{operation}");
                return;
            }
        }
    }

    #[test]
    fn it_is_over_with_a_checkpoint_that_came_since_and_then_nothing_is_left() {
        let (disk, root) = (filled(), Path::new(DATA_DIR));
        let mark = Repairing::begin(&disk, root, STATE).expect("no crash");
        disk.create_new(&root.join("checkpoints/00000000000000000020.checkpoint.install")).expect("no crash");
        assert!(mark.is_over(&disk, root).expect("no crash"));
        Repairing::end(&disk, root).expect("no crash");
        assert_eq!(Repairing::read(&disk, root).expect("no crash"), None);
        assert_eq!((names(&disk, "journal"), names(&disk, "checkpoints").len()), (vec!["spare-0001".to_owned()], 1));
        Repairing::end(&disk, root).expect("fine if nothing was begun");
    }

    #[test]
    fn p11_a_changed_byte_is_never_another_vote() {
        let (disk, root) = (filled(), Path::new(DATA_DIR));
        Repairing::begin(&disk, root, STATE).expect("no crash");
        let path = root.join(FILE);
        for offset in 0..super::BYTES as u64 {
            disk.flip_bit(&path, offset, 3).expect("it is there");
            let error = Repairing::read(&disk, root).expect_err("changed").to_string();
            assert!(error.contains("/data/repairing"), "{error}");
            disk.flip_bit(&path, offset, 3).expect("it is there");
        }
        assert!(Repairing::read(&disk, root).is_ok());
    }
}
