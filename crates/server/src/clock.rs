//! The driver's clocks.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use mortarmq_node::Now;
use mortarmq_types::{MonotonicTime, WallTime};
use rustix::time::{ClockId, clock_gettime};

/// Reads the two clocks of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeClock;

impl NodeClock {
    /// The clock that nobody sets, for who needs no other: each costs a look at the machine's.
    ///
    /// # Source
    /// clock_gettime(2): CLOCK_BOOTTIME counts on through suspends and is not set by anybody.
    pub(crate) fn monotonic(self) -> MonotonicTime {
        let boot = clock_gettime(ClockId::Boottime);
        MonotonicTime::new(boot.tv_sec as u64 * 1000 + boot.tv_nsec as u64 / 1_000_000)
    }

    /// Both clocks now.
    pub(crate) fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Now { monotonic: self.monotonic(), wall: WallTime::new(wall_ms) }
    }
}

/// The machine's present boot, which tells whether the boot clock of a journal batch goes on.
///
/// # Errors
/// The system's, or `InvalidData` if it says something else.
/// # Source
/// random(4): `/proc/sys/kernel/random/boot_id`.
pub(crate) fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    parse_boot_id(text.trim()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("boot id {text:?}")))
}

fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits = text.replace('-', "");
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let number = u128::from_str_radix(&digits, 16).ok()?;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::{NodeClock, boot_id, parse_boot_id};

    #[test]
    fn the_clocks_go_forward() {
        let (first, second) = (NodeClock.now(), NodeClock.now());
        assert!(second.monotonic >= first.monotonic);
        assert!(first.monotonic.get() > 0 && first.wall.get() > 1_600_000_000_000);
    }

    #[test]
    fn the_boot_id_is_the_same_all_through_a_boot() {
        assert_eq!(boot_id().expect("Linux has one"), boot_id().expect("Linux has one"));
        let parsed = parse_boot_id("00112233-4455-6677-8899-aabbccddeeff").expect("well formed");
        assert_eq!((parsed[0], parsed[15]), (0x00, 0xff));
        assert_eq!(parse_boot_id("0011"), None);
    }
}
