//! The file system a folder lies on, as far as it matters for what is kept there.

use std::io;
use std::path::Path;

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its name, as in `/proc/filesystems`; for one that is not known here its magic number.
    pub name: String,
    /// What becomes of what is written there.
    pub keeps: Keeps,
}

/// What becomes of what a file system was told to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// A disk of this machine keeps it.
    OnDisk,
    /// It is in memory, and gone with the power.
    InMemory,
    /// Another machine keeps it: fsync, locks and full disks are that one's matter.
    OverNetwork,
    /// A layer of a container keeps it, and goes with the container.
    InLayer,
    /// A disk keeps it, but every write takes new blocks: room that was set aside is none.
    CopiedOnWrite,
    /// A program keeps it (FUSE): nobody here knows what its fsync does.
    ByProgram,
}

/// Asks the system what a folder lies on.
///
/// # Errors
/// The system's, as when there is no such folder.
/// # Source
/// statfs(2), `f_type`; the numbers are those of linux/magic.h.
pub fn file_system(folder: &Path) -> io::Result<FileSystem> {
    // The field is signed on some machines: its 32 bits are what is compared.
    let magic = rustix::fs::statfs(folder)?.f_type as u32;
    let known = KNOWN.iter().find(|(number, ..)| *number == magic);
    Ok(match known {
        Some((_, name, keeps)) => FileSystem { name: (*name).to_owned(), keeps: *keeps },
        None => FileSystem { name: format!("{magic:#x}"), keeps: Keeps::OnDisk },
    })
}

/// What is known of a file system of this name, as a broker on another machine tells it.
#[must_use]
pub fn known_file_system(name: &str) -> FileSystem {
    let known = KNOWN.iter().find(|(_, known, _)| *known == name);
    FileSystem { name: name.to_owned(), keeps: known.map_or(Keeps::OnDisk, |(_, _, keeps)| *keeps) }
}

const KNOWN: &[(u32, &str, Keeps)] = &[
    (0x0000_ef53, "ext4", Keeps::OnDisk),
    (0x5846_5342, "xfs", Keeps::OnDisk),
    (0xf2f5_2010, "f2fs", Keeps::OnDisk),
    (0x3153_464a, "jfs", Keeps::OnDisk),
    (0x0102_1994, "tmpfs", Keeps::InMemory),
    (0x8584_58f6, "ramfs", Keeps::InMemory),
    (0x0000_6969, "nfs", Keeps::OverNetwork),
    (0x0000_517b, "smb", Keeps::OverNetwork),
    (0xff53_4d42, "cifs", Keeps::OverNetwork),
    (0xfe53_4d42, "smb2", Keeps::OverNetwork),
    (0x00c3_6400, "ceph", Keeps::OverNetwork),
    (0x0102_1997, "9p", Keeps::OverNetwork),
    (0x5346_414f, "afs", Keeps::OverNetwork),
    (0x0bd0_0bd0, "lustre", Keeps::OverNetwork),
    (0x794c_7630, "overlay", Keeps::InLayer),
    (0x9123_683e, "btrfs", Keeps::CopiedOnWrite),
    (0x2fc1_2fc1, "zfs", Keeps::CopiedOnWrite),
    (0x6573_5546, "fuse", Keeps::ByProgram),
];

#[cfg(test)]
mod tests {
    use super::{KNOWN, Keeps, file_system, known_file_system};

    #[test]
    fn memory_is_told_from_a_disk() {
        let proc = std::fs::read_to_string("/proc/mounts").expect("a Linux machine");
        if proc.lines().any(|line| line.split(' ').nth(1) == Some("/dev/shm") && line.contains(" tmpfs ")) {
            let found = file_system("/dev/shm".as_ref()).expect("it is there");
            assert_eq!((found.name.as_str(), found.keeps), ("tmpfs", Keeps::InMemory));
            assert_eq!(known_file_system("tmpfs"), found);
        }
        assert_eq!(file_system("/proc".as_ref()).expect("it is there").name, "0x9fa0");
        assert!(file_system("/no/such/folder".as_ref()).is_err());
    }

    #[test]
    fn no_number_and_no_name_stands_twice() {
        for (index, (number, name, _)) in KNOWN.iter().enumerate() {
            assert!(!KNOWN[..index].iter().any(|(other, twin, _)| other == number || twin == name), "{name}");
        }
    }
}
