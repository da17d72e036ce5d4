//! Where a node keeps its data: a folder, or a disk that can lose what was not synced.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mortarmq_lossyfs::LossyFs;

use crate::failure::{Failure, Outcome, machine};

/// A disk of one node.
pub(crate) struct Disk {
    folder: PathBuf,
    lossy: Option<LossyFs>,
}

impl Disk {
    /// A folder on a disk of this machine.
    pub(crate) fn folder(folder: PathBuf) -> Outcome<Self> {
        std::fs::create_dir_all(&folder).map_err(machine("a folder for a node"))?;
        Ok(Self { folder, lossy: None })
    }

    /// A file system of its own, mounted there.
    pub(crate) fn lossy(folder: PathBuf) -> Outcome<Self> {
        let disk = Self::folder(folder)?;
        let lossy = LossyFs::mount(&disk.folder).map_err(machine("a disk that can lose its power"))?;
        Ok(Self { lossy: Some(lossy), ..disk })
    }

    /// The data folder of the node.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// What loses the power; only scenarios that asked for it may.
    fn as_lossy(&self) -> Outcome<&LossyFs> {
        self.lossy.as_ref().ok_or_else(|| Failure::Broken("the scenario asked for no lossy disk".to_owned()))
    }

    /// Loses the power of the machine, whose process must be dead: what was not synced is kept, dropped or torn at sectors, in no order.
    /// Returns whether anything was lost.
    pub(crate) fn lose_power(&self, seed: u64) -> Outcome<bool> {
        Ok(self.as_lossy()?.lose_power(seed).is_real())
    }

    /// The next sync fails, and what it covered is never durable.
    pub(crate) fn fail_next_sync(&self) -> Outcome {
        self.as_lossy()?.fail_next_sync(1);
        Ok(())
    }

    /// Every sync takes so long.
    pub(crate) fn set_sync_delay(&self, delay: Duration) -> Outcome {
        self.as_lossy()?.set_sync_delay(delay);
        Ok(())
    }

    /// Nothing more fits than what is there and so many bytes.
    pub(crate) fn fill_up_to(&self, free_bytes: u64) -> Outcome {
        let found = rustix::fs::statvfs(&self.folder).map_err(|error| machine("statvfs")(error.into()))?;
        let used = (found.f_blocks - found.f_bfree) * found.f_frsize;
        self.as_lossy()?.set_capacity(Some(used + free_bytes));
        Ok(())
    }

    /// Lifts the limit again.
    pub(crate) fn make_room(&self) -> Outcome {
        self.as_lossy()?.set_capacity(None);
        Ok(())
    }

    /// Removes all that the node has.
    pub(crate) fn wipe(&self) -> Outcome {
        std::fs::remove_dir_all(self.data_dir()).map_err(machine("cannot empty a node's folder"))
    }

    /// Flips a bit of a file, as a disk that rots.
    pub(crate) fn flip_bit(path: &Path, offset: u64, bit: u8) -> Outcome {
        let shown = format!("cannot flip a bit of {}", path.display());
        let flip = || {
            let file = std::fs::File::options().read(true).write(true).open(path)?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset)?;
            file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], offset)?;
            file.sync_all()
        };
        flip().map_err(machine(shown))
    }
}
