//! `sim`: the node's own code on simulated disks, clocks and connections.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mortarmq_sim::{Keep, Outcome, Plan, Tally, draw, play, schedule, shrink};

use mortarmq_types::{Mutant, mutants};

use crate::errors::Failure;
use crate::output::grouped;

/// Play the node's own code in a simulated world of faults: one seed decides everything, and does so again
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<SubCommand>,
    /// The seed of one life
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "replay"])]
    seed: Option<u64>,
    /// Many seeds: from the first to before the last, or that many from 1 on
    #[arg(long, value_name = "N..M", value_parser = range, conflicts_with = "replay")]
    seeds: Option<Range>,
    /// Play a schedule again; it fails if one of its faults finds no moment to strike
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Write what happened, line by line
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    trace: Option<PathBuf>,
    /// Write what the clients did and saw, for `mortarmq check`
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    history: Option<PathBuf>,
    /// Make what breaks a promise as small as it stays broken, and write it as a schedule
    #[arg(long, value_name = "FILE")]
    shrink: Option<PathBuf>,
    /// Plant a bug of this name; only in a build with the feature `mutants`
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Print what was met: faults, rare states, speed; it is a failure if a rare state was missed
    #[arg(long)]
    report: bool,
}

#[derive(Debug, clap::Subcommand)]
enum SubCommand {
    /// Show what a trace says around one event
    Explain {
        /// A file that `--trace` wrote
        file: PathBuf,
        /// The number of the event
        #[arg(long, value_name = "N")]
        at: u64,
    },
}

/// Seeds from the first to before the last.
#[derive(Clone, Copy, Debug)]
struct Range(u64, u64);

/// Plays; exit code 1 if a promise was broken.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(SubCommand::Explain { file, at }) = &args.command {
        return explain(file, *at);
    }
    std::panic::set_hook(Box::new(|panic| {
        let seed = PLAYED.load(Ordering::Relaxed);
        eprintln!("seed {seed}: {panic}\nplay it again: mortarmq sim --seed {seed}");
    }));
    if let Some(name) = &args.mutant {
        plant(name)?;
    }
    match (args.seeds, &args.replay) {
        (Some(range), _) => many(args, range),
        (None, Some(file)) => one(args, &read(file)?, true),
        (None, None) => one(args, &draw(args.seed.unwrap_or(1)), false),
    }
}

fn one(args: &Args, plan: &Plan, is_kept: bool) -> Result<(), Failure> {
    let begun = cpu_time();
    let outcome = played(plan, args.trace.is_some());
    if let (Some(file), Some(trace)) = (&args.trace, &outcome.trace) {
        write(file, trace.as_bytes())?;
    }
    if let Some(file) = &args.history {
        write(file, &outcome.history)?;
    }
    let mut out = std::io::stdout().lock();
    let seed = plan.settings.seed;
    writeln!(out, "seed {seed}  digest {:016x}  events {}", outcome.digest, grouped(outcome.events))
        .map_err(Failure::from_stdout)?;
    if args.report {
        let first_broken = outcome.failure.as_ref().map(|_| seed);
        report(
            &Met { tally: &outcome.tally, seeds: 1, simulated_us: outcome.simulated_us, begun, first_broken },
            args,
        )?;
    }
    if let Some(failure) = &outcome.failure {
        writeln!(out, "{failure}").map_err(Failure::from_stdout)?;
        drop(out);
        return broken(args, plan);
    }
    let anchored = |fault: &&mortarmq_sim::plan::Fault| matches!(fault.anchor, mortarmq_sim::plan::Anchor::Nth { .. });
    if is_kept && let Some(fault) = outcome.unreached.iter().find(anchored) {
        writeln!(out, "a fault found no moment to strike: {fault:?}").map_err(Failure::from_stdout)?;
        return Err(Failure::Verdict);
    }
    writeln!(out, "every promise held").map_err(Failure::from_stdout)
}

