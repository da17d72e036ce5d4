//! How fast a legal history is judged, reading included, and in how much memory.
//!
//! `cargo bench -p mortarmq-check --bench legal -- 10000000` writes a history of so many operations to a temporary file, judges
//! it on one core, and prints operations per second and the peak of resident memory. Without a number: 100,000, 1,000,000 and
//! 10,000,000, each in a process of its own, so that the peaks do not mix.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use mortarmq_check::{Options, Verdict, check};
use mortarmq_history::{Limits, Reader};

/// The allocator of the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    match numbers.as_slice() {
        [operations] => measure(*operations),
        _ => [100_000_u64, 1_000_000, 10_000_000].into_iter().for_each(in_a_process),
    }
}

fn in_a_process(operations: u64) {
    let me = std::env::current_exe().expect("a process knows its program");
    let done = Command::new(me).arg(operations.to_string()).status().expect("it can be started");
    assert!(done.success(), "the measurement of {operations} operations failed");
}

fn measure(operations: u64) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("history.jsonl");
    let bytes = write(&file, operations / 3);
    let files: [PathBuf; 1] = [file];
    // Reading alone, for comparison.
    let started = cpu_time();
    let mut reader = Reader::open(&files, Limits::default()).expect("the file can be read");
    while reader.next_line().expect("the file can be read").is_some() {}
    let reading = cpu_time() - started;
    let (started, wall) = (cpu_time(), Instant::now());
    let report = check(&|| Reader::open(&files, Limits::default()), &Options::default(), &mut |_| {})
        .expect("the file can be read");
    let (elapsed, wall) = (cpu_time() - started, wall.elapsed());
    assert_eq!(report.verdict, Verdict::Ok, "{}", report.reason);
    println!(
        "{operations:>10} operations, {:>5} MB: {:>9.0} operations a second of one core with reading ({:.2} s of CPU, of which parsing {:.2} s; {:.2} s by the clock), peak {} MiB",
        bytes / 1_000_000,
        operations as f64 / elapsed.as_secs_f64(),
        elapsed.as_secs_f64(),
        reading.as_secs_f64(),
        wall.as_secs_f64(),
        peak_mib(),
    );
}

/// Messages of 10,000 keys in 8 partitions, each published, delivered and acked; 32 at a time.
fn write(file: &Path, messages: u64) -> u64 {
    let mut out = BufWriter::with_capacity(1 << 20, std::fs::File::create(file).expect("a file can be made"));
    let run = r#"{"op":"run","v":1,"run":"bench","paths":[{"path":"orders/billing","topic":"orders","lease_ms":30000,"max_attempts":5,"order":"key","dlq":"$dlq.orders"}]}"#;
    writeln!(out, "{run}").expect("there is room");
    let mut commit = 0;
    let mut seqs = [0_u64; 8];
    for block in 0..messages.div_ceil(IN_FLIGHT) {
        let numbers = block * IN_FLIGHT..((block + 1) * IN_FLIGHT).min(messages);
        let start = block * 3_000_000;
        let mut given: Vec<(u64, u64, u64)> = Vec::new();
        for number in numbers {
            commit += 1;
            let key = number % KEYS;
            let partition = key % 8;
            seqs[partition as usize] += 1;
            let seq = seqs[partition as usize];
            given.push((number, partition, seq));
            let (call, ret) = (start + number % IN_FLIGHT, start + 500_000 + number % IN_FLIGHT);
            writeln!(out, r#"{{"op":"publish","client":"p1","topic":"orders","msg":"m-{number}","key":"k{key}","call":{call},"ret":{ret},"outcome":"ok","partition":{partition},"seq":{seq},"producer_id":9,"producer_seq":{},"hash":"{number:08x}","commit":{commit},"epoch":3}}"#, number + 1).expect("there is room");
        }
        for (number, partition, seq) in &given {
            commit += 1;
            let (key, id) = (number % KEYS, number + 1);
            let (call, ret) = (start + 600_000, start + 1_000_000 + number % IN_FLIGHT);
            writeln!(out, r#"{{"op":"deliver","client":"c1","path":"orders/billing","msg":"m-{number}","key":"k{key}","call":{call},"ret":{ret},"partition":{partition},"seq":{seq},"delivery_id":{id},"attempt":1,"cause":"first","prev":null,"lease_ms":30000,"hash":"{number:08x}","commit":{commit},"epoch":3}}"#).expect("there is room");
        }
        for (number, _, _) in &given {
            commit += 1;
            let id = number + 1;
            let (call, ret) = (start + 1_500_000 + number % IN_FLIGHT, start + 2_000_000 + number % IN_FLIGHT);
            writeln!(out, r#"{{"op":"ack","client":"c1","path":"orders/billing","msg":"m-{number}","delivery_id":{id},"call":{call},"ret":{ret},"outcome":"ok","commit":{commit},"epoch":3}}"#).expect("there is room");
        }
    }
    let at = messages * 3_000_000;
    writeln!(out, r#"{{"op":"end","at":{at},"drained":true,"balance":[{{"path":"orders/billing","produced":{messages},"delivered":{messages},"dropped":0,"dlq":0,"depth":0}}]}}"#).expect("there is room");
    out.flush().expect("there is room");
    std::fs::metadata(file).expect("it was made").len()
}

/// What this thread has used of a core: other programs on the machine do not count.
fn cpu_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// The peak of this process's resident memory; 0 where the system does not tell.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

const IN_FLIGHT: u64 = 32;
const KEYS: u64 = 10_000;
