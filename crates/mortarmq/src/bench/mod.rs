//! What `bench` measures with: the floor of the disk, a process's use of the machine, and latencies.

mod floor;
mod latency;
mod process;

pub(crate) use floor::{Floor, measure as measure_floor, measure_in as measure_floor_in};
pub(crate) use latency::Latency;
pub(crate) use process::Usage;
