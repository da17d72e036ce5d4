//! What `bench` measures with: latencies and rates of a span of time, the floor of the disk, a process's use of the
//! machine, and the median of several runs.

mod disk;
mod latency;
mod median;
mod process;
mod recorder;

pub(crate) use disk::{DiskFloor, measure as measure_disk};
pub(crate) use latency::Latency;
pub(crate) use median::{Spread, median};
pub(crate) use process::Usage;
pub(crate) use recorder::{Recorder, Span};
