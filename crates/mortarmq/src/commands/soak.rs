//! `soak`: everything that clients and operators do, at once and badly, with a history for `check`.
//!
//! What its clients saw is recorded by the clients themselves; what the run promises, its faults, its counters and its end by
//! this command, with the same recorder and clock.

mod chance;
mod consume;
mod drain;
mod faults;
mod ground;
mod operate;
mod produce;

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinSet;

use self::chance::Chance;
use self::faults::Mortal;
use self::ground::{Ground, Phase};
use crate::admin::AdminArgs;
use crate::child_node::ChildNode;
use crate::errors::Failure;
use crate::output::{RowArgs, grouped, note};
use crate::session::{self, ServerArgs};

/// Work a broker hard, with consumers that die, and record a history of it
///
/// Producers and consumers of two groups: nacks, releases, renewals, late acks, leases that run out, dead letters and their
/// redrive, a purge. At the end everything is consumed and the books are compared. Without --server on a node of its own in a
/// temporary folder.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the history goes, packed as the name says (.zst, .gz, or plain); without it none is kept
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Kill the node (SIGKILL) again and again, and start it again
    #[arg(long, conflicts_with = "server")]
    kill: bool,
    /// How long the load lasts; emptying the paths comes on top
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=604_800))]
    seconds: u32,
    /// Messages a second of all producers together
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// What decides all choices of the load; drawn and printed if it is not given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Use this broker instead of a node of its own; its operators are asked at --admin
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = session::address)]
    server: Option<Vec<String>>,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

/// Runs it; exit code 1 when the books do not balance or something is left over.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    session::block_on(session::until_stopped(soak(args)))
}

async fn soak(args: &Args) -> Result<(), Failure> {
    let folder = tempfile::Builder::new().prefix("mortarmq-soak-").tempdir().map_err(|error| {
        Failure::local(format!("no temporary folder: {error}"), "set TMPDIR to a folder with free space")
    })?;
    let seed = args.seed.unwrap_or_else(Chance::draw_seed);
    note(format_args!("seed {seed}"));
    let (node, server, admin) = match &args.server {
        Some(server) => {
            let AdminArgs { token, tls, context, .. } = args.admin.clone();
            (None, ServerArgs { server: server.clone(), token, tls, context }, args.admin.clone())
        }
        None => {
            let node = ChildNode::start(&folder.path().join("data"))?;
            let at = (ServerArgs::at(&node.client), node.admin_args());
            (Some(node), at.0, at.1)
        }
    };
    let history = args.history.clone().unwrap_or_else(|| folder.path().join("history.jsonl.zst"));
    let ground = Ground::prepare(server, admin, &history, seed).await?;
    note(format_args!("load on {} for {} s, history in {}", ground.topic, args.seconds, history.display()));
    let limit = Duration::from_secs(u64::from(args.seconds));
    let killed = load(args, &ground, node, seed, limit).await;
    let result = match killed {
        // The node has to live until the paths are empty.
        Ok(_node) => drain::run(&ground, args.rows).await,
        Err(failure) => Err(failure),
    };
    ground.recorder.clone().finish().map_err(|error| {
        Failure::local(crate::errors::chain(&error), "look for free space; the history is not whole")
    })?;
    result
}

/// Everything at once, until the time is over and what was published is answered. Gives back the node, alive.
async fn load(
    args: &Args,
    ground: &Ground,
    node: Option<ChildNode>,
    seed: u64,
    limit: Duration,
) -> Result<Option<ChildNode>, Failure> {
    let mut chances = (0..).map(|number| Chance::new(seed.wrapping_add(number)));
    let mut chance = || chances.next().expect("numbers do not end");
    let mut workers = JoinSet::new();
    for style in consume::STYLES {
        workers.spawn(consume::run(ground.clone(), *style, chance()));
    }
    let mut producers = JoinSet::new();
    for number in 0..produce::PRODUCERS {
        producers.spawn(produce::run(ground.clone(), number, args.rate, chance()));
    }
    let scrapes = tokio::task::spawn_blocking({
        let ground = ground.clone();
        move || operate::scrape(&ground)
    });
    let mortals = Mortal::start_all(ground, chance());
    let operator = operate::run(ground.clone(), limit);
    let killer = faults::Killer::start(args.kill, node, ground, chance());

    let ends_early = async {
        while let Some(ended) = workers.join_next().await {
            ended.map_err(|error| failed(&error))??;
        }
        Ok::<(), Failure>(())
    };
    tokio::select! {
        // A worker that ends before it is told to has failed.
        ended = ends_early => ended?,
        () = async { tokio::join!(tokio::time::sleep(limit), operator); } => {}
    }
    let node = killer.stop().await?;
    note(format_args!("load is over after {}; consuming what is left", faults::told(node.kills)));
    ground.set_phase(Phase::Calm);
    while let Some(ended) = producers.join_next().await {
        let published = ended.map_err(|error| failed(&error))??;
        note(format_args!("a producer published {}", grouped(published)));
    }
    mortals.stop()?;
    drain::wait_until_empty(ground, &mut workers).await?;
    ground.set_phase(Phase::End);
    while let Some(ended) = workers.join_next().await {
        ended.map_err(|error| failed(&error))??;
    }
    scrapes.await.map_err(|error| failed(&error))?;
    Ok(node.node)
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::local(format!("the soak failed: {error}"), "this is a bug of MortarMQ: please report it with the history")
}
