//! `bench`: throughput, latency and cost of a broker, next to floors that are measured in the same run: the disk alone, a
//! server that only answers, and one that only writes, syncs and answers.
//!
//! `phase.rs` has the phases, `measure.rs` runs one of them once, `report.rs` makes rows of the samples.

mod consume;
mod measure;
mod payload;
mod phase;
mod publish;
mod report;
mod target;

use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use self::measure::Extent;
use self::phase::{Kind, Load, Phase, Profile};
use self::report::{CLUSTER_COLUMNS, COLUMNS, Results, SHORT_COLUMNS};
use self::target::{Side, Target};
use crate::bench::{DiskFloor, measure_disk};
use crate::child_cluster::one_or_three;
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows, grouped, note};
use crate::session::{self, ServerArgs};
use crate::tls::TlsArgs;

/// Measure throughput, latency and cost
///
/// Without --server on a node of its own, or three, in a temporary folder (TMPDIR says where), next to what the disk can do there
/// and to two servers without promises: one answers at once, one writes, syncs and answers; with three nodes that one has two
/// followers, and a broker of one node is measured too. Phases: single, publish, batch, consume, at-once, idle. What the figures
/// mean: docs/performance.md.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this broker instead of a node of its own; without floors then
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = session::address)]
    server: Option<Vec<String>>,
    /// Token, where the broker asks for one
    #[arg(long, env = "MORTARMQ_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Which phases, and how long: reference is the list that figures are compared by, cluster what of it only publishes, on three
    /// nodes; both are 3 runs of 5 s
    #[arg(long, value_enum, default_value = "quick")]
    profile: Profile,
    /// Nodes of the broker, 1 or 3, all on this machine; clients come to the one that leads. 1 if it is not given, 3 for cluster
    #[arg(long, value_name = "N", value_parser = one_or_three, conflicts_with = "server")]
    nodes: Option<u16>,
    /// Run these phases only
    #[arg(long, value_name = "NAME", num_args = 1..)]
    phase: Vec<String>,
    /// Connections that publish
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    producers: u16,
    /// Producers on each of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    lines: u16,
    /// Unanswered messages of a producer
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=1024))]
    outstanding: u16,
    /// Bytes of a value; the first 8 say when it was made
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = clap::value_parser!(u32).range(8..=1_048_576))]
    size: u32,
    /// Different keys; 0 publishes without
    #[arg(long, value_name = "N", default_value_t = 0)]
    keys: u32,
    /// Messages of a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(2..=1024))]
    batch: u16,
    /// Connections that consume
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    consumers: u16,
    /// Messages that a consumer may hold unsettled
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=65_534))]
    credit: u16,
    /// Messages that the consume phase has to take; 200,000 for each second if it is not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    backlog: Option<u64>,
    /// Seconds of each phase, for the broker and each floor; 2 if it is not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// How often everything is measured: figures are medians; 1 if it is not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Leave the floors out, and beside three nodes the one
    #[arg(long)]
    no_floors: bool,
    /// Print a table in Markdown
    #[arg(long, conflicts_with_all = ["json", "header"])]
    markdown: bool,
    #[command(flatten)]
    rows: RowArgs,
}

/// Runs the phases and prints one row for each.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let bench = Bench::new(args)?;
    if std::io::stderr().is_terminal() {
        let (phases, seconds) = (bench.phases.len(), bench.extent.length.as_secs());
        note(format_args!(
            "{phases} phases of {seconds} s for each server, {} times; rows come with the last",
            bench.runs
        ));
    }
    session::block_on(session::until_stopped(bench.run(args)))
}

/// What is measured, and how often.
struct Bench {
    phases: Vec<Phase>,
    extent: Extent,
    runs: u32,
}

impl Bench {
    fn new(args: &Args) -> Result<Self, Failure> {
        let (phases, seconds, runs) = match args.profile {
            Profile::Quick => (phase::quick(args.load()), 2, 1),
            Profile::Reference => (phase::reference(args.size, args.keys), 5, 3),
            Profile::Cluster => (phase::cluster(args.size, args.keys), 5, 3),
        };
        let named = phase::select(phases, &args.phase);
        let mut phases = named.map_err(|text| Failure::arguments(text, "name some of these, or none for all"))?;
        if args.server.is_some() {
            // Nobody sees what another machine's process uses.
            phases.retain(|phase| phase.kind != Kind::Idle);
        }
        let seconds = u64::from(args.seconds.unwrap_or(seconds));
        let backlog = args.backlog.unwrap_or(BACKLOG_PER_S * seconds);
        let extent = Extent { length: Duration::from_secs(seconds), backlog };
        Ok(Self { phases, extent, runs: args.runs.unwrap_or(runs) })
    }

