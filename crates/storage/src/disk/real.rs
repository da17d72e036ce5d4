//! The operating system's disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use super::{Disk, DiskFile, freeing};

/// The operating system's file system.
///
/// # Source
/// fsync(2): a sync of a file does not make its name durable; that needs an fsync of the directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        std::fs::create_dir_all(named(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(named(dir))?.sync_all()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(named(dir))? {
            let name = entry?.file_name().into_string();
            names.push(name.map_err(|name| io::Error::new(io::ErrorKind::InvalidData, format!("name {name:?}")))?);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(File::open(path)?)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        freeing::remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        std::fs::remove_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if from.parent() != to.parent() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a rename stays in its directory"));
        }
        std::fs::rename(from, to)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        named(path).try_exists()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let found = statvfs(named(dir))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

/// The parent of a relative path of one part is the empty path, which the system does not know as a directory.
fn named(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(&self.0, buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(&self.0, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    /// # Source
    /// fallocate(2): without flags the blocks are taken and the file grows; not every file system can.
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        loop {
            match fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return self.fill(bytes),
                taken => return Ok(taken?),
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl RealFile {
    /// Grows the file by zeros that are written, for file systems that cannot take room otherwise.
    fn fill(&self, bytes: u64) -> io::Result<()> {
        let zeros = vec![0; FILL_STEP_BYTES as usize];
        let mut length = self.len()?;
        while length < bytes {
            let step = (bytes - length).min(FILL_STEP_BYTES);
            self.write_all_at(&zeros[..step as usize], length)?;
            length += step;
        }
        Ok(())
    }
}

const FILL_STEP_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::{DiskFile, RealFile};

    #[test]
    fn where_room_cannot_be_taken_zeros_are_written() {
        let file = RealFile(tempfile::tempfile().expect("a temporary file"));
        file.write_all_at(&[7; 10], 0).expect("written");
        file.fill((2 << 20) + 5).expect("filled");
        assert_eq!(file.len().expect("length"), (2 << 20) + 5);
        let mut start = [1; 12];
        file.read_exact_at(&mut start, 0).expect("read");
        assert_eq!(start, [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
    }
}
