//! `leader get`: who leads, under which epoch, with which quorum.

use serde::Deserialize;

use crate::admin::{Admin, AdminArgs, Route};
use crate::errors::Failure;
use crate::output::{Cell, RowArgs, Rows};

/// Ask who leads
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the leading node, its epoch and the state of the quorum
    Get(GetArgs),
}

/// Arguments of `leader get`.
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    rows: RowArgs,
}

#[derive(Deserialize)]
struct Leader {
    leader_id: Option<u64>,
    leader_epoch: u64,
    quorum_state: u64,
}

/// Carries out the subcommand.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Get(args) => get(args),
    }
}

fn get(args: &GetArgs) -> Result<(), Failure> {
    let leader: Leader = Admin::new(&args.admin)?.get(Route { path: &["v1", "cluster", "leader"], query: &[] })?;
    let mut rows = Rows::listed(&["leader_id", "leader_epoch", "quorum_state"], args.rows);
    rows.push(vec![
        Cell::number(leader.leader_id),
        Cell::Number(leader.leader_epoch),
        Cell::Number(leader.quorum_state),
    ])?;
    rows.finish()
}
