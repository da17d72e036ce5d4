//! Where the data of a run lies, and what happens to it at a kill.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Where the data of a run lies.
pub(crate) trait Ground {
    /// The data folder. The broker's log is beside it, under the same name with the extension `log`.
    fn data_dir(&self) -> PathBuf;

    /// Called after every kill, before the broker is started again. `seed` is another one each time.
    fn after_kill(&mut self, seed: u64);

    /// Keeps everything for whoever asks why the run failed, and says where.
    fn keep(&mut self) -> PathBuf;
}

/// A folder on a disk that goes on: what the process wrote before it was killed is there.
pub(crate) struct Folder {
    parent: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { parent: tempfile::tempdir().expect("a temporary folder") }
    }
}

impl Ground for Folder {
    fn data_dir(&self) -> PathBuf {
        self.parent.path().join("data")
    }

    fn after_kill(&mut self, _seed: u64) {}

    fn keep(&mut self) -> PathBuf {
        self.parent.disable_cleanup(true);
        Path::to_path_buf(self.parent.path())
    }
}
