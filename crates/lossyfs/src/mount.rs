//! Mounting, unmounting, and what a test asks of the file system while it is mounted.
//!
//! Mounted with mount(2) itself, not through `fusermount`: that needs root, and nothing installed.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, Errno, Session, SessionACL};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::blocks::BLOCK_BYTES;
use crate::inodes::Inodes;
use crate::operations::Operations;
use crate::power::Loss;
use crate::state::Shared;

/// A mounted file system; dropping it unmounts, whoever still has files open.
///
/// Paths given to it are absolute (below the mount point) or relative to the mount point.
pub struct LossyFs {
    mount_point: PathBuf,
    shared: Arc<Shared>,
    /// Present until the drop.
    session: Option<BackgroundSession>,
}

impl LossyFs {
    /// Whether this process can mount one.
    ///
    /// # Errors
    /// The text says what is missing, for the notice of a test that is skipped.
    pub fn is_available() -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("lossyfs must be mounted by root".to_owned());
        }
        if !may_mount() {
            return Err("lossyfs needs the capability CAP_SYS_ADMIN to mount".to_owned());
        }
        open_device().map(drop).map_err(|error| format!("lossyfs needs {DEVICE} to be open to it: {error}"))
    }

    /// Mounts an empty file system over a directory.
    ///
    /// A process that has files on it and long sync delays should not be the one that mounts it: killed while it waits for
    /// an answer that its own threads were to give, it would stay for ever.
    ///
    /// # Errors
    /// `PermissionDenied` with the text of [`LossyFs::is_available`]; otherwise the operating system's.
    pub fn mount(dir: &Path) -> io::Result<Self> {
        Self::is_available().map_err(|missing| io::Error::new(io::ErrorKind::PermissionDenied, missing))?;
        drop_dead_mount(dir);
        let mount_point = dir.canonicalize()?;
        let device = open_device()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("lossyfs", &mount_point, "fuse.lossyfs", flags, options.as_c_str())?;
        let shared = Arc::new(Shared::new());
        match serve(device, &shared) {
            Ok(session) => Ok(Self { mount_point, shared, session: Some(session) }),
            Err(error) => {
                unmount(&mount_point)?;
                Err(error)
            }
        }
    }

    /// The directory it is mounted over.
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Loses the power: what was synced stays; each pending write is kept, dropped or torn at sectors of 512 bytes, each
    /// pending change of a name kept or dropped, in no order, as the seed decides. What is left is durable.
    ///
    /// To be called when the process that used it is dead. Handles that are open all the same answer `ESTALE` from now on.
    pub fn lose_power(&self, seed: u64) -> Loss {
        self.shared.lose_power(seed)
    }

    /// Makes the `nth` sync from now, of a file or directory, fail with `EIO`; 1 is the next one. What it covers still
    /// reads back, and neither it nor a later sync makes it durable.
    ///
    /// # Panics
    /// If `nth` is 0.
    /// # Source
    /// Failure rule 2: Linux marks pages clean whose write-back failed.
    pub fn fail_next_sync(&self, nth: u64) {
        self.shared.lock().faults.fail_sync(nth);
    }

    /// Makes the `nth` write from now fail with `EIO`, having written nothing; 1 is the next one.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn fail_next_write(&self, nth: u64) {
        self.shared.lock().faults.fail_write(nth);
    }

    /// Limits what can be stored, or lifts the limit. A full file system answers `ENOSPC` to new names and to writes that
    /// need a block of 4,096 bytes more; what is there can be overwritten and removed.
    ///
    /// # Units
    /// Bytes; rounded down to whole blocks.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        let blocks = capacity_bytes.map(|bytes| bytes / BLOCK_BYTES as u64);
        self.shared.lock().inodes.set_capacity(blocks);
    }

    /// Makes every sync from now take this long. What it covers becomes durable at its end; reads, writes and other syncs
    /// go on meanwhile.
    pub fn set_sync_delay(&self, delay: Duration) {
        self.shared.lock().faults.sync_delay = delay;
    }

    /// Flips a bit of a file's durable bytes. A reader sees it too, unless a write to that byte is pending.
    ///
    /// # Errors
    /// `NotFound` without the file; `InvalidInput` if no byte at `offset` is durable or there is no such `bit` (0 to 7).
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mask = 1u8.checked_shl(u32::from(bit)).ok_or(io::ErrorKind::InvalidInput)?;
        self.on_file(path, |inodes, inode| inodes.flip_bit(inode, offset, mask))
    }

    /// Makes every read that touches these bytes of a file fail with `EIO`, also after a power loss.
    ///
    /// # Errors
    /// `NotFound` without the file.
    pub fn fail_reads(&self, path: &Path, range: Range<u64>) -> io::Result<()> {
        self.on_file(path, |inodes, inode| inodes.fail_reads(inode, range))
    }

    /// Makes all of a file readable again.
    ///
    /// # Errors
    /// `NotFound` without the file.
    pub fn heal_reads(&self, path: &Path) -> io::Result<()> {
        self.on_file(path, Inodes::heal_reads)
    }

    /// How many syncs, of files and directories, were asked for.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.shared.lock().faults.syncs()
    }

    /// How many writes were asked for. The kernel cuts large ones.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.shared.lock().faults.writes()
    }

    fn on_file<T>(&self, path: &Path, act: impl FnOnce(&mut Inodes, u64) -> Result<T, Errno>) -> io::Result<T> {
        let path = path.strip_prefix(&self.mount_point).unwrap_or(path);
        let mut state = self.shared.lock();
        let answer = state.inodes.find_path(path).and_then(|inode| act(&mut state.inodes, inode));
        answer.map_err(|error| io::Error::from_raw_os_error(error.code()))
    }
}

impl Drop for LossyFs {
    fn drop(&mut self) {
        self.shared.lock().is_unmounted = true;
        self.shared.woken.notify_all();
        if let Err(error) = unmount(&self.mount_point) {
            eprintln!("lossyfs at {} stays mounted: {error}", self.mount_point.display());
            return;
        }
        // The connection is cut, so its threads end, also while a process has files open.
        if let Some(session) = self.session.take()
            && let Err(error) = session.join()
        {
            eprintln!("lossyfs at {} ended badly: {error}", self.mount_point.display());
        }
    }
}

const DEVICE: &str = "/dev/fuse";

/// Threads that answer the kernel: one more than one, so that a large read does not hold up a small write.
const THREADS: usize = 2;

fn open_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

fn serve(device: File, shared: &Arc<Shared>) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(THREADS);
    let operations = Operations(Arc::clone(shared));
    Session::from_fd(operations, OwnedFd::from(device), SessionACL::All, config)?.spawn()
}

/// Detaches the mount and cuts its connection: `FORCE` aborts what is under way, `DETACH` does not mind open files.
fn unmount(mount_point: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(mount_point, UnmountFlags::FORCE | UnmountFlags::DETACH)?)
}

/// A killed test leaves its mount behind, and the directory answers `ENOTCONN` until it is detached.
fn drop_dead_mount(dir: &Path) {
    if dir.metadata().is_err_and(|error| error.raw_os_error() == Some(Errno::ENOTCONN.code())) {
        // If it cannot be detached, the caller meets the same ENOTCONN.
        let _ = unmount(dir);
    }
}

/// Whether the effective capabilities hold `CAP_SYS_ADMIN`; root in a container often has not.
fn may_mount() -> bool {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return true };
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    capabilities.is_none_or(|bits| u64::from_str_radix(bits.trim(), 16).is_ok_and(|bits| bits & CAP_SYS_ADMIN != 0))
}