fn many(args: &Args, Range(first, end): Range) -> Result<(), Failure> {
    let begun = cpu_time();
    let (mut tally, mut simulated_us, mut failed, mut first_broken) = (Tally::default(), 0, 0_u64, None);
    for seed in first..end {
        let plan = draw(seed);
        let outcome = played(&plan, false);
        tally.add(&outcome.tally);
        simulated_us += outcome.simulated_us;
        if let Some(failure) = &outcome.failure {
            failed += 1;
            first_broken.get_or_insert(seed);
            let mut out = std::io::stdout().lock();
            let text: String = failure.lines().take(FAILURE_LINES).collect::<Vec<_>>().join("\n");
            writeln!(out, "seed {seed}: {text}\nplay it again: mortarmq sim --seed {seed}")
                .map_err(Failure::from_stdout)?;
            if args.shrink.is_some() {
                return broken(args, &plan);
            }
        }
    }
    let seeds = end.saturating_sub(first);
    let mut out = std::io::stdout().lock();
    let held = seeds - failed;
    writeln!(out, "{} seeds, {} held, {failed} broke a promise", grouped(seeds), grouped(held))
        .map_err(Failure::from_stdout)?;
    drop(out);
    let met = Met { tally: &tally, seeds, simulated_us, begun, first_broken };
    let missed = if args.report { report(&met, args)? } else { 0 };
    if failed + missed > 0 { Err(Failure::Verdict) } else { Ok(()) }
}

/// What one or many lives met.
struct Met<'a> {
    tally: &'a Tally,
    seeds: u64,
    simulated_us: u64,
    /// The processor's time when they began.
    begun: Duration,
    first_broken: Option<u64>,
}

