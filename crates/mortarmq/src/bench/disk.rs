//! The floor of the disk: what it can do without a broker, in the folder and in the run of the figures beside it.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Latency;

/// What the disk did.
pub(crate) struct DiskFloor {
    /// Blocks that were written and synced, one after another.
    pub(crate) syncs: u64,
    /// How long it took.
    pub(crate) elapsed: Duration,
    /// Each write with its fdatasync.
    pub(crate) latency: Latency,
}

/// Writes 4 KiB and calls fdatasync, over and over, in a file whose blocks were all written before: the cheapest durable
/// write there is, and the way the journal writes.
pub(crate) fn measure(folder: &Path, limit: Duration) -> std::io::Result<DiskFloor> {
    let path = folder.join("floor-disk");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    let block = vec![0xA5; BLOCK_BYTES];
    for _ in 0..BLOCKS {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let mut latency = Latency::new();
    let started = Instant::now();
    let mut syncs = 0;
    while started.elapsed() < limit {
        let begun = Instant::now();
        file.write_all_at(&block, (syncs % BLOCKS) * BLOCK_BYTES as u64)?;
        file.sync_data()?;
        latency.record(begun.elapsed());
        syncs += 1;
    }
    let elapsed = started.elapsed();
    std::fs::remove_file(path)?;
    Ok(DiskFloor { syncs, elapsed, latency })
}

const BLOCK_BYTES: usize = 4096;
/// 16 MiB: more than a disk's own cache line, little to prepare.
const BLOCKS: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn floor_counts_every_sync_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let floor = super::measure(folder.path(), Duration::from_millis(30)).expect("the folder can be written");
        assert!(floor.syncs > 0);
        assert_eq!(floor.latency.count(), floor.syncs);
        assert_eq!(std::fs::read_dir(folder.path()).expect("is there").count(), 0);
    }
}
