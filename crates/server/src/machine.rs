//! What the machine tells of this process, for metrics. What cannot be told is left out.

use std::path::Path;
use std::time::Duration;

/// Free bytes of the device a folder lies on; `None` where it cannot be told.
#[must_use]
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

/// Bytes of all files of a folder, not of the folders in it.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .filter_map(|entry| entry.ok()?.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

/// How long ago the newest file of a folder was written, by the wall clock; `None` where there is none.
pub(crate) fn newest_age(folder: &Path) -> Option<Duration> {
    let entries = std::fs::read_dir(folder).ok()?;
    let written = entries.filter_map(|entry| entry.ok()?.metadata().ok()?.modified().ok());
    // A clock that went back makes it new.
    Some(written.max()?.elapsed().unwrap_or_default())
}

/// Resident bytes of this process.
///
/// # Source
/// proc(5): `VmRSS` of `/proc/self/status`, in units of 1024 bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{folder_bytes, free_bytes, newest_age, resident_bytes};

    #[test]
    fn the_machine_tells_what_metrics_show() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("a"), [0; 100]).expect("a file");
        std::fs::create_dir(folder.path().join("b")).expect("a folder");
        assert_eq!(folder_bytes(folder.path()), 100);
        assert!(newest_age(folder.path()).is_some_and(|age| age.as_secs() < 3600));
        assert_eq!(newest_age(&folder.path().join("b")), None);
        assert!(free_bytes(folder.path()).is_some());
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
