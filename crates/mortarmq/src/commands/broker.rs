//! `broker status`: which node answers, for how long it has been up, and with how many connections.

use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};

/// Ask a node about itself
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show node, uptime, connections and version
    Status(StatusArgs),
}

/// Arguments of `broker status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Deserialize)]
struct Broker {
    node_id: u64,
    uptime_s: u64,
    connections: u64,
    version: String,
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Status(args) => status(args),
    }
}

fn status(args: &StatusArgs) -> Result<(), Failure> {
    let broker: Broker = Admin::new(&args.admin)?.get(Route { path: &["v1", "broker"], query: &[] })?;
    let mut rows = Rows::listed(&["node_id", "uptime_s", "connections", "version"], args.rows);
    rows.push(vec![
        Cell::Number(broker.node_id),
        Cell::Number(broker.uptime_s),
        Cell::Number(broker.connections),
        Cell::Text(broker.version),
    ])?;
    rows.finish()
}