    async fn run(&self, args: &Args) -> Result<(), Failure> {
        let folder = tempfile::Builder::new().prefix("mortarmq-bench-").tempdir().map_err(|error| no_folder(&error))?;
        let targets = args.targets(folder.path())?;
        let mut rows = args.rows();
        let mut floors: Vec<DiskFloor> = Vec::new();
        let nodes = args.server.is_none().then(|| args.nodes());
        let mut results = vec![Results::of(nodes); self.phases.len()];
        for run in 0..self.runs {
            let is_last = run + 1 == self.runs;
            if args.has_floors() {
                let limit = self.extent.length.min(DISK_LIMIT);
                floors.push(measure_disk(folder.path(), limit).map_err(|error| no_folder(&error))?);
                if is_last {
                    let (phase, results) = report::disk(&floors);
                    rows.push(args.row(&phase, &results))?;
                }
            }
            for (index, phase) in self.phases.iter().enumerate() {
                self.measure(args, folder.path(), &targets, (run as usize, index), &mut results[index]).await?;
                if is_last {
                    rows.push(args.row(phase, &results[index]))?;
                }
            }
        }
        rows.finish()?;
        summary(&floors);
        Ok(())
    }

    /// One phase on each target. Another one begins each time, so that none always finds the machine as another left it.
    async fn measure(
        &self,
        args: &Args,
        folder: &Path,
        targets: &[Target],
        (run, index): (usize, usize),
        results: &mut Results,
    ) -> Result<(), Failure> {
        let phase = &self.phases[index];
        if phase.kind == Kind::Idle {
            let folder = folder.join(format!("idle-{run}"));
            std::fs::create_dir_all(&folder).map_err(|error| no_folder(&error))?;
            results.push(Side::Broker, measure::idle(&folder, args.nodes(), self.extent).await?);
            return Ok(());
        }
        for turn in 0..targets.len() {
            let target = &targets[(turn + run + index) % targets.len()];
            results.push(target.side, measure::run(target, topic_name(run, index), phase, self.extent).await?);
        }
        Ok(())
    }
}

impl Args {
    fn load(&self) -> Load {
        Load {
            producers: self.producers,
            lines: self.lines,
            outstanding: self.outstanding,
            batch: self.batch,
            consumers: self.consumers,
            credit: self.credit,
            value_bytes: self.size,
            keys: self.keys,
        }
    }

    /// What another machine's broker stands next to cannot be measured from here.
    fn has_floors(&self) -> bool {
        self.server.is_none() && !self.no_floors
    }

    fn targets(&self, folder: &Path) -> Result<Vec<Target>, Failure> {
        if let Some(server) = &self.server {
            let server = ServerArgs {
                server: server.clone(),
                token: self.token.clone(),
                tls: self.tls.clone(),
                ..ServerArgs::at("")
            };
            return Ok(vec![Target::running(server)]);
        }
        let sides: &[Side] = match self.no_floors {
            true => &[Side::Broker],
            false if self.nodes() == 1 => &[Side::Broker, Side::Echo, Side::Commit],
            false => &[Side::Broker, Side::Echo, Side::Commit, Side::Single],
        };
        sides.iter().map(|side| Target::start(*side, folder, self.nodes())).collect()
    }

    /// How many nodes a broker of our own has.
    fn nodes(&self) -> u16 {
        let by_profile = if self.profile == Profile::Cluster && self.server.is_none() { 3 } else { 1 };
        self.nodes.unwrap_or(by_profile)
    }

    fn rows(&self) -> Rows {
        let short = if self.nodes() == 1 { SHORT_COLUMNS } else { CLUSTER_COLUMNS };
        match self.is_short() {
            true if self.markdown => Rows::markdown(short),
            true => Rows::streamed(short, self.rows),
            false => Rows::streamed(COLUMNS, self.rows),
        }
    }

    fn row(&self, phase: &Phase, results: &Results) -> Vec<Cell> {
        match self.is_short() {
            true if self.nodes() == 1 => report::short(phase, results),
            true => report::short_of_several(phase, results),
            false => report::full(phase, results),
        }
    }

    /// Whether people read it: they want fewer columns, and units.
    fn is_short(&self) -> bool {
        self.markdown || (!self.rows.json && std::io::stdout().is_terminal())
    }
}

fn summary(floors: &[DiskFloor]) {
    let Some(last) = floors.last() else { return };
    let per_s = last.syncs as f64 / last.elapsed.as_secs_f64().max(f64::EPSILON);
    note(format_args!(
        "floor of this disk: {} writes of 4 KiB with fdatasync a second, p50 {} us",
        grouped(per_s.round() as u64),
        grouped(last.latency.quantile_us(0.5)),
    ));
}

/// Unlike any topic that somebody works with.
fn topic_name(run: usize, index: usize) -> String {
    format!("mortarmq-bench-{}-{run}-{index}", std::process::id())
}

fn no_folder(error: &std::io::Error) -> Failure {
    Failure::local(format!("the temporary folder cannot be used: {error}"), "set TMPDIR to a folder with free space")
}

/// Long enough for a stable figure.
const DISK_LIMIT: Duration = Duration::from_secs(2);
const BACKLOG_PER_S: u64 = 200_000;
