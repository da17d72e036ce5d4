//! A disk whose power goes at every kill.

use std::path::{Path, PathBuf};
use std::process::Command;

use mortarmq_lossyfs::LossyFs;
use tempfile::TempDir;

use crate::ground::Ground;

/// A mounted file system that forgets at every kill what was not synced, or keeps parts of it.
pub(crate) struct PowerLoss {
    disk: LossyFs,
    parent: TempDir,
    /// How many losses there were, and how many of them took anything.
    losses: u64,
    real: u64,
}

impl PowerLoss {
    pub(crate) fn new() -> Self {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let mount = parent.path().join("data");
        std::fs::create_dir(&mount).expect("an empty folder");
        let disk = LossyFs::mount(&mount).expect("it is available, as was asked before");
        Self { disk, parent, losses: 0, real: 0 }
    }
}

impl Ground for PowerLoss {
    fn data_dir(&self) -> PathBuf {
        self.disk.mount_point().to_path_buf()
    }

    fn after_kill(&mut self, seed: u64) {
        let loss = self.disk.lose_power(seed);
        println!(
            "power lost: of what was not synced, writes kept {}, torn {}, dropped {}; names kept {}, dropped {}",
            loss.writes_kept, loss.writes_torn, loss.writes_dropped, loss.names_kept, loss.names_dropped
        );
        self.losses += 1;
        self.real += u64::from(loss.is_real());
    }

    fn keep(&mut self) -> PathBuf {
        self.parent.disable_cleanup(true);
        let kept = self.parent.path().join("kept");
        let copied = Command::new("cp").arg("-a").arg(self.disk.mount_point()).arg(&kept).status();
        if !copied.is_ok_and(|status| status.success()) {
            eprintln!("the mounted files could not be copied to {}", kept.display());
        }
        Path::to_path_buf(self.parent.path())
    }
}

impl Drop for PowerLoss {
    fn drop(&mut self) {
        // A run whose losses took nothing would prove nothing. Many kills come at a moment when all is synced.
        if !std::thread::panicking() && self.losses >= ENOUGH {
            assert!(self.real * 5 >= self.losses, "only {} of {} power losses took anything", self.real, self.losses);
        }
    }
}

/// Of so many losses some must have taken something.
const ENOUGH: u64 = 10;
