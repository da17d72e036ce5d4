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

impl std::ops::Add for Usage {
    type Output = Self;

    /// Of two processes together. Peaks of two moments: together they had no more than that.
    fn add(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, peak_bytes: self.peak_bytes + other.peak_bytes }
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
    use std::io::Read;
    use std::process::{Command, Stdio};

    #[test]
    fn fields_are_found_whatever_the_process_is_called() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 123 45 0 0 20 0 8 0 1 2 3";
        assert_eq!(cpu_ticks(stat), Some(168));
        assert_eq!(peak_kib("Name:\tx\nVmHWM:\t   1234 kB\n"), Some(1234));
        assert_eq!(cpu_ticks("42 (a"), None);
    }

    #[test]
    fn a_peak_that_is_forgotten_is_not_counted_again() {
        // Another process: in this one other tests take memory meanwhile. It holds 16 MiB for a moment, and then waits.
        let burst = "text=$(head -c 16777216 /dev/zero | tr '\\0' a); unset text; echo done; read -r line";
        let piped = || Stdio::piped();
        let mut shell = Command::new("sh").args(["-c", burst]).stdin(piped()).stdout(piped()).spawn().expect("sh");
        let mut said = [0; 5];
        shell.stdout.as_mut().expect("it is piped").read_exact(&mut said).expect("it says that it is done");
        let peak = || Usage::of(shell.id()).expect("it runs").peak_bytes;
        let with_burst = peak();
        Usage::forget_peak(shell.id());
        let without = peak();
        // It ends when there is no line to read.
        drop(shell.stdin.take());
        shell.wait().expect("it ends");
        assert!(with_burst > 16 << 20, "{with_burst}");
        assert!(without < with_burst - (8 << 20), "{without} of {with_burst}");
    }

    #[test]
    fn this_process_has_used_memory_and_a_process_that_is_not_has_none() {
        let usage = Usage::of(std::process::id()).expect("this process runs");
        assert!(usage.peak_bytes > 100_000);
        assert_eq!(Usage::of(u32::MAX), None);
    }
}
