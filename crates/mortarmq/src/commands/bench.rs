//! `bench`: throughput and latency, next to the floor of the disk, measured in the same run and folder.

mod consume;
mod publish;

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use crate::bench::{Floor, Latency, Usage, measure_floor};
use crate::child_node::ChildNode;
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, grouped, note};
use crate::session::{self, ServerArgs};
use crate::tls::TlsArgs;

/// Measure throughput and latency
///
/// Without --server on a node of its own in a temporary folder (TMPDIR says where), next to what the disk can do there.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this broker instead of a node of its own
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = session::address)]
    server: Option<Vec<String>>,
    /// Token, where the broker asks for one
    #[arg(long, env = "MORTARMQ_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Connections that publish
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    producers: u16,
    /// Unanswered messages of a connection
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    size: u32,
    /// Messages of a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,
    /// Connections that consume
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    consumers: u16,
    /// Seconds of each phase
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    #[command(flatten)]
    rows: RowArgs,
}

/// What one phase did.
pub(crate) struct Measured {
    /// Messages that were confirmed.
    pub(crate) messages: u64,
    /// From the first to the last.
    pub(crate) elapsed: Duration,
    /// Each request, from call to answer.
    pub(crate) latency: Latency,
}

/// A phase of publishing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Connections.
    pub(crate) connections: u16,
    /// Unanswered messages of each.
    pub(crate) outstanding: u16,
    /// Messages of a request; 1 is a single PUB.
    pub(crate) batch: u16,
    /// Bytes of a value.
    pub(crate) value_bytes: u32,
    /// How long.
    pub(crate) limit: Duration,
}

/// Runs the phases and prints one row for each.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if std::io::stderr().is_terminal() {
        let phases = if args.server.is_some() { 4 } else { 5 };
        note(format_args!("{phases} phases of at most {} s each; rows come as they end", args.seconds));
    }
    session::block_on(session::until_stopped(phases(args)))
}

async fn phases(args: &Args) -> Result<(), Failure> {
    let folder = tempfile::Builder::new().prefix("mortarmq-bench-").tempdir().map_err(|error| no_folder(&error))?;
    let mut rows = Rows::streamed(COLUMNS, args.rows);
    let (node, server) = match &args.server {
        Some(server) => (
            None,
            ServerArgs {
                server: server.clone(),
                token: args.token.clone(),
                tls: args.tls.clone(),
                ..ServerArgs::at("")
            },
        ),
        None => {
            let node = ChildNode::start(&folder.path().join("data"))?;
            let server = ServerArgs::at(&node.client);
            (Some(node), server)
        }
    };
    let bench = Bench { server, pid: node.as_ref().map(ChildNode::pid), topic: topic_name() };
    let client = bench.server.connect().await?;
    client.declare_topic(&bench.topic, PARTITIONS, "").await.map_err(|error| session::failure(&error))?;
    let floor = match node {
        Some(_) => Some(print_floor(args, folder.path(), &mut rows)?),
        None => None,
    };
    let result = bench.measure(args, &mut rows).await;
    // Also after a failure: the topic of a measurement is of no use to anybody.
    let deleted = client.delete_topic(&bench.topic).await;
    result?;
    rows.finish()?;
    deleted.map_err(|error| session::failure(&error))?;
    summary(floor.as_ref(), bench.usage());
    Ok(())
}

fn print_floor(args: &Args, folder: &Path, rows: &mut Rows) -> Result<Floor, Failure> {
    let limit = Duration::from_secs(u64::from(args.seconds)).min(FLOOR_LIMIT);
    let floor = measure_floor(folder, limit).map_err(|error| no_folder(&error))?;
    rows.push(row("floor: write 4 KiB + fdatasync", Shape::single(1), &floor.measured(), None))?;
    Ok(floor)
}

struct Bench {
    server: ServerArgs,
    pid: Option<u32>,
    topic: String,
}

impl Bench {
    fn usage(&self) -> Option<Usage> {
        self.pid.and_then(Usage::of)
    }

