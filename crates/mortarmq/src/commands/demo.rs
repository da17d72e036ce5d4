//! `demo`: publishes, consumes, kills a node in the middle, shows that nothing was lost and the books balance, and has what its
//! clients saw judged.
//!
//! It says what it does while it does it, on stderr; the rows of the balance and of a trace go to stdout.

mod history;
mod one;
mod three;

use std::time::Duration;

use tempfile::TempDir;

use crate::child_cluster::one_or_three;
use crate::errors::Failure;
use crate::output::RowArgs;
use crate::session;

/// Kill a node in the middle of its work and see that nothing is lost
///
/// Needs no arguments and less than a minute. Everything happens in a temporary folder, on free ports of this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Three nodes, of which the one that leads is killed; or one, that is killed and started again
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = one_or_three)]
    nodes: u16,
    /// Print one JSON object per row
    #[arg(long)]
    json: bool,
}

/// Runs it; exit code 1 when something is not as promised.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let rows = RowArgs { json: args.json, header: true };
    session::block_on(session::until_stopped(async {
        let folder = tempfile::Builder::new().prefix("mortarmq-demo-").tempdir().map_err(|error| {
            Failure::local(format!("no temporary folder: {error}"), "set TMPDIR to a folder with free space")
        })?;
        let limited = tokio::time::timeout(LIMIT, show(args.nodes, &folder, rows)).await;
        limited.unwrap_or_else(|_| Err(failed("it took longer than a minute")))
    }))
}

async fn show(nodes: u16, folder: &TempDir, rows: RowArgs) -> Result<(), Failure> {
    if nodes == 1 { one::demo(folder, rows).await } else { three::demo(folder, rows).await }
}

fn failed(what: &str) -> Failure {
    Failure::local(format!("the demonstration failed: {what}"), "this is a bug of MortarMQ: please report it")
}

/// More than three times what it takes on a slow disk.
const LIMIT: Duration = Duration::from_secs(55);
