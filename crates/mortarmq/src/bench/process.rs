//! What a process has used of the machine, from `/proc`.

use std::time::Duration;

/// What a process has used since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Time on a processor, its own and the kernel's for it.
    pub(crate) cpu: Duration,
    /// The most memory it had since [`Usage::forget_peak`], or ever.
    ///
    /// # Units
    /// Bytes.
    pub(crate) peak_bytes: u64,
}

impl Usage {
    /// Reads it. Nothing where there is no such process or no `/proc`.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let ticks_per_s = rustix::param::clock_ticks_per_second();
        let cpu_ms = cpu_ticks(&stat)?.checked_mul(1000)? / ticks_per_s.max(1);
        Some(Self { cpu: Duration::from_millis(cpu_ms), peak_bytes: peak_kib(&status)? * 1024 })
    }
}

impl Usage {
    /// Lets the peak of a process begin anew, at what it has now. Where the system does not allow that, the peak goes on:
    /// then it is that of the phases so far.
    ///
    /// # Source
    /// proc_pid_clear_refs(5): 5 resets the peak of the resident set.
    pub(crate) fn forget_peak(pid: u32) {
        let _ = std::fs::write(format!("/proc/{pid}/clear_refs"), "5");
    }
}

/// `utime` and `stime`, fields 14 and 15. The name of field 2 may hold spaces and parentheses, so counting starts behind
/// its last parenthesis.
///
/// # Source
/// proc_pid_stat(5).
fn cpu_ticks(stat: &str) -> Option<u64> {
    let behind_name = stat.rsplit_once(')')?.1;
    let mut fields = behind_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// `VmHWM`, the high-water mark of resident memory.
///
/// # Source
/// proc_pid_status(5).
fn peak_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Usage, cpu_ticks, peak_kib};

    #[test]
    fn fields_are_found_whatever_the_process_is_called() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 123 45 0 0 20 0 8 0 1 2 3";
        assert_eq!(cpu_ticks(stat), Some(168));
        assert_eq!(peak_kib("Name:\tx\nVmHWM:\t   1234 kB\n"), Some(1234));
        assert_eq!(cpu_ticks("42 (a"), None);
    }

    #[test]
    fn a_peak_that_is_forgotten_is_not_counted_again() {
        let burst = vec![1_u8; 64 << 20];
        assert!(burst.iter().all(|byte| *byte == 1), "all of it was touched");
        let with_burst = Usage::of(std::process::id()).expect("this process runs").peak_bytes;
        drop(burst);
        Usage::forget_peak(std::process::id());
        let without = Usage::of(std::process::id()).expect("this process runs").peak_bytes;
        assert!(without <= with_burst, "{without} of {with_burst}");
    }

    #[test]
    fn this_process_has_used_memory_and_a_process_that_is_not_has_none() {
        let usage = Usage::of(std::process::id()).expect("this process runs");
        assert!(usage.peak_bytes > 100_000);
        assert_eq!(Usage::of(u32::MAX), None);
    }
}