/// Prints what was met; how many rare states were missed.
fn report(met: &Met<'_>, args: &Args) -> Result<u64, Failure> {
    let Met { tally, seeds, simulated_us, .. } = *met;
    let seconds = cpu_time().saturating_sub(met.begun).as_secs_f64().max(0.001);
    let per_second = |count: u64| grouped((count as f64 / seconds) as u64);
    let faults: u64 = tally.faults.values().sum();
    let mut lines = vec![
        format!("seeds            {}", grouped(seeds)),
        format!("processor        {seconds:.1} s; what follows is per second or hour of it"),
        format!(
            "simulated        {:.2} h, {:.1} h per hour",
            simulated_us as f64 / 3.6e9,
            simulated_us as f64 / 1e6 / seconds
        ),
        format!("operations       {}, {} per second", grouped(tally.operations), per_second(tally.operations)),
        format!("checked          {} times, every invariant", grouped(tally.checks)),
    ];
    lines.extend(failovers(tally));
    if let Some(name) = &args.mutant {
        let noticed =
            met.first_broken.map_or("not noticed".to_owned(), |seed| format!("noticed, first by seed {seed}"));
        lines.push(format!("planted bug      {name}: {noticed}"));
    }
    lines.push(format!("faults survived  {}, {} per second", grouped(faults), per_second(faults)));
    let some = tally.faults.iter().filter(|(_, count)| **count > 0);
    lines.extend(some.map(|(kind, count)| format!("  {kind:<36} {}", grouped(*count))));
    let refused: u64 = tally.refused.values().sum();
    lines.push(format!("faults refused   {}, {} per second", grouped(refused), per_second(refused)));
    lines.extend(tally.refused.iter().map(|(kind, count)| format!("  {kind:<36} {}", grouped(*count))));
    lines.push("faults at an operation of the disk".to_owned());
    lines.extend(tally.sites.iter().map(|(site, count)| format!("  at {:<33} {}", site.word(), grouped(*count))));
    lines.push("states reached".to_owned());
    lines.extend(tally.reached.iter().map(|(what, count)| format!("  {what:<36} {}", grouped(*count))));
    let missed = tally.missed();
    if seeds > 1 {
        lines.extend(missed.iter().map(|what| format!("missed: {what}")));
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", lines.join("\n")).map_err(Failure::from_stdout)?;
    Ok(if seeds > 1 { missed.len() as u64 } else { 0 })
}

/// How long it took until another led, of lives of several nodes.
fn failovers(tally: &Tally) -> Vec<String> {
    let line = |all: &[u64], links: &str| {
        let mut all = all.to_vec();
        all.sort_unstable();
        let (median, worst) = (all.get(all.len() / 2)?, all.last()?);
        Some(format!("failovers        {} {links}: {median} ms, at most {worst} ms", grouped(all.len() as u64)))
    };
    let carry = line(&tally.failovers_ms, "over links that carry");
    let lose = line(&tally.lossy_failovers_ms, "over links that lose one message in ten");
    carry.into_iter().chain(lose).collect()
}

/// A promise was broken: the plan is shrunk, if that was asked for.
fn broken(args: &Args, plan: &Plan) -> Result<(), Failure> {
    if let Some(file) = &args.shrink
        && let Some(shrunk) = shrink(plan, SHRINK_TRIES, &mut |plan| {
            eprintln!("{} steps, {} faults", plan.steps.len(), plan.faults.len());
        })
    {
        let first = shrunk.failure.lines().take(FAILURE_LINES).collect::<Vec<_>>().join("\n");
        let story = format!("seed {}, shrunk in {} tries\n{first}", plan.settings.seed, shrunk.tried);
        write(file, schedule::write(&shrunk.plan, &story).as_bytes())?;
    }
    Err(Failure::Verdict)
}

/// What this process has used of the processor: how fast it is does not depend on what else the machine does.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Plants a bug for as long as this process lives.
fn plant(name: &str) -> Result<(), Failure> {
    if !Mutant::ARE_BUILT {
        let remedy = "build one that does: cargo build --features mutants";
        return Err(Failure::arguments("this build holds no planted bugs", remedy));
    }
    let Some(mutant) = Mutant::named(name) else {
        let names: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        return Err(Failure::arguments(
            format!("there is no planted bug {name}"),
            format!("one of: {}", names.join(", ")),
        ));
    };
    mutants::choose(Some(mutant));
    Ok(())
}

fn explain(file: &Path, at: u64) -> Result<(), Failure> {
    let text = read_text(file)?;
    let first = usize::try_from(at.saturating_sub(AROUND + 1)).unwrap_or(usize::MAX);
    let mut out = std::io::stdout().lock();
    for line in text.lines().skip(first).take(2 * AROUND as usize + 1) {
        let is_it = line.split(' ').next() == Some(at.to_string().as_str());
        writeln!(out, "{} {line}", if is_it { '>' } else { ' ' }).map_err(Failure::from_stdout)?;
    }
    Ok(())
}

fn played(plan: &Plan, trace: bool) -> Outcome {
    PLAYED.store(plan.settings.seed, Ordering::Relaxed);
    play(plan, Keep { trace })
}

fn read(file: &Path) -> Result<Plan, Failure> {
    schedule::parse(&read_text(file)?).map_err(|error| {
        Failure::arguments(format!("{} is no schedule: {error}", file.display()), "give a file that --shrink wrote")
    })
}

fn read_text(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| {
        Failure::local(format!("cannot read {}: {error}", file.display()), "name a file that can be read")
    })
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(file, bytes).map_err(|error| {
        Failure::local(format!("cannot write {}: {error}", file.display()), "name a file that can be written")
    })
}

fn range(text: &str) -> Result<Range, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| "seeds are N..M, or a number of them".to_owned());
    let range = match text.split_once("..") {
        Some((first, end)) => Range(number(first)?, number(end)?),
        None => Range(1, number(text)?.saturating_add(1)),
    };
    if range.0 < range.1 { Ok(range) } else { Err("there is no seed in it".to_owned()) }
}

/// The seed that is played, for a panic.
static PLAYED: AtomicU64 = AtomicU64::new(0);
/// Lines of a failure that are shown where many seeds are played.
const FAILURE_LINES: usize = 60;
const SHRINK_TRIES: u64 = 3000;
/// Events that are shown before and after the one that is asked for.
const AROUND: u64 = 15;
