//! `mortarmq-torture`: makes a cluster fail, and says whether it kept its word.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use mortarmq_torture::table::{self, Ended, Verdict};
use mortarmq_torture::{Chance, Class, Failure, Options, Scenario, measure, room, scenarios};

/// Real faults against three real nodes, judged by the checker
#[derive(Debug, Parser)]
#[command(version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the scenarios: what each does, and what must hold
    List {
        /// As the table of docs/torture.md
        #[arg(long)]
        markdown: bool,
    },
    /// Run scenarios; exit code 1 unless every verdict is OK
    Run(RunArgs),
    /// Kill the leader again and again under load: how long nobody is answered; exit code 1 unless the verdict is OK
    Failover(FailoverArgs),
}

#[derive(Debug, clap::Args)]
struct FailoverArgs {
    /// How often
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    kills: u32,
    #[command(flatten)]
    ground: GroundArgs,
}

/// How and where everything is run.
#[derive(Debug, clap::Args)]
struct GroundArgs {
    /// What decides all choices; drawn and printed if it is not given. Times are nobody's choice, so no run is quite repeated
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Keep everything of every run in this folder: histories, reports, logs, data. Without it, of those that failed
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// The broker; the one built beside this program unless given
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Stay outside of namespaces: scenarios that need them are skipped
    #[arg(long)]
    no_room: bool,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// The scenarios; all unless some are named or chosen
    scenarios: Vec<String>,
    /// Only those of a class
    #[arg(long, value_enum, conflicts_with = "scenarios")]
    class: Option<Class>,
    /// Only one of each class: a few minutes in all
    #[arg(long, conflicts_with = "scenarios")]
    short: bool,
    /// How often each is run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// A scenario that cannot be run here counts as failed
    #[arg(long)]
    strict_skips: bool,
    #[command(flatten)]
    ground: GroundArgs,
}

fn main() -> ExitCode {
    let told = match Cli::parse().command {
        Command::List { markdown } => {
            let all = scenarios::all();
            print!("{}", if markdown { table::markdown(&all) } else { table::list(&all) });
            Ok(true)
        }
        Command::Run(args) => run(&args),
        Command::Failover(args) => failover(&args),
    };
    match told {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was chosen; whether all of it is OK.
fn run(args: &RunArgs) -> Result<bool, String> {
    let chosen = chosen(args)?;
    let options = begin(&args.ground)?;
    let mut runs: Vec<Ended> = Vec::new();
    for scenario in &chosen {
        for round in 1..=args.rounds {
            let ended = mortarmq_torture::run(scenario, round, &options).map_err(|failure| failure.to_string())?;
            println!("{}", table::line(&ended, round, args.rounds));
            runs.push(ended);
        }
    }
    println!("\n{}", table::table(&runs).trim_end());
    Ok(runs.iter().all(|run| match run.verdict {
        Verdict::Ok => true,
        Verdict::Skipped(_) => !args.strict_skips,
        Verdict::Failed(_) | Verdict::KnownFailure(_, _) => false,
    }))
}

/// Kills the leader again and again; whether what the clients saw is OK.
fn failover(args: &FailoverArgs) -> Result<bool, String> {
    let options = begin(&args.ground)?;
    let found = measure::failovers(args.kills, &options).map_err(|failure| failure.to_string())?;
    println!("{}\n\n{}", table::line(&found.ended, 1, 1), found.table().trim_end());
    Ok(matches!(found.ended.verdict, Verdict::Ok))
}

/// Goes where nothing of it outlives the program, and says how everything is run.
fn begin(args: &GroundArgs) -> Result<Options, String> {
    let told = |failure: Failure| failure.to_string();
    if room::is_inside() {
        room::furnish().map_err(told)?;
    } else if !args.no_room {
        // In place of this process, if it can be.
        let why = room::enter().map_err(told)?;
        eprintln!("without namespaces: {why}");
    }
    mortarmq_torture::listen_for_stop().map_err(told)?;
    let seed = args.seed.unwrap_or_else(Chance::draw_seed);
    eprintln!("seed {seed}");
    Ok(Options { binary: binary(args)?, seed, keep: args.keep.clone() })
}

fn chosen(args: &RunArgs) -> Result<Vec<Scenario>, String> {
    let all = scenarios::all();
    if let Some(unknown) = args.scenarios.iter().find(|name| !all.iter().any(|known| known.name == **name)) {
        return Err(format!("there is no scenario {unknown}: see mortarmq-torture list"));
    }
    let is_chosen = |scenario: &Scenario| {
        (args.scenarios.is_empty() || args.scenarios.iter().any(|name| name == scenario.name))
            && args.class.is_none_or(|class| class == scenario.class)
            && (!args.short || scenario.is_short)
    };
    Ok(all.into_iter().filter(is_chosen).collect())
}

fn binary(args: &GroundArgs) -> Result<PathBuf, String> {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("mortarmq"),
    };
    if !binary.is_file() {
        let hint = "build it: cargo build -p mortarmq, or name it with --binary";
        return Err(format!("there is no broker at {}: {hint}", binary.display()));
    }
    // Nodes are started elsewhere.
    binary.canonicalize().map_err(|error| error.to_string())
}
