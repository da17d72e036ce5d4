//! What is judged alike on this machine and on a broker that is asked: one rule each, and the command that helps.

use std::path::Path;

use mortarmq_server::{FILES_WANTED, FileSystem, Keeps, client_places};

use super::Row;
use crate::output::{grouped, shell_word};

/// The file system of the data folder.
pub(super) fn file_system(found: &FileSystem) -> Row {
    const CHECK: &str = "file_system";
    const MOVE: &str = "mortarmq serve --data-dir DIR      (a folder on a disk of this machine: ext4 or xfs)";
    let name = &found.name;
    match found.keeps {
        Keeps::OnDisk => Row::ok(CHECK, name),
        Keeps::InMemory => Row::finding(CHECK, format!("{name}: the data is in memory, and gone with the power"), MOVE),
        Keeps::OverNetwork => Row::finding(
            CHECK,
            format!(
                "{name}: another machine keeps the data; what its fsync and its locks are worth cannot be told here"
            ),
            MOVE,
        ),
        Keeps::InLayer => Row::finding(
            CHECK,
            format!("{name}: a layer of a container, which goes with the container"),
            "docker run --volume VOLUME:DIR      (and --data-dir DIR)",
        ),
        Keeps::CopiedOnWrite => Row::finding(
            CHECK,
            format!("{name}: every write takes new blocks, so the disk reserve holds no room; watch the pool itself"),
            MOVE,
        ),
        Keeps::ByProgram => Row::finding(
            CHECK,
            format!("{name}: a program keeps the data; what its fsync is worth cannot be told here"),
            MOVE,
        ),
    }
}

/// The limit of open files.
pub(super) fn open_files(limit: u64, max_connections: u32, client_listeners: u32) -> Row {
    const CHECK: &str = "open_files";
    let raise = format!("ulimit -n {FILES_WANTED}      (systemd: LimitNOFILE={FILES_WANTED})");
    match client_places(limit, max_connections, client_listeners) {
        None => Row::finding(CHECK, format!("{} may be opened: a node does not start", grouped(limit)), raise),
        Some(places) if places < max_connections => Row::finding(
            CHECK,
            format!(
                "{} may be opened: room for {} connections of {} (max_connections)",
                grouped(limit),
                grouped(u64::from(places)),
                grouped(u64::from(max_connections))
            ),
            raise,
        ),
        Some(_) => Row::ok(CHECK, format!("{} may be opened", grouped(limit))),
    }
}

/// Free bytes, and how many a node may come to need beside what it has.
pub(super) fn free_space(free_bytes: u64, needed_bytes: u64, folder: Option<&Path>) -> Row {
    let (free, needed) = (mib(free_bytes), mib(needed_bytes));
    let detail = format!("{} MiB free, {} MiB wanted for reserve and journal", grouped(free), grouped(needed));
    if free_bytes >= needed_bytes {
        return Row::ok("free_space", detail);
    }
    Row::finding("free_space", detail, df(folder))
}

/// Shows what fills the disk.
pub(super) fn df(folder: Option<&Path>) -> String {
    format!("df -h {}", folder.map_or_else(|| "DATA_DIR".to_owned(), shell_word))
}

/// How long a durable write takes.
pub(super) fn fsync(p50_us: u64, p99_us: u64, samples: u64) -> Row {
    const CHECK: &str = "fsync";
    let detail = format!("p50 {:.1} ms, p99 {:.1} ms of {} writes", ms(p50_us), ms(p99_us), grouped(samples));
    if p50_us <= P50_US_MAX && p99_us <= P99_US_MAX {
        return Row::ok(CHECK, detail);
    }
    let detail = format!("{detail}: every publish and ack waits for one");
    Row::finding(CHECK, detail, "mortarmq serve --data-dir DIR      (a faster disk: SSD or NVMe, not shared)")
}

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

#[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
const fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

/// A publish and its ack take two: at 10 ms each a consumer that takes one message at a time does 50 in a second.
const P50_US_MAX: u64 = 10_000;
/// Leases, sessions and `publish_timeout_ms` bear much more; what is seen first is latency.
const P99_US_MAX: u64 = 100_000;

#[cfg(test)]
mod tests {
    use mortarmq_server::{FileSystem, Keeps};

    use super::{file_system, free_space, fsync, open_files};
    use crate::commands::doctor::State;

    #[test]
    fn every_rule_has_a_side_where_all_is_well_and_one_with_a_command() {
        let on = |keeps| file_system(&FileSystem { name: "x".to_owned(), keeps });
        assert_eq!(on(Keeps::OnDisk).state, State::Ok);
        let lossy = [Keeps::InMemory, Keeps::OverNetwork, Keeps::InLayer, Keeps::CopiedOnWrite, Keeps::ByProgram];
        let well = [open_files(16_384, 4096, 1), free_space(1 << 30, 1 << 30, None), fsync(10_000, 100_000, 1)];
        for row in well {
            assert!(row.state == State::Ok && row.command.is_none(), "{row:?}");
        }
        let bad = [
            open_files(511, 1, 1),
            open_files(1024, 4096, 1),
            free_space((1 << 30) - 1, 1 << 30, None),
            fsync(10_001, 10_001, 1),
            fsync(1, 100_001, 1),
        ];
        for row in lossy.map(on).into_iter().chain(bad) {
            assert!(row.state == State::Finding && row.command.is_some(), "{row:?}");
        }
    }
}
