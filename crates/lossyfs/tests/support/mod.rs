//! What every test of the mounted file system needs.

// Each test binary uses its own part of this.
#![allow(dead_code, unreachable_pub)]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use mortarmq_lossyfs::LossyFs;
use tempfile::TempDir;

/// A mounted file system and the directory it is mounted over; dropped in this order.
pub struct Mounted {
    pub fs: LossyFs,
    folder: TempDir,
}

impl Mounted {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the names of the root directory durable.
    pub fn sync_root(&self) {
        sync_dir(self.root());
    }

    /// Makes a file with these bytes; bytes and name are durable.
    pub fn durable_file(&self, name: &str, bytes: &[u8]) -> File {
        let file = create(&self.path(name));
        (&file).write_all(bytes).expect("written");
        file.sync_all().expect("synced");
        self.sync_root();
        file
    }

    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.path(name))
    }

    pub fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }
}

/// A fresh file system, or a notice (past the capture of the test harness) and nothing.
pub fn mounted() -> Option<Mounted> {
    if let Err(missing) = LossyFs::is_available() {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        writeln!(io::stderr(), "SKIPPED {test}: {missing}").expect("stderr is open");
        return None;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let fs = LossyFs::mount(folder.path()).expect("mounted");
    Some(Mounted { fs, folder })
}

pub fn create(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("created")
}

pub fn sync_dir(dir: &Path) {
    File::open(dir).expect("opened").sync_all().expect("synced");
}

/// The error number of an answer that must be an error.
pub fn errno<T>(answer: io::Result<T>) -> rustix::io::Errno {
    let error = answer.err().expect("an error");
    rustix::io::Errno::from_io_error(&error).unwrap_or_else(|| panic!("no error of the system: {error}"))
}