    async fn measure(&self, args: &Args, rows: &mut Rows) -> Result<(), Failure> {
        let limit = Duration::from_secs(u64::from(args.seconds));
        let one = Load { connections: 1, outstanding: 1, batch: 1, value_bytes: args.size, limit };
        let many = Load { connections: args.producers, outstanding: args.outstanding, ..one };
        let batches = Load { batch: args.batch, ..many };
        for (name, load) in [("publish, one at a time", one), ("publish", many), ("publish in batches", batches)] {
            let before = self.usage();
            let measured = publish::run(&self.server, &self.topic, load).await?;
            rows.push(row(name, Shape::of(load), &measured, self.cpu_since(before)))?;
        }
        let before = self.usage();
        let measured = consume::run(&self.server, &self.topic, args.consumers, limit).await?;
        let shape = Shape { connections: args.consumers, outstanding: consume::WINDOW, batch: 1 };
        rows.push(row("consume and ack", shape, &measured, self.cpu_since(before)))
    }

    fn cpu_since(&self, before: Option<Usage>) -> Option<Duration> {
        Some(self.usage()?.cpu.saturating_sub(before?.cpu))
    }
}

impl Load {
    /// Batches of a connection that may be unanswered at once.
    fn batches_under_way(&self) -> u16 {
        (self.outstanding / self.batch).max(1)
    }
}

/// How a phase asks.
struct Shape {
    connections: u16,
    outstanding: u16,
    batch: u16,
}

impl Shape {
    const fn single(connections: u16) -> Self {
        Self { connections, outstanding: 1, batch: 1 }
    }

    const fn of(load: Load) -> Self {
        Self { connections: load.connections, outstanding: load.outstanding, batch: load.batch }
    }
}

impl Measured {
    fn per_s(&self) -> u64 {
        (self.messages as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)).round() as u64
    }
}

impl Floor {
    fn measured(&self) -> Measured {
        Measured { messages: self.syncs, elapsed: self.elapsed, latency: self.latency.clone() }
    }
}

fn row(phase: &str, shape: Shape, measured: &Measured, cpu: Option<Duration>) -> Vec<Cell> {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    vec![
        Cell::Text(phase.to_owned()),
        Cell::Number(u64::from(shape.connections)),
        Cell::Number(u64::from(shape.outstanding)),
        Cell::Number(u64::from(shape.batch)),
        Cell::Number(measured.messages),
        Cell::Number(ms(measured.elapsed)),
        Cell::Number(measured.per_s()),
        Cell::Number(measured.latency.quantile_us(0.5)),
        Cell::Number(measured.latency.quantile_us(0.99)),
        Cell::number(cpu.map(ms)),
    ]
}

fn summary(floor: Option<&Floor>, usage: Option<Usage>) {
    if let Some(floor) = floor {
        let measured = floor.measured();
        note(format_args!(
            "floor of this disk: {} writes of 4 KiB with fdatasync a second, p50 {} us",
            grouped(measured.per_s()),
            grouped(measured.latency.quantile_us(0.5)),
        ));
    }
    if let Some(usage) = usage {
        note(format_args!(
            "broker: {:.1} s on a processor, at most {} MiB of memory",
            usage.cpu.as_secs_f64(),
            grouped(usage.peak_bytes / (1024 * 1024)),
        ));
    }
}

/// Unlike any topic that somebody works with.
fn topic_name() -> String {
    format!("mortarmq-bench-{}", std::process::id())
}

fn no_folder(error: &std::io::Error) -> Failure {
    Failure::local(format!("the temporary folder cannot be used: {error}"), "set TMPDIR to a folder with free space")
}

const COLUMNS: &[&str] = &[
    "phase",
    "connections",
    "outstanding",
    "batch",
    "messages",
    "elapsed_ms",
    "per_s",
    "p50_us",
    "p99_us",
    "broker_cpu_ms",
];
/// As many as a topic has by default.
const PARTITIONS: u16 = 4;
/// Long enough for a stable figure.
const FLOOR_LIMIT: Duration = Duration::from_secs(3);
